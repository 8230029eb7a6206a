"""Rights on columns: every login against every column of every view and table; and no column holds a key.

`test_rights` lets every login try the columns that it may not read or write.
"""

from __future__ import annotations

from uuid import UUID

import asyncpg
import pytest

from tests.integration.columns import QUEUES, SUBMITTED
from tests.integration.rights import untouched
from tests.rig.postgres import LOGINS, Database
from tests.rig.rows import Started, insert_row

shared = untouched

KEPT = {
    *("id", "status", "attempt", "launch", "failures", "run_digest", "job_uid", "submitted_by"),
    *("created_at", "started_at", "heartbeat_at", "finished_at", "cancel_requested_at", "node_name", "pod_name"),
    *("error", "result", "progress", "note"),
}
ALL = SUBMITTED | KEPT
INTERNAL = {"kind", "second_process"}  # a digest of the submitter's input; how the run of a row cannot end well

HISTORY = {
    *("task_id", "attempt", "launch", "node_name", "pod_name", "started_at", "ended_at", "outcome", "exit_code"),
    *("reason", "error"),
}
LAUNCHES = HISTORY | {"job_uid"}
VERSION = {"version", "name", "checksum", "database_id", "applied_at"}
TEMPLATES = {"name", "row_may_set", "bounds", "images", "machines", "sets", "note"}
TASK_REASONS = {"task_id", "attempt", "reason", "message", "since"}
PEOPLE = {
    "tasks": ALL,
    "task_launches": LAUNCHES,
    "queues": QUEUES,
    "templates": TEMPLATES,
    "reasons": {"reason", "whose_turn", "meaning", "next_step"},
    "task_reasons": TASK_REASONS,
    "queue_status": {"queue", "waiting", "in_flight", "max_jobs", "weight", "share", "paused_until",
                     "oldest_wait_seconds", "reasons", "as_of", "roles_gone"},
    "task_explain": {"id", "queue", "status", "attempt", "reason", "whose_turn", "message", "since", "as_of",
                     "position", "position_of", "started_at", "finished_at"},
    "task_history": HISTORY,
    "batch_status": {"queue", "submitted_by", "batch", "tasks", "waiting", "processing", "succeeded", "failed",
                     "cancelled", "first_started_at", "last_finished_at"},
}  # fmt: skip
VIEWS: dict[str, dict[str, set[str]]] = {
    "reader": {"schema_version": VERSION},
    "task": {},
    "team_a": PEOPLE,
    "team_b": PEOPLE,
    "operator": PEOPLE,
    "observer": {**PEOPLE, "schema_version": VERSION},
    "janitor": {"schema_version": VERSION},
}
WATCHED = {
    "task_launches": LAUNCHES | {"queue"},
    "queues": QUEUES | {"owner_oid", "submit_oid"},
    "submitters": {"name", "role"},
    "schema_version": VERSION,
    "applied_functions": {"name", "checksum", "applied_at"},
}
TABLES: dict[str, dict[str, set[str]]] = {
    "reader": {
        "tasks": ALL - {"payload", "result", "run_digest"},
        **WATCHED,
        "secrets": {"generation", "start_inner", "start_outer"},
        "templates": TEMPLATES,
    },
    "janitor": {"tasks": ALL - {"payload", "result"}, **WATCHED, "task_reasons": TASK_REASONS},
}
READABLE_COLUMNS = """
SELECT relname, attname FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid
 WHERE c.relnamespace = $2::text::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
   AND attnum > 0 AND NOT attisdropped AND has_column_privilege($1, attrelid, attnum, 'SELECT')
"""
COLUMNS_OF_THE_VIEW = """
SELECT attname AS name, format_type(atttypid, atttypmod) AS type FROM pg_attribute
WHERE attrelid = 'dispatch.tasks'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
VALUES = {
    "bigint": "7",
    "integer": "7",
    "smallint": "7",
    "real": "0.5",
    "text": "'default'",
    "bytea": r"'\x00'",
    "jsonb": "'{}'",
    "timestamp with time zone": "'2026-01-01 UTC'",
}
"""A value of each type that a column of the view has."""


async def readable(database: Database, login: str, schema: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for relation, column in await (await database.session("admin")).fetch(READABLE_COLUMNS, login, schema):
        found.setdefault(relation, set()).add(column)
    return {relation: columns - INTERNAL for relation, columns in found.items()}


@pytest.mark.parametrize(("login", "views"), VIEWS.items())
async def test_login_reads_exactly_the_columns_of_the_interface(
    shared: Database, login: str, views: dict[str, set[str]]
) -> None:
    assert await readable(shared, login, "dispatch") == views


@pytest.mark.parametrize("login", LOGINS)
async def test_tables_are_read_by_our_programs_alone(shared: Database, login: str) -> None:
    assert await readable(shared, login, "dispatch_private") == TABLES.get(login, {})


async def test_no_column_of_a_row_or_a_launch_is_a_key(shared: Database) -> None:
    """A value that a login can read proves nothing to a function: it is a number, a name, words, or a digest."""
    admin, row = await shared.session("admin"), await insert_row(shared)
    started = await row.started()
    keys = {str(row.start_key), str(started.run_token), row.start_key.bytes.hex(), started.run_token.bytes.hex()}
    for table, name in (("tasks", "id"), ("task_launches", "task_id")):
        text = await admin.fetchval(f"SELECT t::text FROM dispatch_private.{table} AS t WHERE {name} = $1", row.id)
        assert not any(key in text for key in keys)
    stolen = UUID(bytes=started.run_digest[:16])
    assert await row.heartbeat(Started(stolen, None)) == "lost"


async def test_submitter_inserts_exactly_the_columns_of_the_interface(shared: Database) -> None:
    """A value for any other column is refused by the name of the column, and leaves no row."""
    team, taken = await shared.session("team_b"), set()
    for name, type_ in await team.fetch(COLUMNS_OF_THE_VIEW):
        insert = f"INSERT INTO dispatch.tasks ({name}) VALUES ({VALUES[type_]})"
        if name in SUBMITTED:
            await team.execute(insert)
            taken.add(name)
            continue
        with pytest.raises(asyncpg.PostgresError, match=f"^{name} is kept by the dispatcher") as refused:
            await team.execute(insert)
        told = (refused.value.sqlstate, refused.value.column_name, refused.value.table_name, bool(refused.value.hint))
        assert told == ("DI010", name, "tasks", True)
    assert taken == SUBMITTED


async def test_json_null_in_a_kept_column_is_a_value_too(shared: Database) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await (await shared.session("team_b")).execute("INSERT INTO dispatch.tasks (result) VALUES ('null')")
    assert (refused.value.sqlstate, refused.value.column_name) == ("DI010", "result")


async def test_every_column_may_be_inserted_as_default_or_null(shared: Database) -> None:
    """As some programs write it. What the database keeps is its own; what has no default is NULL."""
    team = await shared.session("team_b")
    columns = [row["name"] for row in await team.fetch(COLUMNS_OF_THE_VIEW)]
    listed, defaults = ", ".join(columns), ", ".join("DEFAULT" for _ in columns)
    kept = sorted(set(columns) - SUBMITTED)
    rows = [
        await team.fetchrow(f"INSERT INTO dispatch.tasks ({listed}) VALUES ({defaults}) RETURNING *"),
        await team.fetchrow(
            f"INSERT INTO dispatch.tasks ({', '.join(kept)}) SELECT {', '.join('NULL' for _ in kept)} RETURNING *"
        ),
        await team.fetchrow("INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING *"),
    ]
    differing = {"id", "created_at"}
    made = [{name: value for name, value in dict(row or {}).items() if name not in differing} for row in rows]
    assert made[0] == made[1] == made[2]
    assert (made[0]["queue"], made[0]["status"], made[0]["submitted_by"]) == ("default", "waiting", "team_b")


async def test_an_insert_returns_the_whole_row(shared: Database) -> None:
    team = await shared.session("team_b")
    row = await team.fetchrow("INSERT INTO dispatch.tasks (priority) VALUES (7) RETURNING *")
    assert row is not None
    assert (row["priority"], row["status"], row["submitted_by"]) == (7, "waiting", "team_b")
    assert dict(row) == dict(await team.fetchrow("SELECT * FROM dispatch.tasks WHERE id = $1", row["id"]) or {})
