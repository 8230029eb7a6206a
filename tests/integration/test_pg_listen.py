"""LISTEN: it wakes the dispatcher, reports truly whether it listens, and reconnects after any end of its connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest_asyncio

from dispatcher.pg.connect import Listener
from tests.controlplane.waiting import wait_for
from tests.rig.postgres import Database, PostgresServer
from tests.rig.rows import insert_row

BACKENDS = "FROM pg_stat_activity WHERE application_name = 'dispatcher/listen' AND datname = $1"


class Woken:
    """Counts wake-ups.

    was_listening: for each wake-up, whether the listener was listening; it is kept if `listener` is set.
    """

    def __init__(self) -> None:
        self.times = 0
        self.listener: Listener | None = None
        self.was_listening: list[bool] = []

    def __call__(self) -> None:
        self.times += 1
        if self.listener is not None:
            self.was_listening.append(self.listener.is_listening)

    async def by(self, call: Callable[[], Awaitable[object]]) -> None:
        """Repeats the call until it wakes; an earlier wake-up of the database may hold back the next one."""

        async def is_heard() -> bool:
            before = self.times
            await call()
            try:
                await wait_for(lambda: self.times > before, "a wake-up", 0.3)
            except TimeoutError:
                return False
            return True

        await wait_for(is_heard, "the call wakes")


@pytest_asyncio.fixture(loop_scope="session")
async def woken() -> Woken:
    return Woken()


@asynccontextmanager
async def listening(database: Database, woken: Woken, login: str = "reader") -> AsyncIterator[Listener]:
    listener = Listener(lambda: database.url(login), woken)
    assert not listener.is_listening
    running = asyncio.create_task(listener.run())
    try:
        yield listener
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert not listener.is_listening


async def hears(listener: Listener) -> None:
    await wait_for(lambda: listener.is_listening, "LISTEN")


async def test_listener_wakes_at_its_start_and_at_every_insert(database: Database, woken: Woken) -> None:
    async with listening(database, woken) as listener:
        await hears(listener)
        assert woken.times == 1  # earlier changes are not repeated
        await woken.by(lambda: insert_row(database))


async def test_listener_wakes_at_the_end_of_a_row(database: Database, woken: Woken) -> None:
    async with listening(database, woken) as listener:
        await hears(listener)
        await woken.by(lambda: cancel_a_row(database))


async def cancel_a_row(database: Database) -> None:
    await (await insert_row(database)).cancel()


async def test_listener_has_a_connection_of_its_own_and_closes_it(database: Database, woken: Woken) -> None:
    admin = await database.session("admin")

    async def backends() -> int:
        return int(await admin.fetchval(f"SELECT count(*) {BACKENDS}", database.name))

    async def none() -> bool:
        return await backends() == 0

    async with listening(database, woken) as listener:
        await hears(listener)
        assert await backends() == 1
    await wait_for(none, "the backend is gone")


async def test_listener_reconnects_and_wakes_after_the_end_of_its_backend(database: Database, woken: Woken) -> None:
    admin = await database.session("admin")
    async with listening(database, woken) as listener:
        await hears(listener)
        woken.listener = listener
        for _ in range(3):
            woken.was_listening.clear()
            assert await admin.fetchval(f"SELECT pg_terminate_backend(pid, 10000) {BACKENDS}", database.name)
            await wait_for(lambda: len(woken.was_listening) >= 2, "wake-ups at the loss and at the return")
            assert woken.was_listening == [False, True]
            assert listener.is_listening
        await woken.by(lambda: insert_row(database))


async def test_listener_reconnects_after_an_outage_of_the_server(
    postgres: PostgresServer, database: Database, woken: Woken
) -> None:
    async with listening(database, woken) as listener:
        await hears(listener)
        for immediately in (False, True):
            await postgres.stop(immediately=immediately)
            try:
                await wait_for(lambda: not listener.is_listening, "the listener reports that it is deaf")
            finally:
                await postgres.start()
            await hears(listener)
            await woken.by(lambda: insert_row(database))


async def test_listener_waits_for_a_database_that_refuses_it(database: Database, woken: Woken) -> None:
    admin = await database.session("admin")
    grants = 'CONNECT ON DATABASE "{}" {} PUBLIC, dispatch_reader'
    await admin.execute("REVOKE " + grants.format(database.name, "FROM"))
    refused = asyncio.Event()

    def url() -> str:
        refused.set()
        return database.url("reader")

    listener = Listener(url, woken)
    running = asyncio.create_task(listener.run())
    await refused.wait()
    assert (listener.is_listening, woken.times) == (False, 0)
    await admin.execute("GRANT " + grants.format(database.name, "TO"))
    await hears(listener)
    running.cancel()
