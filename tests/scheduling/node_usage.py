"""The use of nodes with a hold, checked after every change of every Pod by a watch."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from dispatcher.model.resources import milli_of
from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.scheduling.nodes_and_pods import NodeGroup


class NodeUsage:
    """Checks that Pods never use more of a node than is left beside its hold. Use with `async with`.

    left: by node, the cpu that others may use, in thousandths.
    """

    def __init__(self, node_group: NodeGroup, left: Mapping[str, int]) -> None:
        self.looks = 0
        self._node_group = node_group
        self._left = left
        self._pods: dict[str, Json] = {}
        self._overdrawn: list[str] = []

    async def __aenter__(self) -> Self:
        self._following = asyncio.create_task(self._follow())
        await wait_for(lambda: self.looks, "Pods are listed", check=self.check)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.cancel()
        with suppress(asyncio.CancelledError):
            await self._following
        self.check()

    def check(self) -> None:
        """Fails if Pods ever used more than was left, or if the watch failed."""
        assert not self._overdrawn, self._overdrawn
        assert not self._following.done() or self._following.cancelled(), self._following.exception()

    def bound(self) -> Counter[str]:
        """Number of Pods by node. The empty name counts Pods without a node."""
        return Counter(pod["spec"].get("nodeName", "") for pod in self._pods.values())

    async def _follow(self) -> None:
        async for change in self._node_group.plane.api.follow(f"/api/v1/namespaces/{self._node_group.namespace}/pods"):
            if change.type == "LIST":
                self._pods.clear()
            for pod in change.objects:
                if change.type == "DELETED":
                    self._pods.pop(pod["metadata"]["name"], None)
                else:
                    self._pods[pod["metadata"]["name"]] = pod
                self._look()
            self.looks += 1

    def _look(self) -> None:
        taken: Counter[str] = Counter()
        for pod in self._pods.values():
            (container,) = pod["spec"]["containers"]
            taken[pod["spec"].get("nodeName", "")] += milli_of(container["resources"]["requests"]["cpu"])
        over = {node: amount for node, amount in taken.items() if amount > self._left.get(node, amount)}
        if over:
            self._overdrawn.append(f"of {dict(self._left)} there is taken {over}")
