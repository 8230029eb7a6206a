"""Promise: a first look takes seconds. `make demo` in a new clone takes at most 15, with the packages that it installs,
and the demo at most 10 from then on. 1,000 rows on the embedded cluster take at most 15.

Each demo is the real command in a pipe, from its start until its process is gone. The first one has empty caches of uv
and pip, so its time is also that of the package index and of the line to it. The rows are timed from their INSERT until
the last Job is swept. Their containers take no time (`tests/rig/instant.py`). Cluster, containers and stopwatch share
one process here, so the dispatcher has one core for itself and all else has the other.

Most of these seconds are imports and other work of the CPU, so limits are multiplied by the slowness of the machine.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import asyncpg

from benchmarks.burst import MANY_ROWS
from benchmarks.figures import Figure, run, tell
from benchmarks.machine import slowness
from benchmarks.requests_per_task import ALL_OVER
from tests.controlplane.embedded import EmbeddedPlane
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import ROOT, Dispatcher, Place
from tests.rig.instant import instant_node
from tests.rig.postgres import PostgresServer

ROWS = 1000
SECONDS = 15
LATER_SECONDS = 10


async def timed(*command: str, folder: Path, **environment: str) -> float:
    began = time.monotonic()
    child = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env={**os.environ, **environment}, stdout=subprocess.DEVNULL
    )
    assert await child.wait() == 0
    return time.monotonic() - began


async def demos() -> tuple[float, float]:
    """Seconds of the first demo in a new clone, and of one whose packages are there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await timed("git", "clone", "--quiet", str(ROOT), "clone", folder=folder)
        caches = {"UV_CACHE_DIR": str(folder / "uv"), "PIP_CACHE_DIR": str(folder / "pip")}
        first = await timed("make", "demo", folder=folder / "clone", **caches)
    return first, await timed(sys.executable, "-m", "dispatcher", "demo", folder=ROOT)


async def rows_through(place: Place) -> float:
    plane, url = place.control_plane, place.database.url("task")
    settings = {"MAX_JOBS": 200, "TOMBSTONE_SECONDS": 0}
    async with instant_node(plane, place.namespace, url), Dispatcher(place, **settings) as dispatcher:
        await dispatcher.ready()
        admin = await place.database.session("admin")
        began = time.monotonic()
        await (await place.database.session("team_a")).execute(MANY_ROWS, ROWS)

        async def is_over() -> bool:
            return bool(await admin.fetchval(ALL_OVER, ROWS))

        async def is_swept() -> bool:
            return not await place.jobs()

        await wait_for(is_over, "all rows succeeded", 60, check=dispatcher.check)
        await wait_for(is_swept, "all Jobs are gone", 60, check=dispatcher.check)
        return time.monotonic() - began


async def main() -> int:
    before = slowness()
    first, later = await demos()
    postgres = await PostgresServer.launch()
    try:
        async with EmbeddedPlane() as plane:
            with tempfile.TemporaryDirectory() as folder:
                namespace, database = await plane.create_namespace(), await postgres.create_database()
                place = Place(plane, namespace, database, Path(folder))
                await place.prepare()
                rows = await rows_through(place)
        connection = await asyncpg.connect(postgres.admin_url)
        versions = {"postgres": str(await connection.fetchval("SHOW server_version"))}
        await connection.close()
    finally:
        await postgres.close()
    slow = (before + slowness()) / 2
    figures = [
        Figure("make demo in a new clone, seconds", first, SECONDS * slow),
        Figure("demo, seconds, later", later, LATER_SECONDS * slow),
        Figure("1,000 rows on the embedded cluster, seconds", rows, SECONDS * slow),
    ]
    return tell("trying_out", figures, {"slowness of the machine": slow}, versions)


if __name__ == "__main__":
    run(main)
