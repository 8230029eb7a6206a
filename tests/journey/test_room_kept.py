"""Room beside the nodes: quotas, probes that are taken back, and nodes that are claimed for a row that would starve."""

import pytest

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Place
from tests.rig.pools import CORE, a_pool, end_runs, has_waited, in_pool, pod_of_task
from tests.rig.steps import core_path, creates, held, insert, jobs_path, limit, reaches

UNPLACED = "dispatcher.internal/unplaced"


async def change_quota(place: Place, hard: dict[str, str]) -> None:
    path = core_path(place, "resourcequotas", "limit")
    await place.control_plane.admin("PATCH", path, {"spec": {"hard": hard}})


@pytest.mark.slow
@pytest.mark.parametrize(("name", "two", "four"), [("requests.cpu", "2", "4"), ("count/jobs.batch", "2", "4")])
async def test_rows_beyond_a_quota_wait_without_a_create_until_it_is_raised(
    place: Place, name: str, two: str, four: str
) -> None:
    async with a_pool(place, 2) as pool, place.playing():
        await limit(place, {name: two})
        async with in_pool(place) as dispatcher:
            await dispatcher.ready()
            await insert(place, 6, **CORE)
            await held(dispatcher, "QuotaExceeded", 4)
            await pool.stay(dispatcher, 2, 0)
            await change_quota(place, {name: four})
            await pool.stay(dispatcher, 4, 0)
            await held(dispatcher, "QuotaExceeded", 2)
            await change_quota(place, {name: "1"})
            await pool.stay(dispatcher, 4, 0)
    assert creates(place, 403) == []


async def set_cap(place: Place, max_jobs: int | None) -> None:
    operator = await place.database.connect("operator")
    await operator.execute("UPDATE dispatch.queues SET max_jobs = $1 WHERE name = 'default'", max_jobs)


@pytest.mark.slow
async def test_probe_of_a_queue_over_its_cap_is_taken_back_and_loses_nothing(place: Place) -> None:
    async with a_pool(place, 1) as pool, place.playing(), in_pool(place) as dispatcher:
        await insert(place, 5, **CORE)
        await pool.stay(dispatcher, 4, 1)
        await set_cap(place, 4)

        async def is_taken_back() -> list[Json]:
            jobs: list[Json] = (await pool.plane.admin("GET", jobs_path(place)))["items"]
            return [job for job in jobs if UNPLACED in job["metadata"].get("annotations", {})
                    and any(one["type"] == "Failed" for one in job["status"].get("conditions", ()))]  # fmt: skip

        taken: list[Json] = await wait_for(is_taken_back, "the Job of the probe has failed", 45, check=dispatcher.check)
        (job,) = taken
        assert await pool.pods() == (4, 0)
        await held(dispatcher, "QueueCap", seconds=60)
        await set_cap(place, None)
        await pool.add()
        row = int(job["metadata"]["labels"]["dispatcher.internal/task-id"])
        done = await reaches(place, dispatcher, row, "processing")
    assert (done["launch"], done["failures"], done["attempt"]) == (2, 0, 1)


@pytest.mark.slow
async def test_node_is_claimed_for_a_large_row_that_waited_for_ten_minutes(place: Place) -> None:
    """Small rows come first in their queue, and would take each core that becomes free."""
    async with a_pool(place, 1) as pool, place.playing(), in_pool(place) as dispatcher:
        rows = await insert(place, 4, **CORE)
        await pool.have(dispatcher, 4, 0)
        (large,) = await insert(place, 1, **{**CORE, "spec": {"cpu": "4"}, "env": {}})
        waiting = await pod_of_task(pool, large)
        await insert(place, 10, **{**CORE, "priority": 50})
        await pool.have(dispatcher, 4, 2)
        await has_waited(pool, waiting, 11)

        async def is_claimed() -> bool:
            return await pool.pods() == (4, 1)

        await wait_for(is_claimed, "the probe of a small row is taken back", 20, check=dispatcher.check)
        await end_runs(place, rows)
        done = await reaches(place, dispatcher, large, "succeeded", 60)
        assert (done["launch"], done["failures"]) == (1, 0)
        await held(dispatcher, "NoRoomNow", 5)  # the small rows follow: four run, and one waits as a probe
