"""The examples of the submitter's page that wait for the end of a batch. The test plays the containers of its rows."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.controlplane import binaries
from tests.controlplane.waiting import wait_for
from tests.house.tree import ROOT
from tests.integration import jdbc
from tests.rig.execing import Ended, Wrapper
from tests.rig.postgres import Database
from tests.rig.postgres_process import free_port
from tests.rig.rows import Row, insert_row

EXAMPLES = ROOT / "docs" / "examples" / "waiting"
PYTHON, GO, JAVA = EXAMPLES / "wait_asyncpg.py", EXAMPLES / "go" / "main.go", EXAMPLES / "Wait.java"
BATCH, ROWS, LONG, SECRET = "october", 5, 300, "quite-secret"

SESSIONS = """
SELECT pid FROM pg_stat_activity
WHERE usename = 'team_a' AND datname = current_database() AND state = 'idle' AND query LIKE '%task_ended_since%'
"""
"""Sessions of the program that have asked for ends. No test here has a session of this login."""
IDS = "SELECT id FROM dispatch.tasks WHERE batch = $1 ORDER BY id"
KILL = "SELECT pg_terminate_backend($1, 10000)"
SILENT = """
CREATE OR REPLACE FUNCTION dispatch_private.announce(channel text, clock regclass) RETURNS void LANGUAGE sql AS ''
"""

Command = Callable[[str], tuple[tuple[str, ...], dict[str, str]]]
"""Returns the arguments and the environment of a program, by the URL of the database."""


@pytest.fixture(scope="session")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> str:
    go, _ = binaries.toolchain()
    program = str(tmp_path_factory.mktemp("waiting") / "wait")
    done = binaries.run_go(go, ["build", "-buildvcs=false", "-o", program, "."], GO.parent)
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(params=["asyncpg", "go", "java"])
def command(request: pytest.FixtureRequest) -> Command:
    if request.param == "java":
        java = (jdbc.java(), "-cp", str(jdbc.driver()), str(JAVA))
        return lambda url: (java, {"JDBC_URL": jdbc_url(url)})
    program = (sys.executable, str(PYTHON)) if request.param == "asyncpg" else (request.getfixturevalue("go_program"),)
    return lambda url: (program, {"DATABASE_URL": url})


def jdbc_url(url: str) -> str:
    parts = urlsplit(url)
    user, _, place = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    return f"jdbc:postgresql://{place}{parts.path}?user={name}&password={password}"


@asynccontextmanager
async def started(command: Command, url: str, *arguments: object) -> AsyncIterator[Wrapper]:
    argv, given = command(url)
    mark = f"EXECING_MARK={secrets.token_hex(8)}"
    env = {"PATH": os.environ["PATH"], **given} | dict([mark.split("=")])
    words = (*argv, *map(str, arguments))
    process = await asyncio.create_subprocess_exec(*words, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    program = Wrapper(process, mark)
    try:
        yield program
    finally:
        await program.close()


class Waiting:
    """One program, the rows that it has inserted, and what it should print."""

    def __init__(self, program: Wrapper, database: Database, rows: list[Row]) -> None:
        self.program, self.database, self.rows = program, database, rows
        self.expected: Counter[str] = Counter()

    async def end(self, number: int, outcome: str) -> None:
        row = self.rows[number]
        if outcome == "cancelled":
            await row.cancel(login="operator")
        else:
            await row.finish(await row.started(attempt=(await row.now())["attempt"]), outcome)
        self.expected[f"{row.id} {outcome}"] += 1

    async def has_told(self) -> None:
        await wait_for(
            lambda: self.told() == self.expected, "the program has told the ends", 20, check=self.program.check
        )

    def told(self) -> Counter[str]:
        return Counter(self.program.out.decode().splitlines())

    async def lose_connection(self) -> None:
        admin = await self.database.session("admin")
        for pid in await wait_for(self.sessions, "it has a connection"):
            assert await admin.fetchval(KILL, pid)

    async def sessions(self) -> list[int]:
        admin = await self.database.session("admin")
        return [row["pid"] for row in await admin.fetch(SESSIONS)]

    async def succeeds(self) -> Ended:
        """It ends with 0 and has printed each end once."""
        ended = await self.program.has_ended()
        assert (ended.status, self.told()) == (0, self.expected), ended
        return ended


@asynccontextmanager
async def waiting(
    command: Command, database: Database, deadline: int = LONG, every: int = LONG
) -> AsyncIterator[Waiting]:
    async with started(command, database.url("team_a"), BATCH, deadline, every) as program:
        admin = await database.session("admin")
        ids = await wait_for(lambda: admin.fetch(IDS, BATCH), "the rows are there", 60, check=program.check)
        assert len(ids) == ROWS
        rows = [Row(database, one["id"], await database.start_key(one["id"])) for one in ids]
        found = Waiting(program, database, rows)
        await wait_for(found.sessions, "it has asked for ends")
        yield found


@pytest.mark.slow
async def test_program_tells_each_end_once_and_succeeds(command: Command, database: Database) -> None:
    async with waiting(command, database) as batch:
        await batch.end(0, "succeeded")
        await batch.has_told()
        other = await insert_row(database, "team_b", batch=BATCH)
        await other.finish(await other.started(), "succeeded")
        await batch.end(1, "failed")
        await batch.end(2, "cancelled")
        await batch.has_told()
        await batch.rows[1].retry(login="operator")
        await batch.end(1, "succeeded")
        await batch.end(3, "succeeded")
        await batch.end(4, "succeeded")
        ended = await batch.succeeds()
    assert ended.err == b"", "it has lost no connection"


@pytest.mark.slow
async def test_program_tells_ends_that_share_a_notification(command: Command, database: Database) -> None:
    async with waiting(command, database) as batch:
        runs = [await row.started() for row in batch.rows]
        for row, run in zip(batch.rows, runs, strict=True):
            await row.finish(run, "succeeded")
            batch.expected[f"{row.id} succeeded"] += 1
        await batch.succeeds()


@pytest.mark.slow
async def test_program_tells_ends_without_a_notification(command: Command, database: Database) -> None:
    await (await database.session("admin")).execute(SILENT)
    async with waiting(command, database, every=1) as batch:
        await batch.end(0, "failed")
        await batch.has_told()
        for number in range(1, ROWS):
            await batch.end(number, "succeeded")
        ended = await batch.succeeds()
    assert ended.err == b"", "it has lost no connection"


@pytest.mark.slow
async def test_program_tells_an_end_whose_transaction_took_an_hour(command: Command, database: Database) -> None:
    admin = await database.session("admin")
    async with waiting(command, database) as batch:
        for number in range(1, ROWS):
            await batch.end(number, "succeeded")
        await batch.has_told()
        run = await batch.rows[0].started()
        await admin.execute("UPDATE dispatch_private.tasks SET created_at = now() - interval '2 hours'")
        async with admin.transaction():
            await batch.rows[0].finish(run, "failed", by=admin)
            ended = "UPDATE dispatch_private.tasks SET finished_at = now() - interval '1 hour' WHERE id = $1"
            await admin.execute(ended, batch.rows[0].id)
        batch.expected[f"{batch.rows[0].id} failed"] += 1
        await batch.succeeds()


@pytest.mark.slow
async def test_program_that_loses_its_connection_tells_each_end_once(command: Command, database: Database) -> None:
    admin = await database.session("admin")
    async with waiting(command, database) as batch:
        await batch.end(0, "succeeded")
        await batch.has_told()
        await admin.execute(f'ALTER DATABASE "{database.name}" CONNECTION LIMIT 0')  # but for administrators
        await batch.lose_connection()
        await batch.end(1, "succeeded")
        await batch.end(2, "failed")
        refused = b"too many connections"
        await wait_for(lambda: refused in batch.program.err, "it connects in vain", 20, check=batch.program.check)
        await admin.execute(f'ALTER DATABASE "{database.name}" CONNECTION LIMIT -1')
        await batch.has_told()
        await batch.lose_connection()
        await batch.end(3, "succeeded")
        await batch.end(4, "succeeded")
        await batch.succeeds()
    assert len(await admin.fetch(IDS, BATCH)) == ROWS, "it inserts once"


@pytest.mark.slow
async def test_second_run_tells_of_the_same_rows(command: Command, database: Database) -> None:
    async with waiting(command, database) as batch:
        for number in range(ROWS):
            await batch.end(number, "succeeded")
        first = await batch.succeeds()
    async with started(command, database.url("team_a"), BATCH, LONG) as program:
        second = await program.has_ended()
    assert (second.status, sorted(second.out.splitlines())) == (0, sorted(first.out.splitlines()))
    assert len(await (await database.session("admin")).fetch(IDS, BATCH)) == ROWS


@pytest.mark.slow
async def test_program_fails_at_its_deadline(command: Command, database: Database) -> None:
    async with started(command, database.url("team_a"), BATCH, 2) as program:
        ended = await program.has_ended()
    assert (ended.status, ended.out, ended.said) == (1, b"", "the batch has not ended at the deadline\n")


@pytest.mark.slow
async def test_program_fails_at_its_deadline_while_the_database_is_away(command: Command) -> None:
    async with started(command, f"postgresql://team_a:{SECRET}@127.0.0.1:{free_port()}/work", BATCH, 2) as program:
        ended = await program.has_ended()
    assert (ended.status, ended.out) == (1, b"")
    assert ended.said.endswith("the batch has not ended at the deadline\n")
    assert "the database is away" in ended.said
    assert SECRET not in ended.said


@pytest.mark.parametrize("before_port", ["", "no-port-"], ids=["wrong password", "wrong URL"])
async def test_refused_program_ends_at_once_and_says_no_secret(
    command: Command, database: Database, before_port: str
) -> None:
    url = re.sub(r":team_a@([^:/]+):", rf":{SECRET}@\1:{before_port}", database.url("team_a"))
    assert SECRET in url
    async with started(command, url, BATCH) as program:
        ended = await program.has_ended()
    assert (ended.status, ended.out) == (1, b""), ended
    assert ended.said.startswith(("the database refuses: ", "DATABASE_URL is not ", "JDBC_URL is not "))
    assert SECRET not in ended.said


@pytest.mark.parametrize("path", [PYTHON, GO, JAVA])
def test_example_goes_on_after_each_fault_that_passes(path: Path) -> None:
    """55: lock_timeout of the login while others change a table, and a database that is closed for a maintenance."""
    (line,) = [one for one in path.read_text(encoding="utf-8").splitlines() if re.search("(?i)away =", one)]
    assert re.findall(r"\b\d\d\b", line) == ["08", "25", "40", "53", "55", "57"]


@pytest.mark.parametrize(("path", "most"), [(PYTHON, 100), (GO, 150), (JAVA, 110)])
def test_example_is_short(path: Path, most: int) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= most


def test_driver_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "postgresql.jar").write_bytes(b"another")
    with pytest.raises(jdbc.JavaFault, match=f"not {jdbc.SHA256}"):
        jdbc.check(tmp_path / "postgresql.jar")


@pytest.mark.slow
def test_missing_program_is_named_with_what_to_install() -> None:
    with pytest.raises(jdbc.JavaFault, match=r"`no-such-program`.*install a JDK"):
        jdbc.program("no-such-program")
