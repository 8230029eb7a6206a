"""Promise: kube-scheduler places 0.6 of the Pods a second that it places without us, at 1,000 and at 5,000 nodes.

The real kube-scheduler on nodes that kwok keeps; Pods with a history of three nodes each. They wait until the scheduler
starts, and its own count of what it has placed tells the rate. With the extender, and the same
configuration without it, in turns. At 1,000 nodes the configuration is the one that is printed, which looks at every
node; at 5,000 it looks at as many as kube-scheduler itself chooses, as the operator's page says it should.
"""

import asyncio
import random
import tempfile
import time
from pathlib import Path
from statistics import median

import aiohttp

from benchmarks.figures import Figure, run, tell
from dispatcher import __version__
from dispatcher.placement.history import write_history
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.objects import is_ready, node
from tests.scheduling.ground import GROUND, Ground
from tests.scheduling.kube_scheduler import KubeScheduler
from tests.scheduling.ours import OurExtender, account

PODS = {1000: 1000, 5000: 500}
"""By nodes."""
ROUNDS = 2
LEAST = 0.6
MADE_AT_ONCE = 16
READY_SECONDS, PLACED_SECONDS = 900, 240


class QuietScheduler(KubeScheduler):
    """Writing down the points of every node takes longer than scheduling."""

    verbosity = ()


async def make_nodes(plane: ControlPlane, ground: Ground, number: int) -> list[str]:
    """All at once, and looked at now and then: kwok has to make each of them ready."""
    names, places = [f"node-{index:05}" for index in range(number)], asyncio.Semaphore(MADE_AT_ONCE)
    size = {"cpu": "32", "memory": "128Gi", "pods": "110"}

    async def make(name: str) -> None:
        async with places:
            await plane.admin("POST", "/api/v1/nodes", node(name, size, {GROUND: ground.namespace}, ()))

    await asyncio.gather(*map(make, names))
    limit = time.monotonic() + READY_SECONDS
    while len([one for one in (await plane.admin("GET", "/api/v1/nodes"))["items"] if is_ready(one)]) < number:
        assert time.monotonic() < limit, f"{number} nodes are not ready after {READY_SECONDS} s"
        await asyncio.sleep(2)
    return names


async def rate(ground: Ground, configuration: Json, nodes: list[str], pods: int) -> float:
    """Pods a second."""
    chance, places = random.Random(7), asyncio.Semaphore(MADE_AT_ONCE)  # the same Pods for both
    scheduler = QuietScheduler(ground.plane, ground.folder, configuration)  # its name is known; it does not run yet

    async def make() -> None:
        history = chance.sample(nodes, 3)
        async with places:
            await ground.pod(scheduler, notes={"history-nodes": write_history(history)})

    await asyncio.gather(*(make() for _ in range(pods)))
    scheduler.start()
    try:
        return await measured(scheduler, pods)
    finally:
        await asyncio.to_thread(scheduler.kill)
        await clear(ground)


async def measured(scheduler: KubeScheduler, pods: int) -> float:
    """From the first Pods that it has placed to the last, by its own count."""
    began, first, placed = 0.0, 0.0, 0.0
    limit = time.monotonic() + PLACED_SECONDS
    while placed < pods:
        assert time.monotonic() < limit, f"{placed:.0f} of {pods} Pods are placed after {PLACED_SECONDS} s"
        await asyncio.sleep(0.05)
        placed = await count_of(scheduler)
        if placed and not first:
            began, first = time.monotonic(), placed
    return (pods - first) / (time.monotonic() - began)


async def count_of(scheduler: KubeScheduler) -> float:
    """0 while it does not listen yet."""
    try:
        return await scheduler.metric("scheduler_schedule_attempts_total", result="scheduled")
    except aiohttp.ClientError:
        scheduler.check()
        return 0


async def clear(ground: Ground) -> None:
    path = f"/api/v1/namespaces/{ground.namespace}/pods"
    await ground.plane.admin("DELETE", path, {"gracePeriodSeconds": 0})

    async def is_empty() -> bool:
        return not (await ground.plane.admin("GET", path, params={"limit": "1"}))["items"]

    await ground.plane.wait_for(is_empty, "the Pods are gone", READY_SECONDS)


async def main() -> int:
    figures, beside = [], {}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        for size, pods in PODS.items():
            async with ControlPlane() as plane:
                where = Path(folder) / str(size)
                where.mkdir()
                ground = Ground(plane, await plane.create_namespace(), where)
                nodes = await make_nodes(plane, ground, size)
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
