"""The leader lease. Every replica plans; only the leader writes.

`Lease`: promises that no write begins after the trust in our own term has ended. A lease is no fence, as client-go says
of its own lease. Two leaders are harmless for a row because of the Job names, but writes that a deposed leader had on
their way may exceed a cap.

Invariant: two replicas never trust their terms at the same time, if their clocks run at about the same speed.

* A leader's trust ends a margin before (start of its renewing call + lease length). A slow renewal cannot stretch it.
* A rival waits the whole length after it saw the lease unchanged. It saw the lease after the renewing call had begun.
* Wall clocks of machines are never compared (River's trust window; client-go's elector).
* A rival waits for an edited or deleted lease, too. Only a release by the holder makes the lease free at once.

Failure story:

* The API server is away: the term ends by time.
* The process was paused: each write asks the clock, so a process that wakes up finds its term over.
* The lease was deleted: the first replica that may take it creates it again.
* The leader alone cannot work, for example because its node does not reach the database: it renews the lease no more,
  and its term ends by time. If no other replica takes the lease, it goes on.

Not guaranteed: that a replica waits for a leader whose lease somebody deletes before the replica ever read it, or
deletes twice between two reads. That leader notices the deletion at its next renewal.
"""

import asyncio
import socket
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from dispatcher.kube.client import KubeClient
from dispatcher.kube.objects import read_status
from dispatcher.kube.wire import Meta, Wire, in_namespace
from dispatcher.model.errors import ClusterError, ClusterRefused
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.logs import LastingFault
from dispatcher.runtime.metrics import FAULTS, LEADER

RELEASED_SECONDS = 1
"""Lease length that, with an empty holder, marks a release, as in client-go. Any other empty holder is an edit."""


class Record(Struct, frozen=True):
    """The lease object as last read.

    holder: identity of the holder; empty if there is none.
    seconds: lease length, for which a renewal is valid.
    transitions: number of changes of the holder.
    acquired_at: time at which the holder took the lease, as its replica wrote it.
    resource_version: empty if the lease was deleted.
    """

    holder: str
    seconds: float
    transitions: int
    acquired_at: str
    resource_version: str

    def gone(self) -> "Record":
        """The record after a deletion. A deletion counts as an edit, so a rival waits the whole length."""
        return Record("", max(self.seconds, RELEASED_SECONDS + 1), 0, "", "")

    @property
    def is_gone(self) -> bool:
        return not self.resource_version


class ObservedLease(Struct, frozen=True):
    """A record, and when this replica first saw this version (`seen_at`, seconds of its own clock)."""

    record: Record
    seen_at: float

    def free_at(self, seconds: float) -> float:
        """The time from which on a rival may take the lease. `seconds`: the rival's own lease length."""
        if not self.record.holder and self.record.seconds == RELEASED_SECONDS:
            return self.seen_at
        return self.seen_at + max(self.record.seconds, seconds)

    def is_free(self, seconds: float, now: float) -> bool:
        """Whether a rival may take the lease at `now`."""
        return now >= self.free_at(seconds)


def look_again(sight: ObservedLease | None, record: Record, now: float) -> ObservedLease:
    """The sight after `record` was read at `now`. Only a new version begins a new wait."""
    is_known = sight is not None and sight.record.resource_version == record.resource_version
    return sight if sight and is_known else ObservedLease(record, now)


def trusted_until(began: float, seconds: float) -> float:
    """End of the trust that a renewing call gives. `began`: start of that call; `seconds`: lease length."""
    return began + seconds - margin(seconds)


def margin(seconds: float) -> float:
    """Seconds by which trust ends early. They cover clocks of different speed, and a short pause of the process."""
    return max(0.5, seconds / 10)


def pause(sight: ObservedLease | None, me: str, seconds: float, now: float) -> float:
    """Seconds until the next try.

    A leader renews at least five times per lease length. A rival looks every second, and at the end of its wait.
    """
    if sight is not None and sight.record.holder == me:
        return min(seconds / 5, 3.0)
    left = sight.free_at(seconds) - now if sight is not None else 0
    return min(1.0, left) if left > 0 else min(1.0, seconds / 10)


UNABLE_SECONDS: Final = 30
"""Seconds for which a leader may be unable to work. A fail-over of the database takes less."""
OFFER_SECONDS: Final = 300
"""Seconds between two offers of the lease to others. If nobody takes it, nobody leads for a lease length."""


class Ability:
    """Whether this replica shall lead. One that has been unable to work for a while leaves the lease to others.

    is_able: whether it can work now.
    """

    def __init__(self, is_able: Callable[[], bool], clock: Clock) -> None:
        self._is_able = is_able
        self._clock = clock
        self._able_at = clock()
        self._offers_at = float("-inf")
        self._is_told = False

    def leaves(self) -> bool:
        """Whether others shall lead now."""
        now = self._clock()
        if self._is_able():
            self._able_at = now
        leaves = now - self._able_at >= UNABLE_SECONDS and now >= self._offers_at
        if leaves and not self._is_told:
            log.warning("cannot work, and leaves the lease to other replicas", seconds=round(now - self._able_at))
        self._is_told = leaves
        return leaves

    def comes_back(self, sight: ObservedLease, seconds: float) -> bool:
        """Whether no replica that can work has taken the lease, although it was free for a whole length."""
        now = self._clock()
        if now < sight.free_at(seconds) + seconds:
            return False
        self._offers_at = now + OFFER_SECONDS
        return True


LEASES_GROUP: Final = "coordination.k8s.io"
LONGEST_SECONDS: Final = 300
"""The longest lease length that the settings allow. A longer length that somebody wrote by hand is cut to it."""
LARGEST: Final = 2**31 - 1
"""The largest `leaseTransitions`, an int32."""


class Spec(Wire, frozen=True):
    holder_identity: str | None = ""
    lease_duration_seconds: int | None = 0
    acquire_time: str | None = ""
    lease_transitions: int | None = 0


class WireLease(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: Spec = Spec()


class LeaseObject:
    """The Lease object at the API server. `seconds`: the length that we write; a call takes a third of it at most."""

    def __init__(self, client: KubeClient, namespace: str, name: str, seconds: int) -> None:
        self.name = name
        self._client = client
        self._path = in_namespace(f"/apis/{LEASES_GROUP}/v1", namespace, "leases")
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
        lease = {"apiVersion": f"{LEASES_GROUP}/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
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


log = structlog.get_logger(component="kube.lease")


class LeaseName(Struct, frozen=True):
    """The place of an installation's lease.

    namespace: that of our programs, so that accounts that only create Jobs cannot write the lease. Outside a cluster it
    is the namespace of Jobs.
    """

    namespace: str
    installation: str

    @property
    def name(self) -> str:
        return f"{self.installation}-leader"


class Lease:
    """One replica's part in the election of its installation. `run_once` keeps, takes or reads the lease.

    is_able: whether this replica can do a leader's work.
    """

    def __init__(
        self, client: KubeClient, lease: LeaseName, seconds: int, clock: Clock = elapsed,
        is_able: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self.me = f"{socket.gethostname()}_{uuid.uuid4()}"
        self._object = LeaseObject(client, lease.namespace, lease.name, seconds)
        self._seconds = seconds
        self._clock = clock
        self._ability = Ability(is_able, clock)
        self._sight: ObservedLease | None = None
        self._is_current = False
        self._trusted_until = float("-inf")
        self._terms = 0
        self._fault = "the lease was not read yet"
        self._lasting = LastingFault(clock)
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

    def holder(self) -> str | None:
        """The holder of the lease, as this replica read it last; None: it was not read, or a rival may take it."""
        sight = self._sight
        return None if sight is None or sight.is_free(self._seconds, self._clock()) else sight.record.holder

    def vacancy(self) -> str:
        """Why there is no leader; empty if this replica or another one leads."""
        if self.is_trusted() or self.holder() is not None:
            return ""
        return f"lease {self._object.name}: {self._fault or 'its holder is gone'}"

    async def run_once(self) -> float:
        """Tries once to keep, take or read the lease. Returns the seconds until the next try."""
        try:
            async with asyncio.timeout(self._seconds / 3):
                await self._try(self._clock())
            self._fault = ""
            self._lasting.end()
        except (ClusterError, TimeoutError) as fault:
            FAULTS.labels("lease").inc()
            self._fault = str(fault) or "no answer in time"
            leads = self.is_trusted()
            if self._lasting.is_due(f"{self._fault} {leads}"):
                log.warning("the lease could not be kept or read", fault=self._fault, leads=leads)
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
                    await self._write(self._object.replace(self._sight.record, ""))
                    if self._is_current:
                        log.info("gave the lease up")
                        return
            log.warning("the lease could not be given up: somebody else writes it")
        except (ClusterError, TimeoutError) as fault:
            log.warning("the lease could not be given up: it ends by itself", fault=str(fault) or "no answer in time")

    async def _try(self, began: float) -> None:
        leaves, is_taken = self._ability.leaves(), False
        for _ in range(2):  # after a conflict with a rival or an edit by hand, the same try reads the lease again
            if leaves or not (self._is_current and self._holds()):
                await self._read()
            if not self._may_take(leaves):
                break
            await self._take()
            if is_taken := self._is_current:
                break
        if self._is_current and not self._holds():
            self._trusted_until = float("-inf")
        elif is_taken:
            self._trust(trusted_until(began, self._seconds))

    def _trust(self, until: float) -> None:
        """Trusts our term until `until`. A new term begins if trust had ended, because a rival may have led since."""
        is_new = not self.is_trusted()
        self._trusted_until = until
        if is_new and self.is_trusted():
            log.info("leads", holder=self.me)
            self._terms += 1
            self._won()

    def _may_take(self, leaves: bool) -> bool:
        """Whether the lease is absent, ours, released or expired, or its holder was removed while we lead.

        leaves: whether others shall lead.
        """
        sight = self._sight
        if leaves and sight is not None:
            return self._ability.comes_back(sight, self._seconds)
        is_ours = sight is None or self._holds() or (self.is_trusted() and not sight.record.holder)
        return is_ours or (sight is not None and sight.is_free(self._seconds, self._clock()))

    async def _take(self) -> None:
        if self._sight is None or self._sight.record.is_gone:
            await self._write(self._object.create(self.me))
        else:
            await self._write(self._object.replace(self._sight.record, self.me))

    def _holds(self) -> bool:
        return self._sight is not None and self._sight.record.holder == self.me

    async def _read(self) -> None:
        record = await self._object.read()
        if record is None and self._sight is not None:
            record = self._sight.record.gone()
        if record is not None:
            self._sight = look_again(self._sight, record, self._clock())
        self._is_current = True

    async def _write(self, call: Awaitable[Record | None]) -> None:
        """Awaits a write. After a conflict or a fault the lease is read again before the next write."""
        self._is_current = False
        written = await call
        if written is not None:
            self._sight, self._is_current = look_again(self._sight, written, self._clock()), True
