"""Promise: a batch of 10^5 rows among 10^6 is counted within 50 ms, and batches cost others nothing.

A heartbeat with progress and a note takes at most 1.1 times as long as one without. The table takes at least 0.95 of
the inserts that it takes without the three indexes that batches and labels brought.

Calls take turns, and the times are those of the client. Inserts come from pgbench, on the server of the tests, which
flushes nothing. Their figure is the median of neighbouring turns, as in `other_inserts.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure, run, tell
from benchmarks.machine import slowness
from benchmarks.other_inserts import in_turns, inserts_a_second, shares
from dispatcher import __version__
from tests.rig.postgres import Database, PostgresServer
from tests.rig.rows import insert_row

BATCHES, ROWS = 10, 100_000
ASKED, BEATS = 20, 1000
STATUS_MS, BEAT_SHARE, INSERT_SHARE = 50, 1.1, 0.95
FILL = """
INSERT INTO dispatch_private.tasks (submitted_by, batch, kind, status, started_at, finished_at)
SELECT 'team_a', 'batch-' || n % $1::int, '\\x00', one.status, now(),
       CASE one.status WHEN 'waiting' THEN NULL ELSE now() END
  FROM generate_series(1, $1::int * $2::int) AS n
 CROSS JOIN LATERAL (SELECT (ARRAY['waiting', 'succeeded', 'failed'])[1 + n / $1::int % 3] AS status) AS one
"""
STATUS = "SELECT * FROM dispatch.batch('default', 'batch-7')"
PLAIN, TELLING = "SELECT dispatch.task_heartbeat($1)", "SELECT dispatch.task_heartbeat($1, 0.5, 'reading month 5')"
WITHOUT = """
DROP INDEX dispatch_private.tasks_of_batch, dispatch_private.tasks_of_own_batch, dispatch_private.tasks_labels
"""


async def milliseconds(call: Callable[[], Awaitable[object]]) -> float:
    clock = asyncio.get_running_loop().time
    began = clock()
    await call()
    return (clock() - began) * 1000


async def count_a_batch(database: Database) -> float:
    """Median in milliseconds of the status of one batch."""
    admin, team = await database.session("admin"), await database.session("team_a")
    await admin.execute("ALTER TABLE dispatch_private.tasks DISABLE TRIGGER USER")
    await admin.execute(FILL, BATCHES, ROWS, timeout=300)
    await admin.execute("CHECKPOINT")  # VACUUM marks pages as visible to all once their commits are on disk
    await admin.execute("VACUUM (ANALYZE) dispatch_private.tasks", timeout=300)
    await admin.execute("ALTER TABLE dispatch_private.tasks ENABLE TRIGGER USER")

    async def ask() -> None:
        row = await team.fetchrow(STATUS)
        assert row is not None
        assert row["tasks"] == ROWS

    return median([await milliseconds(ask) for _ in range(ASKED)])


async def beat(database: Database) -> float:
    """Time of a heartbeat with progress, as a part of the time without."""
    row, task = await insert_row(database), await database.session("task")
    token = (await row.started()).run_token
    times: dict[str, list[float]] = {PLAIN: [], TELLING: []}
    for number in range(2 * BEATS):
        query = (PLAIN, TELLING)[(number + number // 2) % 2]
        times[query].append(await milliseconds(lambda query=query: task.fetchval(query, token)))  # type: ignore[misc]  # a default binds the loop's value
    return median(times[TELLING]) / median(times[PLAIN])


async def insert(with_marks: Database, without: Database) -> float:
    """Inserts a second with what batches brought, as a part of those without."""
    script = Path(__file__).with_name("other_inserts.sql")
    admin = await without.session("admin")
    await admin.execute(WITHOUT)

    async def turn(database: Database) -> float:
        await (await database.session("admin")).execute("TRUNCATE dispatch_private.tasks; CHECKPOINT")
        return await inserts_a_second(database, script)

    return median(shares(await in_turns(lambda: turn(with_marks), lambda: turn(without))))


async def main() -> int:
    server = await PostgresServer.launch()
    try:
        first, second = [await server.create_database() for _ in range(2)]
        before = slowness()
        status, share, inserts = await count_a_batch(first), await beat(first), await insert(first, second)
        slow = (before + slowness()) / 2
        version = str(await (await first.session("admin")).fetchval("SHOW server_version"))
    finally:
        await server.close()
    figures = [
        Figure("batch of 10^5 of 10^6 rows, p50 (ms)", status, STATUS_MS * slow),
        Figure("heartbeat with progress / without", share, BEAT_SHARE),
        Figure("inserts beside batches / without", inserts, INSERT_SHARE, at_least=True),
    ]
    return tell("batches", figures, {"slowness of the machine": slow}, {"dispatcher": __version__, "postgres": version})


if __name__ == "__main__":
    run(main)
