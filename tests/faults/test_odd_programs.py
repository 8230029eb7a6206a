"""A wrong clock, a blocked event loop, repeated kills: they delay work, and nothing goes wrong."""

import signal
import sys
from datetime import UTC, datetime, timedelta

import pytest

from tests.controlplane.waiting import wait_for
from tests.faults.odd_program import BLOCK_SECONDS
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import has_jobs, insert, looks_again, made_twice, no_jobs, succeeded

HOUR = 3600
BACKLOG = 100_000
MOST_BYTES = 256 << 20
FILL = """
INSERT INTO dispatch_private.tasks (queue, kind, submitted_by)
SELECT queue, kind, submitted_by FROM dispatch.tasks, generate_series(1, $1::int)
"""


def odd(place: Place, off_seconds: float = 0, **settings: object) -> Dispatcher:
    dispatcher = Dispatcher(place, **settings)
    dispatcher.program = (sys.executable, "-m", "tests.faults.odd_program", str(off_seconds))
    return dispatcher


async def renew_time(place: Place) -> datetime:
    """`renewTime` of the lease: the only place where the leader writes its own wall clock."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{place.namespace}/leases"
    (lease,) = (await place.control_plane.admin("GET", leases))["items"]
    return datetime.fromisoformat(lease["spec"]["renewTime"])


@pytest.mark.slow
@pytest.mark.fault(33)
@pytest.mark.parametrize("off", [-HOUR, HOUR], ids=["slow", "fast"])
async def test_clock_an_hour_off_changes_neither_run_at_nor_tombstones(place: Place, off: int) -> None:
    team = await place.database.connect("team_a")
    async with place.playing(), odd(place, off, TOMBSTONE_SECONDS=HOUR // 2) as dispatcher:
        await dispatcher.ready()
        soon = "INSERT INTO dispatch.tasks (run_at) VALUES (now() + interval '3 s') RETURNING id"
        task_id = await team.fetchval(soon)
        await succeeded(place, dispatcher, 1)
        row = await place.database.task(task_id)
        assert timedelta(0) <= row["started_at"] - row["run_at"] < timedelta(seconds=20)
        assert abs(await renew_time(place) - datetime.now(UTC) - timedelta(seconds=off)) < timedelta(minutes=1)
        await looks_again(dispatcher, 10)
        assert len(await place.jobs()) == 1
        await dispatcher.stop()
    async with odd(place, off, TOMBSTONE_SECONDS=1) as dispatcher:
        await no_jobs(place, dispatcher)


@pytest.mark.slow
@pytest.mark.fault(33)
async def test_replica_with_a_fast_clock_does_not_take_a_held_lease(place: Place) -> None:
    async with Dispatcher(place) as leader:
        await wait_for(leader.leads, "the first one leads", 20, check=leader.check)
        async with odd(place, HOUR) as other:
            await other.ready()
            await looks_again(other, 10)
            assert await leader.leads()
            assert not await other.leads()
            await leader.kill()
            await wait_for(other.leads, "the other one leads", 20, check=other.check)


@pytest.mark.slow
@pytest.mark.fault(32)
async def test_leader_with_a_blocked_loop_loses_its_lease_and_writes_nothing(place: Place) -> None:
    async with place.playing() as player, odd(place) as leader:
        await wait_for(leader.leads, "the first one leads", 20, check=leader.check)
        async with Dispatcher(place, MAX_JOBS=5) as other:  # started second, so that it does not win the lease
            await other.ready()
            leader.process.send_signal(signal.SIGUSR1)
            await insert(place, 3)
            await wait_for(other.leads, "the other one leads", BLOCK_SECONDS + 20, check=other.check)
            await insert(place, 20)
            await succeeded(place, other, 23)
            await leader.ready()
            assert await leader.metric("dispatcher_job_creates_total") == 0
            assert (await leader.get("/healthz"))[0] == 200
            assert not await leader.leads()
    assert len(player.runs) == 23
    assert made_twice(place) == []


@pytest.mark.slow
@pytest.mark.fault(10, 35)
async def test_dispatcher_killed_five_times_makes_progress_in_flat_memory(place: Place) -> None:
    await insert(place, 1)
    admin = await place.database.session("admin")
    async with admin.transaction():
        await admin.execute("SET LOCAL session_replication_role = replica")  # without triggers, for speed
        await admin.execute(FILL, BACKLOG)
    sizes: list[float] = []
    for life in range(1, 6):
        dispatcher = Dispatcher(place, MAX_JOBS=10 * life)
        await dispatcher.start()
        await has_jobs(place, dispatcher, 10 * life, 60)
        sizes.append(await dispatcher.metric("process_resident_memory_bytes"))
        await dispatcher.kill()
        await place.end_term()
    assert max(sizes) < MOST_BYTES, sizes
    assert max(sizes) < 1.25 * min(sizes), sizes
    assert made_twice(place) == []
    assert len(await place.jobs()) == 50
