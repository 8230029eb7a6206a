"""Two replicas: both plan, the leader writes. The follower takes over when the leader is killed, stopped or paused."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import pytest

from tests.controlplane.waiting import one_within, wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import held, insert, looks_again, succeeded

LEASE_SECONDS = 5


@asynccontextmanager
async def two(place: Place, **settings: object) -> AsyncIterator[tuple[Dispatcher, Dispatcher]]:
    """(leader, follower)"""
    settings = {"LEASE_SECONDS": LEASE_SECONDS, **settings}
    async with Dispatcher(place, **settings) as first:
        await wait_for(first.leads, "the first one leads", 20, check=first.check)
        async with Dispatcher(place, **settings) as second:
            await first.ready()
            await second.ready()
            yield first, second


async def first_job_after(place: Place, seconds: float) -> float:
    """Inserts a row and returns the seconds until its Job appeared."""
    began, before = time.monotonic(), len(await place.jobs())
    await place.database.insert_task()

    async def is_there() -> bool:
        return len(await place.jobs()) > before

    await wait_for(is_there, "a Job of the new row", seconds)
    return time.monotonic() - began


@pytest.mark.slow
async def test_two_replicas_are_ready_and_one_leads(place: Place) -> None:
    async with two(place) as (leader, other):
        assert await leader.leads()
        assert not await other.leads()
        await one_within(2, partial(first_job_after, place, 20))
        assert await leader.metric("dispatcher_job_creates_total") == len(await place.jobs())
        assert await other.metric("dispatcher_job_creates_total") == 0


@pytest.mark.slow
async def test_follower_gives_the_same_hold_reasons_as_the_leader(place: Place) -> None:
    async with two(place, MAX_JOBS=0) as (leader, other):
        await place.database.insert_task()
        for one in (leader, other):
            await wait_for(partial(tells, one, {"JobCap": 1}), "one row held for JobCap", 10, check=one.check)


async def tells(dispatcher: Dispatcher, reasons: dict[str, int]) -> bool:
    """Whether these are the reasons of the rows in queue default."""
    _, queue = await dispatcher.api("queues/default")
    return "reasons" in queue and queue["reasons"] == reasons


@pytest.mark.slow
async def test_leader_alone_exports_the_gauges_of_rows(place: Place) -> None:
    async with two(place, MAX_JOBS=0) as (leader, other):
        await place.database.insert_task()
        await held(leader, "JobCap", seconds=10)
        await looks_again(other, 1)
        for metric, value in (("dispatcher_waiting_tasks", 1), ("dispatcher_cycle_tasks", 1)):
            assert (await leader.metric(metric), await other.metric(metric)) == (value, 0)


@pytest.mark.promise
@pytest.mark.fault(29)
async def test_killed_leader_is_replaced_within_its_lease_plus_two_seconds(place: Place) -> None:
    async def trial() -> float:
        async with two(place) as (leader, other):
            await leader.kill()
            took = await first_job_after(place, 40)
            assert await other.leads()
            return took

    await one_within(LEASE_SECONDS + 2, trial)


@pytest.mark.slow
@pytest.mark.fault(36)
async def test_stopped_leader_is_replaced_within_two_seconds(place: Place) -> None:
    async def trial() -> float:
        async with two(place, LEASE_SECONDS=60) as (leader, other):
            stopping = asyncio.create_task(leader.stop())
            took = await first_job_after(place, 40)
            assert await stopping == 0
            assert await other.leads()
            return took

    await one_within(2, trial)


@pytest.mark.promise
@pytest.mark.fault(30, 31)
async def test_leader_paused_past_its_lease_writes_nothing_afterwards(place: Place) -> None:
    async with two(place, MAX_JOBS=3) as (leader, other), place.playing() as player:
        leader.process.send_signal(signal.SIGSTOP)
        await place.database.insert_task()
        await wait_for(other.leads, "the other one leads", 20, check=other.check)
        woken_at = datetime.now(UTC)
        leader.process.send_signal(signal.SIGCONT)
        await insert(place, 20)
        await succeeded(place, other, 21, 60)
        assert await leader.metric("dispatcher_job_creates_total") == 0
        assert not await leader.leads()
        creates = place.control_plane.audit(verb="create", resource="jobs", namespace=place.namespace)
        assert sum(event.stage_at >= woken_at for event in creates) >= 20
        assert not player.faults
