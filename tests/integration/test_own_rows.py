"""What a submitter asks and inserts costs as much as it has rows itself, however many rows others have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.full_database import full
from tests.postgres import Connection, Database

__all__ = ["full"]
OWN, RECENT = 5000, 120
"""Ended rows of the submitter, one each second, and how many of them it asks for."""
ENDED = f"""
INSERT INTO dispatch.tasks (queue, submitted_by, status, launch, finished_at, kind)
SELECT 'queue-1', 'team_a', 'succeeded', 1, now() - interval '1 s' * (n - 0.5), 'x'
FROM generate_series(1, {OWN}) AS n
"""
SINCE = "SELECT count(*) FROM dispatch.task_ended_since(now() - make_interval(secs => $1))"
OF_SUBMITTER = ("tasks_ready_of_submitter", "tasks_due_of_submitter")
BOUND = "UPDATE dispatch.queues SET max_waiting_per_submitter = 10 WHERE name = '*'"
INSERTED = "INSERT INTO dispatch.tasks (queue) SELECT 'queue-1' FROM generate_series(1, 3)"
READ = """
SELECT relname AS name, pg_stat_get_xact_tuples_returned(oid) AS number FROM pg_class
WHERE relname = 'tasks' OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'dispatch.tasks'::regclass)
"""


async def entries_read(admin: Connection) -> dict[str, int]:
    """Entries that this transaction has read of the table and of each of its indexes."""
    return {row["name"]: row["number"] for row in await admin.fetch(READ) if row["number"]}


async def read_by_team_a(admin: Connection, statement: str, *parameters: float) -> tuple[Any, dict[str, int]]:
    """What the statement tells team_a, and the entries that it reads."""
    before = await entries_read(admin)
    await admin.execute("SET LOCAL SESSION AUTHORIZATION team_a")
    told = await admin.fetchval(statement, *parameters)
    await admin.execute("SET LOCAL SESSION AUTHORIZATION DEFAULT")
    after = await entries_read(admin)
    return told, {name: more for name, count in after.items() if (more := count - before.get(name, 0))}


@asynccontextmanager
async def undone(admin: Connection) -> AsyncIterator[None]:
    transaction = admin.transaction()
    await transaction.start()
    yield
    await transaction.rollback()


@pytest.mark.slow
async def test_ends_of_a_submitters_rows_are_read_by_an_index_without_those_of_others(full: Database) -> None:
    """Beside them, a million rows of another submitter have ended, one each second, too."""
    admin = await full.session("admin")
    async with undone(admin):
        await admin.execute(ENDED)
        for seconds in (RECENT, 2 * RECENT):
            read = await read_by_team_a(admin, SINCE, float(seconds))
            assert read == (seconds, {"tasks_finished_of_submitter": seconds})


async def test_bound_of_waiting_rows_reads_no_rows_of_others(full: Database) -> None:
    """Beside them, a thousand rows of others wait in the queue, and rows of its own have ended."""
    admin = await full.session("admin")
    async with undone(admin):
        await admin.execute(ENDED)
        await admin.execute("SET LOCAL session_replication_role = origin")
        await admin.execute(BOUND)
        for number in (3, 6):
            _, read = await read_by_team_a(admin, INSERTED)
            assert {name: count for name, count in read.items() if name in OF_SUBMITTER} == {OF_SUBMITTER[0]: number}
