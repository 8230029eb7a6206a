"""Who may do what: every login against every column, function and kind of statement (INTERFACE 2)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from tests.postgres import LOGINS, Connection, Database, PostgresServer

SUBMITTED = {
    *("queue", "priority", "run_at", "timeout_seconds", "max_failures", "template", "env", "spec", "payload"),
    *("cache_key", "dedupe_key"),
}
KEPT = {
    *("id", "status", "attempt", "launch", "failures", "start_key", "run_token", "job_uid", "submitted_by"),
    *("created_at", "started_at", "heartbeat_at", "finished_at", "cancel_requested_at", "node_name", "pod_name"),
    *("error", "result"),
}
ALL = SUBMITTED | KEPT
INTERNAL = {"kind"}  # a digest of what the row's submitter wrote
READABLE = {
    "reader": ALL - {"payload", "result", "run_token"},
    "task": set(),
    "team_a": ALL - {"start_key", "run_token"},
    "observer": ALL - {"payload", "start_key", "run_token"},
    "janitor": ALL - {"payload", "result"},
}
CONTAINER_FUNCTIONS = {"task_start", "task_heartbeat", "task_finish"}
PEOPLE_FUNCTIONS = {"task_cancel", "task_retry"}
EXECUTABLE = {
    "reader": set(),
    "task": CONTAINER_FUNCTIONS,
    "team_a": PEOPLE_FUNCTIONS,
    "operator": PEOPLE_FUNCTIONS,
    "observer": set(),
}

FORBIDDEN_TO_ALL = [
    "UPDATE dispatch.tasks SET priority = 0",
    "UPDATE dispatch.tasks SET status = 'succeeded'",
    "DELETE FROM dispatch.tasks",
    "TRUNCATE dispatch.tasks CASCADE",
    "SELECT id FROM dispatch.tasks FOR UPDATE",
    "SELECT id FROM dispatch.tasks FOR NO KEY UPDATE",
    "SELECT id FROM dispatch.tasks FOR SHARE",
    "SELECT id FROM dispatch.tasks FOR KEY SHARE",
    "LOCK TABLE dispatch.tasks",
    "SELECT run_token FROM dispatch.task_launches",
    "INSERT INTO dispatch.task_launches DEFAULT VALUES",
    "UPDATE dispatch.task_launches SET outcome = 'succeeded'",
    "DELETE FROM dispatch.task_launches",
    "INSERT INTO dispatch.schema_version DEFAULT VALUES",
    "UPDATE dispatch.schema_version SET database_id = gen_random_uuid()",
    "DELETE FROM dispatch.schema_version",
    "ALTER TABLE dispatch.tasks DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE dispatch.tasks DISABLE TRIGGER ALL",
    "DROP TABLE dispatch.tasks",
    "CREATE TABLE dispatch.mine (a int)",
    "CREATE TABLE public.mine (a int)",
    "CREATE TEMP TABLE mine (a int)",
    "CREATE FUNCTION pg_temp.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE SCHEMA mine",
    "CREATE SEQUENCE dispatch.mine",
    "CREATE VIEW dispatch.mine AS SELECT 1",
    "CREATE FUNCTION dispatch.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION public.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "SET ROLE dispatch_owner",
    "SET SESSION AUTHORIZATION postgres",
    "SET session_replication_role = replica",
]
FORBIDDEN_BUT_TO_OPERATORS = [
    "INSERT INTO dispatch.queues (name) VALUES ('mine')",
    "UPDATE dispatch.queues SET weight = 1",
    "DELETE FROM dispatch.queues",
]
WRITES_OF_ANY_KIND = """
SELECT c.relname, privilege FROM pg_class c,
       unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS privilege
 WHERE c.relnamespace = 'dispatch'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
   AND (has_table_privilege($1, c.oid, privilege)
        OR privilege IN ('INSERT', 'UPDATE', 'REFERENCES') AND has_any_column_privilege($1, c.oid, privilege))
"""
COLUMN_PRIVILEGES = """
SELECT attname FROM pg_attribute WHERE attrelid = 'dispatch.tasks'::regclass AND attnum > 0 AND NOT attisdropped
   AND has_column_privilege($1, attrelid, attnum, $2)
"""
SEQUENCES = (
    "SELECT oid::regclass::text AS name FROM pg_class WHERE relnamespace = 'dispatch'::regnamespace AND relkind = 'S'"
)
RELATIONS = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'dispatch'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')"
)
EXECUTABLE_WRITERS = """
SELECT proname FROM pg_proc WHERE pronamespace = 'dispatch'::regnamespace AND provolatile = 'v'
   AND has_function_privilege($1, oid, 'EXECUTE')
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(postgres: PostgresServer) -> AsyncIterator[Database]:
    """One database for all of this file: what is refused changes nothing."""
    database = await postgres.create_database()
    admin = await database.session("admin")
    # What a server gives to everybody (the second before Postgres 15) is its administrator's choice, no grant of ours.
    await admin.execute(f'REVOKE TEMPORARY ON DATABASE "{database.name}" FROM PUBLIC')
    await admin.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    await database.insert_task(payload="secret")
    yield database
    await database.drop()


async def names(connection: Connection, query: str, *arguments: object) -> set[str]:
    return {row[0] for row in await connection.fetch(query, *arguments)}


async def refused(connection: Connection, statement: str) -> None:
    """The server says that this login lacks the privilege, and for no other reason."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
    finally:
        await transaction.rollback()


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("statement", FORBIDDEN_TO_ALL)
async def test_no_login_may(shared: Database, login: str, statement: str) -> None:
    session = await shared.session(login)
    await session.execute("SET default_transaction_read_only = off")
    await refused(session, statement)


@pytest.mark.parametrize("login", [login for login in LOGINS if login != "operator"])
@pytest.mark.parametrize("statement", FORBIDDEN_BUT_TO_OPERATORS)
async def test_nobody_but_an_operator_may(shared: Database, login: str, statement: str) -> None:
    session = await shared.session(login)
    await session.execute("SET default_transaction_read_only = off")
    await refused(session, statement)


@pytest.mark.parametrize("login", [login for login, group in LOGINS.items() if group != "dispatch_submitter"])
async def test_nobody_but_a_submitter_may_insert_tasks(shared: Database, login: str) -> None:
    await refused(await shared.session(login), "INSERT INTO dispatch.tasks DEFAULT VALUES")


@pytest.mark.parametrize("login", LOGINS)
async def test_no_login_moves_a_sequence(shared: Database, login: str) -> None:
    admin, session = await shared.session("admin"), await shared.session(login)
    sequences = await names(admin, SEQUENCES)
    assert sequences
    for sequence in sequences:
        await refused(session, f"SELECT nextval('{sequence}')")
        await refused(session, f"SELECT setval('{sequence}', 1)")


@pytest.mark.parametrize("login", LOGINS)
async def test_writes_granted_are_exactly_those_of_the_interface(shared: Database, login: str) -> None:
    admin = await shared.session("admin")
    granted = {tuple(row) for row in await admin.fetch(WRITES_OF_ANY_KIND, login)}
    queues = {("queues", privilege) for privilege in ("INSERT", "UPDATE", "DELETE")}
    allowed = {"dispatch_submitter": {("tasks", "INSERT")}, "dispatch_operator": queues}
    assert granted == allowed.get(LOGINS[login], set())


@pytest.mark.parametrize(("login", "columns"), READABLE.items())
async def test_the_columns_a_login_reads_are_exactly_those_of_the_interface(
    shared: Database, login: str, columns: set[str]
) -> None:
    readable = await names(await shared.session("admin"), COLUMN_PRIVILEGES, login, "SELECT")
    assert readable - INTERNAL == columns
    assert columns or not readable


async def test_an_operator_reads_no_secret(shared: Database) -> None:
    readable = await names(await shared.session("admin"), COLUMN_PRIVILEGES, "operator", "SELECT")
    assert readable & {"payload", "start_key", "run_token"} == set()


async def test_the_columns_a_submitter_inserts_are_exactly_those_of_the_interface(shared: Database) -> None:
    assert await names(await shared.session("admin"), COLUMN_PRIVILEGES, "team_a", "INSERT") == SUBMITTED


@pytest.mark.parametrize("column", sorted(KEPT))
async def test_a_submitter_forges_no_column_of_ours(shared: Database, column: str) -> None:
    await refused(await shared.session("team_a"), f"INSERT INTO dispatch.tasks ({column}) VALUES (DEFAULT)")


async def test_a_submitter_cannot_turn_an_insert_into_an_update(shared: Database) -> None:
    statement = "INSERT INTO dispatch.tasks (dedupe_key) VALUES ('k') ON CONFLICT (id) DO UPDATE SET status = 'failed'"
    await refused(await shared.session("team_a"), statement)


@pytest.mark.parametrize("login", [login for login, columns in READABLE.items() if columns])
async def test_a_login_reads_what_it_may_and_star_is_more(shared: Database, login: str) -> None:
    session = await shared.session(login)
    assert await session.fetch(f"SELECT {', '.join(sorted(READABLE[login]))} FROM dispatch.tasks")
    for column in sorted(ALL - READABLE[login]):
        await refused(session, f"SELECT {column} FROM dispatch.tasks")
    await refused(session, "SELECT * FROM dispatch.tasks")


async def test_the_reader_reads_launches_queues_and_version(shared: Database) -> None:
    reader = await shared.session("reader")
    await reader.execute("SET default_transaction_read_only = on")
    await reader.fetch("""SELECT task_id, attempt, launch, job_uid, node_name, pod_name, started_at, ended_at, outcome,
                                 error FROM dispatch.task_launches""")
    assert {"*", "default"} <= await names(reader, "SELECT name FROM dispatch.queues")
    assert await reader.fetch("SELECT * FROM dispatch.queues")
    assert await reader.fetchval("SELECT database_id FROM dispatch.schema_version LIMIT 1")
    await reader.execute("LISTEN dispatch_tasks; UNLISTEN *")
    await reader.execute("SET default_transaction_read_only = off")


async def test_a_container_reads_no_table(shared: Database) -> None:
    task = await shared.session("task")
    relations = await names(await shared.session("admin"), RELATIONS)
    assert {"tasks", "task_launches", "queues", "schema_version"} <= relations
    for relation in relations:
        await refused(task, f"SELECT 1 FROM dispatch.{relation}")


@pytest.mark.parametrize(("login", "functions"), EXECUTABLE.items())
async def test_the_writing_functions_of_a_login_are_exactly_those_of_the_interface(
    shared: Database, login: str, functions: set[str]
) -> None:
    assert await names(await shared.session("admin"), EXECUTABLE_WRITERS, login) == functions


async def test_the_janitor_calls_no_function_of_a_container_or_a_person(shared: Database) -> None:
    own = await names(await shared.session("admin"), EXECUTABLE_WRITERS, "janitor")
    assert own & (CONTAINER_FUNCTIONS | PEOPLE_FUNCTIONS) == set()


FUNCTION_CALLS = """
SELECT format('SELECT dispatch.%I(%s)', proname,
              (SELECT string_agg('NULL::' || format_type(t, NULL), ', ') FROM unnest(proargtypes) AS t))
  FROM pg_proc
 WHERE pronamespace = 'dispatch'::regnamespace AND provolatile = 'v' AND prorettype <> 'trigger'::regtype
   AND NOT has_function_privilege($1, oid, 'EXECUTE')
"""


@pytest.mark.parametrize("login", LOGINS)
async def test_a_function_that_is_not_granted_cannot_be_called(shared: Database, login: str) -> None:
    calls = await names(await shared.session("admin"), FUNCTION_CALLS, login)
    assert calls
    for call in sorted(calls):
        await refused(await shared.session(login), call)
