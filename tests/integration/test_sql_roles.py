"""Rights of logins: every login against every function and kind of statement. `test_sql_columns` has the columns."""

from __future__ import annotations

import pytest

from tests.integration.rights import names, refused, untouched
from tests.postgres import LOGINS, Database

shared = untouched

CONTAINER_FUNCTIONS = {"task_start", "task_heartbeat", "task_finish"}
PEOPLE_FUNCTIONS = {"task_cancel", "task_retry"}
JANITOR_FUNCTIONS = {"janitor_return", "janitor_end", "janitor_cancel", "janitor_delete"}
EXECUTABLE = {
    "reader": set(),
    "task": CONTAINER_FUNCTIONS,
    "team_a": PEOPLE_FUNCTIONS | {"owned_queues"},
    "team_b": PEOPLE_FUNCTIONS | {"owned_queues"},
    "operator": PEOPLE_FUNCTIONS,
    "observer": set(),
    "janitor": JANITOR_FUNCTIONS,
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
    "SELECT run_digest FROM dispatch.task_launches",
    "SELECT run_inner FROM dispatch.secrets",
    "SELECT run_outer FROM dispatch.secrets",
    "SELECT * FROM dispatch.secrets",
    "INSERT INTO dispatch.secrets DEFAULT VALUES",
    "UPDATE dispatch.secrets SET start_inner = start_outer",
    "DELETE FROM dispatch.secrets",
    "SELECT digest FROM dispatch.earlier_start_keys",
    "SELECT task_id FROM dispatch.earlier_start_keys",
    "INSERT INTO dispatch.earlier_start_keys VALUES (1, '')",
    "UPDATE dispatch.earlier_start_keys SET digest = ''",
    "DELETE FROM dispatch.earlier_start_keys",
    "SELECT dispatch.rotate_secrets()",
    "SELECT dispatch.start_keys(1, now())",
    "SELECT dispatch.run_tokens(1, 1, 1, 'job-1', 'pod-1')",
    "SELECT dispatch.fits_start_key(1, now(), gen_random_uuid())",
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
FORBIDDEN_EXCEPT_TO_OPERATORS = [
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
SEQUENCES = (
    "SELECT oid::regclass::text AS name FROM pg_class WHERE relnamespace = 'dispatch'::regnamespace AND relkind = 'S'"
)
EXECUTABLE_FUNCTIONS = """
SELECT proname FROM pg_proc WHERE pronamespace = 'dispatch'::regnamespace AND has_function_privilege($1, oid, 'EXECUTE')
"""


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("statement", FORBIDDEN_TO_ALL)
async def test_forbidden_statement_is_refused_to_every_login(shared: Database, login: str, statement: str) -> None:
    session = await shared.session(login)
    await session.execute("SET default_transaction_read_only = off")
    await refused(session, statement)


@pytest.mark.parametrize("login", [login for login in LOGINS if login != "operator"])
@pytest.mark.parametrize("statement", FORBIDDEN_EXCEPT_TO_OPERATORS)
async def test_statement_of_operators_is_refused_to_other_logins(shared: Database, login: str, statement: str) -> None:
    session = await shared.session(login)
    await session.execute("SET default_transaction_read_only = off")
    await refused(session, statement)


@pytest.mark.parametrize("login", [login for login, group in LOGINS.items() if group != "dispatch_submitter"])
async def test_insert_of_tasks_is_refused_to_all_but_submitters(shared: Database, login: str) -> None:
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


async def test_a_submitter_cannot_turn_an_insert_into_an_update(shared: Database) -> None:
    statement = "INSERT INTO dispatch.tasks (dedupe_key) VALUES ('k') ON CONFLICT (id) DO UPDATE SET status = 'failed'"
    await refused(await shared.session("team_a"), statement)


@pytest.mark.parametrize(("login", "functions"), EXECUTABLE.items())
async def test_functions_of_a_login_are_exactly_those_of_the_interface(
    shared: Database, login: str, functions: set[str]
) -> None:
    assert await names(await shared.session("admin"), EXECUTABLE_FUNCTIONS, login) == functions


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
