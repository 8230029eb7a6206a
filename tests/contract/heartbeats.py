"""The heartbeats of nodes that a test plays. A node without them is tainted as unreachable after 50 seconds."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from tests.contract.played_kubelet_objects import now
from tests.controlplane.api import UNREACHABLE, KubeFault
from tests.controlplane.cluster import ControlPlane

HEARTBEAT_SECONDS = 10


@asynccontextmanager
async def heartbeats(plane: ControlPlane, nodes: Sequence[str]) -> AsyncIterator[None]:
    """Renews the heartbeats of these nodes as a kubelet does, while the context lasts."""
    over = asyncio.Event()

    async def renew() -> None:
        while not over.is_set():
            for name in nodes:
                await beat(plane, name)
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), HEARTBEAT_SECONDS)

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        over.set()
        await task


async def beat(plane: ControlPlane, name: str) -> None:
    """Reports the same conditions at the current time. After a conflict the next report does it."""
    path = f"/api/v1/nodes/{name}"
    try:
        node = await plane.admin("GET", path)
        for condition in node["status"]["conditions"]:
            condition["lastHeartbeatTime"] = now()
        await plane.admin("PUT", f"{path}/status", node)
    except UNREACHABLE:
        return
    except KubeFault as fault:
        if fault.status not in {404, 409}:
            raise
