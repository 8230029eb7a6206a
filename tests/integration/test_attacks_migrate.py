"""A migration names the login that blocks it, and refuses a schema that somebody else has made before it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from dispatcher.model.errors import DatabaseUnfit
from dispatcher.pg.migrate import LOCK, locked, migrate, named_holders, read_functions, read_migrations
from dispatcher.pg.queries import query
from tests.controlplane.waiting import wait_for
from tests.rig.postgres import Connection, Database, server_with

ROOT = Path(__file__).parents[2]
SOON_SECONDS = 5
HOLDS = f"SELECT pg_advisory_lock({LOCK})"
SCHEMAS = ("dispatch", "dispatch_private")
BEFOREHAND = """
CREATE SCHEMA {schema};
GRANT ALL ON SCHEMA {schema} TO PUBLIC;
CREATE FUNCTION {schema}.clip(words text, most integer) RETURNS text LANGUAGE sql AS 'SELECT words';
CREATE TABLE {schema}.secrets (generation integer, start_inner bytea, start_outer bytea);
"""
CLAIMS = """
CREATE SCHEMA {schema};
CREATE TABLE {schema}.schema_version (version integer, name text, checksum text, database_id uuid);
CREATE TABLE {schema}.applied_functions (name text, checksum text);
GRANT ALL ON SCHEMA {schema} TO PUBLIC;
GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO PUBLIC;
"""
ALL_TABLES = "INSERT INTO {schema}.schema_version VALUES ($1, $2, $3, gen_random_uuid())"
ALL_FUNCTIONS = "INSERT INTO {schema}.applied_functions VALUES ($1, $2)"
VIEWS = """
CREATE SCHEMA {schema};
CREATE TABLE public.calls (who name);
GRANT ALL ON SCHEMA {schema} TO PUBLIC;
GRANT ALL ON public.calls TO PUBLIC;
CREATE FUNCTION public.is_noted() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.calls VALUES (current_user);
    RETURN true;
END
$$;
CREATE VIEW {schema}.schema_version AS SELECT 1 AS version, 'x' AS name, 'y' AS checksum WHERE public.is_noted();
CREATE VIEW {schema}.applied_functions AS SELECT 'x' AS name, 'y' AS checksum WHERE public.is_noted();
GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO PUBLIC;
"""


class Program:
    """One process of `dispatcher migrate`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.begun = time.monotonic()
        self.said: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.said.append(line.decode())

    def names(self, *words: str) -> bool:
        """Whether one line on stderr has all these words."""
        return any(all(word in line for word in words) for line in self.said)

    async def ended(self) -> int:
        async with asyncio.timeout(60):
            await self._reading
            return await self.process.wait()


@asynccontextmanager
async def migrating(database: Database, **settings: object) -> AsyncIterator[Program]:
    url = {"DISPATCHER_DATABASE_URL": database.admin_url, **settings}
    environment = {"PATH": os.environ["PATH"], **{name: str(value) for name, value in url.items()}}
    command = (sys.executable, "-m", "dispatcher", "migrate")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe)
    program = Program(process)
    try:
        yield program
    finally:
        if process.returncode is None:
            process.kill()
        await program.ended()


@pytest_asyncio.fixture(loop_scope="session")
async def open_to_all(empty: Database) -> Database:
    """A database without our schema, in which every login may make one."""
    admin = await empty.session("admin")
    await admin.execute(f'GRANT CREATE ON DATABASE "{empty.name}" TO PUBLIC')
    await admin.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
    return empty


async def seconds_to_start() -> float:
    """How long Python and the program take to start on this machine, now; at least one second."""
    began = time.monotonic()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dispatcher", "migrate", "--help", stdout=asyncio.subprocess.DEVNULL
    )
    assert await child.wait() == 0
    return max(1.0, time.monotonic() - began)


async def pid_of(connection: Connection) -> int:
    return int(await connection.fetchval("SELECT pg_backend_pid()"))


@pytest.mark.slow
@pytest.mark.parametrize("login", ["team_a", "task"])
async def test_login_that_holds_the_migration_lock_is_named_at_once(empty: Database, login: str) -> None:
    attacker = await empty.connect(login)
    await attacker.execute(HOLDS)
    pid = await pid_of(attacker)
    async with migrating(empty) as program:
        await wait_for(lambda: program.names(login, str(pid)), "the holder is named", 30)
        assert time.monotonic() - program.begun < SOON_SECONDS + 2 * await seconds_to_start()
        assert program.process.returncode is None
        await attacker.execute("SELECT pg_advisory_unlock_all()")
        assert await program.ended() == 0, program.said
    assert await migrate(empty.admin_url, check=True) == []


@pytest.mark.slow
async def test_all_holders_of_the_migration_lock_are_named(empty: Database) -> None:
    attackers = [await empty.connect(login) for login in ("team_a", "team_b", "reader")]
    for attacker in attackers:
        await attacker.execute("SELECT pg_advisory_lock_shared($1)", LOCK)
    pids = [str(await pid_of(attacker)) for attacker in attackers]
    async with migrating(empty) as program:
        await wait_for(lambda: program.names("team_a", "team_b", "reader", *pids), "the holders are named", 30)
        for attacker in attackers:
            attacker.terminate()
        assert await program.ended() == 0, program.said


@pytest.mark.slow
async def test_migration_goes_on_when_the_named_session_is_ended(empty: Database) -> None:
    attacker, admin = await empty.connect("team_a"), await empty.connect()
    await attacker.execute(HOLDS)
    pid = await pid_of(attacker)
    async with migrating(empty) as program:
        await wait_for(lambda: program.names("pg_terminate_backend", str(pid)), "the next step is named", 30)
        await admin.execute("SELECT pg_terminate_backend($1)", pid)
        assert await program.ended() == 0, program.said


async def test_prepared_transaction_that_holds_our_tables_and_the_lock_is_named() -> None:
    """It has no session, and nobody can end one to be rid of it."""
    async with server_with("prepared", max_prepared_transactions="1") as server:
        database = await server.create_database()
        attacker, admin = await database.connect("team_a"), await database.connect()
        await attacker.execute(f"""
            BEGIN;
            SELECT FROM dispatch.tasks;
            SELECT pg_advisory_xact_lock({LOCK});
            PREPARE TRANSACTION 'it''s mine';
        """)
        named = r"team_a \(prepared transaction 'it''s mine', since 2"
        with pytest.raises(DatabaseUnfit, match=rf"open transaction of {named}.*ROLLBACK PREPARED"):
            async with locked(admin, seconds=0):
                pass
        assert re.match(named, named_holders(await admin.fetch(query("holders", "migrate"), LOCK)))


async def test_holder_is_named_to_a_login_that_is_not_told_since_when(database: Database) -> None:
    attacker, plain = await database.connect("team_a"), await database.connect("reader")
    await attacker.execute(HOLDS)
    found = await plain.fetch(query("holders", "migrate"), LOCK)
    assert named_holders(found) == f"team_a (pid {await pid_of(attacker)})"


async def test_migration_lock_of_another_database_blocks_nothing(empty: Database, database: Database) -> None:
    attacker = await database.connect("team_a")
    await attacker.execute(HOLDS)
    async with asyncio.timeout(30):
        assert await migrate(empty.admin_url)


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_foreign_schema_is_refused_and_its_owner_named(open_to_all: Database, schema: str) -> None:
    attacker = await open_to_all.connect("team_a")
    await attacker.execute(BEFOREHAND.format(schema=schema))
    async with migrating(open_to_all) as program:
        assert await program.ended() != 0
    assert program.names(f"schema {schema} belongs to team_a"), program.said
    with pytest.raises(DatabaseUnfit, match=f"schema {schema} belongs to team_a"):
        await migrate(open_to_all.admin_url)
    admin = await open_to_all.session("admin")
    assert await admin.fetchval("SELECT to_regclass('dispatch_private.tasks') IS NULL")
    assert await admin.fetchval("SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace($1)", schema) == 1
    await admin.execute(f"DROP SCHEMA {schema} CASCADE")
    assert await migrate(open_to_all.admin_url)


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("check", [False, True])
async def test_hostile_view_with_our_name_runs_no_code(open_to_all: Database, schema: str, check: bool) -> None:
    """A function in a view runs with the rights of the reader, here the administrator."""
    await (await open_to_all.connect("team_a")).execute(VIEWS.format(schema=schema))
    with pytest.raises(DatabaseUnfit) as refused:
        await migrate(open_to_all.admin_url, check=check)
    admin = await open_to_all.session("admin")
    assert [row["who"] for row in await admin.fetch("SELECT who FROM public.calls")] == []
    assert f"schema {schema} belongs to team_a" in str(refused.value)


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("check", [False, True])
async def test_foreign_schema_that_claims_all_files_is_refused(open_to_all: Database, schema: str, check: bool) -> None:
    attacker = await open_to_all.connect("team_a")
    await attacker.execute(CLAIMS.format(schema=schema))
    for migration in read_migrations():
        told = migration.version, migration.name, migration.checksum
        await attacker.execute(ALL_TABLES.format(schema=schema), *told)
    for source in read_functions():
        await attacker.execute(ALL_FUNCTIONS.format(schema=schema), source.name, source.checksum)
    with pytest.raises(DatabaseUnfit, match=f"schema {schema} belongs to team_a"):
        await migrate(open_to_all.admin_url, check=check)
