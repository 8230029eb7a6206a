"""A node that nothing simulates, and what its kubelet would say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from secrets import token_hex

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import core_path, insert, template_with


@asynccontextmanager
async def unmanaged_node(place: Place) -> AsyncIterator[str]:
    """A Node without kubelet and kwok. The test writes its status."""
    name = f"fragile-{token_hex(3)}"
    await place.control_plane.admin("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    await say(place, name, "True")
    yield name
    await place.control_plane.remove_node(name)


async def say(place: Place, node: str, ready: str) -> None:
    """Writes the condition Ready of the Node, as its kubelet or the node controller does."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": now, "lastTransitionTime": now}
    status = {"conditions": [condition], "capacity": {"cpu": "8", "memory": "8Gi", "pods": "20"}}
    await place.control_plane.admin("PATCH", f"/api/v1/nodes/{node}/status", {"status": status})


async def the_pod(place: Place, dispatcher: Dispatcher) -> Json:
    async def look() -> list[Json]:
        found: list[Json] = (await place.control_plane.admin("GET", core_path(place, "pods")))["items"]
        return found

    return (await wait_for(look, "a Pod", 20, check=dispatcher.check))[0]


async def run_on(place: Place, pod: Json) -> None:
    """Writes that the Pod's container runs, as the kubelet does."""
    ran = [{"name": "task", "image": "a", "imageID": "", "ready": True, "restartCount": 0, "state": {
        "running": {"startedAt": pod["metadata"]["creationTimestamp"]}}}]  # fmt: skip
    path = core_path(place, "pods", f"{pod['metadata']['name']}/status")
    await place.control_plane.admin("PATCH", path, {"status": {"phase": "Running", "containerStatuses": ran}})


async def lose(place: Place, dispatcher: Dispatcher, node: str) -> Json:
    """Runs a row on the node, then makes the node unreachable. The taint manager deletes its Pod after a second."""
    key = "node.kubernetes.io/unreachable"
    gone = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    template_with(place, "there", {"nodeName": node, "tolerations": [gone]})
    await dispatcher.ready()
    await insert(place, 1, template="there", env={"PLAY": "hang"})
    pod = await the_pod(place, dispatcher)
    await run_on(place, pod)
    await wait_for(lambda: place.rows("status = 'processing'"), "it has started", 20, check=dispatcher.check)
    await say(place, node, "Unknown")
    return pod
