"""Promise: a hold ends when it should, and a Pod that waits for it is retried within a second.

The real kube-scheduler. One node has room, all of it is held, and a Pod waits for that room. Then the hold ends in one
of four ways: it is deleted, it is made smaller, its target lands elsewhere, or it expires. A watch shows when the Pod
was marked for a retry, and when it was bound. Only that mark makes kube-scheduler retry the Pod, except after a
landing, which kube-scheduler sees itself.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure, run, tell
from dispatcher import __version__
from dispatcher.kube.reservations import RESERVATIONS
from dispatcher.model.launches import WOKEN_AT
from tests.controlplane.api import KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.rig.deployed import rendered
from tests.scheduling.nodes_and_pods import NodeGroup, open_node_group
from tests.scheduling.own_extender import OwnExtender, account
from tests.scheduling.reservations import CPU, TARGET_META, ReservedNodes, reserved_nodes_of

TIMES, MOST_SECONDS, LASTS_SECONDS = 10, 1.0, 4
End = Callable[[ReservedNodes, str, str], Awaitable[float]]
"""Ends the hold. Returns the time, by the clock of this machine, which is also that of the API server."""


async def deleted(reserved: ReservedNodes, hold: str, _elsewhere: str) -> float:
    await reserved.reservations.release(hold)
    return time.time()


async def smaller(reserved: ReservedNodes, hold: str, _elsewhere: str) -> float:
    await reserved.reservations.change(hold, resources={"cpu": "1"})
    return time.time()


async def landed(reserved: ReservedNodes, _hold: str, elsewhere: str) -> float:
    await reserved.node_group.occupy(elsewhere, cpu="100m", meta=TARGET_META)
    return time.time()


async def expired(reserved: ReservedNodes, hold: str, _elsewhere: str) -> float:
    ends_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=LASTS_SECONDS)
    await reserved.reservations.change(hold, ttlSeconds=None, expiresAt=ends_at.isoformat())
    return ends_at.timestamp()


ENDS = (deleted, smaller, landed, expired)


class Seen:
    """When each Pod was first seen marked for a retry, and first seen bound."""

    def __init__(self, node_group: NodeGroup) -> None:
        self.noted: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self._node_group = node_group

    async def follow(self) -> None:
        async for change in self._node_group.plane.api.follow(f"/api/v1/namespaces/{self._node_group.namespace}/pods"):
            for pod in change.objects:
                name, now = pod["metadata"]["name"], time.time()
                if WOKEN_AT in pod["metadata"].get("annotations", {}):
                    self.noted.setdefault(name, now)
                if pod["spec"].get("nodeName"):
                    self.bound.setdefault(name, now)


async def sample(reserved: ReservedNodes, seen: Seen, end: End, here: str, there: str) -> tuple[float, float]:
    """Seconds from the end of the hold until the Pod was marked, or bound without a mark, and until it was bound."""
    hold = await reserved.reservations.hold(here, {"cpu": "3900m"}, jobName="ours")
    await reserved.wait_until_held(here)
    pod = await reserved.pod(cpu="2000m")
    await reserved.node_group.held(pod, "Unschedulable", CPU)
    ended = await end(reserved, hold, there)
    await wait_for(lambda: pod in seen.bound, "the Pod is bound", 30)
    await clear(reserved, hold)
    return seen.noted.get(pod, seen.bound[pod]) - ended, seen.bound[pod] - ended


async def clear(reserved: ReservedNodes, hold: str) -> None:
    if await reserved.reservations.exists(hold):
        await reserved.reservations.release(hold)
    await reserved.node_group.empty()
    await wait_for(lambda: is_empty(reserved.node_group), "the Pods are gone", 20)


async def is_empty(node_group: NodeGroup) -> bool:
    return not await node_group.pods()


async def serve_the_kind(plane: ControlPlane) -> None:
    await plane.apply(rendered("everything", only="reservations"), namespace="default")

    async def is_served() -> bool:
        try:
            await plane.admin("GET", RESERVATIONS.path)
        except KubeFault:
            return False
        return True

    await plane.wait_for(is_served, "NodeReservations are served", 30)


async def main() -> int:
    found: dict[str, list[tuple[float, float]]] = {}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        plane = await stack.enter_async_context(ControlPlane())
        await serve_the_kind(plane)
        node_group = await stack.enter_async_context(open_node_group(plane, folder))
        own_extender = await stack.enter_async_context(OwnExtender(await account(plane, node_group.namespace, folder)))
        await own_extender.ready()
        reserved, seen = await reserved_nodes_of(node_group, own_extender, own_extender), Seen(node_group)
        following = asyncio.create_task(seen.follow())
        here, there = *await node_group.nodes(1, cpu="3900m"), *await node_group.nodes(1, cpu="1")
        for end in ENDS:
            found[end.__name__] = [await sample(reserved, seen, end, here, there) for _ in range(TIMES)]
        following.cancel()
    worst = {how: max(noted for noted, _ in each) for how, each in found.items()}
    figures = [
        Figure(f"hold {how}: until the Pod is noted, worst (s)", each, MOST_SECONDS) for how, each in worst.items()
    ]
    context = {f"hold {how}: until it is bound, median (s)": median(b for _, b in each) for how, each in found.items()}
    return tell("hold_ends", figures, context, {"dispatcher": __version__})


if __name__ == "__main__":
    run(main)
