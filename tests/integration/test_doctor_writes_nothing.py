"""`dispatcher doctor` writes nothing into the database, whatever its login may do."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from dispatcher.doctor.finding import FindingState
from tests.integration.doctoring_database import fault_of, faults, findings
from tests.rig.postgres import Database, PostgresServer
from tests.rig.postgres_process import Folder, Postmaster

NEXT_TRANSACTION = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
"""Every transaction that writes takes the next id, or more. One that only reads takes none."""
TRAP = """
CREATE TABLE dispatch.trapped (n int);
CREATE FUNCTION dispatch.trap() RETURNS boolean VOLATILE LANGUAGE plpgsql AS
    'BEGIN INSERT INTO dispatch.trapped VALUES (1); RETURN true; END';
CREATE OR REPLACE VIEW dispatch.schema_version AS
    SELECT version, name, checksum, database_id, applied_at FROM dispatch_private.schema_version WHERE dispatch.trap()
"""
"""Whoever reads the migrations writes a row."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lonely() -> AsyncIterator[Database]:
    """A database of a server on which nobody else writes, not even a background VACUUM."""
    postmaster = Postmaster(Folder(), "lonely")
    await postmaster.initialise()
    await postmaster.start()
    server = PostgresServer(postmaster.admin_url, postmaster)
    try:
        await server.execute("ALTER SYSTEM SET autovacuum = off")
        await server.stop()
        await server.start()
        yield await server.create_database()
    finally:
        await server.close()


@pytest.mark.parametrize("login", ["admin", "janitor", "reader"])
async def test_doctor_takes_no_transaction_that_writes(lonely: Database, login: str) -> None:
    admin = await lonely.session("admin")
    before = await admin.fetchval(NEXT_TRANSACTION)
    found = await findings(lonely.url(login))
    assert {one.what for one in found} >= {
        *("DatabaseEncoding", "SchemaOld", "IndexMissing", "PlanWithoutIndex", "SearchPath", "ObjectChanged"),
        "NotifyQueue",
    }
    assert [one.what for one in found if one.state is FindingState.NOT_CHECKED] == []
    assert await admin.fetchval(NEXT_TRANSACTION) == before
    await lonely.insert_task()
    assert int(await admin.fetchval(NEXT_TRANSACTION)) > int(before)


async def test_doctor_finds_faults_without_a_transaction_that_writes(lonely: Database) -> None:
    admin = await lonely.session("admin")
    await admin.execute("DROP INDEX dispatch_private.tasks_ready")
    before = await admin.fetchval(NEXT_TRANSACTION)
    assert [one.what for one in await faults(lonely.url("reader"))] == ["AutovacuumOff", "IndexMissing"]
    assert await admin.fetchval(NEXT_TRANSACTION) == before


async def test_session_of_the_doctor_may_not_write_even_for_an_administrator(database: Database) -> None:
    admin = await database.session("admin")
    await admin.execute(TRAP)
    await admin.fetch("SELECT FROM dispatch.schema_version")
    written = await admin.fetchval("SELECT count(*) FROM dispatch.trapped")
    assert written > 0
    assert await fault_of(database.admin_url) == ("LoginRefused", "DISPATCHER_DATABASE_URL")
    (one,) = await faults(database.admin_url)
    assert "cannot execute INSERT in a read-only transaction" in one.message
    assert await admin.fetchval("SELECT count(*) FROM dispatch.trapped") == written


@pytest.mark.parametrize("schema", ["dispatch", "dispatch_private"])
async def test_doctor_reads_nothing_in_a_schema_of_somebody_else(database: Database, schema: str) -> None:
    """The owner of a schema chooses what runs there, with the rights of the login that reads it."""
    admin = await database.session("admin")
    await admin.execute(TRAP)
    await admin.execute(f"ALTER SCHEMA {schema} OWNER TO team_a")
    assert await fault_of(database.admin_url) == ("SchemaOwner", f"schema {schema}")
