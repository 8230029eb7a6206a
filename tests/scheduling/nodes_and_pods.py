"""The nodes, Pods and schedulers of one test. Its nodes are for its own Pods alone, by label and taint."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.objects import is_ready, node
from tests.scheduling.kube_scheduler import KubeScheduler, configuration

GROUP_LABEL = "test.dispatcher.internal/node-group"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
NOTES = "dispatcher.internal"
GPU = "example.com/gpu"
PATIENCE_SECONDS = 25
"""kube-scheduler may wait ten seconds before it tries a Pod again, twice with a race."""


class NodeGroup:
    def __init__(self, plane: ControlPlane, namespace: str, folder: Path) -> None:
        self.plane = plane
        self.namespace = namespace
        self.folder = folder
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._numbers = count(1)
        self._nodes: set[str] = set()
        self._classes: set[str] = set()
        self._schedulers: list[KubeScheduler] = []

    def scheduler(self, *extenders: Json, **profile: object) -> KubeScheduler:
        """Starts a kube-scheduler that calls these extenders."""
        return self.scheduler_of(configuration(*extenders, **profile))

    def scheduler_of(self, wanted: Json) -> KubeScheduler:
        """Starts a kube-scheduler with a whole configuration, as our program prints it."""
        made = KubeScheduler(self.plane, self.folder, wanted)
        made.start()
        self._schedulers.append(made)
        return made

    def key(self, pod: str) -> str:
        """The Pod's name in kube-scheduler's log."""
        return f"{self.namespace}/{pod}"

    # Nodes

    async def nodes(
        self, number: int = 2, *, cpu: str = "8", memory: str = "32Gi", pods: int = 110, gpu: str = ""
    ) -> list[str]:
        """Creates nodes and waits until Pods can be placed on them. `gpu`: amount of `example.com/gpu`."""
        size = {"cpu": cpu, "memory": memory, "pods": str(pods)} | ({GPU: gpu} if gpu else {})
        names = [f"{self.namespace}-{next(self._numbers)}" for _ in range(number)]
        await asyncio.gather(*(self._create_node(name, size) for name in names))
        await self._ready(*names)
        return names

    async def _create_node(self, name: str, size: Mapping[str, str]) -> None:
        """The taint keeps Pods of other tests away, which may want to fit nowhere."""
        self._nodes.add(name)
        taint = {"key": GROUP_LABEL, "value": self.namespace, "effect": "NoSchedule"}
        await self.plane.admin("POST", "/api/v1/nodes", node(name, size, {GROUP_LABEL: self.namespace}, [taint]))

    async def _ready(self, *names: str) -> None:
        async def are_ready() -> bool:
            found = await self.plane.admin(
                "GET", "/api/v1/nodes", params={"labelSelector": f"{GROUP_LABEL}={self.namespace}"}
            )
            return set(names) <= {one["metadata"]["name"] for one in found["items"] if is_ready(one)}

        await self.plane.wait_for(are_ready, f"{len(names)} nodes are Ready", 30)

    async def change_node(self, name: str, change: Json) -> None:
        await self.plane.admin("PATCH", f"/api/v1/nodes/{name}", change)

    async def cordon(self, name: str) -> None:
        await self.change_node(name, {"spec": {"unschedulable": True}})

    async def annotate_node(self, name: str, **notes: str) -> None:
        await self.change_node(name, {"metadata": {"annotations": notes}})

    async def remove_node(self, name: str) -> Json:
        """Removes the node and returns its object, for `return_node`."""
        was = await self.plane.admin("GET", f"/api/v1/nodes/{name}")
        await self.plane.remove_node(name)
        return was

    async def return_node(self, was: Json) -> None:
        """Creates a node of the same name and size."""
        await self._create_node(was["metadata"]["name"], was["status"]["allocatable"])
        await self._ready(was["metadata"]["name"])

    # Pods

    async def pod(self, scheduler: KubeScheduler, **wanted: Any) -> str:
        """Creates a Pod for this scheduler and returns its name. `wanted`: see `_manifest`."""
        return await self._create(self._manifest({"schedulerName": scheduler.name}, **wanted))

    async def occupy(self, name: str, **wanted: Any) -> str:
        """Creates a Pod on that node without a scheduler."""
        return await self._create(self._manifest({"nodeName": name}, **wanted))

    async def daemon(self, scheduler: KubeScheduler) -> None:
        """Creates a DaemonSet on all nodes of this test."""
        whole = self._manifest({"schedulerName": scheduler.name})
        labels = {"daemon": "d"}
        template = {"metadata": {"labels": labels}, "spec": whole["spec"]}
        wanted = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
        await self.plane.admin("POST", f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets", wanted)

    async def is_bound_by(self, kind: str) -> bool:
        """Whether a Pod of an owner of this kind is on a node."""
        return any(
            owner["kind"] == kind and pod["spec"].get("nodeName")
            for pod in (await self.pods()).values()
            for owner in pod["metadata"].get("ownerReferences", [])
        )

    def _manifest(
        self,
        spec: Json,
        *,
        cpu: str | None = "100m",
        memory: str | None = "64Mi",
        notes: Mapping[str, str] | None = None,
        meta: Json | None = None,
        also: Mapping[str, str] | None = None,
        **more: object,
    ) -> Json:
        """A Pod's manifest.

        notes: our annotations, without their prefix.
        meta: other metadata.
        also: further resources, as requests and limits.
        more: fields of the spec.
        """
        asked = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount} | dict(also or {})
        resources = {"requests": asked} | ({"limits": also} if also else {})
        container = {"name": "task", "image": "registry.example/x:1", "resources": resources}
        annotations = {f"{NOTES}/{name}": text for name, text in (notes or {}).items()}
        here = {
            "nodeSelector": {GROUP_LABEL: self.namespace},
            "tolerations": [{"key": GROUP_LABEL, "operator": "Exists"}],
            "containers": [container],
        }
        metadata = {"name": f"pod-{next(self._numbers)}", "annotations": annotations, **(meta or {})}
        return {"metadata": metadata, "spec": here | spec | more}

    async def _create(self, manifest: Json) -> str:
        return str((await self.plane.admin("POST", self._pods, manifest))["metadata"]["name"])

    async def pods(self) -> dict[str, Json]:
        return {pod["metadata"]["name"]: pod for pod in (await self.plane.admin("GET", self._pods))["items"]}

    async def read(self, name: str) -> Json:
        return await self.plane.admin("GET", f"{self._pods}/{name}")

    async def annotate_pod(self, name: str, **notes: str) -> None:
        await self.plane.admin("PATCH", f"{self._pods}/{name}", {"metadata": {"annotations": notes}})

    async def annotate_pod_by_status(self, name: str, **notes: str) -> None:
        """Annotates through `pods/status`, as an account without the right to patch Pods does."""
        await self.plane.admin("PATCH", f"{self._pods}/{name}/status", {"metadata": {"annotations": notes}})

    async def open_gate(self, name: str) -> None:
        """Removes the scheduling gates of the Pod."""
        await self.plane.admin("PATCH", f"{self._pods}/{name}", {"spec": {"schedulingGates": None}})

    async def nominate(self, name: str, node: str) -> None:
        """Writes the node as the Pod's `nominatedNodeName`."""
        await self.plane.admin("PATCH", f"{self._pods}/{name}/status", {"status": {"nominatedNodeName": node}})

    async def end_pod(self, name: str) -> None:
        """Ends its container with 0."""
        await self.annotate_pod(name, **{"play.dispatcher.internal/exited": "0"})

    async def delete_pod(self, name: str) -> None:
        await self.plane.admin("DELETE", f"{self._pods}/{name}", {"gracePeriodSeconds": 0})

    # Waiting for an outcome

    async def bound(self, *names: str, seconds: float = PATIENCE_SECONDS) -> list[str]:
        """Waits until these Pods are bound, and returns their nodes in the same order."""

        async def all_bound() -> list[str]:
            pods = await self.pods()
            found = [pods[name]["spec"].get("nodeName", "") for name in names]
            return found if all(found) else []

        return await self.plane.wait_for(all_bound, f"{', '.join(names)} bound", seconds)

    async def held(self, name: str, reason: str, words: str = "", *, seconds: float = PATIENCE_SECONDS) -> str:
        """Waits until the Pod's condition PodScheduled has this reason and these words, and returns its message."""

        async def look() -> str:
            conditions = (await self.read(name))["status"].get("conditions", [])
            told = [one for one in conditions if one["type"] == "PodScheduled" and one.get("reason") == reason]
            return next((one["message"] for one in told if words in one["message"]), "")

        return await self.plane.wait_for(look, f"{name} is {reason}: {words!r}", seconds)

    async def empty(self) -> None:
        """Deletes all Pods of the namespace."""
        await self.plane.admin("DELETE", self._pods, params={"gracePeriodSeconds": "0"})

    async def gone(self, *names: str) -> None:
        async def all_gone() -> bool:
            return not set(names) & set(await self.pods())

        await self.plane.wait_for(all_gone, f"{', '.join(names)} gone", PATIENCE_SECONDS)

    async def priority(self, name: str, value: int) -> str:
        """Creates a priority class of this test and returns its name."""
        whole = f"{name}-{self.namespace}"
        await self.plane.admin("POST", PRIORITIES, {"metadata": {"name": whole}, "value": value})
        self._classes.add(whole)
        probe = self._manifest({"priorityClassName": whole})

        async def is_known() -> bool:
            """The admission plugin reads classes from a cache, which lags a little."""
            try:
                await self.plane.admin("POST", self._pods, probe, params={"dryRun": "All"})
            except KubeFault as fault:
                if "no PriorityClass" in str(fault):
                    return False
                raise
            return True

        await self.plane.wait_for(is_known, f"the class {whole} is known")
        return whole

    async def clear(self) -> None:
        """Ends the schedulers, and deletes nodes and priority classes: they are in no namespace."""
        for scheduler in self._schedulers:
            await asyncio.to_thread(scheduler.kill)
        paths = [f"/api/v1/nodes/{name}" for name in self._nodes] + [f"{PRIORITIES}/{name}" for name in self._classes]
        await asyncio.gather(*(self.plane.remove(path) for path in paths))


@asynccontextmanager
async def open_node_group(plane: ControlPlane, folder: Path) -> AsyncIterator[NodeGroup]:
    namespace = await plane.create_namespace()
    made = NodeGroup(plane, namespace, folder)
    try:
        yield made
    finally:
        await made.clear()
        await plane.delete_namespace(namespace)
