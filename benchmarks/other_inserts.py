"""Promise: with our triggers the table takes at least 0.9 of the inserts that it takes without them.

pgbench commits single rows over 16 connections into `tasks`, with the triggers and with them disabled, in turns. It is
a client in C, so that the server is the limit. Each turn begins with an empty table. All else is the same: indexes, row
security, the role, a session that listens. The benchmark runs twice: on a server that is as durable as Postgres ships,
and on the server of the tests. That one flushes nothing, so a commit costs next to nothing and the triggers weigh most.
"""

import asyncio
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.figures import Figure, run, tell
from dispatcher import __version__
from tests import postgres_process
from tests.postgres import Connection, Database, PostgresServer

CONNECTIONS = 16
SECONDS = 4
ROUNDS = 4
SHARE = 0.9
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
KIND = "ALTER TABLE dispatch.tasks ALTER kind SET DEFAULT '\\x00'"  # the trigger that sets it is off


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


async def take_turns(database: Database, admin: Connection, script: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"ENABLE": [], "DISABLE": []}
    for number in range(2 * ROUNDS):
        state = ("DISABLE", "ENABLE")[(number + number // 2) % 2]  # ABBA: neither state always comes second
        await admin.execute(f"TRUNCATE dispatch.tasks; ALTER TABLE dispatch.tasks {state} TRIGGER USER; CHECKPOINT")
        found[state].append(await inserts_a_second(database, script))
    return found


async def measure(settings: Mapping[str, str], script: Path) -> tuple[dict[str, list[float]], str]:
    """The rates on a server with these settings, and its version."""
    postgres_process.SETTINGS.update(settings)
    server = await PostgresServer.launch()
    try:
        database = await server.create_database()
        admin = await database.session("admin")
        await admin.execute(KIND)
        listener = await database.connect("reader")
        await listener.add_listener("dispatch_tasks", lambda *_: None)
        return await take_turns(database, admin, script), str(await admin.fetchval("SHOW server_version"))
    finally:
        await server.close()


async def main() -> int:
    figures, context = [], {}
    script = Path(__file__).with_name("other_inserts.sql")
    volatile = {name: postgres_process.SETTINGS[name] for name in DURABLE}
    for name, settings in {"durable": DURABLE, "no flush": volatile}.items():
        found, version = await measure(settings, script)
        with_them, without = fmean(found["ENABLE"]), fmean(found["DISABLE"])
        figures.append(Figure(f"inserts a second, {name}", with_them, SHARE * without, at_least=True))
        context[f"{name}, share of those without triggers"] = with_them / without
        context[f"{name}, standard deviation with"] = stdev(found["ENABLE"])
        context[f"{name}, standard deviation without"] = stdev(found["DISABLE"])
    return tell("other_inserts", figures, context, {"dispatcher": __version__, "postgres": version})


if __name__ == "__main__":
    run(main)
