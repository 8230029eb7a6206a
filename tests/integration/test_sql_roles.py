"""Rights of logins: every login against every function and kind of statement. `test_sql_columns` has the columns.

`test_rights` makes the plain SELECT, INSERT, UPDATE and DELETE of every table from the catalog.
"""

from __future__ import annotations

import asyncpg
import pytest

from tests.integration.rights import names, refused, untouched
from tests.rig.postgres import LOGINS, Database

shared = untouched

CONTAINER_FUNCTIONS = {"task_start", "task_heartbeat", "task_finish"}
READING_FUNCTIONS = {
    "own_name", "task", "task_explain", "task_history", "batch", "tasks_of_batch", "tasks_after", "tasks_since",
}  # fmt: skip
PEOPLE_FUNCTIONS = READING_FUNCTIONS | {"task_cancel", "task_retry", "task_set_priority"}
SUBMITTER_FUNCTIONS = PEOPLE_FUNCTIONS | {"submit", "batch_cancel", "batch_retry", "task_ended_since"}
JANITOR_FUNCTIONS = {
    "janitor_return",
    "janitor_end",
    "janitor_cancel",
    "janitor_delete",
    "janitor_ended",
    "janitor_tell",
    "janitor_templates",
}
TASK_LOGINS = {"are_logins_read_only", "setting_of", "task_logins", "tasks_refused"}
EXECUTABLE = {
    "reader": TASK_LOGINS,
    "task": CONTAINER_FUNCTIONS,
    "team_a": SUBMITTER_FUNCTIONS,
    "team_b": SUBMITTER_FUNCTIONS,
    "operator": PEOPLE_FUNCTIONS | {"rows_move"},
    "observer": READING_FUNCTIONS,
    "janitor": JANITOR_FUNCTIONS | TASK_LOGINS,
}

FORBIDDEN_TO_ALL = [
    "UPDATE dispatch_private.tasks SET priority = 0",
    "UPDATE dispatch_private.tasks SET status = 'succeeded'",
    "DELETE FROM dispatch_private.tasks",
    "TRUNCATE dispatch_private.tasks CASCADE",
    "SELECT id FROM dispatch.tasks FOR UPDATE",
    "SELECT id FROM dispatch.tasks FOR NO KEY UPDATE",
    "SELECT id FROM dispatch.tasks FOR SHARE",
    "SELECT id FROM dispatch.tasks FOR KEY SHARE",
    "LOCK TABLE dispatch.tasks",
    "LOCK TABLE dispatch_private.tasks",
    "SELECT * FROM dispatch_private.secrets",
    "ALTER TABLE dispatch_private.tasks DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE dispatch_private.tasks DISABLE TRIGGER ALL",
    "ALTER TABLE dispatch.tasks DISABLE TRIGGER insert_task",
    "DROP VIEW dispatch.tasks",
    "DROP TABLE dispatch_private.tasks",
    "CREATE OR REPLACE VIEW dispatch.tasks AS SELECT 1 AS id",
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
WRITES_OF_ANY_KIND = """
SELECT c.oid::regclass::text, privilege FROM pg_class c,
       unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS privilege
 WHERE c.relnamespace IN ('dispatch'::regnamespace, 'dispatch_private'::regnamespace)
   AND c.relkind IN ('r', 'p', 'v', 'm')
   AND (has_table_privilege($1, c.oid, privilege)
        OR privilege IN ('INSERT', 'UPDATE', 'REFERENCES') AND has_any_column_privilege($1, c.oid, privilege))
UNION ALL
SELECT c.oid::regclass::text, privilege FROM pg_class c, unnest(ARRAY['USAGE', 'UPDATE']) AS privilege
 WHERE c.relnamespace IN ('dispatch'::regnamespace, 'dispatch_private'::regnamespace)
   AND c.relkind = 'S' AND has_sequence_privilege($1, c.oid, privilege)
"""
EXECUTABLE_FUNCTIONS = """
SELECT proname FROM pg_proc
 WHERE pronamespace IN ('dispatch'::regnamespace, 'dispatch_private'::regnamespace)
   AND has_schema_privilege($1, pronamespace, 'USAGE') AND has_function_privilege($1, oid, 'EXECUTE')
"""


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("statement", FORBIDDEN_TO_ALL)
async def test_forbidden_statement_is_refused_to_every_login(shared: Database, login: str, statement: str) -> None:
    session = await shared.session(login)
    await session.execute("SET default_transaction_read_only = off")
    await refused(session, statement)


@pytest.mark.parametrize("login", LOGINS)
async def test_writes_granted_are_exactly_those_of_the_interface(shared: Database, login: str) -> None:
    admin = await shared.session("admin")
    granted = {tuple(row) for row in await admin.fetch(WRITES_OF_ANY_KIND, login)}
    queues = {("dispatch.queues", privilege) for privilege in ("INSERT", "UPDATE", "DELETE")}
    allowed = {"dispatch_submitter": {("dispatch.tasks", "INSERT")}, "dispatch_operator": queues}
    assert granted == allowed.get(LOGINS[login], set())


@pytest.mark.parametrize("statement", ["UPDATE dispatch.tasks SET priority = 0", "DELETE FROM dispatch.tasks"])
async def test_rows_are_not_changed_through_the_view(shared: Database, statement: str) -> None:
    for login in (*LOGINS, "admin"):
        with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.ObjectNotInPrerequisiteStateError)):
            await (await shared.session(login)).execute(statement)


async def test_a_submitter_cannot_turn_an_insert_into_an_update(shared: Database) -> None:
    statement = "INSERT INTO dispatch.tasks (dedupe_key) VALUES ('k') ON CONFLICT (id) DO UPDATE SET status = 'failed'"
    await refused(await shared.session("team_a"), statement)


@pytest.mark.parametrize(("login", "functions"), EXECUTABLE.items())
async def test_functions_of_a_login_are_exactly_those_of_the_interface(
    shared: Database, login: str, functions: set[str]
) -> None:
    assert await names(await shared.session("admin"), EXECUTABLE_FUNCTIONS, login) == functions
