"""Caps hold rows. Pending Pods hold rows of their shape, or all rows. Other rows go on."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import has_jobs, held, insert, looks_again, reaches

HUGE = {"cpu": "500", "memory": "16Mi"}


async def queue_jobs(place: Place) -> dict[str, int]:
    """Number of Jobs by queue."""
    counts: dict[str, int] = {}
    jobs: list[dict[str, Any]] = await place.jobs()
    for job in jobs:
        name = job["metadata"]["labels"]["dispatcher.internal/queue"]
        counts[name] = counts.get(name, 0) + 1
    return counts


@pytest.mark.promise
@pytest.mark.fault(59)
async def test_caps_of_queue_submitter_and_installation_hold_together(place: Place) -> None:
    operator = await place.database.connect("operator")
    await operator.execute("INSERT INTO dispatch.queues (name, max_jobs) VALUES ('narrow', 2), ('wide', NULL)")
    await operator.execute("INSERT INTO dispatch.queues (name, max_jobs_per_submitter) VALUES ('shared', 1)")
    async with place.playing(), Dispatcher(place, MAX_JOBS=8) as dispatcher:
        for login in ("team_a", "team_b"):
            for _ in range(3):
                await place.database.insert_task(login, queue="shared", priority=1, env={"PLAY": "hang"})
        await insert(place, 4, queue="narrow", priority=2, env={"PLAY": "hang"})
        await insert(place, 6, queue="wide", priority=3, env={"PLAY": "hang"})
        await held(dispatcher, "JobCap", 2, 30, queue="wide")

        async def are_there() -> bool:  # creates of the same cycle may still be under way
            return await queue_jobs(place) == {"shared": 2, "narrow": 2, "wide": 4}

        await wait_for(are_there, "as many Jobs as the caps allow, of each queue", 20, check=dispatcher.check)
        await held(dispatcher, "JobCap", 2, 30, queue="wide")


async def are_stuck(place: Place, count: int) -> bool:
    """Whether `count` Pods have been Unschedulable for two seconds, by the times that the cluster wrote."""
    pods = (await place.control_plane.admin("GET", f"/api/v1/namespaces/{place.namespace}/pods"))["items"]
    conditions = [condition for pod in pods for condition in pod["status"].get("conditions", [])]
    since = [datetime.fromisoformat(c["lastTransitionTime"]) for c in conditions if c.get("reason") == "Unschedulable"]
    return sum((datetime.now(UTC) - at).total_seconds() > 2 for at in since) == count


@pytest.mark.slow
@pytest.mark.fault(41)
async def test_pods_that_only_wait_give_way_if_room_is_not_judged(place: Place) -> None:
    """A team whose rows fit nowhere has all places of MAX_JOBS. The rows of another team run."""
    place.template("open", row_may_set="env,cpu,memory", max_cpu="1000", max_memory="1Gi")
    async with place.playing(), Dispatcher(place, MAX_JOBS=3, CHECK_ROOM="false") as dispatcher:
        await insert(place, 10, template="open", spec=HUGE, priority=1)
        await wait_for(lambda: are_stuck(place, 3), "three Pods that fit nowhere", 20, check=dispatcher.check)
        small = [await place.database.insert_task(template="open", spec={"cpu": "20m"}, priority=900) for _ in "abcde"]
        for task_id in small:
            await reaches(place, dispatcher, task_id, "succeeded", 60)  # the Pod collector looks each 20 s


@pytest.mark.slow
@pytest.mark.fault(41)
async def test_shape_with_stuck_pods_is_held_if_room_is_not_judged(place: Place) -> None:
    place.template("open", row_may_set="env,cpu,memory", max_cpu="1000", max_memory="1Gi")
    settings = {"MAX_PENDING": 1, "PENDING_GRACE_SECONDS": 0.5, "CHECK_ROOM": "false"}
    async with place.playing(), Dispatcher(place, **settings) as dispatcher:
        await insert(place, 2, template="open", spec=HUGE)
        await wait_for(lambda: are_stuck(place, 2), "two Pods that fit nowhere", 20, check=dispatcher.check)
        await insert(place, 3, template="open", spec=HUGE, priority=1)
        small = await place.database.insert_task(template="open", spec={"cpu": "20m"}, priority=900)
        await reaches(place, dispatcher, small, "succeeded")
        await held(dispatcher, "PendingPods", 3, 30)


@pytest.mark.slow
async def test_pod_that_fits_nowhere_gives_the_only_place_of_mode_any_back(place: Place) -> None:
    place.template("open", row_may_set="env,cpu,memory", max_cpu="1000", max_memory="1Gi")
    async with place.playing(), Dispatcher(place, PENDING_MODE="any", PENDING_GRACE_SECONDS=1) as dispatcher:
        await dispatcher.ready()
        await place.database.insert_task(template="open", spec=HUGE)
        await wait_for(lambda: are_stuck(place, 1), "a Pod that fits nowhere", 20, check=dispatcher.check)
        small = await place.database.insert_task(template="open", spec={"cpu": "20m"}, priority=900)
        await reaches(place, dispatcher, small, "succeeded")


async def test_paused_queue_waits_and_other_queues_run(place: Place) -> None:
    operator = await place.database.connect("operator")
    await operator.execute("INSERT INTO dispatch.queues (name, paused_until) VALUES ('night', 'infinity')")
    async with place.playing(), Dispatcher(place) as dispatcher:
        await place.database.insert_task(queue="night")
        await place.database.insert_task()
        await has_jobs(place, dispatcher, 1)
        await looks_again(dispatcher)
        assert await queue_jobs(place) == {"default": 1}
        await operator.execute("UPDATE dispatch.queues SET paused_until = NULL WHERE name = 'night'")
        await has_jobs(place, dispatcher, 2)
        assert await queue_jobs(place) == {"default": 1, "night": 1}


@pytest.mark.slow
async def test_row_with_run_at_starts_then_and_not_before(place: Place) -> None:
    # The poll is so long that only the timer of the next due row can start the row in time.
    async with place.playing() as player, Dispatcher(place, POLL_SECONDS=60) as dispatcher:
        await dispatcher.ready()
        team = await place.database.connect("team_a")
        task_id = await team.fetchval(
            "INSERT INTO dispatch.tasks (run_at) VALUES (now() + interval '3 s') RETURNING id"
        )
        run = await wait_for(lambda: player.runs_of(task_id), "it runs", 20, check=dispatcher.check)
        assert run
        row = await place.database.task(task_id)
        assert row["started_at"] >= row["run_at"]
        assert (row["started_at"] - row["run_at"]).total_seconds() < 20, "far below the poll"
