"""Promise: kube-scheduler places 0.6 of the Pods a second that it places without us, at 1,000 and at 5,000 nodes.

The real kube-scheduler on nodes that kwok keeps; Pods with a history of three nodes each. They wait until the scheduler
starts, and count from the first binding to the last, by the API server's audit log. With the extender, and the same
configuration without it, in turns. At 1,000 nodes the configuration is the one that is printed, which looks at every
node; at 5,000 it looks at as many as kube-scheduler itself chooses, as the operator's page says it should.
"""

import asyncio
import random
import tempfile
from datetime import datetime
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure, run, tell
from dispatcher import __version__
from dispatcher.placement.history import write_history
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.scheduling.ground import Ground
from tests.scheduling.ours import OurExtender, account

PODS = {1000: 1000, 5000: 500}
"""By nodes."""
ROUNDS = 2
LEAST = 0.6
MADE_AT_ONCE = 16
BOUND_SECONDS = 240


async def make_nodes(ground: Ground, number: int) -> list[str]:
    """Some hundred at a time: kwok has to make each of them ready."""
    made: list[str] = []
    while len(made) < number:
        made += await ground.nodes(min(250, number - len(made)), cpu="32", memory="128Gi")
    return made


async def rate(ground: Ground, configuration: Json, nodes: list[str], pods: int) -> float:
    """Pods a second."""
    chance, places = random.Random(7), asyncio.Semaphore(MADE_AT_ONCE)  # the same Pods for both
    scheduler = ground.scheduler_of(configuration)
    await asyncio.to_thread(scheduler.kill)  # its name is known, and nobody takes the Pods yet

    async def make() -> str:
        history = chance.sample(nodes, 3)
        async with places:
            return await ground.pod(scheduler, notes={"history-nodes": write_history(history)})

    names = await asyncio.gather(*(make() for _ in range(pods)))
    before = len(seen(ground))
    scheduler.start()
    try:
        times = await bindings(ground, before, len(names))
    finally:
        await asyncio.to_thread(scheduler.kill)
    await ground.plane.admin("DELETE", f"/api/v1/namespaces/{ground.namespace}/pods", {"gracePeriodSeconds": 0})

    async def are_gone() -> bool:
        return not await ground.pods()

    await ground.plane.wait_for(are_gone, "the Pods are gone", 120)
    return (pods - 1) / (times[-1] - times[0]).total_seconds()


async def bindings(ground: Ground, before: int, number: int) -> list[datetime]:
    """When each of so many was asked for, after those that were there; waits for them."""

    def are_bound() -> bool:
        return len(seen(ground)) - before >= number

    await ground.plane.wait_for(are_bound, f"{number} bindings", BOUND_SECONDS)
    return sorted(seen(ground)[before:])


def seen(ground: Ground) -> list[datetime]:
    found = ground.plane.audit(verb="create", resource="pods", namespace=ground.namespace)
    return [event.received_at for event in found if event.object_ref.subresource == "binding" and event.code == 201]


async def main() -> int:
    figures, beside = [], {}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        for size, pods in PODS.items():
            async with ControlPlane() as plane:
                where = Path(folder) / str(size)
                where.mkdir()
                ground = Ground(plane, await plane.create_namespace(), where)
                nodes = await make_nodes(ground, size)
                ours = OurExtender(await account(plane, ground.namespace, where))
                async with ours:
                    await ours.ready()
                    printed = await ours.printed()
                    if size > 1000:
                        del printed["percentageOfNodesToScore"]
                    with_, without = [], []
                    for _ in range(ROUNDS):
                        without.append(await rate(ground, {**printed, "extenders": []}, nodes, pods))
                        with_.append(await rate(ground, printed, nodes, pods))
                ratio = median(with_) / median(without)
                figures.append(Figure(f"rate with the extender / without, {size} nodes", ratio, LEAST, at_least=True))
                beside[f"Pods a second with it, {size} nodes"] = median(with_)
                beside[f"Pods a second without it, {size} nodes"] = median(without)
    return tell("scheduling_rate", figures, beside, {"dispatcher": __version__})


if __name__ == "__main__":
    run(main)
