"""Counts the waiting rows, tells the status of the installation, and sets the gauges of waiting rows.

A count reads the whole index of waiting rows, so it is read every 30 s at most, over a connection of its own.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final, Protocol

import structlog

from dispatcher.admission.last_cycle import LastCycle
from dispatcher.dashboard.asking import NotYet
from dispatcher.explain.counting import count_reasons
from dispatcher.explain.status import Counts, Installation, InstallationStatus, build_status
from dispatcher.model.errors import DatabaseError
from dispatcher.model.tasks import QueueCount
from dispatcher.model.verdicts import PARKED, HoldReason
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import FAULTS, OLDEST_WAIT, WAITING_TASKS

COUNT_SECONDS: Final = 30
MOST_PARKED: Final = 10_000
"""Parked rows that are remembered as logged."""
LOOK_SECONDS: Final = 1
"""Between two looks whether this replica leads by now."""


Parked = tuple[int, int, HoldReason]
"""(task, attempt, reason) of a parked row."""
log = structlog.get_logger(component="dashboard.overview")


class CountedRows(Protocol):
    """The rows in one snapshot of the database."""

    now: datetime

    async def counts(self) -> list[QueueCount]: ...


class Overview:
    """The installation as a whole.

    rows: opens a snapshot of the rows.
    missing: what is missing, by the names of the checks in /readyz.
    leads: whether this replica leads. Only the leader exports the gauges, so that replicas do not add up.
    """

    def __init__(
        self,
        installation: Installation,
        rows: Callable[[], AbstractAsyncContextManager[CountedRows]],
        missing: Callable[[], Mapping[str, str]],
        leads: Callable[[], bool],
        clock: Clock = elapsed,
    ) -> None:
        self._installation = installation
        self._rows = rows
        self._cycle: LastCycle | None = None
        self._missing = missing
        self._leads = leads
        self._clock = clock
        self._counts: Counts | None = None
        self._parked: frozenset[Parked] = frozenset()
        self._counted = float("-inf")
        self._fault: DatabaseError | None = None
        self._reading = asyncio.Lock()

    async def status(self) -> InstallationStatus:
        """Raises NotYet and DatabaseError."""
        if self._cycle is None:
            raise NotYet
        return build_status(self._installation, self._cycle, await self.counts(), self._missing())

    async def counts(self) -> Counts:
        """The last counts. They are read again after COUNT_SECONDS; many who ask at once cause one read.

        If they cannot be read, the last ones stay for as long again. Raises DatabaseError if there were none.
        """
        async with self._reading:
            if self._clock() - self._counted >= COUNT_SECONDS:
                self._counted = self._clock()
                try:
                    async with self._rows() as rows:
                        self._counts, self._fault = Counts(rows.now, await rows.counts()), None
                except DatabaseError as fault:
                    FAULTS.labels("counts").inc()
                    log.warning("the waiting rows could not be counted", fault=str(fault))
                    self._fault = fault
            if self._counts is None:
                raise self._fault or NotYet
            return self._counts

    async def run_once(self) -> float:
        """Counts the rows if this replica leads. Returns the seconds until the next count."""
        if not self._leads():
            return LOOK_SECONDS
        await self.counts()
        if self._cycle is not None:
            self.tell(self._cycle)
        return COUNT_SECONDS

    def tell(self, cycle: LastCycle) -> None:
        """Keeps the last cycle, and sets the gauges by it and by the last count."""
        self._cycle = cycle
        WAITING_TASKS.clear()
        OLDEST_WAIT.clear()
        if not self._leads():
            return
        self._parked = log_parked(cycle, self._parked)
        counted = {count.queue: count for count in self._counts.queues} if self._counts else {}
        counts = [counted.get(name, QueueCount(name)) for name in sorted({*counted, *cycle.snapshot.queues})]
        for (queue, reason), number in count_reasons(counts, cycle).items():
            WAITING_TASKS.labels(queue, reason).set(number)
        for count in counts:
            if count.oldest is not None:
                OLDEST_WAIT.labels(count.queue).set(max(0.0, (cycle.at - count.oldest).total_seconds()))


def log_parked(cycle: LastCycle, known: frozenset[Parked]) -> frozenset[Parked]:
    """Logs each parked row once. `known`: those that were logged. Returns them with those of this cycle.

    A row that is not judged for a while, because others stand before it, is not logged again.
    """
    parked = {(id_, one.attempt, one.hold.reason): one for id_, one in cycle.told.items() if one.hold.reason in PARKED}
    for (id_, attempt, reason), one in parked.items():
        if (id_, attempt, reason) not in known:
            log.warning("parked", task=id_, attempt=attempt, reason=reason, why=one.hold.detail)
    return known | parked.keys() if len(known) < MOST_PARKED else frozenset(parked)
