"""Rights on columns: every login against every column of every table; and no column holds a key.

`test_rights` lets every login try the columns that it may not read or write.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.integration.rights import names, untouched
from tests.postgres import Database
from tests.rows import Started, insert_row

shared = untouched

SUBMITTED = {
    *("queue", "priority", "run_at", "timeout_seconds", "max_failures", "template", "env", "spec", "payload"),
    *("cache_key", "dedupe_key", "batch", "labels"),
}
KEPT = {
    *("id", "status", "attempt", "launch", "failures", "run_digest", "job_uid", "submitted_by"),
    *("created_at", "started_at", "heartbeat_at", "finished_at", "cancel_requested_at", "node_name", "pod_name"),
    *("error", "result", "progress", "note"),
}
ALL = SUBMITTED | KEPT
INTERNAL = {"kind"}  # a digest of the submitter's input

HISTORY = {
    *("task_id", "attempt", "launch", "node_name", "pod_name", "started_at", "ended_at", "outcome", "exit_code"),
    *("reason", "error"),
}
LAUNCHES = HISTORY | {"job_uid", "queue"}
QUEUES = {
    *("name", "weight", "max_jobs", "max_jobs_per_submitter", "max_pending", "paused_until", "owner_role", "note"),
    *("submit_role", "max_waiting_per_submitter", "fair_submitters"),
}
VERSION = {"version", "name", "checksum", "database_id", "applied_at"}
TEMPLATES = {"templates": {"name", "row_may_set", "bounds", "images", "machines", "sets", "note"}}
WATCHING = {"task_launches": LAUNCHES, "queues": QUEUES, "schema_version": VERSION}
TOLD = {
    "reasons": {"reason", "whose_turn", "meaning", "next_step"},
    "reported": {"is_only", "as_of"},
    "task_reasons": {"task_id", "attempt", "reason", "message", "since"},
    "queue_reasons": {"queue", "waiting", "in_flight", "max_jobs", "weight", "share", "paused_until", "oldest",
                      "reasons", "behind"},
    "queue_status": {"queue", "waiting", "in_flight", "max_jobs", "weight", "share", "paused_until",
                     "oldest_wait_seconds", "reasons", "as_of"},
    "task_explain": {"id", "queue", "status", "attempt", "reason", "whose_turn", "message", "since", "as_of",
                     "position", "position_of", "started_at", "finished_at"},
    "task_history": HISTORY,
    "batch_status": {"queue", "submitted_by", "batch", "tasks", "waiting", "processing", "succeeded", "failed",
                     "cancelled", "first_started_at", "last_finished_at"},
}  # fmt: skip
READABLE: dict[str, dict[str, set[str]]] = {
    "reader": {
        "tasks": ALL - {"payload", "result", "run_digest"},
        **WATCHING,
        "secrets": {"generation", "start_inner", "start_outer"},
        **TEMPLATES,
    },
    "task": {},
    "team_a": {"tasks": ALL, "task_launches": HISTORY, "queues": QUEUES, **TOLD, **TEMPLATES},
    "team_b": {"tasks": ALL, "task_launches": HISTORY, "queues": QUEUES, **TOLD, **TEMPLATES},
    "operator": {"tasks": ALL, "task_launches": HISTORY, "queues": QUEUES, **TOLD, **TEMPLATES},
    "observer": {"tasks": ALL - {"payload", "run_digest"}, **WATCHING, **TOLD, **TEMPLATES},
    "janitor": {"tasks": ALL - {"payload", "result"}, **WATCHING, "task_reasons": TOLD["task_reasons"]},
}
READABLE_COLUMNS = """
SELECT relname, attname FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid
 WHERE c.relnamespace = 'dispatch'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
   AND attnum > 0 AND NOT attisdropped AND has_column_privilege($1, attrelid, attnum, 'SELECT')
"""
INSERTABLE_COLUMNS = """
SELECT attname FROM pg_attribute WHERE attrelid = 'dispatch.tasks'::regclass AND attnum > 0 AND NOT attisdropped
   AND has_column_privilege($1, attrelid, attnum, 'INSERT')
"""


@pytest.mark.parametrize(("login", "tables"), READABLE.items())
async def test_login_reads_exactly_the_columns_of_the_interface(
    shared: Database, login: str, tables: dict[str, set[str]]
) -> None:
    found: dict[str, set[str]] = {}
    for relation, column in await (await shared.session("admin")).fetch(READABLE_COLUMNS, login):
        found.setdefault(relation, set()).add(column)
    assert {relation: columns - INTERNAL for relation, columns in found.items()} == tables


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
    assert await names(await shared.session("admin"), INSERTABLE_COLUMNS, "team_a") == SUBMITTED


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
