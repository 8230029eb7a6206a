"""No call of the janitor waits for what somebody else keeps open: rows, launches, queues and roles in a transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dispatcher.pg.tasks import Closings, DeletionResult
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import own_database
from tests.rig.rows import FIRST, RETRY, Row, insert_row

database = own_database
CALLS = """
SELECT DISTINCT p.proname FROM pg_proc AS p JOIN pg_roles AS r ON r.rolname = pg_get_userbyid(p.proowner)
WHERE p.pronamespace = 'dispatch_private'::regnamespace AND p.proname LIKE 'janitor\\_%'
"""
OLD = "UPDATE dispatch_private.tasks SET finished_at = now() - interval '99 days' WHERE id = ANY ($1)"
GONE_ROLE = """
CREATE ROLE leaves;
CREATE ROLE gone;
INSERT INTO dispatch.queues (name, owner_role, submit_role) VALUES ('theirs', 'leaves', 'leaves');
INSERT INTO dispatch_private.submitters VALUES ('leaves', 'leaves'::regrole), ('gone', 'gone'::regrole);
DROP ROLE leaves, gone;
"""
FORGOTTEN = "SELECT name FROM dispatch_private.submitters WHERE role IS NULL ORDER BY name"


@asynccontextmanager
async def held(database: Database, *rows: Row) -> AsyncIterator[None]:
    """All that logins and operators can lock of these rows, and of a queue and a name whose role is gone."""
    team, operator, owner = [await database.connect(login) for login in ("team_a", "operator", "admin")]
    async with team.transaction(), operator.transaction(), owner.transaction():
        assert await team.fetchval(RETRY, rows[0].id, None)
        await operator.execute("UPDATE dispatch.queues SET note = 'mine' WHERE name = 'theirs'")
        await owner.execute("SELECT FROM dispatch_private.submitters WHERE name = 'leaves' FOR UPDATE")
        for table, key in (("tasks", "id"), ("task_launches", "task_id")):
            ids = [row.id for row in rows[1:]]
            await owner.execute(f"SELECT FROM dispatch_private.{table} WHERE {key} = ANY ($1) FOR UPDATE", ids)
        yield


async def ended(database: Database) -> Row:
    row = await insert_row(database)
    assert await row.finish(await row.started(), "failed", error="no") == "failed"
    return row


def an_end(row: Row) -> dict[str, Any]:
    return {"task": row.id, "attempt": 1, "launch": 1, "job_uid": FIRST.job_uid, "exit_code": 1, "reason": "Error"}


async def test_no_call_of_the_janitor_waits_for_a_lock_that_a_login_can_hold(database: Database) -> None:
    retried, old, free, old_free = [await ended(database) for _ in range(4)]
    silent = await insert_row(database)
    run = await silent.started()
    await silent.silent_for(61)
    admin, janitor = await database.session("admin"), await database.connect("janitor")
    await admin.execute(OLD, [old.id, old_free.id])
    await admin.execute(GONE_ROLE)
    told = {"as_of": "2026-01-01T00:00:00Z", "queues": [], "gone": [old.id]}
    told["rows"] = [[row.id, 1, "Poison", "2026-01-01T00:00:00Z", "no"] for row in (retried, silent, free)]
    calls: dict[str, tuple[list[Any], Any]] = {
        "janitor_cancel": ([silent.id, 1, run.run_digest], "locked"),
        "janitor_end": ([silent.id, 1, 1, FIRST.job_uid, "failed", "no"], "locked"),
        "janitor_return": ([silent.id, 1, 1, run.run_digest, 1, "no"], "locked"),
        "janitor_ended": ([[an_end(row) for row in (retried, silent, old, free)]], 1),
        "janitor_delete": ([30, 100, []], (1, [], None)),
        "janitor_tell": ([told], 3),
        "janitor_templates": ([[{"name": "default"}], False], 1),
    }
    assert {row["proname"] for row in await admin.fetch(CALLS)} == set(calls)
    async with held(database, retried, silent, old):
        await janitor.execute("SET lock_timeout = '1s'")
        for name, (values, answer) in calls.items():
            places = ", ".join(f"${number}" for number in range(1, len(values) + 1))
            assert await janitor.fetchval(f"SELECT dispatch_private.{name}({places})", *values) == answer, name
    assert [row["name"] for row in await admin.fetch(FORGOTTEN)] == ["gone"]
    closings = Closings(lambda: database.url("janitor"))
    try:
        assert await closings.delete_old(0, []) == DeletionResult(0, [], None), "without a retention, too"
    finally:
        await closings.close()
    assert [row["name"] for row in await admin.fetch(FORGOTTEN)] == ["gone", "leaves"]
    roles = await admin.fetchrow(
        "SELECT owner_oid::oid, submit_oid::oid FROM dispatch_private.queues WHERE name = 'theirs'"
    )
    assert roles is not None
    assert tuple(roles) == (0, 0)
