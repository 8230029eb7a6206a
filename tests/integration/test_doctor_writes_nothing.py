"""`dispatcher doctor` writes nothing into the database, whatever its login may do."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from dispatcher.doctor.finding import State
from tests.integration.doctoring_database import fault_of, faults, findings
from tests.postgres import Database, PostgresServer
from tests.postgres_process import Folder, Postmaster

NEXT_TRANSACTION = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
"""Every transaction that writes takes the next id. One that only reads takes none."""
TRAP = """
CREATE TABLE dispatch.trapped (n int);
CREATE FUNCTION dispatch.trap() RETURNS boolean VOLATILE LANGUAGE plpgsql AS
    'BEGIN INSERT INTO dispatch.trapped VALUES (1); RETURN true; END';
ALTER TABLE dispatch.schema_version RENAME TO schema_versions;
CREATE VIEW dispatch.schema_version AS SELECT * FROM dispatch.schema_versions WHERE dispatch.trap()
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
    assert {one.what for one in found} >= {"SchemaOld", "IndexMissing", "PlanWithoutIndex", "SearchPath", "NotifyQueue"}
    assert [one.what for one in found if one.state is State.NOT_CHECKED] == []
    assert await admin.fetchval(NEXT_TRANSACTION) == before
    await lonely.insert_task()
    assert int(await admin.fetchval(NEXT_TRANSACTION)) == int(before) + 1


async def test_doctor_finds_faults_without_a_transaction_that_writes(lonely: Database) -> None:
    admin = await lonely.session("admin")
    await admin.execute("DROP INDEX dispatch.tasks_ready")
    before = await admin.fetchval(NEXT_TRANSACTION)
    assert [one.what for one in await faults(lonely.url("reader"))] == ["IndexMissing"]
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
