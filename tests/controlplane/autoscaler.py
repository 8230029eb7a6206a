"""Plays a cluster autoscaler: a group of nodes that grows for Pods that kube-scheduler finds no node for.

It works as cluster-autoscaler does. Each scan takes the Pods that wait, leaves out those that nodes will have room for
which are under way already, and orders nodes for the others. With several sizes it works as Karpenter does: it packs
all Pods of one scan on nodes, the largest first that they fill.
"""

import asyncio
import secrets
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.objects import node

STARTUP_TAINT: Final = {
    "key": "startup-taint.cluster-autoscaler.kubernetes.io/agent",
    "value": "",
    "effect": "NoSchedule",
}
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
BOUND_AFTER: Final = 2
"""Seconds after its start in which kube-scheduler gives a node its Pods."""
MOST_SAID: Final = 50
"""Pods that one scan writes Events about."""
MADE_AT_ONCE: Final = 8


@dataclass(frozen=True)
class Group:
    """A group of nodes. Its times are in seconds.

    labels: of its nodes; a Pod must select no other ones.
    cpus: sizes of nodes, in cores. More than one: Karpenter's rules.
    most: nodes at most.
    scan: between two looks.
    comes: from the order of a node until it is there; it has a startup taint for `starts` more.
    says: whether it writes Events.
    """

    labels: Mapping[str, str]
    cpus: Sequence[int] = (4,)
    most: int = 100
    scan: float = 10
    comes: float = 40
    starts: float = 5
    says: bool = True


class Autoscaler:
    """Use with `async with`.

    nodes: sizes of the nodes that came, by name.
    seen: the number of Pods that waited at each scan.
    """

    def __init__(self, plane: ControlPlane, group: Group) -> None:
        self.nodes: dict[str, int] = {}
        self.seen: list[int] = []
        self._plane = plane
        self._group = group
        self._tag = secrets.token_hex(3)
        self._ordered = 0
        self._under_way: dict[str, int] = {}
        self._said: set[tuple[str, str]] = set()
        self._works: set[asyncio.Task[None]] = set()
        self._busy = asyncio.Semaphore(MADE_AT_ONCE)

    async def __aenter__(self) -> Self:
        self._begin(self._scan_for_ever())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for work in self._works:
            work.cancel()
        done = await asyncio.gather(*self._works, return_exceptions=True)
        for name in self.nodes:
            await self._plane.remove_node(name)
        faults = [one for one in done if isinstance(one, Exception)]
        if faults and kind is None:
            raise faults[0]

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._works.add(asyncio.create_task(work))

    async def _scan_for_ever(self) -> None:
        while True:
            await self._scan()
            await asyncio.sleep(self._group.scan)

    async def _scan(self) -> None:
        """Looks at the Pods that wait, and orders nodes for those that have none under way."""
        found = await self._plane.admin("GET", "/api/v1/pods?fieldSelector=spec.nodeName=,status.phase=Pending")
        mine = [pod for pod in found["items"] if waits(pod) and self._selects(pod)]
        self.seen.append(len(mine))
        largest = max(self._group.cpus)
        fitting, coming = [pod for pod in mine if cores(pod) <= largest], sum(self._under_way.values())
        asked = sum(map(cores, fitting)) - coming
        sizes = list(self._sizes(asked))
        for size in sizes:
            self._ordered += 1
            self._begin(self._bring(f"grown-{self._tag}-{self._ordered}", size))
        is_full = asked > sum(sizes) and not sizes
        for pod in mine[:MOST_SAID]:
            if cores(pod) > largest:
                await self._say(pod, "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 Insufficient cpu")
            elif sizes:
                await self._say(pod, *self._coming(len(sizes)))
            elif is_full:
                await self._say(pod, "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached")

    def _coming(self, count: int) -> tuple[str, str]:
        """The word for nodes that come, of Karpenter or of cluster-autoscaler."""
        if len(self._group.cpus) > 1:
            return "Nominated", f"Pod should schedule on: nodeclaim/{self._tag}"
        return "TriggeredScaleUp", f"pod triggered scale-up: {count} nodes"

    def _sizes(self, asked: float) -> Iterator[int]:
        """The nodes for so many cores, the largest first that they fill."""
        for _ in range(self._group.most - self._ordered):
            if asked <= 0:
                return
            size = next((one for one in sorted(self._group.cpus, reverse=True) if one <= asked), min(self._group.cpus))
            asked -= size
            yield size

    def _selects(self, pod: Json) -> bool:
        """Whether the Pod asks for labels, and these nodes have them."""
        wanted = dict(pod["spec"].get("nodeSelector") or {})
        affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
        for term in affinity.get("nodeSelectorTerms", []):
            wanted |= {one["key"]: one["values"][0] for one in term.get("matchExpressions", [])}
        return bool(wanted) and all(self._group.labels.get(key) == value for key, value in wanted.items())

    async def _bring(self, name: str, size: int) -> None:
        """A node comes, and loses its startup taint later."""
        self._under_way[name] = size
        await asyncio.sleep(self._group.comes)
        amounts = {"cpu": str(size), "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}
        async with self._busy:
            await self._plane.admin("POST", "/api/v1/nodes", node(name, amounts, self._group.labels, [STARTUP_TAINT]))
        self.nodes[name] = size
        await asyncio.sleep(self._group.starts)
        async with self._busy:
            await self._plane.admin("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
        await asyncio.sleep(BOUND_AFTER)
        del self._under_way[name]

    async def _say(self, pod: Json, reason: str, message: str) -> None:
        """An Event as cluster-autoscaler writes it, once for each Pod and reason."""
        uid = pod["metadata"]["uid"]
        if not self._group.says or (uid, reason) in self._said:
            return
        self._said.add((uid, reason))
        now, place = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), pod["metadata"]["namespace"]
        event = {
            "metadata": {"generateName": f"{pod['metadata']['name']}."},
            "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": place,
                               "name": pod["metadata"]["name"], "uid": uid},
            "reason": reason, "message": message, "type": "Normal", "count": 1,
            "source": {"component": "karpenter" if reason == "Nominated" else "cluster-autoscaler"},
            "firstTimestamp": now, "lastTimestamp": now,
        }  # fmt: skip
        with suppress(KubeFault):  # the Pod's namespace may be going
            await self._plane.admin("POST", f"/api/v1/namespaces/{place}/events", event)


def waits(pod: Json) -> bool:
    """Whether kube-scheduler has found no node for the Pod."""
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)


def cores(pod: Json) -> float:
    """Requested cores of the Pod."""
    written = [str(one.get("resources", {}).get("requests", {}).get("cpu", "0")) for one in pod["spec"]["containers"]]
    return sum(int(one[:-1]) / 1000 if one.endswith("m") else float(one) for one in written)
