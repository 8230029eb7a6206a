"""Counts the waiting rows, keeps the status of the installation, and sets the gauges of waiting rows.

A count reads the whole index of waiting rows, so it is read every 30 s, over a connection of its own. While people
look, it is read more often, as long as counts take a hundredth of the time. People wait for a quick count. A slow count
is made in the background, and they see the count before it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.admission.last_cycle import AT_WORK, LastCycle
from dispatcher.admission.room import Room
from dispatcher.model.caches import CacheTotal
from dispatcher.model.cluster import StoreAge
from dispatcher.model.errors import DatabaseError
from dispatcher.model.tasks import TERMINAL, EndCount, QueueCount
from dispatcher.model.verdicts import PARKED, HoldReason
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.logs import LastingFault
from dispatcher.runtime.metrics import (
    CYCLE_TASKS,
    DEMAND_PODS,
    DEMAND_UNANSWERED,
    FAULTS,
    OLDEST_WAIT,
    PARKED_TASKS,
    QUEUE_SHARE,
    REJECTING_NODES,
    TASKS_ENDED,
    WAITING_TASKS,
)
from dispatcher.runtime.rounds import Wake
from dispatcher.views.about import stale_after
from dispatcher.views.first_page import (
    EstimateRecord,
    LastHour,
    NodeCell,
    OverviewPage,
    QueueHour,
    cells,
    overview_page,
)
from dispatcher.views.nodes import free_nodes
from dispatcher.views.reads import NoCycleYet
from dispatcher.views.status import (
    Counts,
    InstallationIdentity,
    InstallationStatus,
    build_status,
    count_reasons,
    every_count,
)

COUNT_SECONDS: Final = 30
"""Seconds between two counts."""
STATUS_SECONDS: Final = 10
"""Seconds between two writes of the status, at least."""
ALIVE_SECONDS: Final = 30
"""Seconds between two writes of the status, at most; and between two writes of the reasons, at least."""
COMPARE_SECONDS: Final = 30
"""Seconds between two comparisons of the templates."""
NEVER_TOO_OLD: Final = float("inf")
"""The counts of the last round are taken as they are."""
LOOKED_AT_SECONDS: Final = 1
"""Seconds between two counts while somebody looks."""
COUNTING_PART: Final = 0.01
"""Part of the time that counts may take."""
WAITED_SECONDS: Final = 0.02
"""A page waits for a count if the last one took no longer than this number of seconds."""
MOST_PARKED: Final = 10_000
"""Parked rows that are remembered as logged, at most."""
ENDS_AFTER: Final = timedelta(seconds=30)
"""Ends are counted after this time: an end is visible after its transaction, but has the time of its begin."""
LONGEST_ENDS: Final = timedelta(minutes=10)
"""Ends of this time are counted at once, at most: they take some 0.2 s if 300 rows end in a second."""
LOOK_SECONDS: Final = 1
"""Seconds between two looks whether this replica leads."""
Parked = tuple[int, int, HoldReason]
"""(task, attempt, reason) of a parked row."""
log = structlog.get_logger(component="views.counting")


class CountedRows(Protocol):
    """The rows in one snapshot of the database."""

    now: datetime

    async def counts(self, at_work: Sequence[int]) -> list[QueueCount]: ...

    async def ends(self, since: datetime, until: datetime) -> list[EndCount]: ...


class SurfacePace(Struct, frozen=True):
    """How often the surfaces are renewed, in seconds of `clock`."""

    clock: Clock = elapsed
    count_seconds: float = COUNT_SECONDS
    status_seconds: float = STATUS_SECONDS
    alive_seconds: float = ALIVE_SECONDS
    compare_seconds: float = COMPARE_SECONDS


EVERY_HALF_MINUTE: Final = SurfacePace()


class Overview:
    """The installation as a whole.

    rows: opens a snapshot of the rows.
    missing: what is missing, by the names of the checks in /readyz.
    leads: whether this replica leads. Only the leader exports the gauges, so that replicas do not add up.

    The attribute `wanted` starts the next count.
    """

    def __init__(
        self,
        installation: InstallationIdentity,
        rows: Callable[[], AbstractAsyncContextManager[CountedRows]],
        missing: Callable[[], Mapping[str, str]],
        leads: Callable[[], bool],
        pace: SurfacePace = EVERY_HALF_MINUTE,
    ) -> None:
        self._installation = installation
        self._rows = rows
        self._cycle: LastCycle | None = None
        self.missing = missing
        self._leads = leads
        self._clock, self._count_seconds = pace.clock, pace.count_seconds
        self._counts: Counts | None = None
        self._last_hour = LastHour()
        self._ends = EndsCounter()
        self._cells: tuple[Room, Sequence[NodeCell]] | None = None
        self._parked: frozenset[Parked] = frozenset()
        self._templates_differ: Sequence[str] = ()
        self._caches: Callable[[], CacheTotal] | None = None
        self._counted = self._read_at = self._told_at = float("-inf")
        self._cost = 0.0
        self._pause = pace.count_seconds  # between two counts if nobody looks
        self._fault: DatabaseError | None = None
        self._lasting = LastingFault(pace.clock)
        self._reading = asyncio.Lock()
        self._is_wanted = False
        self.wanted = Wake()

    async def page(self, estimates: EstimateRecord) -> OverviewPage:
        """The first page. Raises NoCycleYet and DatabaseError."""
        status = await self.status(LOOKED_AT_SECONDS)
        return overview_page(status, self._last_hour.hour, self._last_hour.since, self._node_cells(), estimates)

    def _node_cells(self) -> Sequence[NodeCell]:
        """The cells of the nodes. They stay while the room does: a look at 5,000 nodes takes 20 ms."""
        room = self._cycle.snapshot.room if self._cycle else None
        if room is None:
            return ()
        if self._cells is None or self._cells[0] is not room:
            self._cells = room, list(cells(free_nodes(room)))
        return self._cells[1]

    def hour(self, queue: str) -> tuple[QueueHour | None, datetime | None]:
        """The last hour of one queue, and the time since which it is counted."""
        return self._last_hour.hour(queue), self._last_hour.since

    async def status(self, oldest: float = NEVER_TOO_OLD) -> InstallationStatus:
        """The status, with counts of at most this age if they cost little. Raises NoCycleYet and DatabaseError."""
        if self._cycle is None:
            raise NoCycleYet
        counts = await self.counts(oldest)
        status = build_status(self._installation, self._cycle, counts, self.missing())
        status = replace(status, templates_differ=self._templates_differ)
        caches = self._caches() if self._caches else None
        return replace(status, caches=caches) if caches and caches.nodes else status

    async def counts(self, oldest: float) -> Counts:
        """The last counts. Counts older than `oldest` seconds are read again, once for all who ask at the same time.

        If they cannot be read, the last ones stay for `count_seconds`. Raises DatabaseError if there were none.
        """
        if self._is_due(oldest):
            if self._counts is None or self._cost <= WAITED_SECONDS or self._age() >= 2 * self._pause:
                await self._count_if_due(oldest)
            else:
                self._is_wanted = True
                self.wanted()
        if self._counts is None:
            raise self._fault or NoCycleYet
        return self._counts

    def _is_due(self, oldest: float) -> bool:
        return self._age() >= min(max(oldest, self._cost / COUNTING_PART), self._pause)

    def _age(self) -> float:
        return self._clock() - self._counted

    async def _count_if_due(self, oldest: float) -> None:
        async with self._reading:
            if self._is_due(oldest):
                began = self._clock()
                await self._count()
                took = self._clock() - began
                self._counted, self._cost = began, max(took, self._count_seconds / 10) if self._fault else took
                self._pause = max(self._count_seconds, 10 * self._cost)  # ten million rows take a tenth of the time

    async def _count(self) -> None:
        try:
            async with self._rows() as rows:
                self._counts, self._fault = Counts(rows.now, await rows.counts(at_work(self._cycle))), None
                self._read_at = self._clock()
                self._lasting.end()
                self._last_hour.note(rows.now, self._counts.queues)
                if self._leads():
                    await self._ends.count(rows, self._counts.queues)  # last: its fault leaves the counts as they are
        except DatabaseError as fault:
            FAULTS.labels("counts").inc()
            if self._lasting.is_due(str(fault)):
                log.warning("the waiting rows could not be counted", fault=str(fault))
            self._fault = fault

    async def run_once(self) -> float:
        """Counts the rows if this replica leads, or if somebody looks. Returns the seconds until the next count."""
        oldest = LOOKED_AT_SECONDS if self._is_wanted else self._count_seconds
        if self._is_wanted or self._leads():
            self._is_wanted = False
            await self._count_if_due(oldest)
        if not self._leads():
            self._ends.stop()
            forget()  # also if no cycle tells: a leader that lost its lease and the database would show its last counts
            forget_cycle()
            return LOOK_SECONDS
        if self._cycle is not None:
            self.tell(self._cycle)
        return self._count_seconds

    def ages(self, poll_seconds: float) -> list[StoreAge]:
        """The age of the last cycle and of the last counts. A replica that does not lead counts only on demand."""
        now, fault = self._clock(), str(self._fault or "")
        most = stale_after(self._pause) if self._leads() else float("inf")
        cycle = StoreAge("last cycle", now - self._told_at, stale_after(poll_seconds))
        return [cycle, StoreAge("counts", now - self._read_at, most, fault)]

    def tell_templates(self, differ: Sequence[str]) -> None:
        """Keeps the templates that differ from the janitor's."""
        self._templates_differ = differ

    def follow_caches(self, total: Callable[[], CacheTotal]) -> None:
        """From now on the status shows the caches, too."""
        self._caches = total

    def tell(self, cycle: LastCycle) -> None:
        """Keeps the last cycle, and sets the gauges by it and by the last count."""
        self._cycle, self._told_at = cycle, self._clock()
        forget()
        if not self._leads():
            return
        self._parked = log_parked(cycle, self._parked)
        told = self._counts or Counts(cycle.at, ())
        counts = every_count(told.queues, cycle)
        for (queue, reason), number in count_reasons(counts, cycle, told.at).items():
            WAITING_TASKS.labels(queue, reason).set(number)
        for count in counts:
            if count.oldest is not None:
                OLDEST_WAIT.labels(count.queue).set(max(0.0, (cycle.at - count.oldest).total_seconds()))


def at_work(cycle: LastCycle | None) -> list[int]:
    """The waiting rows whose containers run, or have just ended: with `report: exit-code` none says that it starts."""
    told = cycle.told if cycle is not None else {}
    launched = ((id_, one.hold) for id_, one in told.items() if one.hold.reason is HoldReason.LAUNCHED)
    return [id_ for id_, hold in launched if hold.detail.startswith(AT_WORK)]


class EndsCounter:
    """Counts the ends of rows since this replica leads, each once."""

    def __init__(self) -> None:
        self._until: datetime | None = None

    async def count(self, rows: CountedRows, queues: Sequence[QueueCount]) -> None:
        """Counts the ends since the last call. Raises DatabaseError; the next call then counts them."""
        for queue in queues:  # a series that begins with its first end has no increase
            for status in TERMINAL:
                TASKS_ENDED.labels(queue.queue, status)
        until = rows.now - ENDS_AFTER
        if self._until is not None and self._until - until > LONGEST_ENDS:
            self._until = None  # the clock was set back: the count begins anew
        if self._until is not None and self._until < until:
            for end in await rows.ends(max(self._until, until - LONGEST_ENDS), until):
                TASKS_ENDED.labels(end.queue, end.status).inc(end.rows)
        self._until = until if self._until is None else max(self._until, until)

    def stop(self) -> None:
        """Stops, because another replica leads and counts."""
        self._until = None


def forget() -> None:
    """Ends the gauges of waiting rows."""
    WAITING_TASKS.clear()
    OLDEST_WAIT.clear()


def forget_cycle() -> None:
    """Ends the gauges of the last cycle."""
    for metric in (PARKED_TASKS, QUEUE_SHARE, DEMAND_PODS, CYCLE_TASKS):
        metric.clear()
    for metric in (DEMAND_UNANSWERED, REJECTING_NODES):
        metric.set(0)


def log_parked(cycle: LastCycle, known: frozenset[Parked]) -> frozenset[Parked]:
    """Logs each parked row once. `known`: rows that were logged. Returns them with those of this cycle.

    A row that is not judged for a while, because others stand before it, is not logged again.
    """
    parked = {(id_, one.attempt, one.hold.reason): one for id_, one in cycle.told.items() if one.hold.reason in PARKED}
    for (id_, attempt, reason), one in parked.items():
        if (id_, attempt, reason) not in known:
            log.warning("parked", task=id_, attempt=attempt, reason=reason, why=one.hold.detail)
    return known | parked.keys() if len(known) < MOST_PARKED else frozenset(parked)
