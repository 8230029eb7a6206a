"""A second scheduler for the embedded cluster. It asks an extender as kube-scheduler does.

The embedded cluster's own scheduler has no extender, because the demo needs none. This one places the Pods whose
`schedulerName` is NAME. The wire is `k8s.io/kube-scheduler/extender/v1`, nodeCacheCapable.
"""

import asyncio
from contextlib import suppress
from typing import Any, Final, Self

import aiohttp
import msgspec
from msgspec import Struct

from dispatcher.local.cluster.conditions import with_condition
from dispatcher.local.cluster.kinds import NODE, POD, Target
from dispatcher.local.cluster.placement import (
    Room,
    preference,
    rooms_of,
    score,
    tell_unschedulable,
    why_not,
    with_pod,
)
from dispatcher.local.cluster.registry import Registry
from dispatcher.local.cluster.storage import Change

Json = dict[str, Any]
NAME: Final = "extended"
POINTS: Final = 10
"""Worth of one point of an extender of weight 1: MaxNodeScore / MaxExtenderPriority."""
FAULTS: Final = (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError)


class FilterResult(Struct, frozen=True, rename="pascal"):
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class HostPriority(Struct, frozen=True, rename="pascal"):
    host: str
    score: int


class ExtenderFault(Exception):
    """The extender did not answer, or answered with an error. The Pod waits."""


class Extender:
    """One extender. `url`: its prefix, below which it serves `filter` and `prioritize`."""

    def __init__(self, url: str, weight: int = 1, seconds: float = 5) -> None:
        self._url = url.rstrip("/")
        self._weight = weight
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds))

    async def close(self) -> None:
        await self._session.close()

    async def filter(self, pod: Json, names: list[str]) -> FilterResult:
        """The nodes that pass. ExtenderFault: there is no valid answer."""
        try:
            found = msgspec.json.decode(await self._ask("filter", pod, names), type=FilterResult)
        except FAULTS as fault:
            raise ExtenderFault(f"extender {self._url}: {fault}") from fault
        if found.error:
            raise ExtenderFault(f"extender {self._url}: {found.error}")
        if unknown := set(found.node_names or ()) - set(names):
            raise ExtenderFault(f"extender {self._url} claims a filtered node {min(unknown)!r} not found in the input")
        return found

    async def prioritize(self, pod: Json, names: list[str]) -> dict[str, float]:
        """Points by node, to be added to the scheduler's own. A fault gives no points, and no error."""
        if len(names) < 2:
            return {}
        try:
            found = msgspec.json.decode(await self._ask("prioritize", pod, names), type=list[HostPriority] | None)
        except FAULTS:
            return {}
        points: dict[str, float] = {}
        for one in found or ():
            points[one.host] = points.get(one.host, 0) + one.score * self._weight * POINTS
        return points

    async def _ask(self, verb: str, pod: Json, names: list[str]) -> bytes:
        body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
        headers = {"Content-Type": "application/json"}
        async with self._session.post(f"{self._url}/{verb}", data=body, headers=headers) as answer:
            answer.raise_for_status()
            return await answer.read()


class ExtendedPlaceLoop:
    """`async with` it: places Pods of NAME until the block ends. `url`: the prefix of the extender."""

    def __init__(self, registry: Registry, url: str) -> None:
        self._registry = registry
        self._url = url
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._extender = Extender(self._url)
        self._registry.storage.listeners.append(self._hear)
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._registry.storage.listeners.remove(self._hear)
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
        await self._extender.close()

    def _hear(self, change: Change) -> None:
        if change.kind in {POD, NODE}:
            self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._place_all()

    async def _place_all(self) -> None:
        storage = self._registry.storage
        pods = [entry.object for entry in storage.all(POD).values()]
        rooms = rooms_of([entry.object for entry in storage.all(NODE).values()], pods)
        for pod in sorted(filter(is_unplaced, pods), key=lambda pod: int(pod["metadata"]["resourceVersion"])):
            name, words = await self._choose(pod, rooms)
            target = Target(POD, pod["metadata"]["namespace"], pod["metadata"]["name"])
            if name:
                self._registry.bind(target, name)
                rooms[name] = with_pod(rooms[name], pod["spec"])
            else:
                self._refuse(target, words)

    async def _choose(self, pod: Json, rooms: dict[str, Room]) -> tuple[str, str]:
        """The node, or the message if there is none."""
        refused = {name: why_not(pod["spec"], room) for name, room in rooms.items()}
        names = [name for name, why in refused.items() if not why]
        if not names:
            return "", tell_unschedulable(list(refused.values()))
        try:
            passed = await self._extender.filter(pod, names)
        except ExtenderFault as fault:
            return "", str(fault)
        reasons = {**(passed.failed_nodes or {}), **(passed.failed_and_unresolvable_nodes or {})}
        left = [rooms[name] for name in passed.node_names or ()]
        if not left:
            return "", tell_unschedulable([[why] for why in reasons.values()] or list(refused.values()))
        points = await self._extender.prioritize(pod, [room.name for room in left])
        return best_of(pod["spec"], left, points), ""

    def _refuse(self, target: Target, words: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
        before = self._registry.get(target).object["status"].get("conditions") or []
        timed = {**condition, "lastTransitionTime": self._registry.now()}
        status = Target(target.kind, target.namespace, target.name, "status")
        self._registry.patch(status, {"status": {"conditions": with_condition(before, timed)}})


def is_unplaced(pod: Json) -> bool:
    return pod["spec"]["schedulerName"] == NAME and not pod["spec"].get("nodeName")


def best_of(spec: Json, rooms: list[Room], points: dict[str, float]) -> str:
    most = max(preference(spec, room) for room in rooms)
    return max(rooms, key=lambda room: (score(spec, room, most) + points.get(room.name, 0), room.name)).name
