"""Promise: with 20 templates known, the table takes at least 0.95 of the inserts that it takes with one.

Two databases on one server take turns: one that knows the template of the rows alone, and one that knows 20 templates.
Inserts come from pgbench, as in `other_inserts.py`, on the server of the tests, which flushes nothing. There the
judgement of a row weighs most.
"""

from pathlib import Path
from statistics import fmean

from benchmarks.figures import Figure, run, tell
from benchmarks.machine import slowness
from benchmarks.other_inserts import inserts_a_second
from dispatcher import __version__
from dispatcher.jobs.offered import offered_templates
from dispatcher.pg.tasks import Closings
from tests.rig.builders import a_template
from tests.rig.postgres import Database, PostgresServer

TEMPLATES, ROUNDS, SHARE = 20, 6, 0.95


async def with_templates(server: PostgresServer, number: int) -> Database:
    """A database with so many templates, as the janitor writes them."""
    database = await server.create_database()
    templates = {"default": a_template()} | {f"t{n}": a_template(f"t{n}") for n in range(1, number)}
    calls = Closings(lambda: database.url("janitor"))
    assert await calls.templates(offered_templates(templates, ()), are_all=True) == (number, [])
    await calls.close()
    return database


async def main() -> int:
    script = Path(__file__).with_name("other_inserts.sql")
    server = await PostgresServer.launch()
    try:
        now, before = await with_templates(server, TEMPLATES), await with_templates(server, 1)
        rates: dict[Database, list[float]] = {now: [], before: []}
        slow = slowness()
        for number in range(2 * ROUNDS):
            database = (now, before)[(number + number // 2) % 2]
            await (await database.session("admin")).execute("TRUNCATE dispatch_private.tasks CASCADE; CHECKPOINT")
            rates[database].append(await inserts_a_second(database, script))
        version = str(await (await now.session("admin")).fetchval("SHOW server_version"))
    finally:
        await server.close()
    share = fmean(rates[now]) / fmean(rates[before])
    figures = [Figure("inserts with 20 templates / with one", share, SHARE, at_least=True)]
    context = {"inserts a second with one": fmean(rates[before]), "slowness of the machine": slow}
    return tell("known_templates", figures, context, {"dispatcher": __version__, "postgres": version})


if __name__ == "__main__":
    run(main)
