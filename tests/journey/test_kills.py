"""`kill -9` at any moment changes no outcome."""

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime

import pytest

from tests.controlplane.api import Json
from tests.controlplane.waiting import moment, wait_for
from tests.dispatching import Dispatcher, Place

ROWS = 300
KILLS = 30
CAP = 24
RATE = 5  # at most ten creates at once, so that three hundred rows last for thirty kills


class JobCount:
    """Counts Jobs in the order of the API server's changes.

    names: the name by uid.
    most: the highest number of unfinished Jobs at once.
    """

    def __init__(self, place: Place) -> None:
        self.most = 0
        self.names: dict[str, str] = {}
        self._place = place
        self._unfinished: set[str] = set()
        self._news = asyncio.Event()

    async def run(self) -> None:
        path = f"/apis/batch/v1/namespaces/{self._place.namespace}/jobs"
        async for change in self._place.control_plane.api.follow(path):
            for job in change.objects:
                self._count(job, is_gone=change.type == "DELETED")

    async def next_create(self) -> None:
        self._news.clear()
        async with asyncio.timeout(30):
            await self._news.wait()

    def _count(self, job: Json, *, is_gone: bool) -> None:
        uid, conditions = job["metadata"]["uid"], job.get("status", {}).get("conditions", [])
        is_over = any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)
        if uid not in self.names:
            self.names[uid] = job["metadata"]["name"]
            self._news.set()
        if is_gone or is_over:
            self._unfinished.discard(uid)
        else:
            self._unfinished.add(uid)
        self.most = max(self.most, len(self._unfinished))


@pytest.mark.fault(29)
async def test_thirty_kills_during_writes_change_no_outcome(place: Place) -> None:
    for _ in range(ROWS):
        await place.database.insert_task()
    job_count = JobCount(place)
    watching = asyncio.create_task(job_count.run())
    kills = hits = 0
    async with place.playing() as player:
        while hits < KILLS:
            kills += 1
            hits += await kill_amid_writes(place, job_count, random.Random(kills))
        async with Dispatcher(place, MAX_JOBS=CAP, TOMBSTONE_SECONDS=1) as dispatcher:

            async def all_over() -> bool:
                return not await place.rows("status <> 'succeeded'") and not await place.jobs()

            await wait_for(all_over, "every row succeeded and every Job is gone", 90, check=dispatcher.check)
    watching.cancel()
    assert not player.faults
    await check_history(place, job_count)


async def kill_amid_writes(place: Place, job_count: JobCount, chance: random.Random) -> bool:
    """Starts a dispatcher and kills it while the API server is frozen. True if a create was answered after the kill."""
    plane = place.control_plane
    if len(job_count.names) + 2 * RATE > len(await place.rows()):
        await asyncio.gather(*(place.database.insert_task() for _ in range(2 * RATE)))
    dispatcher = Dispatcher(place, MAX_JOBS=CAP, TOMBSTONE_SECONDS=0, KUBE_WRITES_PER_SECOND=RATE)
    await dispatcher.start()
    await job_count.next_create()
    plane.pause()
    await moment(chance.uniform(0, 0.02))
    await dispatcher.kill()
    killed_at = datetime.now(UTC)
    plane.resume()
    await place.end_term()

    def late() -> bool:
        creates = plane.audit(verb="create", resource="jobs", namespace=place.namespace)
        return any(event.stage_at > killed_at for event in creates)

    try:
        return await wait_for(late, "a create answered after its sender's death", 2)
    except TimeoutError:
        return False


async def check_history(place: Place, job_count: JobCount) -> None:
    """One started launch per attempt, one Job per launch, and never more Jobs than the cap."""
    admin = await place.database.session("admin")
    launches = await admin.fetch("SELECT task_id, attempt, count(*) AS n FROM dispatch.task_launches GROUP BY 1, 2")
    rows = await place.rows()
    assert len(rows) >= ROWS
    assert {row["task_id"] for row in launches} == {row["id"] for row in rows}
    assert {row["n"] for row in launches} == {1}
    assert {row["attempt"] for row in rows} == {1}
    assert max(Counter(job_count.names.values()).values()) == 1
    assert len(job_count.names) == len(rows)
    assert 0 < job_count.most <= CAP
