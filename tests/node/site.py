"""Everything that the tests of this folder share: a control plane, Postgres, a registry and two real nodes.

It is started once for a run, in the network namespace of the run (`__main__.py`), never on the machine's own network.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from tests.controlplane.waiting import wait_for
from tests.node.cgroups import Cgroups
from tests.node.disk import mount_small_disk
from tests.node.machine import CACHES
from tests.node.node import Node
from tests.node.place import EVERYBODY, FOLDER, make_network
from tests.node.plane import ReachablePlane
from tests.node.registry import Registry
from tests.rig.postgres import PostgresServer

NODES: Final = (1, 2)


class Site:
    """The servers, all of them up. The last node has a small disk."""

    def __init__(self, plane: ReachablePlane, postgres: PostgresServer, registry: Registry, folder: Path) -> None:
        self.plane = plane
        self.postgres = postgres
        self.registry = registry
        self.caches = folder / CACHES
        cgroups = Cgroups(os.environ["NODE_CGROUP"])
        self.nodes = [Node(plane, folder, number, cgroups) for number in NODES]

    def check(self) -> None:
        """Raises ServerDied if a server ended by itself."""
        self.plane.check()
        self.registry.server.check()
        for node in self.nodes:
            node.check()


@asynccontextmanager
async def started() -> AsyncIterator[Site]:
    folder = Path(os.environ[FOLDER])
    make_network([(f"pods{number}", number) for number in NODES])
    registry = Registry(folder)
    registry.start()
    async with AsyncExitStack() as stack:
        stack.callback(registry.server.kill)
        plane = await stack.enter_async_context(ReachablePlane(logs_in=logs()))
        postgres, _ = await asyncio.gather(PostgresServer.launch(network=EVERYBODY), filled(registry))
        stack.push_async_callback(postgres.close)
        site = Site(plane, postgres, registry, folder)
        for node in site.nodes:
            stack.callback(node.stop)
        mount_small_disk(site.nodes[-1].disk)
        await asyncio.gather(*(node.start() for node in site.nodes))
        yield site


async def filled(registry: Registry) -> None:
    await wait_for(registry.answers, "the registry", check=registry.server.check)
    await asyncio.to_thread(registry.fill)


def logs() -> Path | None:
    kept = os.environ.get("CONTROL_PLANE_LOGS")
    return Path(kept) if kept else None
