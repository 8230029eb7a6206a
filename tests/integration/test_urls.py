"""Every program reaches the database by the URLs that psql takes, also past a host that accepts and never answers."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from dispatcher.container.contract import NewestServer, OldPrimary
from dispatcher.container.dial import ask_once, ways_of
from dispatcher.model.errors import DatabaseAway, DatabaseUnfit
from dispatcher.pg.connect import open_connection
from dispatcher.task import by_psycopg
from tests.integration.installing import psql
from tests.integration.looking import ids, opened
from tests.rig.execing import DONE, execute
from tests.rig.poolers import REFUSALS, pooler
from tests.rig.postgres import Database, PostgresServer, url_with
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import insert_row
from tests.rig.tasking import Library, either_library
from tests.scheduling.certificates import OF_SERVERS, Authority

database, library = one_database, either_library
HARMLESS = (
    "connect_timeout=10", "keepalives=1", "keepalives_idle=30", "channel_binding=prefer", "gssencmode=disable",
    "fallback_application_name=mine", "client_encoding=UTF8", "sslmode=prefer", "target_session_attrs=read-write",
    "tcp_user_timeout=1000", "sslsni=1", "application_name=mine", "options=-c%20work_mem%3D4MB",
    "sslcompression=0", "gssdelegation=0", "sslcertmode=allow",
)  # fmt: skip
UNKNOWN_TO_AN_OLD_PSQL = ("gssdelegation", "sslcertmode")


@pytest_asyncio.fixture
async def frozen_first(database: Database) -> AsyncIterator[str]:
    """The URL of a task, with the host of the database behind one that accepts connections and never answers."""
    accepted: list[asyncio.StreamWriter] = []
    listening = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    try:
        port = listening.sockets[0].getsockname()[1]
        hosts = f"127.0.0.1:{port},{netloc(database.admin_url)}"
        yield f"{url_with(database.url('task'), host=hosts)}?connect_timeout=2"
    finally:
        listening.close()
        for writer in accepted:
            writer.close()


@pytest.mark.parametrize("kind", REFUSALS)
async def test_pooler_that_refuses_our_settings_is_told_with_the_next_step(database: Database, kind: str) -> None:
    async with pooler(database.url("reader"), kind) as (url, _), opened(url) as session:
        with pytest.raises(DatabaseUnfit, match="Connect directly"):
            await ids(session)


async def test_command_without_a_url_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable, libpq would ask the socket of this machine, which says nothing of the cause."""
    for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PGPORT", "1")
    with pytest.raises(DatabaseAway, match=r"^set DISPATCHER_DATABASE_URL to postgresql://"):
        await open_connection(None)
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    with pytest.raises(DatabaseAway, match=r"^the database does not answer"):
        await open_connection(None)


async def test_certificate_that_does_not_verify_is_a_fault_of_the_server(tmp_path: Path) -> None:
    """It may be mended while the work goes on. A URL that cannot be read is final."""
    authority, another = Authority(tmp_path, "one"), Authority(tmp_path, "another")
    pair = authority.pair("server", usage=OF_SERVERS)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # SSLRequest
        writer.write(b"S")
        with contextlib.suppress(OSError):
            await writer.start_tls(context)
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    url = f"postgresql://u:p@127.0.0.1:{port}/d?sslmode=verify-full&sslrootcert={another.certificate}"
    with pytest.raises(DatabaseAway, match="certificate verify failed"):
        async with opened(url) as session:
            await ids(session)
    listening.close()


def test_url_that_ends_with_a_newline_and_the_short_form_of_require_are_read() -> None:
    assert ways_of("postgresql://u@h/d\n", {}) == ways_of("postgresql://u@h/d", {})
    assert ways_of("postgresql://u@h/d?ssl=true", {}) == ways_of("postgresql://u@h/d?sslmode=require", {})


async def test_newline_at_the_end_of_the_url_of_a_task_is_nothing(database: Database, library: Library) -> None:
    """A Secret that was made with `echo` has one."""
    row, url = await insert_row(database), database.url("task") + "\n"
    ended = await library.run(row, "with task() as t: t.finish(1)", TASK_DATABASE_URL=url)
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended.said
    row = await insert_row(database)
    ended = await execute(row, "true", TASK_DATABASE_URL=url)
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended.said


@pytest.mark.slow
async def test_exec_starts_and_reports_past_a_frozen_host(database: Database, frozen_first: str) -> None:
    row = await insert_row(database)
    ended = await execute(row, "true", TASK_DATABASE_URL=frozen_first)
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended.said


@pytest.mark.slow
async def test_library_starts_and_reports_past_a_frozen_host(
    library: Library, database: Database, frozen_first: str
) -> None:
    row, url = await insert_row(database), frozen_first
    ended = await library.run(row, "with task() as t: t.finish(1)", TASK_DATABASE_URL=url)
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended.said


async def test_dispatcher_looks_past_a_frozen_host(database: Database, frozen_first: str) -> None:
    async with opened(frozen_first) as session, session.use() as connection:
        assert await connection.fetchval("SELECT 1") == 1


@pytest.mark.parametrize("parameter", HARMLESS)
async def test_url_that_psql_takes_is_taken(database: Database, parameter: str) -> None:
    if not parameter.startswith(UNKNOWN_TO_AN_OLD_PSQL):
        assert (await psql(f"{database.url('reader')}?{parameter}", "SELECT 1"))[-1] == "1"
    async with opened(f"{database.url('reader')}?{parameter}") as session:
        assert await ids(session) == []


@pytest.mark.parametrize(
    "parameter",
    [
        "channel_binding=require",
        "sslrootcert=/nowhere/ca.crt",
        "connect_timeout=soon",
        "pgbouncer=true",
        "sslmode=verify_full",
        "sslmode=verify-full",
    ],
)
async def test_parameter_that_cannot_be_honoured_is_named(library: Library, database: Database, parameter: str) -> None:
    name = parameter.partition("=")[0]
    async with opened(f"{database.url('reader')}?{parameter}") as session:
        with pytest.raises(DatabaseUnfit, match=f"DATABASE_URL cannot be used: {name}"):
            await ids(session)
    row = await insert_row(database)
    ended = await execute(row, "true", TASK_DATABASE_URL=f"{database.url('task')}?{parameter}")
    assert f"TASK_DATABASE_URL cannot be used: {name}" in ended.said
    assert await row.status() == "waiting"


async def test_report_goes_to_no_server_that_was_overtaken(
    postgres: PostgresServer, library: Library, database: Database
) -> None:
    """The old primary lives on behind the address. It takes a report, and nobody would ever read it."""
    row, successor = await insert_row(database), await postgres.start_standby()
    both = url_with(database.url("task"), host=f"{netloc(successor.url(database))},{netloc(database.admin_url)}")
    body = f"""
        with quick() as t:
            say("begun"); sys.stdin.readline()
            t._database = t._database._replace(url={both!r})
            waits(lambda: t._database.newest._number == 2)
            t._database = t._database._replace(url={database.url("task")!r})
            t._deadline = __import__("time").monotonic()
            t.finish(1)
    """
    try:
        async with library.runs(row, body) as wrapper:
            await wrapper.says("begun")
            await successor.caught_up()
            await successor.promote()
            wrapper.go()
            ended = await wrapper.has_ended(is_traced=True)
    finally:
        await successor.stop(immediately=True)
    assert "this server is on timeline 1, and another one has been on 2" in ended.said
    assert await row.status() == "processing"


def netloc(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


async def test_isolation_of_transactions_is_not_that_of_the_database(database: Database) -> None:
    """In a stricter one a call fails beside those of others, although it waits for no row of theirs."""
    admin, asked = await database.session("admin"), ("SELECT current_setting('transaction_isolation')", ())
    await admin.execute(f'ALTER DATABASE "{database.name}" SET default_transaction_isolation = serializable')
    async with opened(database.url("janitor")) as session, session.use() as connection:
        assert await connection.fetchval(asked[0]) == "read committed"
    url = database.url("task")
    assert tuple(await ask_once(url, "a test", NewestServer(), *asked) or ()) == ("read committed",)
    assert await asyncio.to_thread(by_psycopg.ask, url, NewestServer(), *asked) == ("read committed",)


def test_server_of_another_system_is_no_older_one() -> None:
    newest = NewestServer()
    newest.learn("a", 7)
    newest.learn("b", 1)
    newest.learn("b", 2)
    with pytest.raises(OldPrimary):
        newest.learn("b", 1)
