"""Promise: kube-scheduler places 0.6 of the Pods a second that it places without us, at 1,000 and at 5,000 nodes.

The real kube-scheduler. Pods with a history of three nodes each wait until it starts. The audit log shows when the
first and the last Pod were bound. Three configurations take turns: with the extender, without it, and with an extender
that looks at nothing, which is the limit of any extender. At 1,000 nodes the configuration is the printed one, which
looks at every node. At 5,000 nodes kube-scheduler chooses how many nodes it looks at, as the operator's page advises.

Nodes send no heartbeats, and no controller runs. Heartbeats of a thousand nodes take half of two cores. In a real
cluster other machines do that work.
"""

import asyncio
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure, run, tell
from dispatcher import __version__
from dispatcher.placement.placing import write_history
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.objects import is_ready, node
from tests.controlplane.ports import free_ports
from tests.scheduling.kube_scheduler import KubeScheduler
from tests.scheduling.nodes_and_pods import GROUP_LABEL, NodeGroup
from tests.scheduling.own_extender import OwnExtender, account

SIZES = (1000, 5000)
SEEN_WHOLE = 1000
"""Up to this number of nodes the printed configuration is used, which looks at all of them."""
PODS, ROUNDS = 500, 5
LEAST = 0.6
MADE_AT_ONCE = 16
GONE_SECONDS, PLACED_SECONDS = 60, 60
LIMITLESS = {"qps": 5000, "burst": 5000}
READY = {"type": "Ready", "status": "True"}


class QuietScheduler(KubeScheduler):
    """Logs no points of nodes, which takes longer than scheduling. Its requests to the API server are not limited."""

    verbosity = ()

    def _fitted(self, wanted: Json, kubeconfig: Path) -> Json:
        fitted = super()._fitted(wanted, kubeconfig)
        return fitted | {"clientConnection": fitted["clientConnection"] | LIMITLESS}


async def make_nodes(plane: ControlPlane, node_group: NodeGroup, number: int) -> list[str]:
    """Makes nodes that report that they are ready. Removes the taint of new nodes."""
    for name in ("kwok", "kube-controller-manager", "kube-scheduler"):
        await plane.kill(name)
    names, places = [f"node-{index:05}" for index in range(number)], asyncio.Semaphore(MADE_AT_ONCE)
    size = {"cpu": "32", "memory": "128Gi", "pods": "110"}

    async def make(name: str) -> None:
        made = node(name, size, {GROUP_LABEL: node_group.namespace}, ())
        async with places:
            await plane.admin("POST", "/api/v1/nodes", made | {"status": made["status"] | {"conditions": [READY]}})
            await plane.admin("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}})

    await asyncio.gather(*map(make, names))
    assert all(is_ready(one) for one in (await plane.admin("GET", "/api/v1/nodes"))["items"])
    return names


async def rate(node_group: NodeGroup, configuration: Json, nodes: list[str]) -> float:
    """Pods a second."""
    chance, places = random.Random(7), asyncio.Semaphore(MADE_AT_ONCE)  # the same Pods for every configuration
    scheduler = QuietScheduler(
        node_group.plane, node_group.folder, configuration
    )  # not started yet: Pods need its name

    async def make() -> None:
        history = chance.sample(nodes, 3)
        async with places:
            await node_group.pod(scheduler, notes={"history-nodes": write_history(history)})

    await asyncio.gather(*(make() for _ in range(PODS)))
    since = datetime.now(UTC)
    scheduler.start()
    try:
        return await measured(node_group, since)
    finally:
        await asyncio.to_thread(scheduler.kill)
        await clear(node_group)


async def measured(node_group: NodeGroup, since: datetime) -> float:
    """Pods a second, from the first that is bound to the last."""
    limit = time.monotonic() + PLACED_SECONDS
    while len(times := bound_at(node_group, since)) < PODS:
        assert time.monotonic() < limit, f"{len(times)} of {PODS} Pods are bound after {PLACED_SECONDS} s"
        await asyncio.sleep(1)
    return (PODS - 1) / (times[-1] - times[0])


def bound_at(node_group: NodeGroup, since: datetime) -> list[float]:
    """The times of this round's bindings, oldest first."""
    bindings = node_group.plane.audit(verb="create", resource="pods/binding", namespace=node_group.namespace)
    return sorted(event.stage_at.timestamp() for event in bindings if event.code == 201 and event.received_at >= since)


async def clear(node_group: NodeGroup) -> None:
    path = f"/api/v1/namespaces/{node_group.namespace}/pods"
    await node_group.plane.admin("DELETE", path, {"gracePeriodSeconds": 0})

    async def is_empty() -> bool:
        return not (await node_group.plane.admin("GET", path, params={"limit": "1"}))["items"]

    await node_group.plane.wait_for(is_empty, "the Pods are gone", GONE_SECONDS)


@asynccontextmanager
async def empty_extender() -> AsyncIterator[str]:
    """Runs the extender. Yields its URL."""
    (port,) = free_ports(1)
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "benchmarks.empty_extender", str(port))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def rates(plane: ControlPlane, folder: Path, size: int) -> dict[str, float]:
    """Pods a second by configuration: the median of its rounds."""
    node_group = NodeGroup(plane, await plane.create_namespace(), folder)
    nodes = await make_nodes(plane, node_group, size)
    found: dict[str, list[float]] = defaultdict(list)
    async with (
        OwnExtender(await account(plane, node_group.namespace, folder)) as own_extender,
        empty_extender() as empty,
    ):
        await own_extender.ready()
        printed = await own_extender.printed()
        if size > SEEN_WHOLE:
            del printed["percentageOfNodesToScore"]
        (entry,) = printed["extenders"]
        asked = {"without": [], "with": [entry], "empty": [entry | {"urlPrefix": empty}]}
        for _ in range(ROUNDS):
            for who, extenders in asked.items():
                found[who].append(await rate(node_group, printed | {"extenders": extenders}, nodes))
    return {who: median(each) for who, each in found.items()}


async def main() -> int:
    figures: list[Figure] = []
    context: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        for size in SIZES:
            async with ControlPlane() as plane:
                made = await rates(plane, Path(tempfile.mkdtemp(dir=folder)), size)
            ratio = made["with"] / made["without"]
            figures.append(Figure(f"rate with the extender / without, {size} nodes", ratio, LEAST, at_least=True))
            context |= {f"Pods a second, {who}, {size} nodes": rate for who, rate in made.items()}
            context[f"with an extender that looks at nothing / without, {size} nodes"] = made["empty"] / made["without"]
    return tell("scheduling_rate", figures, context, {"dispatcher": __version__})


if __name__ == "__main__":
    run(main)
