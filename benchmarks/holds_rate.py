"""Promise: 10,000 reservations on 5,000 nodes cost kube-scheduler at most a tenth of the Pods that it places a second.

Like `scheduling_rate.py`, always with the extender: rounds without reservations, then with them, then without again.
"""

import asyncio
import tempfile
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from benchmarks.figures import Figure, run, tell
from benchmarks.hold_ends import serve_the_kind
from benchmarks.scheduling_rate import MADE_AT_ONCE, make_nodes, rate
from dispatcher import __version__
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.own_extender import OwnExtender, account
from tests.scheduling.reservations import Reservations

NODES, RESERVATIONS, LEAST = 5000, 10_000, 0.9
BEFORE, DURING, AFTER = 3, 6, 3
LONG, TOLD_SECONDS = 86_400, 300
T = TypeVar("T")


class ReservedNodes:
    """Nodes, an extender, and reservations that can be made and released."""

    def __init__(self, node_group: NodeGroup, nodes: list[str], own_extender: OwnExtender) -> None:
        self._node_group = node_group
        self._nodes = nodes
        self._own_extender = own_extender
        self._reserving = Reservations(node_group.plane, node_group.namespace)
        self._names: list[str] = []

    async def rounds(self, number: int) -> list[float]:
        """Pods a second."""
        printed = dict(await self._own_extender.printed())
        del printed["percentageOfNodesToScore"]
        return [await rate(self._node_group, printed, self._nodes) for _ in range(number)]

    async def reserve(self) -> None:
        """Makes two reservations on each node, for rows that never come."""
        amounts = {"cpu": "100m", "memory": "128Mi"}
        made = (
            self._reserving.hold(self._nodes[number % len(self._nodes)], amounts, seconds=LONG, taskId=number + 1)
            for number in range(RESERVATIONS)
        )
        self._names = await some_at_once(made)
        await self._wait_until_active(RESERVATIONS)

    async def release(self) -> None:
        await some_at_once(map(self._reserving.release, self._names))
        await self._wait_until_active(0)

    async def _wait_until_active(self, number: int) -> None:
        async def are_active() -> bool:
            return await self._own_extender.metric("dispatcher_reservations", phase="Active") == number

        await wait_for(
            are_active, f"{number} reservations have their status", TOLD_SECONDS, check=self._own_extender.check
        )


async def some_at_once(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    places = asyncio.Semaphore(MADE_AT_ONCE)

    async def one(each: Coroutine[Any, Any, T]) -> T:
        async with places:
            return await each

    return await asyncio.gather(*map(one, work))


async def main() -> int:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        plane = await stack.enter_async_context(ControlPlane())
        await serve_the_kind(plane)
        node_group = NodeGroup(plane, await plane.create_namespace(), folder)
        nodes = await make_nodes(plane, node_group, NODES)
        own_extender = await stack.enter_async_context(OwnExtender(await account(plane, node_group.namespace, folder)))
        await own_extender.ready()
        reserved = ReservedNodes(node_group, nodes, own_extender)
        without = await reserved.rounds(BEFORE)
        await reserved.reserve()
        with_them = await reserved.rounds(DURING)
        await reserved.release()
        without += await reserved.rounds(AFTER)
    ratio = median(with_them) / median(without)
    figure = Figure("rate beside 10,000 reservations / without, 5,000 nodes", ratio, LEAST, at_least=True)
    rates = {"Pods a second, beside 10,000 reservations": median(with_them), "Pods a second, without": median(without)}
    return tell("holds_rate", [figure], rates, {"dispatcher": __version__})


if __name__ == "__main__":
    run(main)
