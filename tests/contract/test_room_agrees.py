"""Room, as the dispatcher judges it, against the decisions of the real kube-scheduler in random clusters.

By default 100 clusters; 2,000 with HYPOTHESIS_PROFILE=nightly. ROOM_SEED repeats a run.
"""

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from random import Random

import msgspec
import pytest

from dispatcher.admission.room import Room, RoomIndex
from dispatcher.admission.room_view import RoomView
from dispatcher.kube.objects import pod_reader, read_node, read_priority_class
from dispatcher.kube.pods import needs_of_manifest
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.objects import is_ready, node
from tests.property.profiles import amount

# Random small clusters: nodes, Pods of others on them, and one Pod that looks for room. As manifests.

CLUSTER = "test.dispatcher.internal/cluster"
GPU = "example.com/gpu"
CLASSES = {"room-low": -10, "room-high": 1000, "room-polite": 2000}
"""PriorityClasses; Pods of `room-polite` preempt no others."""
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


class RandomCluster:
    """`name` is on all its nodes, as a label that its Pods select."""

    def __init__(self, name: str, chance: Random) -> None:
        self.name = name
        self._chance = chance
        self.node_names = [f"{name}-{number}" for number in range(chance.randint(1, 3))]
        self.nodes = [self._node(one) for one in self.node_names]
        self.pods = [self._pod_on(one, number) for one in self.node_names for number in range(chance.randint(0, 4))]
        self.wanted = self._wanted()

    def _maybe(self, share: float) -> bool:
        return self._chance.random() < share

    def _node(self, name: str) -> Json:
        size = {"cpu": str(self._chance.randint(1, 6)), "memory": f"{self._chance.randint(1, 8)}Gi",
                "pods": str(self._chance.randint(2, 6))}  # fmt: skip
        if self._maybe(0.3):
            size[GPU] = str(self._chance.randint(1, 3))
        if self._maybe(0.3):
            size["ephemeral-storage"] = f"{self._chance.randint(1, 8)}Gi"
        labels = {CLUSTER: self.name, "size": self._chance.choice(("0", "3", "4", "07", "9", "big"))}
        if self._maybe(0.7):
            labels["zone"] = self._chance.choice("abc")
        made = node(name, size, labels, [self._taint() for _ in range(self._chance.choice((0, 0, 0, 1, 2)))])
        made["spec"]["taints"] = list({(one["key"], one["effect"]): one for one in made["spec"]["taints"]}.values())
        if self._maybe(0.1):
            made["spec"]["unschedulable"] = True
        return made

    def _taint(self) -> Json:
        # NoExecute would make the control plane evict the Pods of others, so it is rare.
        effect = self._chance.choices(EFFECTS, (6, 1, 3))[0]
        return {"key": self._chance.choice(("team", "disk")), "value": self._chance.choice("xy"), "effect": effect}

    def _pod_on(self, name: str, number: int) -> Json:
        spec = {**self._spec(), "nodeName": name, "tolerations": [{"operator": "Exists"}]}
        return {"metadata": {"name": f"{name}-{number}"}, "spec": spec}

    def _wanted(self) -> Json:
        spec = self._spec()
        if self._maybe(0.4):
            spec["tolerations"] = [self._toleration() for _ in range(self._chance.randint(1, 2))]
        if self._maybe(0.5):
            terms = [self._term() for _ in range(self._chance.randint(1, 2))]
            spec["affinity"] = {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            }
        return {"metadata": {"name": f"{self.name}-wanted"}, "spec": {**spec, "nodeSelector": {CLUSTER: self.name}}}

    def _toleration(self) -> Json:
        found: Json = {"operator": self._chance.choice(("Exists", "Equal"))}
        if found["operator"] == "Equal" or self._maybe(0.7):
            found["key"] = self._chance.choice(("team", "disk", "node.kubernetes.io/unschedulable"))
        if found["operator"] == "Equal":
            found["value"] = self._chance.choice(("x", "y", ""))
        if self._maybe(0.5):
            found["effect"] = self._chance.choice(EFFECTS)
        return found

    def _term(self) -> Json:
        term: Json = {}
        if self._maybe(0.8):
            term["matchExpressions"] = [self._requirement() for _ in range(self._chance.randint(1, 2))]
        if self._maybe(0.3) or not term:
            names = [self._chance.choice([*self.node_names, "elsewhere"])]
            operator = self._chance.choice(("In", "NotIn"))
            term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": names}]
        return term

    def _requirement(self) -> Json:
        operator = self._chance.choice(OPERATORS)
        if operator in {"Gt", "Lt"}:
            key = self._chance.choice(("size", "size", "zone", "missing"))
            return {"key": key, "operator": operator, "values": [str(self._chance.randint(0, 9))]}
        key = self._chance.choice(("zone", "missing", "size"))
        values = self._chance.sample(("a", "b", "c", "4"), self._chance.randint(1, 2))
        return {"key": key, "operator": operator} | ({"values": values} if operator in {"In", "NotIn"} else {})

    def _spec(self) -> Json:
        spec: Json = {"containers": [self._container(f"c{n}") for n in range(self._chance.choice((1, 1, 2)))]}
        if self._maybe(0.3):
            spec["initContainers"] = list(self._first())
        if self._maybe(0.5):
            spec["priorityClassName"] = self._chance.choice([*CLASSES])
        return spec

    def _first(self) -> Iterator[Json]:
        for number in range(self._chance.randint(1, 2)):
            container = self._container(f"first{number}")
            yield container | ({"restartPolicy": "Always"} if self._maybe(0.4) else {})

    def _container(self, name: str) -> Json:
        asks: dict[str, str] = {}
        if self._maybe(0.8):
            asks["cpu"] = self._chance.choice(("0", "250m", "500m", "1", "1500m", "2", "3"))
        if self._maybe(0.6):
            asks["memory"] = self._chance.choice(("0", "512Mi", "1Gi", "1500M", "2Gi", "4Gi"))
        if self._maybe(0.1):
            asks["ephemeral-storage"] = self._chance.choice(("1Gi", "3Gi"))
        if self._maybe(0.1):
            return {"name": name, "image": "x", "resources": {"limits": {**asks, GPU: "1"}}}
        return {"name": name, "image": "x", "resources": {self._chance.choice(("requests", "limits")): asks}}


def priority_classes() -> Sequence[Json]:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    never = {"room-polite": {"preemptionPolicy": "Never"}}
    return [
        {**kind, "metadata": {"name": name}, "value": value, **never.get(name, {})} for name, value in CLASSES.items()
    ]


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
