"""Promise: with 20 templates known, the table takes at least 0.95 of the inserts that it took before.

Two databases on one server take turns: one with the schema before batches and templates, and one with the newest
schema and 20 templates. Inserts come from pgbench, as in `other_inserts.py`, on the server of the tests, which flushes
nothing. There the judgement of a row weighs most.
"""

from pathlib import Path
from statistics import fmean

import msgspec

from benchmarks.figures import Figure, run, tell
from benchmarks.machine import slowness
from benchmarks.other_inserts import inserts_a_second
from dispatcher import __version__
from dispatcher.jobs.offered import offered_templates
from dispatcher.pg.closings import Closings
from dispatcher.pg.connect import open_connection
from dispatcher.pg.migrate import WRITING, apply, plan_migrations, prepare, read_migrations
from tests.builders import a_template
from tests.postgres import Database, PostgresServer

BEFORE = 16
"""The last schema version without templates, batches and labels: what INSERT judges came with them."""
TEMPLATES, ROUNDS, SHARE = 20, 6, 0.95


async def older(server: PostgresServer) -> Database:
    """A database of the schema before."""
    database = await server.create_database(migrated=False)
    connection = await open_connection(database.admin_url, **WRITING)
    await prepare(connection)
    for migration in plan_migrations({}, [one for one in read_migrations() if one.version <= BEFORE]):
        await apply(connection, migration)
    await connection.close()
    return database


async def newest(server: PostgresServer) -> Database:
    """A database of the newest schema, with 20 templates as the janitor writes them."""
    database = await server.create_database()
    templates = {"default": a_template()} | {f"t{n}": a_template(f"t{n}") for n in range(1, TEMPLATES)}
    calls = Closings(lambda: database.url("janitor"))
    offered = msgspec.json.encode(offered_templates(templates, ())).decode()
    assert await calls.templates(offered, are_all=True) == TEMPLATES
    await calls.close()
    return database


async def main() -> int:
    script = Path(__file__).with_name("other_inserts.sql")
    server = await PostgresServer.launch()
    try:
        now, before = await newest(server), await older(server)
        rates: dict[Database, list[float]] = {now: [], before: []}
        slow = slowness()
        for number in range(2 * ROUNDS):
            database = (now, before)[(number + number // 2) % 2]
            await (await database.session("admin")).execute("TRUNCATE dispatch.tasks CASCADE; CHECKPOINT")
            rates[database].append(await inserts_a_second(database, script))
        version = str(await (await now.session("admin")).fetchval("SHOW server_version"))
    finally:
        await server.close()
    share = fmean(rates[now]) / fmean(rates[before])
    figures = [Figure("inserts with 20 templates / before", share, SHARE, at_least=True)]
    context = {"inserts a second before": fmean(rates[before]), "slowness of the machine": slow}
    return tell("known_templates", figures, context, {"dispatcher": __version__, "postgres": version})


if __name__ == "__main__":
    run(main)
