"""Room, as the dispatcher judges it, against the decisions of the real kube-scheduler in random clusters.

By default 100 clusters; 2,000 with HYPOTHESIS_PROFILE=nightly. ROOM_SEED repeats a run.
"""

import asyncio
import os
from collections.abc import Iterable
from random import Random

import msgspec
import pytest

from dispatcher.admission.room import Room, RoomIndex
from dispatcher.admission.room_view import RoomView
from dispatcher.kube.objects import pod_reader, read_node, read_priority_class
from dispatcher.kube.pods import needs_of_manifest
from tests.contract.random_rooms import CLASSES, CLUSTER, RandomCluster, priority_classes
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.objects import is_ready
from tests.property.profiles import amount

CLASSES_PATH = "/apis/scheduling.k8s.io/v1/priorityclasses"
NODES_PATH = "/api/v1/nodes"
AT_ONCE = 100
NUMBER = amount(gate=20, whole=40, nightly=2000)
"""Clusters of one run."""


class Comparison:
    """Clusters that live in one control plane, apart by the label that their Pods select."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._read_pod = pod_reader(namespace, "of no Pod here")

    async def post(self, path: str, manifests: Iterable[Json]) -> None:
        places = asyncio.Semaphore(20)

        async def send(manifest: Json) -> None:
            async with places:
                await self._plane.admin("POST", path, manifest)

        await asyncio.gather(*map(send, manifests))

    async def build(self, clusters: list[RandomCluster]) -> None:
        await self.post(NODES_PATH, [one for cluster in clusters for one in cluster.nodes])
        names = {name for cluster in clusters for name in cluster.node_names}

        async def are_ready() -> bool:
            found = (await self._plane.admin("GET", NODES_PATH, params={"labelSelector": CLUSTER}))["items"]
            return names <= {one["metadata"]["name"] for one in found if is_ready(one)}

        await self._plane.wait_for(are_ready, f"{len(names)} nodes are ready", 60)
        await self.post(self._pods, [one for cluster in clusters for one in cluster.pods])

    async def look(self) -> RoomView:
        """The room, read by the dispatcher's own readers."""
        index = RoomIndex(())
        for one in (await self._plane.admin("GET", NODES_PATH, params={"labelSelector": CLUSTER}))["items"]:
            index.hear_node(None, read_node(msgspec.json.encode(one)))
        for one in (await self._plane.admin("GET", self._pods))["items"]:
            index.hear_pod(None, self._read_pod(msgspec.json.encode(one)))
        for one in (await self._plane.admin("GET", CLASSES_PATH))["items"]:
            index.hear_priority_class(None, read_priority_class(msgspec.json.encode(one)))
        return index.view()

    async def decisions(self, names: set[str]) -> dict[str, str]:
        """What kube-scheduler decided, by name of the Pod: a node, or nothing and its message."""

        async def look() -> dict[str, str] | None:
            pods = {one["metadata"]["name"]: one for one in (await self._plane.admin("GET", self._pods))["items"]}
            found = {name: decision_of(pods[name]) for name in names if name in pods}
            decided = {name: one for name, one in found.items() if one}
            return decided if decided.keys() == names else None

        return await self._plane.wait_for(look, f"{len(names)} decisions of kube-scheduler", 60) or {}

    async def clean(self) -> None:
        await self._plane.admin("DELETE", self._pods, {"gracePeriodSeconds": 0})
        await self._plane.admin("DELETE", NODES_PATH, params={"labelSelector": CLUSTER})


def decision_of(pod: Json) -> str:
    """`node NAME`, or `none: ` with the message; empty while kube-scheduler has not decided."""
    if node := pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName"):
        return f"node {node}"
    told = [one for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"]
    return f"none: {told[0]['message']}" if told and told[0].get("reason") == "Unschedulable" else ""


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_verdict_agrees_with_kube_scheduler(control_plane: ControlPlane, namespace: str) -> None:
    """A Pod has room exactly if kube-scheduler finds a node for it, or makes one free by preemption."""
    seed = int(os.environ.get("ROOM_SEED", "1"))
    chance, compared = Random(seed), Comparison(control_plane, namespace)
    await compared.post(CLASSES_PATH, priority_classes())
    disagreements, fitting = [], 0
    try:
        for first in range(0, NUMBER, AT_ONCE):
            count = min(AT_ONCE, NUMBER - first)
            clusters = [RandomCluster(f"{namespace}-{first + n}", chance) for n in range(count)]
            try:
                await compared.build(clusters)
                room = Room(await compared.look())
                await compared.post(f"/api/v1/namespaces/{namespace}/pods", [one.wanted for one in clusters])
                decided = await compared.decisions({one.wanted["metadata"]["name"] for one in clusters})
                for one in clusters:
                    has_room = room.has_room(needs_of_manifest(one.wanted["spec"]))
                    answer = decided[one.wanted["metadata"]["name"]]
                    fitting += has_room
                    if has_room is not answer.startswith("node "):
                        disagreements.append((one.name, has_room, answer, one.wanted["spec"], one.nodes, one.pods))
            finally:
                await compared.clean()
    finally:
        for name in CLASSES:
            await control_plane.admin("DELETE", f"{CLASSES_PATH}/{name}")
    assert disagreements == [], f"ROOM_SEED={seed}"
    assert NUMBER / 10 < fitting < NUMBER * 9 / 10, "the clusters show both verdicts"
