"""The leader lease. Every replica plans; only the leader writes.

This file promises that no write begins after the trust in our own term has ended. A lease is no fence, as client-go
says of its own lease. Two leaders are harmless for a row because of the Job names, but writes that a deposed leader
had on their way may exceed a cap.

Failure story:

* The API server is away: the term ends by time.
* The process was paused: each write asks the clock, so a process that wakes up finds its term over.
* The lease was deleted: the first replica that may take it creates it again.
"""

import asyncio
import socket
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

import msgspec
import structlog
from msgspec import Struct

from dispatcher.kube.client import KubeClient
from dispatcher.kube.objects import Meta, Wire, read_status
from dispatcher.kube.term import RELEASED_SECONDS, Record, Sight, look_again, pause, trusted_until
from dispatcher.model.errors import ClusterError, ClusterRefused
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import FAULTS, LEADER

log = structlog.get_logger(component="kube.lease")

LONGEST_SECONDS: Final = 300
"""The longest lease length that the settings allow. A longer length that somebody wrote by hand is cut to it."""
LARGEST: Final = 2**31 - 1
"""The largest `leaseTransitions`, an int32."""
LEASES_GROUP: Final = "coordination.k8s.io"


class LeaseName(Struct, frozen=True):
    """Namespace and name of an installation's lease.

    The lease is in the namespace of our programs, so that accounts that only create Jobs cannot write it.
    """

    namespace: str
    name: str


def lease_of(installation: str, namespace: str) -> LeaseName:
    """Name of the lease. `namespace`: our ServiceAccount's namespace, or outside a cluster the namespace of Jobs."""
    return LeaseName(namespace, f"{installation}-leader")


class Spec(Wire, frozen=True):
    holder_identity: str | None = ""
    lease_duration_seconds: int | None = 0
    acquire_time: str | None = ""
    renew_time: str | None = ""
    lease_transitions: int | None = 0


class WireLease(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: Spec = Spec()


class Lease:
    """One replica's part in the election of its installation. `run_once` keeps, takes or reads the lease."""

    def __init__(self, client: KubeClient, lease: LeaseName, seconds: int, clock: Clock = elapsed) -> None:
        self.me = f"{socket.gethostname()}_{uuid.uuid4()}"
        self._client = client
        self._path = f"/apis/{LEASES_GROUP}/v1/namespaces/{quote(lease.namespace, safe='')}/leases"
        self._name = lease.name
        self._seconds = seconds
        self._clock = clock
        self._sight: Sight | None = None
        self._is_current = False
        self._trusted_until = float("-inf")
        self._terms = 0
        self._fault = "the lease was not read yet"
        self._won: Callable[[], None] = lambda: None
        LEADER.set_function(lambda: float(self.is_trusted()))

    def on_winning(self, listener: Callable[[], None]) -> None:
        """Calls `listener` whenever a term of this replica begins."""
        self._won = listener

    def is_trusted(self) -> bool:
        """Whether a write may be sent now."""
        return self._clock() < self._trusted_until

    def term(self) -> int:
        """Number of our term, from 1; 0 if we do not lead. A cycle acts only in the term in which it looked."""
        return self._terms if self.is_trusted() else 0

    def vacancy(self) -> str:
        """Why there is no leader; empty if this replica or another one leads."""
        if self.is_trusted() or (self._sight is not None and not self._is_free(self._sight)):
            return ""
        return f"lease {self._name}: {self._fault or 'its holder is gone'}"

    async def run_once(self) -> float:
        """Tries once to keep, take or read the lease. Returns the seconds until the next try."""
        try:
            async with asyncio.timeout(self._seconds / 3):
                await self._try(self._clock())
            self._fault = ""
        except (ClusterError, TimeoutError) as fault:
            FAULTS.labels("lease").inc()
            self._fault = str(fault) or "no answer in time"
            log.warning("the lease could not be kept or read", fault=self._fault, leads=self.is_trusted())
            return min(1.0, self._seconds / 10)
        return pause(self._sight, self.me, self._seconds, self._clock())

    async def release(self) -> None:
        """Gives the lease up, so that another replica need not wait for its end. Call it after the last answer."""
        self._trusted_until = float("-inf")
        try:
            async with asyncio.timeout(self._seconds / 3):
                for _ in range(2):  # a cancelled renewal may still reach the API server first and cause a conflict
                    await self._read()
                    if self._sight is None or not self._holds():
                        return
                    await self._write(self._sight.record, holder="")
                    if self._is_current:
                        log.info("gave the lease up")
                        return
            log.warning("the lease could not be given up: somebody else writes it")
        except (ClusterError, TimeoutError) as fault:
            log.warning("the lease could not be given up: it ends by itself", fault=str(fault) or "no answer in time")

    async def _try(self, began: float) -> None:
        for _ in range(2):  # after a conflict with a rival or an edit by hand, the same try reads the lease again
            if not (self._is_current and self._holds()):
                await self._read()
            if not self._may_take():
                break
            await self._take()
            if self._is_current:
                break
        if self._is_current and self._holds():
            self._trust(trusted_until(began, self._seconds))
        elif self._is_current:
            self._trusted_until = float("-inf")

    def _trust(self, until: float) -> None:
        """Trusts our term until `until`. A new term begins if trust had ended, because a rival may have led since."""
        is_new = not self.is_trusted()
        self._trusted_until = until
        if is_new and self.is_trusted():
            log.info("leads", holder=self.me)
            self._terms += 1
            self._won()

    def _may_take(self) -> bool:
        """True if the lease is absent, ours, released or expired, or if its holder was removed while we lead."""
        sight = self._sight
        is_ours = sight is None or self._holds() or (self.is_trusted() and not sight.record.holder)
        return is_ours or (sight is not None and self._is_free(sight))

    async def _take(self) -> None:
        if self._sight is None or self._sight.record.is_gone:
            await self._create()
        else:
            await self._write(self._sight.record, holder=self.me)

    def _is_free(self, sight: Sight) -> bool:
        return self._clock() >= sight.free_at(self._seconds)

    def _holds(self) -> bool:
        return self._sight is not None and self._sight.record.holder == self.me

    async def _read(self) -> None:
        reply = await self._client.request("GET", f"{self._path}/{self._name}", seconds=self._seconds / 3)
        if reply.status == 404 and read_status(reply.body).reason == "NotFound":
            self._is_current = True
            if self._sight is not None:
                self._sight = look_again(self._sight, self._sight.record.gone(), self._clock())
            return
        self._note(reply.read(f"read lease {self._name}", WireLease))

    async def _create(self) -> None:
        await self._send("POST", self._path, self._body(None, self.me))

    async def _write(self, record: Record, holder: str) -> None:
        await self._send("PUT", f"{self._path}/{self._name}", self._body(record, holder))

    async def _send(self, method: str, path: str, body: bytes) -> None:
        """Sends a write. A conflict with a faster rival is no fault: the lease is read again."""
        self._is_current = False
        try:
            reply = await self._client.request(
                method, path, body, {"timeout": f"{max(1, self._seconds // 3)}s"}, self._seconds / 3
            )
            self._note(reply.read(f"{method} lease {self._name}", WireLease))
        except ClusterRefused as fault:
            if fault.status != 409 and (method, fault.status) != ("PUT", 404):
                raise

    def _note(self, lease: WireLease) -> None:
        spec = lease.spec
        record = Record(
            spec.holder_identity or "",
            min(max(spec.lease_duration_seconds or 0, 0), LONGEST_SECONDS),
            spec.lease_transitions or 0,
            spec.acquire_time or "",
            lease.metadata.resource_version,
        )
        self._sight, self._is_current = look_again(self._sight, record, self._clock()), True

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
        metadata = {"name": self._name} | ({"resourceVersion": record.resource_version} if record else {})
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        return msgspec.json.encode(lease)
