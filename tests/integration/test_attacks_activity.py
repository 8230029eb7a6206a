"""A container watches the statements of other containers under its login. It never sees a key of theirs."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tests.controlplane.waiting import wait_for
from tests.rig.execing import PROGRAM, Wrapper, wrapped
from tests.rig.postgres import Connection, Database, connect, url_with
from tests.rig.postgres_process import binaries
from tests.rig.rows import FIRST, Row, insert_row
from tests.rig.tasking import Library

BASH = Path(__file__).parents[2] / "docs" / "examples" / "task.sh"
IN_PYTHON = "import subprocess\nwith quick(): subprocess.run(sys.argv[1:], check=True)"
PROGRAMS = {"bash and psql": (str(BASH),), "exec": PROGRAM}
PROGRAMS |= {f"library with {driver}": Library(driver).program(IN_PYTHON) for driver in ("asyncpg", "psycopg")}
UNTIL_THERE = "while [ ! -e {file} ]; do sleep 0.05; done"
WATCH = "SELECT a::text FROM pg_stat_activity AS a WHERE a.pid <> pg_backend_pid() AND a.datname = current_database()"
TOKENS = "SELECT dispatch_private.run_tokens($1, 1, 1, $2, $3)"
HELD = "SELECT FROM dispatch_private.tasks WHERE id = $1 FOR UPDATE"


class Watcher:
    """The attacker: reads all running statements as fast as possible, and keeps every word."""

    def __init__(self, connection: Connection) -> None:
        self.seen: set[str] = set()
        self._looks = 0
        self._connection = connection

    async def watch(self) -> None:
        while True:
            self.seen |= {row[0] for row in await self._connection.fetch(WATCH)}
            self._looks += 1

    async def looks_again(self) -> None:
        """Waits until a look that began after this call has ended."""
        enough = self._looks + 2
        await wait_for(lambda: self._looks >= enough, "the attacker looks again")

    def has_seen(self, words: str) -> bool:
        return any(words in one for one in self.seen)


@asynccontextmanager
async def watching(url: str) -> AsyncIterator[Watcher]:
    connection = await connect(url)
    watcher = Watcher(connection)
    task = asyncio.create_task(watcher.watch())
    try:
        yield watcher
    finally:
        task.cancel()
        await asyncio.wait([task])
        connection.terminate()


@pytest_asyncio.fixture(loop_scope="session")
async def another_login(database: Database) -> AsyncIterator[str]:
    """A login for the containers of another template; its password is its name."""
    admin, name = await database.session("admin"), f"task_{secrets.token_hex(4)}"
    await admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}' IN ROLE dispatch_task")
    yield name
    await admin.execute(f"DROP ROLE {name}")


@asynccontextmanager
async def held(row: Row) -> AsyncIterator[None]:
    """Locks the row. A call for the row waits, so its statement can be read meanwhile."""
    admin = await connect(row.database.admin_url)
    try:
        async with admin.transaction():
            await admin.execute(HELD, row.id)
            yield
    finally:
        await admin.close()


async def calls(row: Row) -> list[str]:
    """The calls for the row that wait at this moment, as an administrator reads them."""
    admin = await row.database.session("admin")
    query = "SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return [one["query"] for one in await admin.fetch(query)]


async def is_running(row: Row) -> bool:
    return await row.status() == "processing"


def end_command(file: Path) -> None:
    """Lets the command of the container end."""
    file.touch()


async def watched_life(row: Row, program: tuple[str, ...], file: Path, watcher: Watcher) -> None:
    """Runs the whole life of a container. Every call of it waits until the attacker has looked again."""

    async def is_held_up(call: str, container: Wrapper) -> None:
        async def waits() -> bool:
            return any(call in query for query in await calls(row))

        await wait_for(waits, f"{call} is held up", check=container.check)
        await watcher.looks_again()

    path = f"{binaries()}:{os.environ['PATH']}"
    command = ("sh", "-c", UNTIL_THERE.format(file=file))
    async with AsyncExitStack() as stack:
        async with held(row):
            life = wrapped(row, *command, program=program, PATH=path, TASK_HEARTBEAT_EVERY="0.1s")
            container = await stack.enter_async_context(life)
            await is_held_up("task_start", container)
        await wait_for(lambda: is_running(row), "the row is taken", check=container.check)
        if program != PROGRAM:  # exec sends a heartbeat only every 15 s
            async with held(row):
                await is_held_up("task_heartbeat", container)
        async with held(row):
            end_command(file)
            await is_held_up("task_finish", container)
        assert (await container.has_ended()).status == 0
    assert await row.status() == "succeeded"


async def keys_of(row: Row) -> list[str]:
    """The secrets of the row's container, in every notation: the start key and the run tokens."""
    admin = await row.database.session("admin")
    tokens = await admin.fetch(TOKENS, row.id, FIRST.job_uid, FIRST.name)
    keys = [row.start_key, *(token[0] for token in tokens)]
    return [spelling for key in keys for spelling in (str(key), key.hex)]


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
async def test_a_container_of_the_same_login_reads_no_key(
    database: Database, tmp_path: Path, program: tuple[str, ...]
) -> None:
    row = await insert_row(database)
    async with watching(database.url("task")) as attacker:
        await watched_life(row, program, tmp_path / "go", attacker)
    assert attacker.has_seen("task_start")  # the attacker did read the statements
    assert attacker.has_seen("task_finish")
    assert [key for key in await keys_of(row) if attacker.has_seen(key)] == []


async def test_key_in_a_statement_is_readable(database: Database) -> None:
    """The attack on a container that writes its key into its statement."""
    row = await insert_row(database)
    container = await database.connect("task")
    statement = f"SELECT * FROM dispatch.task_start({row.id}, '{row.start_key}', 1, 1, '{FIRST.job_uid}', 'n', 'p')"
    async with watching(database.url("task")) as attacker:
        await container.fetch(statement)
        await attacker.looks_again()
    assert attacker.has_seen(str(row.start_key))


async def test_a_container_with_a_login_of_its_own_reads_no_statement_of_others(
    database: Database, tmp_path: Path, another_login: str
) -> None:
    row = await insert_row(database)
    async with watching(url_with(database.admin_url, login=another_login)) as attacker:
        await watched_life(row, PROGRAMS["bash and psql"], tmp_path / "go", attacker)
    assert attacker.has_seen("<insufficient privilege>")
    assert not attacker.has_seen("task_")


async def test_a_container_with_a_login_of_its_own_works_like_any_other(database: Database, another_login: str) -> None:
    row = await insert_row(database)
    own = await connect(url_with(database.admin_url, login=another_login))
    started = await row.start(by=own)
    assert started is not None
    assert await row.finish(started, "succeeded", by=own) == "succeeded"
    await own.close()
