"""Promise: with 10^6 waiting rows of one queue and one priority, people get their answers at once.

`task_explain` of one row takes at most 20 ms in SQL, `queue_status` 300 ms, an explanation over HTTP 100 ms (p95), and
the status 300 ms (p95).

The rows that are asked for are the last ones: their places are counted behind all others. The queue has a thousand
starts in the last hour, by which the start of a row is estimated. The times are those of the client.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

import aiohttp

from benchmarks.figures import Figure, run, tell
from benchmarks.machine import slowness
from benchmarks.servers import Servers, launched
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.janitoring import Janitor
from tests.rig.postgres import Connection

ROWS, STARTS, ASKED = 1_000_000, 1000, 60
EXPLAIN_MS, QUEUES_MS, HTTP_MS, STATUS_MS = 20, 300, 100, 300
WAITING = """
INSERT INTO dispatch_private.tasks (submitted_by, kind)
SELECT 'team_a', (SELECT dispatch_private.kind_of('default', '{}', NULL, '{}')) FROM generate_series(1, $1) AS n
"""
STARTED = """
INSERT INTO dispatch_private.task_launches (task_id, attempt, launch, job_uid, started_at, ended_at, outcome, queue)
SELECT n, 1, 1, 'job', now() - interval '3 s' * n, now(), 'succeeded', 'default' FROM generate_series(1, $1) AS n
"""


def percentile(seconds: list[float], part: float) -> float:
    """In milliseconds."""
    return sorted(seconds)[round(part * (len(seconds) - 1))] * 1000


async def timed(ask: Callable[[int], Awaitable[object]], last: int) -> list[float]:
    """Seconds of each question: one for each of the last rows."""
    clock, found = asyncio.get_running_loop().time, []
    for task_id in range(last - ASKED, last):
        began = clock()
        await ask(task_id)
        found.append(clock() - began)
    return found


async def fill(admin: Connection) -> int:
    """Inserts the rows without their triggers, which would take minutes. Returns the last id."""
    await admin.execute("ALTER TABLE dispatch_private.tasks DISABLE TRIGGER USER")
    await admin.execute(WAITING, ROWS, timeout=300)
    await admin.execute(STARTED, STARTS)
    await admin.execute("VACUUM (ANALYZE) dispatch_private.tasks", timeout=300)
    last: int = await admin.fetchval("SELECT max(id) FROM dispatch.tasks")
    return last


async def ask_in_sql(place: Place, last: int) -> tuple[float, float]:
    """Medians in milliseconds of one row's explanation, and of the state of all queues."""
    team = await place.database.session("team_a")

    async def explain(task_id: int) -> None:
        row = await team.fetchrow("SELECT * FROM dispatch.task_explain($1)", task_id)
        assert row is not None
        assert row["position"] == 10_001

    async def queues(_: int) -> None:
        assert await team.fetch("SELECT * FROM dispatch.queue_status")

    return percentile(await timed(explain, last), 0.5), percentile(await timed(queues, last), 0.5)


async def ask_over_http(dispatcher: Dispatcher, last: int) -> tuple[float, float]:
    """95th percentiles in milliseconds of one row's explanation, and of the status."""
    url = f"http://127.0.0.1:{dispatcher.api_port}/api/v1"
    async with aiohttp.ClientSession() as session:

        async def get(path: str) -> None:
            async with session.get(f"{url}/{path}") as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()

        explained = await timed(lambda task_id: get(f"tasks/{task_id}/explain"), last)
        status = await timed(lambda _: get("status"), last)
    return percentile(explained, 0.95), percentile(status, 0.95)


async def is_told(place: Place) -> datetime | None:
    """Whether the janitor has brought the state of the queues over."""
    team = await place.database.session("team_a")
    found: datetime | None = await team.fetchval("SELECT max(as_of) FROM dispatch.queue_status WHERE waiting > 0")
    return found


async def measure(servers: Servers) -> tuple[tuple[float, float], tuple[float, float]]:
    place = await servers.place()
    last = await fill(await place.database.session("admin"))
    async with Dispatcher(place, MAX_JOBS=0) as dispatcher, Janitor(place) as janitor:
        await dispatcher.ready()
        await wait_for(lambda: is_told(place), "the queues are told in SQL", 120, check=janitor.check)
        return await ask_in_sql(place, last), await ask_over_http(dispatcher, last)


async def main() -> int:
    async with launched() as servers:
        servers.stop_controllers()
        before = slowness()
        (explain, queues), (http, status) = await measure(servers)
        slow = (before + slowness()) / 2
        versions = await servers.versions()
    figures = [
        Figure("task_explain of one of 10^6 rows, p50 (ms)", explain, EXPLAIN_MS * slow),
        Figure("queue_status, p50 (ms)", queues, QUEUES_MS * slow),
        Figure("explain over HTTP, p95 (ms)", http, HTTP_MS * slow),
        Figure("status over HTTP, p95 (ms)", status, STATUS_MS * slow),
    ]
    return tell("answers", figures, {"slowness of the machine": slow}, versions)


if __name__ == "__main__":
    run(main)
