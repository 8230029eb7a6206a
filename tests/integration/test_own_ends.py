"""What a submitter asks about ends costs as much as it has ends itself, however many rows of others have ended."""

from __future__ import annotations

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
READ = """
SELECT relname AS name, pg_stat_get_xact_tuples_returned(oid) AS number FROM pg_class
WHERE relname = 'tasks' OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'dispatch.tasks'::regclass)
"""


async def entries_read(admin: Connection) -> dict[str, int]:
    """Entries that this transaction has read of the table and of each of its indexes."""
    return {row["name"]: row["number"] for row in await admin.fetch(READ) if row["number"]}


async def read_by_team_a(admin: Connection, seconds: int) -> tuple[int, dict[str, int]]:
    """The number of ends that team_a is told, and what that reads."""
    before = await entries_read(admin)
    await admin.execute("SET LOCAL SESSION AUTHORIZATION team_a")
    number = await admin.fetchval(SINCE, float(seconds))
    await admin.execute("SET LOCAL SESSION AUTHORIZATION DEFAULT")
    after = await entries_read(admin)
    return number, {name: more for name, count in after.items() if (more := count - before.get(name, 0))}


async def test_ends_of_a_submitters_rows_are_read_by_an_index_without_those_of_others(full: Database) -> None:
    """Beside them, a million rows of another submitter have ended, one each second, too."""
    admin = await full.session("admin")
    transaction = admin.transaction()
    await transaction.start()
    await admin.execute(ENDED)
    for seconds in (RECENT, 2 * RECENT):
        assert await read_by_team_a(admin, seconds) == (seconds, {"tasks_finished_of_submitter": seconds})
    await transaction.rollback()
