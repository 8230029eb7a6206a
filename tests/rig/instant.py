"""A node whose containers take no time: a Pod bound to it runs, reports and ends as fast as the API allows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane

START = "SELECT run_token FROM dispatch.task_start($1, $2, $3, $4, $5, $6, $7)"
FINISH = "SELECT dispatch.task_finish($1, 'succeeded')"
SIZE = {"cpu": "1000", "memory": "1000Gi", "pods": "1000"}
READY = {"type": "Ready", "status": "True"}
AT_ONCE = 8


class InstantNode:
    """A node for the embedded cluster. `ran`: ids of the rows whose containers it played, in order."""

    def __init__(self, plane: ControlPlane, namespace: str, database: asyncpg.Pool) -> None:
        self.ran: list[int] = []
        self._plane = plane
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._database = database
        self._places = asyncio.Semaphore(AT_ONCE)
        self._known: set[str] = set()

    async def join(self) -> None:
        status = {"capacity": SIZE, "allocatable": SIZE, "conditions": [READY]}
        await self._plane.admin("POST", "/api/v1/nodes", {"metadata": {"name": "instant"}, "status": status})

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            async for change in self._plane.api.follow(self._pods):
                for pod in change.objects if change.type != "DELETED" else ():
                    if pod["spec"].get("nodeName") and pod["metadata"]["uid"] not in self._known:
                        self._known.add(pod["metadata"]["uid"])
                        group.create_task(self._play(pod))

    async def _play(self, pod: Json) -> None:
        env = {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0]["env"]}
        uid = pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"]
        row = int(env["TASK_ID"]), env["TASK_START_KEY"], int(env["TASK_ATTEMPT"]), int(env["TASK_LAUNCH"])
        async with self._places:
            await self._say(pod, "Running")
            token = await self._database.fetchval(START, *row, uid, "instant", pod["metadata"]["name"])
            await self._database.execute(FINISH, token)
            self.ran.append(row[0])
            await self._say(pod, "Succeeded")

    async def _say(self, pod: Json, phase: str) -> None:
        await self._plane.admin("PATCH", f"{self._pods}/{pod['metadata']['name']}/status", {"status": {"phase": phase}})


@asynccontextmanager
async def instant_node(plane: ControlPlane, namespace: str, url: str) -> AsyncIterator[InstantNode]:
    async with asyncpg.create_pool(url, min_size=AT_ONCE, max_size=AT_ONCE) as pool:
        node = InstantNode(plane, namespace, pool)
        await node.join()
        running = asyncio.create_task(node.run())
        try:
            yield node
            assert not running.done(), running.exception()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await plane.remove_node("instant")
