"""Our own extender on the embedded cluster: history as with the real kube-scheduler (`test_extender_history`)."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from dispatcher.local.cluster.cluster import EmbeddedCluster
from dispatcher.local.cluster.kinds import NODE, POD, Target
from tests.controlplane.waiting import wait_for
from tests.scheduling.extended_place_loop import NAME, ExtendedPlaceLoop
from tests.scheduling.own_extender import OwnExtender

Json = dict[str, Any]
SIZE = {"cpu": "4", "memory": "4Gi", "pods": "10"}
NODES = ("a", "b", "c", "d")


class World:
    """Four equal nodes, and our extender, which has seen them."""

    def __init__(self, cluster: EmbeddedCluster, extender: OwnExtender) -> None:
        self.registry = cluster.registry
        self.extender = extender
        for name in NODES:
            self.add(name)

    def add(self, name: str) -> None:
        status = {"capacity": SIZE, "allocatable": SIZE, "conditions": [{"type": "Ready", "status": "True"}]}
        self.registry.create(Target(NODE), {"metadata": {"name": name}, "status": status})

    def make(self, notes: Json, cpu: str = "1", **spec: Any) -> str:
        annotations = {f"dispatcher.internal/{name}": json.dumps(note) for name, note in notes.items()}
        container = {"name": "t", "image": "x:1", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": "4"}}}
        meta = {"generateName": "p-", "annotations": annotations}
        whole = {"schedulerName": NAME, "containers": [container], **spec}
        made = self.registry.create(Target(POD, "default"), {"metadata": meta, "spec": whole})
        return str(made.object["metadata"]["name"])

    async def lands(self, *history: str, **notes: Any) -> str:
        """The node of a new Pod with that history."""
        name = self.make({"history-nodes": history, **notes})

        def node() -> str:
            entry = self.registry.storage.get(POD, ("default", name))
            return str(entry.object["spec"].get("nodeName", "")) if entry else ""

        return await wait_for(node, f"{name} has a node", check=self.extender.check)


@pytest_asyncio.fixture(loop_scope="session")
async def world(tmp_path: Path) -> AsyncIterator[World]:
    extender = OwnExtender(tmp_path / "kubeconfig")
    async with EmbeddedCluster() as cluster:
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        async with extender, ExtendedPlaceLoop(cluster.registry, extender.url):
            await extender.ready()
            made = World(cluster, extender)
            yield made


@pytest.mark.parametrize("newest", NODES)
async def test_pod_goes_to_the_newest_node_of_its_history(world: World, newest: str) -> None:
    others = [name for name in NODES if name != newest]
    assert await world.lands(newest, *others[:2]) == newest


async def test_cordoned_or_full_node_of_the_history_is_skipped(world: World) -> None:
    world.registry.patch(Target(NODE, "", "c"), {"spec": {"unschedulable": True}})
    assert await world.lands("c", "b") == "b"
    world.make({}, cpu="3500m", nodeName="d")
    assert await world.lands("d", "c", "a") == "a"


async def test_history_of_a_node_that_is_gone_keeps_no_pod_waiting(world: World) -> None:
    world.registry.delete(Target(NODE, "", "a"))
    assert await world.lands("a") in {"b", "c", "d"}
    assert await world.lands("a", "d") == "d", "the one behind it keeps its place"


async def test_invalid_notes_are_ignored(world: World) -> None:
    assert await world.lands(**{"real-resources": 5}) in NODES
    assert await world.extender.metric("dispatcher_extender_ignored_total", part="real-resources") >= 1
