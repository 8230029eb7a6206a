"""An API server with any number of nodes and bound Pods that never change, to measure memory and answers.

It serves lists in pages, and watches that send only bookmarks. A real API server would take minutes to fill.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from aiohttp import web

from dispatcher.runtime.health import Site
from tests.controlplane.ports import free_ports

Json = dict[str, Any]
CREATED, FOR_EVER = "2026-01-01T00:00:00Z", "2200-01-01T00:00:00Z"
SIZE = {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi"}


def a_node(number: int) -> Json:
    name = f"node-{number:05}"
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": "large"}
    meta = {"name": name, "uid": f"uid-{name}", "creationTimestamp": CREATED, "labels": labels}
    return {"metadata": meta, "spec": {}, "status": {"allocatable": SIZE, "capacity": SIZE}}


def a_pod(number: int, nodes: int) -> Json:
    """A Pod of one of ten sizes."""
    asked = {"cpu": f"{100 * (number % 10 + 1)}m", "memory": f"{128 * (number % 10 + 1)}Mi"}
    containers = [{"name": "task", "image": "x:1", "resources": {"requests": asked, "limits": asked}}]
    job, uid = f"job-{number:06}", f"00000000-0000-0000-0000-{number:012}"
    labels = {"batch.kubernetes.io/job-name": job, "job-name": job, "app": f"team-{number % 20}"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"job-{uid}", "controller": True}
    meta: Json = {"name": f"pod-{number:06}", "namespace": f"team-{number % 20}", "uid": uid}
    meta |= {"labels": labels, "ownerReferences": [owner]}
    spec = {"nodeName": f"node-{number % nodes:05}", "containers": containers}
    return {"metadata": {**meta, "creationTimestamp": CREATED}, "spec": spec, "status": {"phase": "Running"}}


def a_reservation(number: int, nodes: int) -> Json:
    """A reservation of free room for a Pod that never comes. Its status is up to date."""
    meta = {"name": f"hold-{number:05}", "namespace": "jobs", "uid": f"uid-hold-{number}", "creationTimestamp": CREATED}
    target, held = {"taskId": number + 1}, {"cpu": "100m", "memory": "128Mi"}
    spec = {"nodeName": f"node-{number % nodes:05}", "resources": held, "target": target, "expiresAt": FOR_EVER}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Active", "message": ""}}


class StandingCluster:
    def __init__(self, nodes: int, pods: int, reservations: int = 0) -> None:
        self._items = {
            "nodes": [msgspec.json.encode(a_node(number)) for number in range(nodes)],
            "pods": [msgspec.json.encode(a_pod(number, nodes)) for number in range(pods)],
            "nodereservations": [msgspec.json.encode(a_reservation(number, nodes)) for number in range(reservations)],
        }

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rsplit("/", 1)[-1]
        if request.query.get("watch"):
            return await self._watch(request, kind)
        first, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or 10**9)
        page = self._items[kind][first : first + limit]
        more = str(first + limit) if first + limit < len(self._items[kind]) else ""
        meta = msgspec.json.encode({"resourceVersion": "7", "continue": more})
        body = b'{"kind":"List","apiVersion":"v1","metadata":' + meta + b',"items":[' + b",".join(page) + b"]}"
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        named = {"nodes": "Node", "pods": "Pod", "nodereservations": "NodeReservation"}[kind]
        mark = {"kind": named, "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}
        with suppress(ConnectionError):  # until the reader closes it
            while True:
                await stream.write(msgspec.json.encode({"type": "BOOKMARK", "object": mark}) + b"\n")
                await asyncio.sleep(10)
        return stream


@asynccontextmanager
async def standing_cluster(nodes: int, pods: int, reservations: int = 0) -> AsyncIterator[str]:
    """Serves the cluster. Yields its URL."""
    app = web.Application()
    app.router.add_get("/{path:.*}", StandingCluster(nodes, pods, reservations).answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    (port,) = free_ports(1)
    await Site(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
