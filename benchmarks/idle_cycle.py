"""Promise: a cycle with nothing to do takes at most 30 ms with 10^6 waiting rows, 10^6 finished rows and 5,000 Jobs, no
longer than with 10^4 rows. The dispatcher stays within 200 MiB.

This is the most expensive kind of such a cycle. Half of the rows wait in a paused queue. The other half wait in an open
queue whose cap the 5,000 Jobs fill. Each Job is unfinished, and a container holds its row, so every cycle judges all of
them. The dispatcher's own histogram times the cycles, ten at a time, and the figure is the median of these means: what
runs twice a minute, such as the exact counts of a million rows, disturbs only some of them. Memory is the peak that the
kernel saw.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from msgspec import Struct

from benchmarks import raw
from benchmarks.figures import Figure, run, tell
from benchmarks.machine import slowness
from benchmarks.servers import Servers, cpu_seconds, launched, memory_mib
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import Connection, Record

JOBS = 5_000
FEW, MANY = 10_000, 1_000_000
WINDOWS, CYCLES = 9, 10
LONGEST_MS = 30
MOST_GROWTH = 1.25
MOST_MIB = 200
PAUSED_QUEUE = "INSERT INTO dispatch.queues (name, paused_until) VALUES ('paused', 'infinity')"
TO_WAIT = """
INSERT INTO dispatch_private.tasks (queue, submitted_by, kind)
SELECT CASE WHEN n % 2 = 0 THEN 'paused' ELSE 'default' END, 'team_a',
       (SELECT dispatch_private.kind_of('default', '{}', NULL, '{}'))
FROM generate_series(1, $1) AS n
"""
FINISHED = """
INSERT INTO dispatch_private.tasks (submitted_by, kind, status, launch, started_at, finished_at)
SELECT 'team_a', (SELECT dispatch_private.kind_of('default', '{}', NULL, '{}')), 'succeeded', 1, now(), now()
FROM generate_series(1, $1) AS n
"""
HELD = """
INSERT INTO dispatch_private.tasks (submitted_by, kind, status, launch, run_digest, started_at, heartbeat_at)
SELECT 'team_a', (SELECT dispatch_private.kind_of('default', '{}', NULL, '{}')), 'processing', 1,
       uuid_send(gen_random_uuid()), now(), now()
FROM generate_series(1, $1) AS n
RETURNING id, created_at
"""
DATABASE_ID = "SELECT database_id::text FROM dispatch.schema_version LIMIT 1"


@dataclass(frozen=True)
class Load:
    """Fills the table of tasks."""

    admin: Connection

    async def begin(self) -> Sequence[Record]:
        """Inserts the rows of the Jobs. Triggers are off from now on: with them 10^6 rows would take minutes."""
        await self.admin.execute(PAUSED_QUEUE)
        await self.admin.execute("ALTER TABLE dispatch_private.tasks DISABLE TRIGGER USER")
        return await self.admin.fetch(HELD, JOBS)

    async def add(self, rows: int) -> None:
        """Adds `rows` waiting rows, and as many finished ones."""
        for statement in (TO_WAIT, FINISHED):
            await self.admin.execute(statement, rows, timeout=300)
        await self.admin.execute("VACUUM (ANALYZE) dispatch_private.tasks", timeout=300)


async def post_jobs(place: Place, rows: Sequence[Record], database_id: str) -> None:
    sent = raw.bodies_of(place, [raw.Row(row["id"], row["created_at"], str(uuid.uuid4())) for row in rows], database_id)
    async with raw.Client(place.folder / "kubeconfig") as client:
        await client.allowed(sent[0])
        await client.post_all(sent)


async def sees_jobs(dispatcher: Dispatcher) -> bool:
    return await dispatcher.metric("dispatcher_jobs") == JOBS


class Cycles(Struct, frozen=True):
    """Times of a typical cycle: by the dispatcher's histogram, and CPU time of its whole process."""

    wall_ms: float
    cpu_ms: float


async def cycles(dispatcher: Dispatcher) -> Cycles:
    """Measures the next WINDOWS times CYCLES cycles: the median of the means of each CYCLES."""
    found = [await window(dispatcher) for _ in range(WINDOWS)]
    return Cycles(median(one.wall_ms for one in found), median(one.cpu_ms for one in found))


async def window(dispatcher: Dispatcher) -> Cycles:
    """The mean times of the next CYCLES cycles."""

    async def read() -> tuple[float, float, float]:
        count = await dispatcher.metric("dispatcher_cycle_seconds_count")
        total = await dispatcher.metric("dispatcher_cycle_seconds_sum")
        return count, total, cpu_seconds(dispatcher.process.pid)

    first = await read()

    async def enough() -> tuple[float, float, float] | None:
        now = await read()
        return now if now[0] >= first[0] + CYCLES else None

    last = await wait_for(enough, f"{CYCLES} cycles", 60, check=dispatcher.check)
    assert last is not None
    count, wall, cpu = (after - before for before, after in zip(first, last, strict=True))
    return Cycles(wall / count * 1000, cpu / count * 1000)


async def measure(servers: Servers) -> tuple[dict[int, Cycles], float]:
    """The cycles by number of rows, and the peak of the memory in MiB."""
    place = await servers.place()
    load = Load(await place.database.session("admin"))
    rows = await load.begin()
    await post_jobs(place, rows, await load.admin.fetchval(DATABASE_ID))
    await load.add(FEW)
    async with Dispatcher(place, MAX_JOBS=JOBS, MAX_PENDING=JOBS, POLL_SECONDS=0.1) as dispatcher:
        await dispatcher.ready()
        await wait_for(lambda: sees_jobs(dispatcher), f"the dispatcher sees {JOBS} Jobs", check=dispatcher.check)
        found = {FEW: await cycles(dispatcher)}
        await load.add(MANY - FEW)
        found[MANY] = await cycles(dispatcher)
        assert await dispatcher.metric("dispatcher_job_creates_total") == 0, "it had something to do"
        return found, memory_mib(dispatcher.process.pid, "VmHWM")


async def main() -> int:
    async with launched() as servers:
        servers.stop_controllers()
        before = slowness()
        found, peak = await measure(servers)
        slow = (before + slowness()) / 2
        versions = await servers.versions()
    few, many = found[FEW], found[MANY]
    figures = [
        Figure("cycle, 10^6 waiting, 10^6 finished, ms", many.wall_ms, LONGEST_MS * slow),
        Figure("cycle at 10^6 rows / at 10^4", many.wall_ms / few.wall_ms, MOST_GROWTH),
        Figure("peak memory, MiB", peak, MOST_MIB),
    ]
    context = {
        "cycle at 10^4 rows, ms": few.wall_ms,
        "CPU of the process a cycle, ms": many.cpu_ms,
        "slowness of the machine": slow,
    }
    return tell("idle_cycle", figures, context, versions)


if __name__ == "__main__":
    run(main)
