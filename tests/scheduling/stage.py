"""Equal nodes and a kube-scheduler that many tests share, because they change no node."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.scheduling.kube_scheduler import KubeScheduler, configuration, entry
from tests.scheduling.nodes_and_pods import Ground, grounds
from tests.scheduling.scripted import Scripted, scripted


@dataclass(frozen=True, slots=True)
class DemoEnvironment:
    """Large equal nodes with one kube-scheduler: Pods of earlier tests do not change scores."""

    ground: Ground
    scheduler: KubeScheduler
    nodes: list[str]

    async def pod(self, **wanted: Any) -> str:
        return await self.ground.pod(self.scheduler, **wanted)

    async def bound(self, **wanted: Any) -> tuple[str, str]:
        """Creates a Pod, waits until it is bound, and returns (Pod, node)."""
        pod = await self.pod(**wanted)
        (node,) = await self.ground.bound(pod)
        return pod, node

    def added(self, pod: str) -> list[int]:
        """The points that extenders added to each node for the Pod."""
        return [self.scheduler.of_extenders(self.ground.key(pod), node) for node in self.nodes]


@dataclass(frozen=True, slots=True)
class ScriptedStage(DemoEnvironment):
    """Shared nodes whose kube-scheduler calls this scripted extender with the recommended entry."""

    extender: Scripted


@asynccontextmanager
async def scripted_stage(plane: ControlPlane, folder: Path) -> AsyncIterator[ScriptedStage]:
    async with scripted() as extender, staged(plane, folder, configuration(entry(extender.url)), 2) as made:
        yield ScriptedStage(made.ground, made.scheduler, made.nodes, extender)


@asynccontextmanager
async def staged(plane: ControlPlane, folder: Path, wanted: Json, number: int) -> AsyncIterator[DemoEnvironment]:
    async with grounds(plane, folder) as ground:
        nodes = await ground.nodes(number, cpu="8000", memory="32000Gi", pods=10_000)
        yield DemoEnvironment(ground, ground.scheduler_of(wanted), nodes)
