"""Equal nodes and a kube-scheduler that many tests share, because they change no node."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.scheduling.kube_scheduler import KubeScheduler, configuration, entry
from tests.scheduling.nodes_and_pods import NodeGroup, open_node_group
from tests.scheduling.scripted_extender import ScriptedExtender, scripted_extender


@dataclass(frozen=True, slots=True)
class SharedNodes:
    """Large equal nodes with one kube-scheduler: Pods of earlier tests do not change scores."""

    node_group: NodeGroup
    scheduler: KubeScheduler
    nodes: list[str]

    async def pod(self, **wanted: Any) -> str:
        return await self.node_group.pod(self.scheduler, **wanted)

    async def bound(self, **wanted: Any) -> tuple[str, str]:
        """Creates a Pod, waits until it is bound, and returns (Pod, node)."""
        pod = await self.pod(**wanted)
        (node,) = await self.node_group.bound(pod)
        return pod, node

    def added(self, pod: str) -> list[int]:
        """The points that extenders added to each node for the Pod."""
        return [self.scheduler.extender_score(self.node_group.key(pod), node) for node in self.nodes]


@dataclass(frozen=True, slots=True)
class ScriptedNodes(SharedNodes):
    """Shared nodes whose kube-scheduler calls this scripted extender with the recommended entry."""

    extender: ScriptedExtender


@asynccontextmanager
async def scripted_nodes(plane: ControlPlane, folder: Path) -> AsyncIterator[ScriptedNodes]:
    async with (
        scripted_extender() as extender,
        open_shared_nodes(plane, folder, configuration(entry(extender.url)), 2) as made,
    ):
        yield ScriptedNodes(made.node_group, made.scheduler, made.nodes, extender)


@asynccontextmanager
async def open_shared_nodes(plane: ControlPlane, folder: Path, wanted: Json, number: int) -> AsyncIterator[SharedNodes]:
    async with open_node_group(plane, folder) as node_group:
        nodes = await node_group.nodes(number, cpu="8000", memory="32000Gi", pods=10_000)
        yield SharedNodes(node_group, node_group.scheduler_of(wanted), nodes)
