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
from collections.abc import Awaitable, Callable

import structlog
from msgspec import Struct

from dispatcher.kube.client import KubeClient
from dispatcher.kube.lease_object import LeaseObject
from dispatcher.kube.term import Record, Sight, look_again, pause, trusted_until
from dispatcher.model.errors import ClusterError
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import FAULTS, LEADER

log = structlog.get_logger(component="kube.lease")


class LeaseName(Struct, frozen=True):
    """Where an installation's lease stands.

    The lease is in the namespace of our programs, so that accounts that only create Jobs cannot write it.
    """

    namespace: str
    installation: str

    @property
    def name(self) -> str:
        return f"{self.installation}-leader"


def lease_of(installation: str, namespace: str) -> LeaseName:
    """Name of the lease. `namespace`: our ServiceAccount's namespace, or outside a cluster the namespace of Jobs."""
    return LeaseName(namespace, installation)


class Lease:
    """One replica's part in the election of its installation. `run_once` keeps, takes or reads the lease."""

    def __init__(self, client: KubeClient, lease: LeaseName, seconds: int, clock: Clock = elapsed) -> None:
        self.me = f"{socket.gethostname()}_{uuid.uuid4()}"
        self._object = LeaseObject(client, lease.namespace, lease.name, seconds)
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

    def holder(self) -> str | None:
        """Who holds the lease, as this replica read it last; None: it was not read, or a rival may take it."""
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
                    await self._write(self._object.replace(self._sight.record, ""))
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
