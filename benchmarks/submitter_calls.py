"""Promise: bulk inserts and looks of a submitter cost little, however many rows others have.

* INSERT … SELECT of 10^5 rows takes at most 9 times as long as into a plain table with the same indexes, `submit` at
  most 3.5 times.
* A look among 10^5 rows of others takes at most: `task(id)` 0.3 ms, a call for 100 rows 2 ms, a view with 10,000
  own rows 10 ms.

Calls take turns on the server of the tests. Times are those of the client; looks are prepared, and their limits are
multiplied by the slowness of the machine.
"""

import asyncio
from statistics import median

from benchmarks.figures import Figure, run, tell
from benchmarks.machine import slowness
from benchmarks.other_inserts import PLAIN
from dispatcher import __version__
from tests.rig.postgres import Connection, PostgresServer

ROWS, ROUNDS, LOOKS = 100_000, 3, 40
BULK = {
    "plain": """INSERT INTO public.plain (env) SELECT '{"A": "1"}' FROM generate_series(1, $1::int)""",
    "insert": """INSERT INTO dispatch.tasks (env) SELECT '{"A": "1"}' FROM generate_series(1, $1::int)""",
    "submit": """
        SELECT count(*) FROM dispatch.submit(
            (SELECT jsonb_agg('{"env": {"A": "1"}}'::jsonb) FROM generate_series(1, $1::int)))
    """,
}
INSERT_SHARE, SUBMIT_SHARE = 9, 3.5
FILL = "INSERT INTO dispatch.tasks (batch) SELECT $1 || n % $2::int FROM generate_series(1, $3::int) AS n"
LIMITS_MS = {
    "SELECT * FROM dispatch.task(5)": 0.3,
    "SELECT * FROM dispatch.tasks_of_batch('default', 'own-7', 100)": 2,
    "SELECT count(*) FROM dispatch.tasks": 10,
    "SELECT * FROM dispatch.tasks_after(0, 100)": 2,
    "SELECT * FROM dispatch.tasks_since(now() - interval '1 day', 100)": 2,
    "SELECT * FROM dispatch.batch('default', 'own-7')": 10,
    "SELECT * FROM dispatch.batch_status": 10,
}


async def milliseconds(connection: Connection, statement: str, *parameters: object) -> float:
    clock = asyncio.get_running_loop().time
    began = clock()
    await connection.fetch(statement, *parameters, timeout=300)
    return (clock() - began) * 1000


async def bulk(admin: Connection, team: Connection) -> dict[str, float]:
    """Median time of each way to insert, in ms."""
    times: dict[str, list[float]] = {name: [] for name in BULK}
    for _ in range(ROUNDS):
        for name, statement in BULK.items():
            await admin.execute("TRUNCATE dispatch_private.tasks, public.plain; CHECKPOINT")
            times[name].append(await milliseconds(team, statement, ROWS))
    return {name: median(found) for name, found in times.items()}


async def looks(admin: Connection, team: Connection, other: Connection) -> dict[str, float]:
    """Median time of each look, in ms."""
    await admin.execute("TRUNCATE dispatch_private.tasks RESTART IDENTITY")
    await team.execute(FILL, "own-", 100, 10_000)
    await other.execute(FILL, "own-", 100, ROWS, timeout=300)
    await admin.execute("CHECKPOINT")
    await admin.execute("VACUUM (ANALYZE) dispatch_private.tasks")
    found = {}
    for statement in LIMITS_MS:
        prepared = await team.prepare(statement)
        times = []
        for _ in range(LOOKS):
            began = asyncio.get_running_loop().time()
            await prepared.fetch()
            times.append((asyncio.get_running_loop().time() - began) * 1000)
        found[statement] = median(times)
    return found


async def main() -> int:
    server = await PostgresServer.launch()
    try:
        database = await server.create_database()
        admin, team, other = [await database.session(login) for login in ("admin", "team_a", "team_b")]
        await admin.execute(PLAIN)
        await admin.execute("INSERT INTO dispatch_private.templates (name, row_may_set) VALUES ('default', '{env}')")
        inserts = await bulk(admin, team)
        before = slowness()
        seen = await looks(admin, team, other)
        slow = (before + slowness()) / 2
        version = str(await admin.fetchval("SHOW server_version"))
    finally:
        await server.close()
    figures = [
        Figure("INSERT … SELECT / plain table", inserts["insert"] / inserts["plain"], INSERT_SHARE),
        Figure("submit / plain table", inserts["submit"] / inserts["plain"], SUBMIT_SHARE),
        *(Figure(f"{statement} (ms)", seen[statement], most * slow) for statement, most in LIMITS_MS.items()),
    ]
    context = {f"{name}, us a row": found * 1000 / ROWS for name, found in inserts.items()}
    return tell("submitter_calls", figures, context, {"dispatcher": __version__, "postgres": version})


if __name__ == "__main__":
    run(main)
