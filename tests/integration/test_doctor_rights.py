"""`dispatcher doctor` on a real server: rights of logins, snapshots that are kept, and that it writes nothing."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from dispatcher.doctor.finding import FindingState
from dispatcher.doctor.look_at_database import wanted_objects
from dispatcher.doctor.schema import OF_PROGRAM, Grant, is_judged, rights_of
from dispatcher.model.rights import JANITOR, RUN
from dispatcher.pg.migrate import inspect
from dispatcher.pg.tasks import Closings
from tests.controlplane.waiting import wait_for
from tests.integration.doctoring_database import fault_of, faults, findings, mend, planted
from tests.rig.postgres import Database, PostgresServer, server_with

TASKS, SECRETS = "dispatch_private.tasks", "dispatch_private.secrets"
DIGESTS = f"SELECT (run_digest) ON {TASKS}"
TELL = "function dispatch_private.janitor_tell(jsonb)"
START = "function dispatch.task_start(bigint, uuid, integer, integer, text, text, text, text)"
OF_THE_JANITOR = [
    ("MissingRight", f"table {TASKS}", f"REVOKE {DIGESTS} FROM dispatch_janitor"),
    ("MissingRight", TELL, f"REVOKE EXECUTE ON {TELL} FROM dispatch_janitor"),
    ("MissingRight", "schema dispatch", "REVOKE USAGE ON SCHEMA dispatch FROM dispatch_janitor"),
    ("MissingRight", "schema dispatch_private", "REVOKE USAGE ON SCHEMA dispatch_private FROM dispatch_janitor"),
    ("ExtraRight", f"table {TASKS}", f"GRANT DELETE ON {TASKS} TO dispatch_janitor"),
    ("ExtraRight", f"table {TASKS}", f"GRANT UPDATE (status) ON {TASKS} TO janitor"),
    ("ExtraRight", "view dispatch.tasks", "GRANT SELECT ON dispatch.tasks TO janitor"),
    ("ExtraRight", f"table {SECRETS}", f"GRANT SELECT (start_inner) ON {SECRETS} TO dispatch_janitor"),
    ("ExtraRight", START, f"GRANT EXECUTE ON {START} TO dispatch_janitor"),
]
"""Name of the fault, where it is, and the statement that plants it in the database of the test."""
AGAIN = "REVOKE dispatch_janitor FROM janitor; GRANT dispatch_janitor TO janitor"
OF_ITS_LOGIN = [
    ("LoginAttributes", "ALTER ROLE janitor CREATEDB", "ALTER ROLE janitor NOCREATEDB"),
    ("LoginGroups", "GRANT dispatch_operator TO janitor", "REVOKE dispatch_operator FROM janitor"),
    ("LoginInherits", f"ALTER ROLE janitor NOINHERIT; {AGAIN}", f"ALTER ROLE janitor INHERIT; {AGAIN}"),
]
"""The same with the statement that removes the fault again: logins belong to the whole server."""


@pytest.mark.parametrize("program", [None, JANITOR])
async def test_login_of_the_janitor_has_no_fault_and_everything_is_checked(
    database: Database, program: str | None
) -> None:
    found = await findings(database.url("janitor"), program)
    assert [one for one in found if one.state is not FindingState.GOOD] == []
    assert ("LoginGroups", "login janitor, of dispatch_janitor") in {(one.what, one.where) for one in found}


@pytest.mark.parametrize(("what", "where", "plant"), OF_THE_JANITOR)
async def test_right_that_the_janitor_lacks_or_has_too_much_is_named_alone(
    database: Database, what: str, where: str, plant: str
) -> None:
    await (await database.session("admin")).execute(plant)
    assert await fault_of(database.url("janitor")) == (what, where)
    await mend(database, "janitor")
    assert await faults(database.url("janitor")) == []


@pytest.mark.parametrize(("what", "plant", "remove"), OF_ITS_LOGIN)
async def test_fault_of_the_login_of_the_janitor_is_named_alone(
    database: Database, what: str, plant: str, remove: str
) -> None:
    async with planted(database, plant, remove):
        assert await fault_of(database.url("janitor")) == (what, "login janitor")
        await mend(database, "janitor")
        assert await faults(database.url("janitor")) == []


@pytest.mark.parametrize(("program", "login", "role"), [(RUN, "janitor", "reader"), (JANITOR, "reader", "janitor")])
async def test_login_of_another_program_is_named_in_a_pod(
    database: Database, program: str, login: str, role: str
) -> None:
    found = [one for one in await findings(database.url(login), program) if one.state is FindingState.FAULT]
    assert {(one.what, one.message) for one in found if one.what == "LoginGroups"} == {
        ("LoginGroups", f"it is not a member of dispatch_{role}"),
        ("LoginGroups", f"it is also a member of dispatch_{login}"),
    }


@pytest.mark.parametrize("group", OF_PROGRAM.values())
async def test_list_of_objects_has_every_right_of_a_program(database: Database, group: str) -> None:
    found = await inspect(database.admin_url)
    grants = [
        Grant(row["kind"], row["name"], row["part"], row["grantee"], row["privilege"])
        for row in found.grants
        if row["grantee"] == group
    ]
    assert {grant.key for grant in grants if is_judged(grant)} == rights_of(group, wanted_objects())


DEAD = """
    INSERT INTO dispatch_private.tasks (submitted_by, kind, status)
    SELECT 'team_a', '\\x00', 'cancelled' FROM generate_series(1, 30000);
    DELETE FROM dispatch_private.tasks
"""


HOLDS: dict[str, tuple[dict[str, Any], str]] = {
    "a snapshot": ({"isolation": "repeatable_read", "readonly": True}, "SELECT count(*) FROM dispatch.tasks"),
    "an open transaction": ({}, "SELECT pg_current_xact_id()"),  # it has no snapshot, and is as old for everybody
}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["a snapshot", "an open transaction"])
async def test_session_with_an_old_snapshot_is_named(database: Database, how: str) -> None:
    options, statement = HOLDS[how]
    admin, holder = await database.session("admin"), await database.connect("team_b")
    holding = holder.transaction(**options)
    await holding.start()
    await holder.fetchval(statement)
    pid = holder.get_server_pid()
    await admin.execute(DEAD)
    for _ in range(120):
        await admin.execute("SELECT pg_current_xact_id()")
    await admin.execute("VACUUM dispatch_private.tasks")

    async def is_named() -> bool:
        found = {one.what: one for one in await findings(database.url("reader"))}["OldSnapshot"]
        is_his = (found.where, "team_b has a snapshot" in found.message) == (f"session {pid}", True)
        return found.state is FindingState.WARNING and is_his and f"pg_terminate_backend({pid})" in found.mend

    await wait_for(is_named, "the session is named", 30)
    (warned,) = [one for one in await findings(database.url("reader")) if one.state is FindingState.WARNING]
    assert warned.what == "OldSnapshot"
    # Of ten million rows so many are dead between two vacuums: nobody must be ended for them.
    await admin.execute("UPDATE pg_class SET reltuples = 1e7 WHERE oid = 'dispatch_private.tasks'::regclass")
    assert {one.state for one in await findings(database.url("reader"))} == {FindingState.GOOD}
    calls = Closings(lambda: database.url("janitor"))
    assert (await calls.oldest_snapshot() or ())[::3] == (pid, f"pg_terminate_backend({pid})")
    await holding.rollback()
    await admin.execute("VACUUM dispatch_private.tasks")
    assert (await calls.oldest_snapshot() or (0,))[0] != pid
    await calls.close()

    async def is_over() -> bool:
        return {one.what: one for one in await findings(database.url("reader"))}[
            "OldSnapshot"
        ].state is FindingState.GOOD

    await wait_for(is_over, "nothing is kept any more", 30)


async def test_open_transaction_of_another_database_is_named_and_no_session_that_came_later(
    database: Database, postgres: PostgresServer
) -> None:
    """Snapshots that are taken while it is open are as old as it is."""
    other = await postgres.create_database()
    try:
        holder, later = await other.connect("admin"), await database.connect("team_b")
        async with holder.transaction(), later.transaction(isolation="repeatable_read", readonly=True):
            await holder.fetchval("SELECT pg_current_xact_id()")
            await later.fetchval("SELECT count(*) FROM dispatch.tasks")
            calls = Closings(lambda: database.url("janitor"))
            assert (await calls.oldest_snapshot() or (0,))[0] == holder.get_server_pid()
            await calls.close()
    finally:
        await other.drop()


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
    async with server_with("lonely", autovacuum="off") as server:
        yield await server.create_database()


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
