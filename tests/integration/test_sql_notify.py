"""Wake-ups: soon, few, and without payload. They only save time; polling finds what they miss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.rig.postgres import Database
from tests.rig.rows import Row, insert_row

BOUND_SECONDS = 5
DEBOUNCE_SECONDS = 0.1
BURST_SECONDS = 1


class Heard(NamedTuple):
    """A notification. `at`: the time of the event loop."""

    channel: str
    payload: str
    at: float


class Listener:
    """The notifications that one connection got on both channels."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self._arrived = asyncio.Event()

    def __call__(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        self.heard.append(Heard(channel, str(payload), asyncio.get_running_loop().time()))
        self._arrived.set()

    async def hears(self, channel: str, within: float = BOUND_SECONDS) -> bool:
        try:
            async with asyncio.timeout(within):
                while channel not in [one.channel for one in self.heard]:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    async def hears_after(self, channel: str, call: Callable[[], Awaitable[object]]) -> bool:
        """Repeats the call until a wake-up comes; an earlier wake-up may hold back the next one."""
        for _ in range(int(BOUND_SECONDS / DEBOUNCE_SECONDS)):
            self.heard.clear()
            await call()
            if await self.hears(channel, within=2 * DEBOUNCE_SECONDS):
                return True
        return False


@pytest_asyncio.fixture(loop_scope="session")
async def listener(database: Database) -> AsyncIterator[Listener]:
    created = Listener()
    connection = await database.connect("reader")
    for channel in ("dispatch_tasks", "dispatch_done"):
        await connection.add_listener(channel, created)
    yield created
    for channel in ("dispatch_tasks", "dispatch_done"):
        await connection.remove_listener(channel, created)


async def test_an_insert_wakes_the_dispatcher(database: Database, listener: Listener) -> None:
    await insert_row(database)
    assert await listener.hears("dispatch_tasks")
    assert not await listener.hears("dispatch_done", within=0)


async def test_a_wake_up_has_no_payload(database: Database, listener: Listener) -> None:
    await (await insert_row(database)).cancel()
    await listener.hears("dispatch_tasks")
    await listener.hears("dispatch_done")
    assert {one.payload for one in listener.heard} == {""}


async def test_one_statement_is_one_wake_up(database: Database, listener: Listener) -> None:
    team = await database.session("team_a")
    await team.execute("INSERT INTO dispatch.tasks (priority) SELECT 5 FROM generate_series(1, 500)")
    assert await listener.hears("dispatch_tasks")
    await listener.hears("dispatch_tasks", within=0)
    assert len(listener.heard) == 1


async def test_burst_of_commits_wakes_at_most_ten_times_a_second(database: Database, listener: Listener) -> None:
    """Backends that commit at the same moment read the same time of the last wake-up, so each may wake once."""
    teams, clock = [await database.connect("team_a") for _ in range(3)], asyncio.get_running_loop().time
    began = clock()
    while clock() - began < BURST_SECONDS:
        await asyncio.gather(*(team.execute("INSERT INTO dispatch.tasks DEFAULT VALUES") for team in teams))
    lasted = clock() - began

    assert await listener.hears("dispatch_tasks")
    await (await database.connect("reader")).execute("SELECT 1")
    moments = [one.at for one in listener.heard]
    groups = 1 + sum(later - earlier >= DEBOUNCE_SECONDS / 2 for earlier, later in pairwise(moments))
    assert groups <= lasted / DEBOUNCE_SECONDS + 2
    assert len(moments) <= len(teams) * groups


async def test_an_insert_that_is_rolled_back_wakes_nobody(database: Database, listener: Listener) -> None:
    team = await database.session("team_a")
    transaction = team.transaction()
    await transaction.start()
    await team.execute("INSERT INTO dispatch.tasks DEFAULT VALUES")
    await transaction.rollback()
    assert not await listener.hears("dispatch_tasks", within=2 * DEBOUNCE_SECONDS)


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
async def test_end_of_a_row_is_notified(database: Database, listener: Listener, outcome: str) -> None:
    row = await insert_row(database)
    await row.finish(await row.started(), outcome)
    assert await listener.hears("dispatch_done")


async def test_cancel_of_a_row_is_notified(database: Database, listener: Listener) -> None:
    await (await insert_row(database)).cancel()
    assert await listener.hears("dispatch_done")


async def test_start_of_a_row_is_not_notified(database: Database, listener: Listener) -> None:
    row = await insert_row(database)
    await listener.hears("dispatch_tasks")
    listener.heard.clear()
    await row.heartbeat(await row.started())
    assert not await listener.hears("dispatch_done", within=2 * DEBOUNCE_SECONDS)
    assert listener.heard == []


async def test_a_retry_by_the_submitter_wakes_the_dispatcher(database: Database, listener: Listener) -> None:
    row = await insert_row(database)
    assert await listener.hears_after("dispatch_tasks", row.retry)


async def test_a_retry_by_the_container_wakes_the_dispatcher(database: Database, listener: Listener) -> None:
    """Its run_at is in the future, and the dispatcher must learn of the new timer."""
    row = await insert_row(database, max_failures=100)
    assert await listener.hears_after("dispatch_tasks", lambda: report_retry(row))


async def report_retry(row: Row) -> None:
    attempt = (await row.now())["attempt"]
    await row.finish(await row.started(attempt=attempt), "retry")
