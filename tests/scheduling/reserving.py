"""Reservations beside the nodes of a test, and the schedulers that our extender keeps from them."""

from typing import Any

from dispatcher.kube.reservations import PATH
from tests.controlplane.api import Json
from tests.scheduling.ground import Ground

CPU = "cpu is reserved for another Pod"


class Reserving:
    """NodeReservations in the namespace of a ground; names as they come."""

    def __init__(self, ground: Ground) -> None:
        self._plane = ground.plane
        self._path = PATH.replace("/nodereservations", f"/namespaces/{ground.namespace}/nodereservations")
        self._number = 0

    async def hold(self, node: str, resources: Json, *, seconds: int = 600, **target: Any) -> str:
        """`target`: one of podName, jobName, taskId, uid. Its name."""
        self._number += 1
        name = f"hold-{self._number}"
        spec = {"nodeName": node, "resources": resources, "target": target, "ttlSeconds": seconds}
        body = {"apiVersion": "dispatcher.internal/v1alpha1", "kind": "NodeReservation"}
        await self._plane.admin("POST", self._path, {**body, "metadata": {"name": name}, "spec": spec})
        return name

    async def change(self, name: str, **spec: Any) -> None:
        await self._plane.admin("PATCH", f"{self._path}/{name}", {"spec": spec})

    async def status(self, name: str) -> tuple[str, str]:
        """Phase and message."""
        found = (await self._plane.admin("GET", f"{self._path}/{name}")).get("status", {})
        return found.get("phase", ""), found.get("message", "")

    async def becomes(self, name: str, phase: str, words: str = "", seconds: float = 10) -> None:
        async def is_so() -> bool:
            told, message = await self.status(name)
            return told == phase and words in message

        await self._plane.wait_for(is_so, f"{name} is {phase}: {words}", seconds)

    async def release(self, name: str) -> None:
        await self._plane.admin("DELETE", f"{self._path}/{name}")
