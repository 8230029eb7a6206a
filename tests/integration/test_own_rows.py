"""What a submitter asks and inserts costs as much as it has rows itself, however many rows others have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.full_database import full
from tests.rig.postgres import Connection, Database

__all__ = ["full"]
OWN, RECENT = 5000, 120
"""Ended rows of the submitter, one each second, and how many of them it asks for, which are of the batch $1."""
ENDED = f"""
INSERT INTO dispatch_private.tasks (queue, submitted_by, status, launch, finished_at, kind, batch)
SELECT 'queue-1', 'team_a', 'succeeded', 1, now() - interval '1 s' * (n - 0.5), 'x',
       CASE WHEN n <= {RECENT} THEN $1 END
FROM generate_series(1, {OWN}) AS n
"""
BATCH_OF_ANOTHER = f"""
INSERT INTO dispatch_private.tasks (queue, submitted_by, status, launch, finished_at, kind, batch)
SELECT 'queue-1', 'team_b', 'succeeded', 1, now(), 'x', $1 FROM generate_series(1, {OWN}) AS n
"""
SINCE = "SELECT count(*) FROM dispatch.task_ended_since(now() - make_interval(secs => $1))"
OF_SUBMITTER = ("tasks_ready_of_submitter", "tasks_due_of_submitter")
BOUND = "UPDATE dispatch.queues SET max_waiting_per_submitter = 10 WHERE name = '*'"
INSERTED = "INSERT INTO dispatch.tasks (queue) SELECT 'queue-1' FROM generate_series(1, 3)"
PAGE = 50
PAGES = {
    "a page": f"dispatch.tasks_after($1, {PAGE})",
    "the newest rows": f"dispatch.tasks_since('-infinity', {PAGE})",
}
"""Calls for so many rows. $1: the last id before the rows of the test, also below."""
CALLS = {
    **{name: (call, PAGE, PAGE) for name, call in PAGES.items()},
    "a batch": ("dispatch.tasks_of_batch('queue-1', 'b$1')", RECENT, RECENT),
    "the numbers of a batch": ("dispatch.batch('queue-1', 'b$1')", 1, RECENT),
    "a row of another": ("dispatch.task(1)", 0, 0),
    "why a row waits": ("dispatch.task_explain($1 + 1)", 1, 2),
    "the launches of a row": ("dispatch.task_history($1 + 1)", 0, 1),
    "why a row of another waits": ("dispatch.task_explain(1)", 0, 0),
    "a batch of another": ("dispatch.tasks_of_batch('queue-2', 'b$1')", 0, 0),
}
"""Calls, the number of rows that each tells, and of index entries that it reads."""
READ = """
SELECT relname AS name, pg_stat_get_xact_tuples_returned(oid) AS number FROM pg_class
WHERE 'dispatch_private.tasks'::regclass IN (oid, (SELECT indrelid FROM pg_index WHERE indexrelid = oid))
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
    try:
        yield
    finally:
        await transaction.rollback()


@pytest.mark.slow
async def test_ends_of_a_submitters_rows_are_read_by_an_index_without_those_of_others(full: Database) -> None:
    """Beside them, a million rows of another submitter have ended, one each second, too."""
    admin = await full.session("admin")
    async with undone(admin):
        await admin.execute(ENDED, "b")
        for seconds in (RECENT, 2 * RECENT):
            read = await read_by_team_a(admin, SINCE, float(seconds))
            assert read == (seconds, {"tasks_finished_of_submitter": seconds})


async def test_bound_of_waiting_rows_reads_no_rows_of_others(full: Database) -> None:
    """Beside them, a thousand rows of others wait in the queue, and rows of its own have ended."""
    admin = await full.session("admin")
    async with undone(admin):
        await admin.execute(ENDED, "b")
        await admin.execute("SET LOCAL session_replication_role = origin")
        await admin.execute(BOUND)
        for number in (3, 6):
            _, read = await read_by_team_a(admin, INSERTED)
            assert {name: count for name, count in read.items() if name in OF_SUBMITTER} == {OF_SUBMITTER[0]: number}


async def counted(admin: Connection, call: str) -> tuple[Any, dict[str, int]]:
    """The number of rows that the call tells team_a, and the entries that it reads.

    Beside its rows, a batch of the same name in the same queue has rows of another submitter.
    """
    last = await admin.fetchval("SELECT last_value FROM dispatch_private.tasks_id_seq")
    for rows_of_batch in (ENDED, BATCH_OF_ANOTHER):
        await admin.execute(rows_of_batch, f"b{last}")
    return await read_by_team_a(admin, f"SELECT count(*) FROM {call}".replace("$1", str(last)))


@pytest.mark.parametrize(("call", "rows", "entries"), CALLS.values(), ids=CALLS.keys())
async def test_call_for_own_rows_reads_no_more_than_it_tells(
    full: Database, call: str, rows: int, entries: int
) -> None:
    admin = await full.session("admin")
    async with undone(admin):
        told, read = await counted(admin, call)
        assert (told, sum(read.values())) == (rows, entries), read


@pytest.mark.parametrize("call", PAGES.values(), ids=PAGES.keys())
async def test_page_of_the_owner_of_a_queue_reads_a_page_of_each_of_its_rights(full: Database, call: str) -> None:
    """Its own rows stand in the queue that it owns."""
    admin = await full.session("admin")
    async with undone(admin):
        await admin.execute("UPDATE dispatch_private.queues SET owner_role = 'team_a' WHERE name = 'queue-1'")
        told, read = await counted(admin, call)
        assert told == PAGE
        assert sum(read.values()) <= 2 * PAGE, read
