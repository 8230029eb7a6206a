"""Promise: a cluster of 5,000 nodes with 50,000 Pods costs the dispatcher at most 250 MiB and 15 s until it is ready.
A cycle that holds rows of 100 shapes in 100 queues for room takes at most 1.2 times as long with 10^6 rows as with
10^4.

The real program, with a real API server and Postgres. Only its lists and watches of nodes and Pods are answered by
`standing_cluster`: a real API server would take minutes to fill. Each row asks for more cores than a node has, so
nothing is launched and every cycle judges its rows anew. The dispatcher's own histogram times the cycles. Memory is the
kernel's peak, after all rows were inserted.
"""

import time
from collections.abc import Mapping

from aiohttp import web

from benchmarks.figures import Figure, run, tell
from benchmarks.idle_cycle import Cycles, cycles
from benchmarks.machine import slowness
from benchmarks.servers import Servers, launched, memory_mib
from benchmarks.standing_cluster import StandingCluster
from tests.controlplane.waiting import wait_for
from tests.faults.http_proxy import Exchange, KubeProxy
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import Connection

NODES, PODS, SHAPES, QUEUES = 5_000, 50_000, 100, 100
FEW, MANY = 10_000, 1_000_000
MOST_MIB, LONGEST_START, MOST_GROWTH = 250, 15, 1.2
STANDING = frozenset({"/api/v1/nodes", "/api/v1/pods"})
TO_SHARE = f"INSERT INTO dispatch.queues (name) SELECT 'queue-' || n FROM generate_series(0, {QUEUES - 1}) AS n"
WAITING = f"""
INSERT INTO dispatch_private.tasks (queue, submitted_by, spec, kind)
SELECT 'queue-' || n % {QUEUES}, 'team_a', made.spec, dispatch_private.kind_of('default', made.spec, NULL, '{{}}')
FROM generate_series(1, $1) AS n,
LATERAL (SELECT jsonb_build_object('cpu', (33 + n / 7 % {SHAPES})::text)) AS made (spec)
"""


async def add(admin: Connection, rows: int) -> None:
    await admin.execute(WAITING, rows, timeout=600)
    await admin.execute("VACUUM (ANALYZE) dispatch_private.tasks", timeout=300)
    await admin.execute("CHECKPOINT", timeout=300)


async def judges_all(dispatcher: Dispatcher) -> bool:
    return await dispatcher.metric("dispatcher_waiting_tasks", reason="NoRoomNow") > 0


async def measure_in(place: Place, proxy: KubeProxy) -> tuple[float, Mapping[int, Cycles], float]:
    """Seconds until it is ready, the cycles by number of rows, and the peak of the memory in MiB."""
    place.template("default", row_may_set="cpu", max_cpu="1000")
    admin = await place.database.session("admin")
    await admin.execute(TO_SHARE)
    await admin.execute("ALTER TABLE dispatch_private.tasks DISABLE TRIGGER USER")
    await admin.execute(
        "ALTER TABLE dispatch_private.tasks SET (autovacuum_enabled = off)"
    )  # `add` does it, at a known time
    config = proxy.kubeconfig(place.folder / "kubeconfig")
    began = time.monotonic()
    async with Dispatcher(place, KUBECONFIG=config, MAX_PENDING=0, POLL_SECONDS=0.1) as dispatcher:
        await dispatcher.ready()
        seconds = time.monotonic() - began
        await add(admin, FEW)
        await wait_for(lambda: judges_all(dispatcher), "rows are held", 60, check=dispatcher.check)
        found = {FEW: await cycles(dispatcher)}
        await add(admin, MANY - FEW)
        found[MANY] = await cycles(dispatcher)
        assert await dispatcher.metric("dispatcher_job_creates_total") == 0, "a node was large enough"
        return seconds, found, memory_mib(dispatcher.process.pid, "VmHWM")


async def measure(servers: Servers) -> tuple[float, Mapping[int, Cycles], float]:
    standing = StandingCluster(NODES, PODS)

    async def answer(exchange: Exchange) -> web.StreamResponse:
        return await standing.answer(exchange.request)

    async with KubeProxy(servers.plane.url, servers.plane.ca_file) as proxy:
        proxy.add(answer, lambda asked: asked.method == "GET" and asked.path in STANDING)
        return await measure_in(await servers.place(), proxy)


async def main() -> int:
    async with launched() as servers:
        servers.stop_controllers()
        before = slowness()
        seconds, found, peak = await measure(servers)
        slow = (before + slowness()) / 2
        versions = await servers.versions()
    few, many = found[FEW], found[MANY]
    figures = [
        Figure("ready after (s)", seconds, LONGEST_START * slow),
        Figure("peak memory, MiB", peak, MOST_MIB),
        Figure("cycle at 10^6 held rows / at 10^4", many.wall_ms / few.wall_ms, MOST_GROWTH),
    ]
    context = {
        "cycle at 10^4 rows, ms": few.wall_ms,
        "cycle at 10^6 rows, ms": many.wall_ms,
        "CPU of the process a cycle at 10^4, ms": few.cpu_ms,
        "CPU of the process a cycle at 10^6, ms": many.cpu_ms,
        "slowness of the machine": slow,
    }
    return tell("watched_cluster", figures, context, versions)


if __name__ == "__main__":
    run(main)
