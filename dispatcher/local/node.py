"""A node in the API server: the Node object, its readiness, and the lease that shows it alive."""

import asyncio
import platform
import socket
import time
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from dispatcher import __version__
from dispatcher.kube.client import KubeClient, Reply
from dispatcher.local.statuses import written
from dispatcher.model.errors import ClusterError
from dispatcher.model.quantity import parse_quantity

Json = dict[str, Any]
log = structlog.get_logger(component="local.node")

LEASE_SECONDS: Final = 40
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class LocalNode:
    """Keeps one Node object. `size`: capacity by resource. `labels`: added to the well-known ones."""

    def __init__(self, client: KubeClient, name: str, size: dict[str, str], labels: dict[str, str]) -> None:
        self._client = client
        self._name = name
        self.size = size
        self._labels = labels
        self._lease_seconds = LEASE_SECONDS

    async def run(self, every_seconds: float) -> None:
        """Writes readiness and lease, round after round. A status that a controller changed is corrected."""
        while True:
            try:
                await self.write_status()
                await self.renew()
            except ClusterError as fault:
                log.warning("the node could not be kept", node=self._name, fault=str(fault))
            except Exception:  # a node that is not renewed is lost, with all that runs on it
                log.exception("the node could not be kept", node=self._name)
            await asyncio.sleep(every_seconds)

    async def write_status(self) -> None:
        reply = await self._client.request("GET", f"/api/v1/nodes/{self._name}")
        if reply.status == 404:
            reply = await self._client.request("POST", "/api/v1/nodes", msgspec.json.encode(self._node()))
        node: Json = msgspec.json.decode(reply.expect(f"node {self._name}"))
        conditions = node.get("status", {}).get("conditions", [])
        known = {name: parse_quantity(amount) for name, amount in node.get("status", {}).get("capacity", {}).items()}
        if is_ready(conditions) and known == {name: parse_quantity(amount) for name, amount in self.size.items()}:
            return
        node["status"] |= self._status(conditions)
        doing = f"status of node {self._name}"
        conflict_is_fine(await self._put(f"/api/v1/nodes/{self._name}/status", node), doing)

    async def renew(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self._name, "leaseDurationSeconds": self._lease_seconds, "renewTime": now}
        reply = await self._client.request("GET", f"{LEASES}/{self._name}")
        if reply.status == 404:
            lease: Json = {"metadata": {"name": self._name}, "spec": spec}
            reply = await self._client.request("POST", LEASES, msgspec.json.encode(lease))
            conflict_is_fine(reply, f"lease of node {self._name}")
            return
        lease = msgspec.json.decode(reply.expect(f"lease of node {self._name}"))
        lease["spec"] |= spec
        conflict_is_fine(await self._put(f"{LEASES}/{self._name}", lease), f"lease of node {self._name}")

    async def _put(self, path: str, whole: Json) -> Reply:
        return await self._client.request("PUT", path, msgspec.json.encode(whole))

    def _node(self) -> Json:
        well_known = {
            "kubernetes.io/hostname": self._name,
            "kubernetes.io/os": platform.system().lower(),
            "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        }
        meta = {"name": self._name, "labels": well_known | self._labels}
        return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": self._status([])}

    def _status(self, before: list[Json]) -> Json:
        now = written(time.time())
        others = [condition for condition in before if condition["type"] != "Ready"]
        ready = {
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "processes can be started",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }  # fmt: skip
        return {
            "capacity": self.size,
            "allocatable": self.size,
            "conditions": [*others, ready],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": socket.gethostname()},
            ],
            "nodeInfo": {
                "kubeletVersion": f"v0.0.0-process-{__version__}", "containerRuntimeVersion": "process://0",
                "operatingSystem": platform.system().lower(), "architecture": platform.machine(),
                "kernelVersion": platform.release(), "osImage": platform.platform(), "machineID": "", "systemUUID": "",
                "bootID": "", "kubeProxyVersion": "",
            },
        }  # fmt: skip


def is_ready(conditions: list[Json]) -> bool:
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def conflict_is_fine(reply: Reply, doing: str) -> None:
    """Accepts a 409: another client wrote first. The next round reads that, and writes again."""
    if reply.status != 409:
        reply.expect(doing)
