"""Promise: a row takes at most 1 KiB of Postgres while it waits, and 2 KiB after its end, with the history of its run.

Rows with a payload of 300 bytes, inserted one by one, started, with four heartbeats, and finished by the calls of a
container. Sizes are those of all tables and indexes after VACUUM, WAL is that of the whole server.
"""

import json

from benchmarks.figures import Figure, run, tell
from dispatcher import __version__
from tests.rig.postgres import Connection, PostgresServer
from tests.rig.rows import Row, insert_row

ROWS, BEATS = 3000, 4
PAYLOAD = json.dumps({"text": "x" * 285})
NEW_BYTES, ENDED_BYTES = 1024, 2048
SIZE = """
SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class AS c
 WHERE c.relnamespace = 'dispatch_private'::regnamespace AND c.relkind = 'r'
"""
WAL = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"


async def lived(rows: list[Row]) -> None:
    """Every call of a container, one row after the other."""
    for row in rows:
        started = await row.started()
        for _ in range(BEATS):
            await row.heartbeat(started)
        await row.finish(started, "succeeded")


async def measured(admin: Connection) -> tuple[int, int]:
    """Bytes of all tables, and of WAL since the server began."""
    wal = await admin.fetchval(WAL)
    await admin.execute("VACUUM (ANALYZE)")
    return await admin.fetchval(SIZE), wal


async def main() -> int:
    server = await PostgresServer.launch()
    try:
        database = await server.create_database()
        admin = await database.session("admin")
        empty, began = await measured(admin)
        rows = [await insert_row(database, payload=PAYLOAD) for _ in range(ROWS)]
        new, inserted = await measured(admin)
        ready = await admin.fetchval(WAL)
        await lived(rows)
        ended, over = await measured(admin)
        version = str(await admin.fetchval("SHOW server_version"))
    finally:
        await server.close()
    figures = [
        Figure("a row that waits (bytes)", (new - empty) / ROWS, NEW_BYTES),
        Figure("a row that has ended, with its launch (bytes)", (ended - empty) / ROWS, ENDED_BYTES),
    ]
    context = {"WAL of an INSERT (bytes)": (inserted - began) / ROWS, "WAL of a run (bytes)": (over - ready) / ROWS}
    return tell("row_size", figures, context, {"dispatcher": __version__, "postgres": version})


if __name__ == "__main__":
    run(main)
