"""Promise: the table takes at least 0.4 of the inserts that a plain table with the same columns and indexes takes.

pgbench commits single rows over 16 connections into `dispatch.tasks` and into a plain table, in turns. It is a client
in C, so that the server is the limit. Each turn begins with empty tables. A machine is slower in some seconds than in
others, so the figure is the median of the shares of neighbouring turns. The benchmark runs twice: on a server that is
as durable as Postgres ships, and on the server of the tests. That one flushes nothing, so a commit costs next to
nothing, and what we do with a row weighs most.
"""

import asyncio
import re
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from statistics import median, stdev

from benchmarks.figures import Figure, run, tell
from dispatcher import __version__
from tests.rig import postgres_process
from tests.rig.postgres import Database, PostgresServer

CONNECTIONS = 16
SECONDS = 2
ROUNDS = 9
SHARE = {"durable": 0.8, "no flush": 0.4}
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
PLAIN = """
CREATE TABLE public.plain (LIKE dispatch_private.tasks INCLUDING ALL);
ALTER TABLE public.plain ALTER kind SET DEFAULT '\\x00';
GRANT INSERT ON public.plain TO team_a;
"""
"""A table that nobody checks, shares or listens to. Its kind is what the check of a row would have computed."""
Rate = Callable[[], Awaitable[float]]
"""One turn. Returns the inserts a second."""


async def inserts_a_second(database: Database, script: Path) -> float:
    command = [postgres_process.binaries() / "pgbench", "-n", "-M", "prepared", "-c", CONNECTIONS, "-j", 2]
    command += ["-T", SECONDS, "-f", script, database.url("team_a")]
    child = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=script.parent
    )
    told = (await child.communicate())[0].decode()
    found = re.search(r"^tps = ([0-9.]+)", told, re.MULTILINE)
    assert found is not None, told
    return float(found[1])


async def in_turns(ours: Rate, theirs: Rate) -> list[tuple[float, float]]:
    """Both rates of each of ROUNDS pairs of neighbouring turns."""
    found = list[tuple[float, float]]()
    for number in range(ROUNDS):
        if number % 2:  # neither always comes second
            first = await ours()
            found.append((first, await theirs()))
        else:
            first = await theirs()
            found.append((await ours(), first))
    return found


def shares(pairs: Iterable[tuple[float, float]]) -> list[float]:
    return [ours / theirs for ours, theirs in pairs]


async def measure(settings: Mapping[str, str], script: Path) -> tuple[list[tuple[float, float]], str]:
    """The pairs of rates, ours and those of the plain table, on a server with these settings, and its version."""
    postgres_process.SETTINGS.update(settings)
    server = await PostgresServer.launch()
    try:
        database = await server.create_database()
        admin = await database.session("admin")
        await admin.execute(PLAIN)
        await admin.execute("INSERT INTO dispatch_private.templates (name, row_may_set) VALUES ('default', '{env}')")
        listener = await database.connect("reader")
        await listener.add_listener("dispatch_tasks", lambda *_: None)

        async def turn(script: Path) -> float:
            await admin.execute("TRUNCATE dispatch_private.tasks, public.plain; CHECKPOINT")
            return await inserts_a_second(database, script)

        pairs = await in_turns(lambda: turn(script), lambda: turn(script.with_name("plain_inserts.sql")))
        return pairs, str(await admin.fetchval("SHOW server_version"))
    finally:
        await server.close()


async def main() -> int:
    figures, context = [], {}
    script = Path(__file__).with_name("other_inserts.sql")
    volatile = {name: postgres_process.SETTINGS[name] for name in DURABLE}
    for name, settings in {"durable": DURABLE, "no flush": volatile}.items():
        pairs, version = await measure(settings, script)
        figures.append(Figure(f"share of a plain table, {name}", median(shares(pairs)), SHARE[name], at_least=True))
        context[f"{name}, standard deviation of the share"] = stdev(shares(pairs))
        context[f"{name}, inserts a second"] = median(ours for ours, _ in pairs)
    return tell("other_inserts", figures, context, {"dispatcher": __version__, "postgres": version})


if __name__ == "__main__":
    run(main)
