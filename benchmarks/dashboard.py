"""Promise: a page of the dashboard takes at most 200 ms (p95), 50 ms of them for the database. This holds with 10^6
waiting and 10^6 finished rows, 5,000 Jobs and 5,000 nodes. Cycles take at most 1.1 times as long while 50 clients send
10,000 requests for all pages, and 1,000 other connections read nothing. All of this takes at most 40 MiB.

The rows are those of `idle_cycle`, with 20,000 failures and a batch of 10^5 rows. The nodes are those of
`standing_cluster`. `database` of Server-Timing is the time in which an answer waits: for its queries, and for others
that have the event loop meanwhile. Each page is asked for ROUNDS times, one request after another. The dispatcher's own
histogram times the cycles. Memory is what the process holds, before anybody has looked and after.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import cycle
from statistics import fmean

import aiohttp
from aiohttp import web
from msgspec import Struct

from benchmarks.figures import Figure, percentile, run, tell
from benchmarks.idle_cycle import DATABASE_ID, JOBS, MANY, Cycles, Load, cycles, post_jobs, sees_jobs
from benchmarks.machine import slowness
from benchmarks.servers import Servers, launched, memory_mib
from benchmarks.standing_cluster import StandingCluster
from tests.controlplane.waiting import moment, wait_for
from tests.faults.http_proxy import Exchange, KubeProxy
from tests.rig.dispatching import Dispatcher, Place

NODES, PODS = 5_000, 50_000
ROUNDS = 40
PAUSE_SECONDS = 0.7
"""Between two questions. Those that come faster wait for their turn."""
CLIENTS, REQUESTS, SILENT = 50, 10_000, 1_000
TURNS = 4
"""The machine is not equally quick at all times, so cycles are measured alone and beside others in turns."""
CLOSED = 0
"""Instead of a status: the server has closed the connection, because others came."""
PAGE_MS, DATABASE_MS, MOST_GROWTH, MOST_MIB = 200, 50, 1.1, 40
STANDING = frozenset({"/api/v1/nodes", "/api/v1/pods"})
FAILED = """
INSERT INTO dispatch_private.tasks (submitted_by, kind, status, launch, started_at, finished_at, error)
SELECT 'team_a', (SELECT dispatch_private.kind_of('default', '{}', NULL, '{}')), 'failed', 1, now(), now(),
       'cannot read file ' || n || ' of ' || md5(n::text) || repeat(' and more', 50)
FROM generate_series(1, 20000) AS n
"""
BATCH = """
INSERT INTO dispatch_private.tasks (submitted_by, kind, batch, status, started_at, finished_at)
SELECT 'team_a', (SELECT dispatch_private.kind_of('default', '{}', NULL, '{}')), 'night', 'succeeded', now(), now()
FROM generate_series(1, 100000) AS n
"""
SOME_ROW = "SELECT min(id) FROM dispatch.tasks WHERE status = 'waiting' AND queue = 'default'"
DATABASE = re.compile(r"database;dur=([0-9.]+)")


class Page(Struct, frozen=True):
    """Times of one page, p95 in milliseconds, and its size in bytes."""

    whole_ms: float
    database_ms: float
    size: int


async def pages_of(place: Place) -> Mapping[str, str]:
    """The paths by the name of the page."""
    row = await (await place.database.session("admin")).fetchval(SOME_ROW)
    return {
        "overview": "/", "queue": "/queues/default", "tasks": "/tasks",
        "tasks that wait": "/tasks?queue=default&status=waiting",
        "tasks by reason": "/tasks?reason=QueueCap", "batch": "/batches?queue=default&submitted_by=team_a&batch=night",
        "task": f"/tasks/{row}", "failures": "/failures", "nodes": "/nodes?cpu=1&memory=1Gi", "about": "/about",
    }  # fmt: skip


async def ask(session: aiohttp.ClientSession, path: str) -> tuple[float, float, int]:
    began = time.perf_counter()
    async with session.get(path) as answer:
        body = await answer.read()
        assert answer.status == 200, f"{path}: {answer.status} {body[:500]!r}"
        database = DATABASE.match(answer.headers["Server-Timing"])
    assert database is not None
    return (time.perf_counter() - began) * 1000, float(database[1]), len(body)


async def look_at(url: str, path: str) -> Page:
    async with aiohttp.ClientSession(url) as session:
        await ask(session, path)
        found = list[tuple[float, float, int]]()
        for _ in range(ROUNDS):
            await moment(PAUSE_SECONDS)
            found.append(await ask(session, path))
    wholes, databases, sizes = zip(*found, strict=True)
    return Page(percentile(wholes, 0.95), percentile(databases, 0.95), max(sizes))


async def flood(url: str, paths: Iterator[str], statuses: dict[int, int], most: int) -> None:
    """One client that asks for one page after the other, as fast as it is answered."""
    async with aiohttp.ClientSession(url) as session:
        while sum(statuses.values()) < most:
            try:
                async with session.get(next(paths)) as answer:
                    await answer.read()
                    status = answer.status
            except aiohttp.ClientConnectionError:
                status = CLOSED
            statuses[status] = statuses.get(status, 0) + 1


@asynccontextmanager
async def silent(port: int) -> AsyncIterator[None]:
    """Connections that read nothing. Every other one sends only half of its request."""
    lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(SILENT)]
    for number, (_, writer) in enumerate(lines):
        writer.write(b"GET /nodes HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"\r\n" * (number % 2))
    try:
        yield
    finally:
        for _, writer in lines:
            writer.close()


def in_mix(pages: Mapping[str, str]) -> list[str]:
    """The first page four times before each page. Of pages that cost more, most requests would only be refused."""
    return [path for one in pages.values() for path in ("/", "/", "/", "/", one)]


Asked = tuple[str, Iterator[str]]
"""The address of the dashboard, and the paths that are asked for, one after the other."""


async def cycles_in_turns(dispatcher: Dispatcher, asked: Asked) -> tuple[float, float, dict[int, int]]:
    """Mean milliseconds of cycles alone, and of those beside many who look. Both are measured TURNS times, in turns."""
    statuses, alone, beside = dict[int, int](), list[float](), list[float]()
    for turn in range(1, TURNS + 1):
        alone.append((await cycles(dispatcher)).wall_ms)
        beside.append((await cycles_beside(dispatcher, asked, statuses, turn * REQUESTS // TURNS)).wall_ms)
    return fmean(alone), fmean(beside), statuses


async def cycles_beside(dispatcher: Dispatcher, asked: Asked, statuses: dict[int, int], most: int) -> Cycles:
    """The cycles while many look. `most`: number of requests, with those in `statuses`."""
    async with silent(dispatcher.api_port):
        clients = [asyncio.create_task(flood(*asked, statuses, most)) for _ in range(CLIENTS)]
        try:
            found = await cycles(dispatcher)
            await asyncio.gather(*clients)
            return found
        finally:
            for client in clients:
                client.cancel()


async def measure_in(place: Place, config: str) -> tuple[Mapping[str, Page], float, float, float, dict[int, int]]:
    load = Load(await place.database.session("admin"))
    rows = await load.begin()
    await post_jobs(place, rows, await load.admin.fetchval(DATABASE_ID))
    await load.admin.execute(FAILED, timeout=300)
    await load.admin.execute(BATCH, timeout=300)
    await load.add(MANY)
    async with Dispatcher(place, KUBECONFIG=config, MAX_JOBS=JOBS, MAX_PENDING=JOBS, POLL_SECONDS=0.1) as dispatcher:
        await dispatcher.ready()
        await wait_for(lambda: sees_jobs(dispatcher), f"the dispatcher sees {JOBS} Jobs", check=dispatcher.check)
        await cycles(dispatcher)  # a warm-up
        url = f"http://127.0.0.1:{dispatcher.api_port}"
        before = memory_mib(dispatcher.process.pid, "VmRSS")
        pages = await pages_of(place)
        found = {name: await look_at(url, path) for name, path in pages.items()}
        alone, beside, statuses = await cycles_in_turns(dispatcher, (url, cycle(in_mix(pages))))
        return found, alone, beside, memory_mib(dispatcher.process.pid, "VmRSS") - before, statuses


async def measure(servers: Servers) -> tuple[Mapping[str, Page], float, float, float, dict[int, int]]:
    standing = StandingCluster(NODES, PODS)

    async def answer(exchange: Exchange) -> web.StreamResponse:
        return await standing.answer(exchange.request)

    async with KubeProxy(servers.plane.url, servers.plane.ca_file) as proxy:
        proxy.add(answer, lambda asked: asked.method == "GET" and asked.path in STANDING)
        place = await servers.place()
        return await measure_in(place, str(proxy.kubeconfig(place.folder / "kubeconfig")))


async def main() -> int:
    async with launched() as servers:
        servers.stop_controllers()
        before = slowness()
        found, alone, beside, more, statuses = await measure(servers)
        slow = (before + slowness()) / 2
        versions = await servers.versions()
    slowest = max(found, key=lambda name: found[name].whole_ms)
    figures = [
        Figure("slowest page, p95, ms", found[slowest].whole_ms, PAGE_MS * slow),
        Figure("database of a page, p95, ms", max(page.database_ms for page in found.values()), DATABASE_MS * slow),
        Figure("cycle beside many who look / alone, in turns", beside / alone, MOST_GROWTH),
        Figure("memory of looking, MiB", more, MOST_MIB),
        Figure("largest page, kB", max(page.size for page in found.values()) / 1000, 100),
    ]
    context = {
        **{f"{name}, p95, ms": page.whole_ms for name, page in found.items()},
        **{f"{name}, database, p95, ms": page.database_ms for name, page in found.items()},
        "cycle alone, ms": alone, "cycle beside, ms": beside,
        **{f"answers {status}": float(count) for status, count in statuses.items()},
        "slowness of the machine": slow,
    }  # fmt: skip
    return tell("dashboard", figures, context, versions)


if __name__ == "__main__":
    run(main)
