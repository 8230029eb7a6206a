"""Rights on columns: every login against every column of every table; and no column holds a key."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.integration.rights import names, refused, untouched
from tests.postgres import LOGINS, Database
from tests.rows import Started, insert_row

shared = untouched

SUBMITTED = {
    *("queue", "priority", "run_at", "timeout_seconds", "max_failures", "template", "env", "spec", "payload"),
    *("cache_key", "dedupe_key"),
}
KEPT = {
    *("id", "status", "attempt", "launch", "failures", "run_digest", "job_uid", "submitted_by"),
    *("created_at", "started_at", "heartbeat_at", "finished_at", "cancel_requested_at", "node_name", "pod_name"),
    *("error", "result"),
}
ALL = SUBMITTED | KEPT
INTERNAL = {"kind"}  # a digest of the submitter's input
READABLE = {
    "reader": ALL - {"payload", "result", "run_digest"},
    "task": set(),
    "team_a": ALL,
    "team_b": ALL,
    "operator": ALL,
    "observer": ALL - {"payload", "run_digest"},
    "janitor": ALL - {"payload", "result"},
}
WHOLE_ROWS = {"team_a", "team_b", "operator"}
"""Logins with SELECT on the whole table, for which `SELECT *` works."""

LAUNCHES = {
    *("task_id", "attempt", "launch", "job_uid", "node_name", "pod_name", "started_at", "ended_at", "outcome", "error"),
}
QUEUES = {
    *("name", "weight", "max_jobs", "max_jobs_per_submitter", "max_pending", "paused_until", "owner_role", "note"),
    *("submit_role", "max_waiting_per_submitter"),
}
VERSION = {"version", "name", "checksum", "database_id", "applied_at"}
WATCHING = {"task_launches": LAUNCHES, "queues": QUEUES, "schema_version": VERSION}
READABLE_OTHER_TABLES: dict[str, dict[str, set[str]]] = {
    "reader": {**WATCHING, "secrets": {"generation", "start_inner", "start_outer"}},
    "task": {},
    "team_a": {},
    "team_b": {},
    "operator": {"queues": QUEUES},
    "observer": WATCHING,
    "janitor": WATCHING,
}
READABLE_COLUMNS = """
SELECT relname, attname FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid
 WHERE c.relnamespace = 'dispatch'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
   AND attnum > 0 AND NOT attisdropped AND has_column_privilege($1, attrelid, attnum, 'SELECT')
"""
COLUMN_PRIVILEGES = """
SELECT attname FROM pg_attribute WHERE attrelid = 'dispatch.tasks'::regclass AND attnum > 0 AND NOT attisdropped
   AND has_column_privilege($1, attrelid, attnum, $2)
"""
RELATIONS = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'dispatch'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')"
)


@pytest.mark.parametrize(("login", "columns"), READABLE.items())
async def test_login_reads_exactly_the_columns_of_the_interface(
    shared: Database, login: str, columns: set[str]
) -> None:
    readable = await names(await shared.session("admin"), COLUMN_PRIVILEGES, login, "SELECT")
    assert readable - INTERNAL == columns
    assert columns or not readable


@pytest.mark.parametrize("login", LOGINS)
async def test_login_reads_exactly_the_columns_of_other_tables_of_the_interface(shared: Database, login: str) -> None:
    found: dict[str, set[str]] = {}
    for relation, column in await (await shared.session("admin")).fetch(READABLE_COLUMNS, login):
        found.setdefault(relation, set()).add(column)
    found.pop("tasks", None)
    assert found == READABLE_OTHER_TABLES[login]


async def test_no_column_of_a_row_or_a_launch_is_a_key(shared: Database) -> None:
    """A value that a login can read proves nothing to a function: it is a number, a name, words, or a digest."""
    admin, row = await shared.session("admin"), await insert_row(shared)
    started = await row.started()
    keys = {str(row.start_key), str(started.run_token), row.start_key.bytes.hex(), started.run_token.bytes.hex()}
    for table, name in (("tasks", "id"), ("task_launches", "task_id")):
        text = await admin.fetchval(f"SELECT t::text FROM dispatch.{table} AS t WHERE {name} = $1", row.id)
        assert not any(key in text for key in keys)
    stolen = UUID(bytes=started.run_digest[:16])
    assert await row.heartbeat(Started(stolen, None)) == "lost"


async def test_submitter_inserts_exactly_the_columns_of_the_interface(shared: Database) -> None:
    assert await names(await shared.session("admin"), COLUMN_PRIVILEGES, "team_a", "INSERT") == SUBMITTED


@pytest.mark.parametrize("column", sorted(KEPT))
async def test_submitter_cannot_insert_internal_columns(shared: Database, column: str) -> None:
    await refused(await shared.session("team_a"), f"INSERT INTO dispatch.tasks ({column}) VALUES (DEFAULT)")


@pytest.mark.parametrize(("login", "sees"), [("team_a", True), ("team_b", False), ("operator", True)])
async def test_submitters_and_operators_read_whole_rows(shared: Database, login: str, sees: bool) -> None:
    """The row of team_a with its payload; the other team reads none."""
    rows = await (await shared.session(login)).fetch("SELECT * FROM dispatch.tasks WHERE payload = '\"secret\"'")
    assert len(rows) == sees


async def test_an_insert_returns_the_whole_row(shared: Database) -> None:
    team = await shared.session("team_b")
    row = await team.fetchrow("INSERT INTO dispatch.tasks (priority) VALUES (7) RETURNING *")
    assert row is not None
    assert (row["priority"], row["status"], row["submitted_by"]) == (7, "waiting", "team_b")
    await (await shared.session("admin")).execute("DELETE FROM dispatch.tasks WHERE id = $1", row["id"])


@pytest.mark.parametrize("login", [login for login, columns in READABLE.items() if columns and login not in WHOLE_ROWS])
async def test_login_without_whole_rows_is_refused_select_star(shared: Database, login: str) -> None:
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
    assert await reader.fetch("SELECT generation, start_inner, start_outer FROM dispatch.secrets")
    assert await reader.fetchval("SELECT database_id FROM dispatch.schema_version LIMIT 1")
    await reader.execute("LISTEN dispatch_tasks; UNLISTEN *")
    await reader.execute("SET default_transaction_read_only = off")


async def test_a_container_reads_no_table(shared: Database) -> None:
    task = await shared.session("task")
    relations = await names(await shared.session("admin"), RELATIONS)
    assert {"tasks", "task_launches", "queues", "schema_version", "secrets", "earlier_start_keys"} <= relations
    for relation in relations:
        await refused(task, f"SELECT 1 FROM dispatch.{relation}")
