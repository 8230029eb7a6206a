"""Promise: 95 % of second and later runs of a cache key land on one of their history nodes, if one has room.

The real kube-scheduler with the configuration that `dispatcher extender` prints, then without the extender, on the same
nodes: first 200, then 1,000. Each node has 40 to 80 % of its cpu and memory taken, 60 % on average. 50 keys run 1,000
times in random order, twenty at once. A run is a Pod of half a core, deleted once it is bound. Its history is what the
dispatcher would write: the newest three distinct nodes of its key.
"""

import asyncio
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from benchmarks.figures import Figure, run, tell
from dispatcher import __version__
from dispatcher.placement.placing import write_history
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.scheduling.kube_scheduler import KubeScheduler
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.own_extender import OwnExtender, account

SIZES = (200, 1000)
KEYS, RUNS, AT_ONCE, SHARE = 50, 1000, 20, 0.95
CPU, MEMORY = 8000, 32 * 1024
ASKED = 500
SEED = 7
BOUND_SECONDS = 60


class Runs:
    """Runs of keys under one scheduler. `taken`: used millicores by node."""

    def __init__(self, node_group: NodeGroup, scheduler: KubeScheduler, taken: Mapping[str, int]) -> None:
        self._node_group = node_group
        self._scheduler = scheduler
        self._taken = Counter(taken)
        self._nodes: dict[str, list[str]] = defaultdict(list)
        self._chance = random.Random(SEED)  # the same order with and without the extender
        self.later = self.warm = 0

    async def go(self) -> float:
        """The warm share of those later runs that had a history node with room."""
        waiting = [f"key-{number % KEYS}" for number in range(RUNS)]
        self._chance.shuffle(waiting)

        async def work() -> None:
            while waiting:
                await self._run(waiting.pop())

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        return self.warm / self.later

    async def _run(self, key: str) -> None:
        history = list(dict.fromkeys(self._nodes[key]))[:3]
        has_room = any(self._taken[node] + ASKED <= CPU for node in history)
        notes = {"history-nodes": write_history(history)} if history else {}
        pod = await self._node_group.pod(self._scheduler, cpu=f"{ASKED}m", memory="512Mi", notes=notes)
        node = await self._node_of(pod)
        self._taken[node] += ASKED
        self.later += has_room
        self.warm += has_room and node in history
        self._nodes[key].insert(0, node)
        await self._node_group.delete_pod(pod)
        self._taken[node] -= ASKED

    async def _node_of(self, pod: str) -> str:
        async def look() -> str:
            found: str = (await self._node_group.read(pod))["spec"].get("nodeName", "")
            return found

        return await self._node_group.plane.wait_for(look, f"{pod} is bound", BOUND_SECONDS)


async def load(node_group: NodeGroup, nodes: list[str]) -> dict[str, int]:
    """Fills 40 to 80 % of each node. Returns the used millicores by node."""
    chance, taken = random.Random(SEED), {}  # no secret
    for node in nodes:
        part = chance.uniform(0.4, 0.8)
        taken[node] = int(CPU * part)
        await node_group.occupy(node, cpu=f"{taken[node]}m", memory=f"{int(MEMORY * part)}Mi")
    return taken


async def share_of(node_group: NodeGroup, configuration: Json, taken: Mapping[str, int]) -> float:
    scheduler = node_group.scheduler_of(configuration)
    try:
        return await Runs(node_group, scheduler, taken).go()
    finally:
        await asyncio.to_thread(scheduler.kill)


async def main() -> int:
    figures, context = [], {}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        async with ControlPlane() as plane:
            for size in SIZES:
                where = Path(folder) / str(size)
                where.mkdir()
                node_group = NodeGroup(plane, await plane.create_namespace(), where)
                try:
                    taken = await load(node_group, await node_group.nodes(size))
                    own_extender = OwnExtender(await account(plane, node_group.namespace, where))
                    async with own_extender:
                        await own_extender.ready()
                        printed = await own_extender.printed()
                        warm = await share_of(node_group, printed, taken)
                    context[f"without the extender, {size} nodes"] = await share_of(
                        node_group, {**printed, "extenders": []}, taken
                    )
                    figures.append(Figure(f"later runs on a warm node, {size} nodes", warm, SHARE, at_least=True))
                finally:
                    await node_group.clear()
    return tell("warm_share", figures, context, {"dispatcher": __version__})


if __name__ == "__main__":
    run(main)
