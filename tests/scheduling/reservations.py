"""Reservations on the nodes of a test, with the extender and kube-scheduler that enforce them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dispatcher.kube.reservations import PATH
from dispatcher.model.launches import WOKEN_AT
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.scheduling.kube_scheduler import KubeScheduler
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.own_extender import OwnExtender

CPU = "cpu is reserved for another Pod"
WHOLE = {"cpu": "3900m"}
TARGET_META: Json = {"labels": {"batch.kubernetes.io/job-name": "ours"}}
"""Metadata of a Pod of the Job `ours`."""


class Reservations:
    """The NodeReservations of a namespace. Names are numbered."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self._path = PATH.replace("/nodereservations", f"/namespaces/{namespace}/nodereservations")
        self._events = f"/api/v1/namespaces/{namespace}/events"
        self._number = 0

    async def hold(
        self, node: str, resources: Json, *, seconds: int = 600, expires_at: datetime | None = None, **target: Any
    ) -> str:
        """Creates a NodeReservation and returns its name. `target`: one of podName, jobName, taskId, uid."""
        self._number += 1
        name = f"hold-{self._number}"
        end = {"expiresAt": expires_at.isoformat()} if expires_at else {"ttlSeconds": seconds}
        spec = {"nodeName": node, "resources": resources, "target": target, **end}
        body = {"apiVersion": "dispatcher.internal/v1alpha1", "kind": "NodeReservation"}
        await self._plane.admin("POST", self._path, {**body, "metadata": {"name": name}, "spec": spec})
        return name

    async def change(self, name: str, **spec: Any) -> None:
        await self._plane.admin("PATCH", f"{self._path}/{name}", {"spec": spec})

    async def status(self, name: str) -> tuple[str, str]:
        """(phase, message)"""
        found = (await self._plane.admin("GET", f"{self._path}/{name}")).get("status", {})
        return found.get("phase", ""), found.get("message", "")

    async def made_at(self, name: str) -> str:
        return str((await self._plane.admin("GET", f"{self._path}/{name}"))["metadata"]["creationTimestamp"])

    async def wait_for_phase(self, name: str, phase: str, words: str = "", seconds: float = 20) -> None:
        async def is_so() -> bool:
            told, message = await self.status(name)
            return told == phase and words in message

        await self._plane.wait_for(is_so, f"{name} is {phase}: {words}", seconds)

    async def exists(self, name: str) -> bool:
        return any(one["metadata"]["name"] == name for one in (await self._plane.admin("GET", self._path))["items"])

    async def release(self, name: str) -> None:
        await self._plane.admin("DELETE", f"{self._path}/{name}")

    async def told(self, kind: str, name: str) -> list[Json]:
        """The extender's Events about this object, oldest first."""
        about = {"involvedObject.kind": kind, "involvedObject.name": name, "source": "dispatcher-extender"}
        params = {"fieldSelector": ",".join(f"{field}={value}" for field, value in about.items())}
        items = (await self._plane.admin("GET", self._events, params=params))["items"]
        return sorted(items, key=lambda one: int(one["metadata"]["resourceVersion"]))

    async def wait_for_event(self, kind: str, name: str, reason: str, words: str, seconds: float = 20) -> Json:
        """Waits for the extender's Event with this reason and these words, and returns it."""

        async def find() -> Json | None:
            found = await self.told(kind, name)
            return next((one for one in found if one["reason"] == reason and words in one["message"]), None)

        return await self._plane.wait_for(find, f"{kind} {name} is told {reason}: {words}", seconds) or {}


@dataclass(frozen=True, slots=True)
class ReservedNodes:
    """The nodes and Pods of one test, a kube-scheduler that calls our extender, and reservations."""

    node_group: NodeGroup
    own_extender: OwnExtender
    scheduler: KubeScheduler
    reservations: Reservations

    async def pod(self, **wanted: Any) -> str:
        return await self.node_group.pod(self.scheduler, **wanted)

    async def gated_pod(self, **wanted: Any) -> str:
        """A Pod that kube-scheduler leaves alone. Any other Pod it may try again for reasons of its own."""
        return await self.pod(schedulingGates=[{"name": "test.dispatcher.internal/gate"}], **wanted)

    async def refuse_all(self, node: str) -> None:
        """Asks the extender about the node for each Pod, as kube-scheduler would, and expects a refusal."""
        for pod in (await self.node_group.pods()).values():
            _, answer = await self.own_extender.post("filter", {"Pod": pod, "NodeNames": [node]})
            assert answer["FailedAndUnresolvableNodes"] == {node: CPU}

    async def notes(self) -> dict[str, str]:
        """The time of the extender's note on each Pod; empty without one."""
        pods = await self.node_group.pods()
        return {name: pod["metadata"].get("annotations", {}).get(WOKEN_AT, "") for name, pod in pods.items()}

    async def wait_until_held(self, node: str, asks: Json = WHOLE) -> None:
        """Waits until the extender refuses the node to strangers. At its start it knows no holds for a while."""
        await wait_for(
            lambda: is_held(self.own_extender, node, asks), f"{node} is held", 20, check=self.own_extender.check
        )

    async def wait_until_free(self, node: str, asks: Json) -> None:
        """Waits until a stranger could get so much of the node, beside holds and Pods under way."""

        async def is_free() -> bool:
            return await refusal_of(self.own_extender, node, asks) == ""

        await wait_for(is_free, f"{node} is free for {asks}", 15, check=self.own_extender.check)


async def reserved_nodes_of(node_group: NodeGroup, extender: OwnExtender, printed: OwnExtender) -> ReservedNodes:
    """A kube-scheduler with the configuration that `printed` printed, but with the address of `extender`."""
    scheduler = node_group.scheduler_of(await extender.configuration_like(printed))
    return ReservedNodes(node_group, extender, scheduler, Reservations(node_group.plane, node_group.namespace))


async def is_held(own_extender: OwnExtender, node: str, asks: Json = WHOLE) -> bool:
    """Whether the extender refuses the node to a stranger's Pod because of a reservation."""
    return "reserved for another" in await refusal_of(own_extender, node, asks)


async def refusal_of(own_extender: OwnExtender, node: str, asks: Json) -> str:
    """The extender's reason to refuse the node to a stranger's Pod. Empty if it passes."""
    meta = {"name": "probe", "namespace": "elsewhere", "uid": "probe"}
    spec = {"containers": [{"name": "x", "resources": {"requests": asks}}]}
    _, answer = await own_extender.post("filter", {"Pod": {"metadata": meta, "spec": spec}, "NodeNames": [node]})
    if answer.get("Error"):
        return str(answer["Error"])
    return str(answer["FailedAndUnresolvableNodes"].get(node, ""))


def task(number: int) -> Json:
    """Metadata of a Pod of the row `number`."""
    return {"labels": {"dispatcher.internal/task-id": str(number)}}
