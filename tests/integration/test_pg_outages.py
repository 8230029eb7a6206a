"""A database that stops, freezes or fails over is a fault in bounded time, and is used again later."""

import asyncio
import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio

from dispatcher.container.contract import CONNECT_SECONDS
from dispatcher.model.errors import DatabaseAway, DatabaseError, DatabaseNotPrimary
from dispatcher.pg.connect import ANSWER_SECONDS, PING_SECONDS, PONG_SECONDS, Listener, Session
from dispatcher.pg.tasks import look
from dispatcher.runtime.clock import elapsed
from tests.controlplane.waiting import wait_for
from tests.integration.looking import ids, opened
from tests.rig.postgres import Database, PostgresServer, Standby, url_with

SLACK_SECONDS = 5


async def works(session: Session) -> bool:
    try:
        await ids(session)
    except DatabaseError:
        return False
    return True


async def seconds_until(session: Session, wanted: type[DatabaseError]) -> float:
    """Seconds until a look at the rows raised that fault."""
    began = time.monotonic()
    with pytest.raises(wanted):
        await ids(session)
    return time.monotonic() - began


def hosts(database: Database, *urls: str) -> str:
    """The reader's URL with the hosts of these URLs, in this order."""
    return url_with(database.url("reader"), host=",".join(urlsplit(url).netloc.rpartition("@")[2] for url in urls))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def standby(postgres: PostgresServer) -> AsyncIterator[Standby]:
    made = await postgres.start_standby()
    yield made
    await made.stop(immediately=True)


class UncheckedSession(Session):
    """A session that connected without asking whether the server is the primary."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        super().__init__(lambda: None)
        self._connection, self._opened_at = connection, elapsed()


@pytest.mark.fault(2)
@pytest.mark.museum("GC on replica row")
async def test_standby_is_refused_although_it_answers(database: Database, standby: Standby) -> None:
    task_id = await database.insert_task()
    await standby.caught_up()
    url = standby.url(database, "reader")
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT id FROM dispatch_private.tasks") == task_id
    for session in (Session(lambda: url), UncheckedSession(connection)):
        with pytest.raises(DatabaseNotPrimary, match="primary"):
            await ids(session)


@pytest.mark.fault(2)
async def test_primary_among_several_hosts_is_used(
    postgres: PostgresServer, database: Database, standby: Standby
) -> None:
    await standby.caught_up()
    url = hosts(database, standby.url(database), database.admin_url)
    async with opened(url) as session:
        assert await ids(session) == []
    await standby.stop()
    async with opened(url) as session:
        assert await ids(session) == []
    await standby.start()
    await postgres.stop()
    try:
        async with opened(hosts(database, database.admin_url, standby.url(database))) as session:
            await seconds_until(session, DatabaseAway)
        async with opened(hosts(database, standby.url(database), standby.url(database))) as session:
            await seconds_until(session, DatabaseNotPrimary)
    finally:
        await postgres.start()


@pytest.mark.slow
@pytest.mark.fault(2, 5)
async def test_promoted_standby_is_found_while_the_first_host_is_frozen(
    postgres: PostgresServer, database: Database
) -> None:
    """A dead machine refuses nothing. Its host uses up its own time limit, but not the limit of the next host."""
    successor, old = await postgres.start_standby(), await database.insert_task()
    await successor.caught_up()
    async with opened(hosts(database, database.admin_url, successor.url(database))) as session:
        await postgres.freeze()
        try:
            await successor.promote()
            assert await ids(session) == [old]
            team = await asyncpg.connect(successor.url(database, "team_a"))
            new = await team.fetchval("INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING id")
            await team.close()
            assert await ids(session) == [old, new]
        finally:
            postgres.thaw()
            await successor.stop(immediately=True)


@pytest.mark.slow
@pytest.mark.fault(2, 5)
async def test_connection_has_a_longest_life_and_never_goes_back_to_an_old_primary(
    postgres: PostgresServer, database: Database
) -> None:
    """The old primary lives on behind the address. Nothing but its timeline tells that it is the old one."""
    successor, old = await postgres.start_standby(), database.url("reader")
    new = successor.url(database, "reader")
    addresses = iter([old, old, new, old, new])
    session = Session(lambda: next(addresses), life_seconds=0)
    try:
        await successor.caught_up()
        await ids(session)
        await successor.promote()
        await ids(session)  # nobody has seen the new one
        await ids(session)
        with pytest.raises(DatabaseNotPrimary, match="timeline 1, and another one has been on 2"):
            await ids(session)
        await ids(session)
    finally:
        await session.close()
        await successor.stop(immediately=True)


@pytest.mark.slow
@pytest.mark.fault(2, 5)
async def test_next_host_is_used_while_the_first_is_an_old_primary(
    postgres: PostgresServer, database: Database
) -> None:
    successor = await postgres.start_standby()
    urls = iter([successor.url(database, "reader")])
    both = hosts(database, database.admin_url, successor.url(database))
    session = Session(lambda: next(urls, both), life_seconds=0)
    try:
        await successor.caught_up()
        await successor.promote()
        await ids(session)
        async with session.use() as connection:
            assert await connection.fetchval("SHOW port") == str(successor.postmaster.port)
    finally:
        await session.close()
        await successor.stop(immediately=True)


async def test_young_connection_is_kept(database: Database) -> None:
    async with opened(database.url("reader")) as session:
        async with session.use() as first:
            pid = first.get_server_pid()
        async with session.use() as second:
            assert second.get_server_pid() == pid


@pytest.mark.slow
@pytest.mark.fault(1)
async def test_stopped_server_is_a_fault_soon_and_used_again_later(
    postgres: PostgresServer, database: Database
) -> None:
    task_id = await database.insert_task()
    async with opened(database.url("reader")) as session:
        assert await ids(session) == [task_id]
        for immediately in (False, True):
            await postgres.stop(immediately=immediately)
            try:
                assert await seconds_until(session, DatabaseAway) < 2 + SLACK_SECONDS
            finally:
                await postgres.start()
            await wait_for(lambda: works(session), "rows again")
            assert await ids(session) == [task_id]


async def test_database_that_is_closed_for_a_maintenance_is_away(postgres: PostgresServer, database: Database) -> None:
    """Whoever waits for rows goes on. /readyz must not say that a version does not fit."""
    await postgres.execute(f'ALTER DATABASE "{database.name}" ALLOW_CONNECTIONS false')
    try:
        async with opened(database.url("reader")) as session:
            with pytest.raises(DatabaseAway, match="takes no connection now"):
                await ids(session)
    finally:
        await postgres.execute(f'ALTER DATABASE "{database.name}" ALLOW_CONNECTIONS true')


async def test_ended_session_is_replaced(database: Database) -> None:
    admin = await database.session("admin")
    ends = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'reader' AND datname = $1"
    async with opened(database.url("reader")) as session:
        for _ in range(3):
            await ids(session)
            assert await admin.fetchval(ends, database.name)
            await wait_for(lambda: works(session), "rows again")


@pytest.mark.slow
@pytest.mark.fault(5)
async def test_frozen_server_is_given_up_in_time(postgres: PostgresServer, database: Database) -> None:
    """Before a look, during a look, while connecting and while listening; all at once."""
    url, frozen, in_the_middle = database.url("reader"), asyncio.Event(), asyncio.Event()
    listener = Listener(lambda: url, lambda: None)
    listening = asyncio.create_task(listener.run())

    async def look_long(session: Session) -> float:
        async with look(session) as rows:
            in_the_middle.set()
            await frozen.wait()
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                await rows.tasks([1])
            raise DatabaseAway(str(time.monotonic() - began))

    async with opened(url) as idle, opened(url) as busy, opened(url) as new:
        await ids(idle)
        busy_look = asyncio.create_task(look_long(busy))
        await in_the_middle.wait()
        await wait_for(lambda: listener.is_listening, "LISTEN")
        await postgres.freeze()
        began = time.monotonic()
        try:
            frozen.set()
            before, connecting = await asyncio.gather(
                seconds_until(idle, DatabaseAway), seconds_until(new, DatabaseAway)
            )
            with pytest.raises(DatabaseAway):
                await busy_look
            middle = time.monotonic() - began
            await wait_for(lambda: not listener.is_listening, "the listener is deaf", PING_SECONDS + PONG_SECONDS)
        finally:
            postgres.thaw()
        assert before < ANSWER_SECONDS + SLACK_SECONDS
        assert middle < ANSWER_SECONDS + SLACK_SECONDS
        assert connecting < CONNECT_SECONDS + SLACK_SECONDS
        for session in (idle, busy, new):
            assert await ids(session) == []
        await wait_for(lambda: listener.is_listening, "LISTEN again", 15)
    listening.cancel()
