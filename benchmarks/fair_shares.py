"""Promise: queues have a full cluster by their weights, and it stays full.

20 nodes of 4 cores, two queues of weights 3 and 1 with more rows than room, and runs of 8 s. Each second the cores of
Pods with a node are added up. The figures are how far the shares are from the weights, and the part of the cores that
is busy.

* `one shape`: all rows ask for one core. Before those of the heavy queue stands a row for a whole node.
* `nearly one shape`: the light queue asks in three shapes, the heavy one in one. The light one must get no more for it.

A core is idle from the end of a Pod until the next Pod has its node, and five programs take part in that. So the part
that may be idle is multiplied by the slowness of the machine.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from benchmarks.figures import Figure, run, tell
from benchmarks.growing import POOL
from benchmarks.machine import slowness
from benchmarks.servers import Servers, launched
from dispatcher.model.resources import parse_quantity
from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.janitoring import Janitor

NODES, CORES = 20, 4
SECONDS, ROWS = 180, 2_000
WEIGHTS = {"heavy": 3, "light": 1}
STEER = {"run-seconds": "8"}
MOST_OFF, MOST_IDLE = 0.03, 0.03
QUEUE = "INSERT INTO dispatch.queues (name, weight) VALUES ($1, $2)"
INSERT = """
INSERT INTO dispatch.tasks (queue, template, spec)
SELECT $1, 'open', jsonb_build_object('cpu', ($3::text[])[1 + n % array_length($3::text[], 1)])
FROM generate_series(1, $2) AS n
"""
LARGE = """INSERT INTO dispatch.tasks (queue, template, spec, priority) VALUES ($1, 'open', '{"cpu": "4"}', 1)"""


class Case(Struct, frozen=True):
    """Rows of two queues. cores: by queue, in turns. large_in: the queue with a row for a whole node."""

    cores: Mapping[str, Sequence[str]]
    large_in: str = ""


CASES = {
    "one shape": Case({"heavy": ["1"], "light": ["1"]}, "heavy"),
    "nearly one shape": Case({"heavy": ["1"], "light": ["1", "0.99", "0.98"]}),
}


async def turn(servers: Servers, case: Case) -> tuple[float, float]:
    """How far the ratio of the shares is from that of the weights, and the part of the cores that was busy."""
    place = await servers.place()
    place.template("open", row_may_set="cpu", max_cpu="4", steer=STEER, report="exit-code")
    nodes = await servers.plane.add_nodes(NODES, cpu=str(CORES), labels={POOL: place.namespace})
    admin, team = [await place.database.session(login) for login in ("admin", "team_a")]
    for queue, weight in WEIGHTS.items():
        await admin.execute(QUEUE, queue, weight)
    settings = {"NODE_SELECTOR": f"{POOL}={place.namespace}", "POLL_SECONDS": None}
    async with Dispatcher(place, **settings) as ours, Janitor(place, PARK_SECONDS=600):
        await ours.ready()
        if case.large_in:
            await team.execute(LARGE, case.large_in)
        for queue, cores in case.cores.items():
            await team.execute(INSERT, queue, ROWS, cores)
        used = await mean_used(place, ours)
    for node in nodes:
        await servers.plane.remove_node(node)
    ratio, wanted = used["heavy"] / used["light"], WEIGHTS["heavy"] / WEIGHTS["light"]
    busy = sum(used.values()) / NODES / CORES
    print(f"{used}: {ratio:.2f} instead of {wanted:.2f}, {busy:.3f} busy", file=sys.stderr, flush=True)
    return abs(ratio / wanted - 1), busy


async def mean_used(place: Place, ours: Dispatcher) -> dict[str, float]:
    """The mean number of cores in use by queue, from when the first Pods have ended."""
    path, clock = f"/api/v1/namespaces/{place.namespace}/pods", asyncio.get_running_loop().time
    used, looks = defaultdict[str, float](float), 0

    async def pods(phases: str) -> list[Json]:
        found = await place.control_plane.admin("GET", path, params={"fieldSelector": phases})
        return [pod for pod in found["items"] if pod["spec"].get("nodeName")]

    async def have_ended() -> bool:
        return len(await pods("status.phase=Succeeded")) >= 2 * NODES * CORES

    await wait_for(have_ended, "the first Pods have ended", 120, check=ours.check)
    ends_at = clock() + SECONDS
    while clock() < ends_at:
        for pod in await pods("status.phase!=Succeeded"):
            cores = parse_quantity(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
            used[pod["metadata"]["labels"]["dispatcher.internal/queue"]] += float(cores)
        looks += 1
        await asyncio.sleep(1)
    return {queue: cores / looks for queue, cores in used.items()}


async def main() -> int:
    figures = list[Figure]()
    async with launched(has_room=False) as servers:
        before = slowness()
        found = {name: await turn(servers, case) for name, case in CASES.items()}
        slow = (before + slowness()) / 2
        versions = await servers.versions()
    for name, (off, busy) in found.items():
        figures.append(Figure(f"{name}: shares are off by", off, MOST_OFF))
        figures.append(Figure(f"{name}: busy cores", busy, 1 - MOST_IDLE * slow, at_least=True))
    return tell("fair_shares", figures, {"slowness of the machine": slow}, versions)


if __name__ == "__main__":
    run(main)
