"""The Lease object at the API server: read, create, replace. `kube.lease` decides what to write, and when."""

from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

import msgspec

from dispatcher.kube.client import KubeClient
from dispatcher.kube.objects import read_status
from dispatcher.kube.term import RELEASED_SECONDS, Record
from dispatcher.kube.wire import Meta, Wire
from dispatcher.model.errors import ClusterRefused

LEASES_GROUP: Final = "coordination.k8s.io"
LONGEST_SECONDS: Final = 300
"""The longest lease length that the settings allow. A longer length that somebody wrote by hand is cut to it."""
LARGEST: Final = 2**31 - 1
"""The largest `leaseTransitions`, an int32."""


class Spec(Wire, frozen=True):
    holder_identity: str | None = ""
    lease_duration_seconds: int | None = 0
    acquire_time: str | None = ""
    renew_time: str | None = ""
    lease_transitions: int | None = 0


class WireLease(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: Spec = Spec()


class LeaseObject:
    """One lease at the API server. `seconds`: the length that we write; a call takes a third of it at most."""

    def __init__(self, client: KubeClient, namespace: str, name: str, seconds: int) -> None:
        self.name = name
        self._client = client
        self._path = f"/apis/{LEASES_GROUP}/v1/namespaces/{quote(namespace, safe='')}/leases"
        self._seconds = seconds

    async def read(self) -> Record | None:
        """The lease, or None if there is none."""
        reply = await self._client.request("GET", f"{self._path}/{self.name}", seconds=self._seconds / 3)
        if reply.status == 404 and read_status(reply.body).reason == "NotFound":
            return None
        return record_of(reply.read(f"read lease {self.name}", WireLease))

    async def create(self, holder: str) -> Record | None:
        """Creates the lease. Returns None if a rival was faster."""
        return await self._send("POST", self._path, self._body(None, holder))

    async def replace(self, record: Record, holder: str) -> Record | None:
        """Replaces this version of the lease; an empty holder releases it. Returns None if a rival was faster."""
        return await self._send("PUT", f"{self._path}/{self.name}", self._body(record, holder))

    async def _send(self, method: str, path: str, body: bytes) -> Record | None:
        try:
            reply = await self._client.request(
                method, path, body, {"timeout": f"{max(1, self._seconds // 3)}s"}, self._seconds / 3
            )
            return record_of(reply.read(f"{method} lease {self.name}", WireLease))
        except ClusterRefused as fault:
            if fault.status != 409 and (method, fault.status) != ("PUT", 404):
                raise
            return None

    def _body(self, record: Record | None, holder: str) -> bytes:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # for people; no program compares it
        is_new = record is None or record.holder != holder
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": self._seconds if holder else RELEASED_SECONDS,
            "renewTime": now,
            "acquireTime": now if is_new or record is None else record.acquired_at or now,
            "leaseTransitions": min(record.transitions + (is_new and holder != ""), LARGEST) if record else 0,
        }
        metadata = {"name": self.name} | ({"resourceVersion": record.resource_version} if record else {})
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        return msgspec.json.encode(lease)


def record_of(lease: WireLease) -> Record:
    spec = lease.spec
    return Record(
        spec.holder_identity or "",
        min(max(spec.lease_duration_seconds or 0, 0), LONGEST_SECONDS),
        spec.lease_transitions or 0,
        spec.acquire_time or "",
        lease.metadata.resource_version,
    )
