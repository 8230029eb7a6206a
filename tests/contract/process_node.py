"""A process kubelet with a node of its own, Jobs for that node, and every status that its Pods ever had."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Place
from tests.rig.noding import POOL, Node


class ProcessNode:
    """A node of its own, Jobs for it, and every status that its Pods ever had."""

    def __init__(self, place: Place, node: Node) -> None:
        self.node = node
        self._plane: ControlPlane = place.control_plane
        self._namespace = place.namespace
        self.statuses: list[Json] = []

    async def job(
        self, *command: str, name: str = "job", spec: Json | None = None, pod: Json | None = None, **container: Any
    ) -> None:
        image = {"name": "task", "image": "none:1", "command": list(command), **container}
        asked: Json = {
            "restartPolicy": "Never",
            "nodeSelector": {POOL: self._namespace},
            "containers": [image],
            **(pod or {}),
        }
        job = {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": {"spec": asked}, **(spec or {})}}
        await self._plane.admin("POST", f"/apis/batch/v1/namespaces/{self._namespace}/jobs", job)

    async def make(self, resource: str, **fields: Json) -> None:
        await self._plane.admin("POST", f"/api/v1/namespaces/{self._namespace}/{resource}", fields)

    async def pods(self) -> list[Json]:
        found: list[Json] = (await self._plane.admin("GET", f"/api/v1/namespaces/{self._namespace}/pods"))["items"]
        return found

    async def follow(self) -> None:
        async for change in self._plane.api.follow(f"/api/v1/namespaces/{self._namespace}/pods"):
            self.statuses += [pod["status"] for pod in change.objects]

    async def pod(self, phase: str) -> Json:
        """The newest status of that phase; it outlives its Pod."""
        return (await wait_for(lambda: [one for one in self.statuses if one.get("phase") == phase], f"{phase}", 20))[-1]

    async def job_conditions(self, last: str) -> dict[str, str]:
        async def look() -> dict[str, str]:
            path = f"/apis/batch/v1/namespaces/{self._namespace}/jobs/job"
            found = (await self._plane.admin("GET", path))["status"].get("conditions", [])
            told = {condition["type"]: condition["reason"] for condition in found}
            return told if last in told else {}

        return await wait_for(look, f"the Job is {last}", 20)

    async def delete_pod(self, grace: int) -> None:
        (pod,) = await self.pods()
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod['metadata']['name']}"
        await self._plane.admin("DELETE", path, {"gracePeriodSeconds": grace})

        async def is_gone() -> bool:
            return not await self._plane.exists(path)

        await wait_for(is_gone, "the Pod is gone", 20)


@asynccontextmanager
async def opened(place: Place, url: str | None = None) -> AsyncIterator[ProcessNode]:
    """`url`: where the kubelet finds the API server; None: at the server's own address."""
    made = ProcessNode(place, Node(place, "process-node", url))
    following = asyncio.create_task(made.follow())
    try:
        await made.node.start()
        yield made
    finally:
        following.cancel()
        await made.node.remove()


def state(status: Json) -> Json:
    """The state of the container, without times and ids."""
    (container,) = status["containerStatuses"]
    ((kind, told),) = container["state"].items()
    return {kind: {key: value for key, value in told.items() if key not in {"startedAt", "finishedAt", "containerID"}}}


def conditions(status: Json) -> dict[str, tuple[str, str | None]]:
    return {one["type"]: (one["status"], one.get("reason")) for one in status["conditions"]}
