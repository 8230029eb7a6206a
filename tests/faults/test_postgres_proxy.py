"""Each fault of the Postgres proxy on a real server: the client's view, what was committed, and the hits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.controlplane.waiting import wait_for
from tests.faults import postgres_verbs as verbs
from tests.faults.postgres_frames import Frame
from tests.faults.postgres_proxy import PostgresProxy, connects, runs, syncs
from tests.faults.rules import Gate, nth
from tests.rig.postgres import Connection, Database, connect

LOST = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError, ConnectionError)
VERSION_3 = b"\0\3\0\0"
OTHERS_AT_WORK = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
   AND wait_event IS DISTINCT FROM 'ClientRead'
"""
ADD = "INSERT INTO dispatch.queues (name) VALUES ($1)"


@asynccontextmanager
async def connected(proxy: PostgresProxy, database: Database, login: str = "admin") -> AsyncIterator[Connection]:
    connection = await connect(proxy.url(database.url(login)))
    try:
        yield connection
    finally:
        connection.terminate()


async def queues(database: Database) -> set[str]:
    """Committed queues, read without the proxy once no other session is busy."""
    admin = await database.session("admin")

    async def is_quiet() -> bool:
        return not await admin.fetchval(OTHERS_AT_WORK)

    await wait_for(is_quiet, "no statement runs")
    return {row["name"] for row in await admin.fetch("SELECT name FROM dispatch.queues")} - {"*", "default"}


async def test_proxy_without_rules_passes_and_counts_statements(
    postgres_proxy: PostgresProxy, database: Database
) -> None:
    async with connected(postgres_proxy, database) as connection:
        before = postgres_proxy.statements, postgres_proxy.commits
        await connection.execute(ADD, "a")
        await connection.execute("SELECT 1; SELECT 2")
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute(ADD, "a")
        async with connection.transaction():
            await connection.execute(ADD, "b")
    assert await queues(database) == {"a", "b"}
    # Three commits: an INSERT, a simple query, and a transaction of three statements.
    assert (postgres_proxy.statements - before[0], postgres_proxy.commits - before[1]) == (6, 3)


async def test_megabytes_pass_unchanged_both_ways(postgres_proxy: PostgresProxy, database: Database) -> None:
    words = "ü" * 3_000_000
    async with connected(postgres_proxy, database) as connection:
        assert await connection.fetchval("SELECT $1::text", words) == words


async def test_drop_before_leaves_the_statement_undone(postgres_proxy: PostgresProxy, database: Database) -> None:
    rule = postgres_proxy.add(verbs.drop_before, runs("dispatch.queues"), nth(2))
    async with connected(postgres_proxy, database) as connection:
        await connection.execute(ADD, "a")
        with pytest.raises(LOST):
            await connection.execute(ADD, "b")
        assert connection.is_closed()
    assert (rule.hits, rule.seen, await queues(database)) == (1, 2, {"a"})


async def test_statement_cut_before_its_sync_is_rolled_back(postgres_proxy: PostgresProxy, database: Database) -> None:
    rule = postgres_proxy.add(verbs.drop_before, syncs("dispatch.queues"))
    async with connected(postgres_proxy, database) as connection:
        with pytest.raises(LOST):
            await connection.execute(ADD, "a")
    assert (rule.hits, await queues(database)) == (1, set())


@pytest.mark.parametrize(("is_open", "status", "committed"), [(False, "I", {"a"}), (True, "T", set())])
async def test_drop_after_carries_out_a_statement_without_an_answer(
    postgres_proxy: PostgresProxy, database: Database, *, is_open: bool, status: str, committed: set[str]
) -> None:
    """Within an open transaction nothing is committed."""
    rule = postgres_proxy.add(verbs.drop_after, runs("INSERT INTO dispatch.queues"), nth(1))
    async with connected(postgres_proxy, database) as connection:
        with pytest.raises(LOST):
            async with connection.transaction() if is_open else nullcontext():
                await connection.execute(ADD, "a")
    assert rule.told == [f"execute {ADD[:60]} {status}"]
    assert await queues(database) == committed


async def test_drop_after_marks_a_failed_statement(postgres_proxy: PostgresProxy, database: Database) -> None:
    rule = postgres_proxy.add(verbs.drop_after, runs("no_such_function"))
    async with connected(postgres_proxy, database) as connection:
        with pytest.raises(LOST):
            await connection.execute("SELECT no_such_function()")
    assert rule.told == ["query SELECT no_such_function() failed I"]


async def test_delay_rule_answers_late(postgres_proxy: PostgresProxy, database: Database) -> None:
    rule = postgres_proxy.add(verbs.delay(0.3), runs("SELECT 1"))
    async with connected(postgres_proxy, database) as connection:
        began = asyncio.get_running_loop().time()
        await connection.execute("SELECT 1")
    assert asyncio.get_running_loop().time() - began >= 0.3
    assert rule.hits == 1


async def test_hold_rule_forwards_after_the_client_gave_up(postgres_proxy: PostgresProxy, database: Database) -> None:
    gate = Gate()
    rule = postgres_proxy.add(verbs.hold(gate), runs("dispatch.queues"))
    async with connected(postgres_proxy, database) as connection:
        given_up = asyncio.create_task(connection.execute(ADD, "late"))
        await wait_for(lambda: gate.held == 1, "the proxy holds the statement")
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert rule.hits == 0
    await wait_for(lambda: gate.abandoned == 1, "the proxy has seen the client go")
    assert await queues(database) == set()
    gate.open()
    await wait_for(lambda: rule.hits == 1, "the statement is let go")

    async def has_landed() -> bool:
        return await queues(database) == {"late"}

    await wait_for(has_landed, "the late statement is committed")


async def test_frozen_connection_passes_nothing_until_it_is_thawed(
    postgres_proxy: PostgresProxy, database: Database
) -> None:
    gate = Gate()
    rule = postgres_proxy.add(verbs.freeze(gate), runs("dispatch.queues"), nth(2))
    async with connected(postgres_proxy, database) as connection:
        await connection.execute(ADD, "a")
        waiting = asyncio.create_task(connection.execute(ADD, "b"))
        await wait_for(lambda: gate.held == 1, "it is frozen")
        assert (rule.hits, await queues(database), connection.is_closed()) == (1, {"a"}, False)
        state = "SELECT state FROM pg_stat_activity WHERE pid = $1"
        heard = await (await database.session("admin")).fetchval(state, connection.get_server_pid())
        assert heard == "idle", "the statement's parameters have not arrived either"
        gate.open()
        assert await waiting == "INSERT 0 1"
    assert await queues(database) == {"a", "b"}


async def test_frozen_connection_passes_no_notification(postgres_proxy: PostgresProxy, database: Database) -> None:
    gate, heard = Gate(), asyncio.Event()
    async with connected(postgres_proxy, database) as connection:
        await connection.add_listener("news", lambda *_: heard.set())
        frozen = postgres_proxy.add(verbs.freeze(gate), runs("SELECT 1"))
        waiting = asyncio.create_task(connection.execute("SELECT 1"))
        await wait_for(lambda: frozen.hits == 1, "it is frozen")
        await (await database.session("admin")).execute("NOTIFY news")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(heard.wait(), 0.3)
        gate.open()
        await waiting
        await asyncio.wait_for(heard.wait(), 5)


async def test_truncated_answer_ends_within_a_frame(postgres_proxy: PostgresProxy, database: Database) -> None:
    rule = postgres_proxy.add(verbs.truncate, runs("dispatch.queues"))
    async with connected(postgres_proxy, database) as connection:
        with pytest.raises(LOST):
            await connection.execute(ADD, "a")
    assert (rule.hits, await queues(database)) == (1, {"a"})
    assert (await raw_answer(postgres_proxy, database, ADD.replace("$1", "'b'"))).endswith(b"C\0\0\0\x0fINS")  # ERT 0 1


async def raw_answer(proxy: PostgresProxy, database: Database, sql: str) -> bytes:
    """All bytes of the answer to a simple query, up to the end of the connection."""
    parts = urlsplit(proxy.url(database.url("admin")))
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    names = f"user\0{parts.username}\0database\0{database.name}\0\0".encode()
    writer.write(Frame(b"", VERSION_3 + names).encoded())
    writer.write(Frame(b"p", f"{parts.password}\0".encode()).encoded())
    writer.write(Frame(b"Q", f"{sql}\0".encode()).encoded())
    answer = await reader.read(-1)
    writer.close()
    return answer


async def test_sever_breaks_every_connection_and_new_ones_work(
    postgres_proxy: PostgresProxy, database: Database
) -> None:
    async with connected(postgres_proxy, database) as one, connected(postgres_proxy, database) as two:
        assert postgres_proxy.sever() == 2
        for connection in (one, two):
            with pytest.raises(LOST):
                await connection.execute("SELECT 1")
    async with connected(postgres_proxy, database) as connection:
        assert await connection.fetchval("SELECT 1") == 1


async def test_connection_can_be_refused(postgres_proxy: PostgresProxy, database: Database) -> None:
    rule = postgres_proxy.add(verbs.drop_before, connects, nth(1))
    url = postgres_proxy.url(database.url("admin"))
    with pytest.raises(LOST):
        await asyncpg.connect(url, ssl=False)
    await (await asyncpg.connect(url, ssl=False)).close()
    assert (rule.hits, rule.seen) == (1, 2)


async def test_a_cancelled_statement_is_cancelled_through_the_proxy(
    postgres_proxy: PostgresProxy, database: Database
) -> None:
    async with connected(postgres_proxy, database) as connection:
        with pytest.raises(TimeoutError):
            await connection.execute("SELECT pg_sleep(60)", timeout=0.2)
        assert await queues(database) == set()
        assert await connection.fetchval("SELECT 1") == 1
