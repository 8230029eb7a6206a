"""The first page: problems first, then queues with their last hour, then nodes. Pure.

The names of the fields are public: they are the names in JSON.

`LastHour`: starts, ends and the longest wait of each queue, minute by minute, for one hour. It takes at most 1 MiB.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import nsmallest
from statistics import median
from typing import Final

from msgspec import Struct, structs

from dispatcher.model.cluster import Node
from dispatcher.model.needs import REFUSING
from dispatcher.model.resources import Amounts
from dispatcher.model.tasks import COUNTED_MINUTES, QueueCount
from dispatcher.views.launches import duration
from dispatcher.views.status import BESIDE, InstallationStatus, QueueStatus

MINUTES: Final = 60
MOST_QUEUES: Final = 1000
"""Queues that have a last hour, at most. Three numbers of 4 bytes for each minute of so many queues are 0.7 MB."""
ENOUGH_MINUTES: Final = 15
"""Minutes that must be known before a wait counts as usual."""
UNKNOWN: Final = -1.0


class QueueHour(Struct, frozen=True):
    """One queue, a number for each minute, the oldest first; None: nobody counted in that minute.

    starts, ends: per minute, on average of five minutes.
    waits: for how many seconds its oldest due row had waited; 0: no row waited.
    usual_wait: median of `waits`; None: too few are known.
    """

    starts: Sequence[float | None]
    ends: Sequence[float | None]
    waits: Sequence[float | None]
    usual_wait: float | None


class LastHour:
    """The last hour of all queues. Time is an argument."""

    def __init__(self) -> None:
        self.since: datetime | None = None
        self._minute = 0
        self._queues: dict[str, array[float]] = {}

    def note(self, at: datetime, counts: Sequence[QueueCount]) -> None:
        """Adds the counts of one moment. Of one minute, the last counts stay."""
        self._turn_to(at)
        known = {count.queue for count in counts}
        self._queues = {name: kept for name, kept in self._queues.items() if name in known}
        for count in counts:
            if count.queue not in self._queues and len(self._queues) < MOST_QUEUES:
                self._queues[count.queue] = array("f", [UNKNOWN]) * (3 * MINUTES)
            if kept := self._queues.get(count.queue):
                waits = max(0.0, (at - count.oldest).total_seconds()) if count.oldest else 0.0
                numbers = count.starts / COUNTED_MINUTES, count.ends / COUNTED_MINUTES, waits
                kept[3 * (self._minute % MINUTES) : 3 * (self._minute % MINUTES) + 3] = array("f", numbers)

    def _turn_to(self, at: datetime) -> None:
        """Forgets the minutes between the last count and this one."""
        minute = int(at.timestamp() // 60)
        if self.since is None or minute < self._minute:  # a clock that was set back begins anew
            self.since, self._minute, self._queues = at, minute, {}
        for passed in range(max(self._minute + 1, minute - MINUTES + 1), minute + 1):
            for kept in self._queues.values():
                kept[3 * (passed % MINUTES) : 3 * (passed % MINUTES) + 3] = array("f", [UNKNOWN] * 3)
        self._minute = minute
        self.since = max(self.since, at - timedelta(minutes=MINUTES))

    def hour(self, queue: str) -> QueueHour | None:
        """The last hour of one queue; None: it was not counted."""
        kept = self._queues.get(queue)
        return None if kept is None else hour_of(kept, self._minute)


def hour_of(kept: Sequence[float], minute: int) -> QueueHour:
    places = [3 * (passed % MINUTES) for passed in range(minute - MINUTES + 1, minute + 1)]
    starts, ends, waits = (
        [None if kept[place + which] == UNKNOWN else round(kept[place + which], 1) for place in places]
        for which in range(3)
    )
    known = [wait for wait in waits if wait is not None]
    return QueueHour(starts, ends, waits, median(known) if len(known) >= ENOUGH_MINUTES else None)


MOST_CELLS: Final = 120
"""Cells of nodes, at most."""
MOST_BUSY: Final = 20
"""Queues with a line of their own on the page, at most."""
FULL_OF: Final = ("cpu", "memory")
MOST_PROBLEMS: Final = 20
"""Problems of the page, at most."""
USUAL_FACTOR: Final = 2
"""A wait of this many times the usual one is a problem."""
LONG_WAIT_SECONDS: Final = 300
"""A shorter wait is no problem, however unusual it is."""
FEW_ESTIMATES: Final = 20
"""Estimates of which at least must be known before they can be a problem."""
MISSED_SHARE: Final = 0.5
"""Share of missed estimates that is a problem."""


class Problem(Struct, frozen=True):
    """Something that a person should look at.

    what: the problem in words.
    next_step: what to do.
    page: address of the page with more about it.
    """

    what: str
    next_step: str
    page: str = ""


class NodeCell(Struct, frozen=True):
    """Some nodes, which are neighbours by name.

    first, count: name of the first node, and the number of nodes.
    used: largest requested part of cpu or memory, on average; None: no node has a size.
    closed: number of nodes that take no new Pod: they do not answer, are cordoned, or are tainted.
    """

    first: str
    count: int
    used: float | None
    closed: int


class EstimateRecord(Struct, frozen=True):
    """Estimates that this replica gave, by the start of their rows: in time, early, late."""

    hit: int = 0
    early: int = 0
    late: int = 0


class OverviewPage(InstallationStatus, frozen=True, kw_only=True):
    """The installation, as the first page shows it.

    problems: what a person should look at, the worst first.
    busiest: names of the queues with the most waiting rows and Jobs, at most 20. The page only names the others.
    hours: their starts, ends and waits of the last hour, as this replica counted them.
    counted_since: since when it has counted; None: it has not.
    nodes: all nodes by name, in cells; empty: no node is watched.
    estimates: what became of the estimates that this replica gave.
    """

    problems: Sequence[Problem] = ()
    busiest: Sequence[str] = ()
    hours: Mapping[str, QueueHour] = {}
    counted_since: datetime | None = None
    nodes: Sequence[NodeCell] = ()
    estimates: EstimateRecord = EstimateRecord()


Hours = Callable[[str], QueueHour | None]
"""Returns the last hour of a queue; None: it was not counted."""


def overview_page(
    status: InstallationStatus, hours: Hours, since: datetime | None, nodes: Sequence[NodeCell],
    estimates: EstimateRecord,
) -> OverviewPage:  # fmt: skip
    busy = nsmallest(MOST_BUSY, status.queues, key=lambda one: (-one.waiting, -one.in_flight, one.queue))
    names, found = [one.queue for one in busy], list(problems(status, hours, estimates))
    return OverviewPage(
        **structs.asdict(status), problems=first_problems(found), busiest=names,
        hours={name: hour for name in names if (hour := hours(name)) is not None}, counted_since=since,
        nodes=list(nodes), estimates=estimates,
    )  # fmt: skip


def first_problems(found: list[Problem]) -> list[Problem]:
    """The worst problems, and the number of the others."""
    if len(found) <= MOST_PROBLEMS:
        return found
    left_out = Problem(f"and {len(found) - MOST_PROBLEMS:,} more problems", "mend these first")
    return [*found[:MOST_PROBLEMS], left_out]


def problems(status: InstallationStatus, hours: Hours, estimates: EstimateRecord) -> Iterator[Problem]:
    for name, fault in status.unhealthy.items():
        if name in BESIDE:
            yield Problem(f"{name}: {fault}", "mend it: launches go on meanwhile", "/about")
        else:
            yield Problem(f"not ready: {name}: {fault}", "mend it; /readyz tells when it is mended", "/about")
    if status.not_ready and not status.unhealthy.keys() - BESIDE:
        yield Problem(f"nothing is launched now: {status.not_ready.message}", "mend what the message names", "/about")
    if status.parked:
        rows = "1 row waits" if status.parked == 1 else f"{status.parked:,} rows wait"
        yield Problem(f"{rows} until somebody mends the row or its template", "look at the messages", "/failures")
    for what in status.slowed:
        yield Problem(f"launches are slowed: {what}", "look at the rows that wait", "/tasks?status=waiting")
    for what in status.templates_differ:
        yield Problem(what, "give dispatcher and janitor the same templates", "/about")
    yield from long_waits(status.queues, hours)
    yield from missed(estimates)


def long_waits(queues: Sequence[QueueStatus], hours: Hours) -> Iterator[Problem]:
    """Queues that are not paused, and whose oldest row waits for much longer than usual."""
    for queue in queues:
        waits = queue.oldest_wait_seconds
        if waits is None or waits <= LONG_WAIT_SECONDS or queue.paused_until:
            continue
        hour = hours(queue.queue)
        usual = hour.usual_wait if hour else None
        if usual is not None and waits > USUAL_FACTOR * usual:
            wait = f"{duration(waits)}, where {duration(usual)} are usual"
            what = f"the oldest row of queue {queue.queue} waits for {wait}"
            yield Problem(what, "look at the reasons of its rows", f"/queues/{queue.queue}")


def missed(estimates: EstimateRecord) -> Iterator[Problem]:
    told, wrong = estimates.hit + estimates.early + estimates.late, estimates.early + estimates.late
    if told >= FEW_ESTIMATES and wrong > MISSED_SHARE * told:
        yield Problem(f"{wrong} of {told} estimates of a start were wrong", "do not rely on the estimates now")


def cells(nodes: Sequence[tuple[Node, Amounts]]) -> Iterator[NodeCell]:
    """At most MOST_CELLS cells. `nodes`: by name, each with its free amounts."""
    size = -(-len(nodes) // MOST_CELLS) or 1
    for start in range(0, len(nodes), size):
        some = nodes[start : start + size]
        used = [part for node, free in some if (part := used_part(node.size, free)) is not None]
        average = round(sum(used) / len(used), 3) if used else None
        yield NodeCell(some[0][0].name, len(some), average, sum(is_closed(node) for node, _ in some))


def used_part(size: Amounts, free: Amounts) -> float | None:
    """The larger used part of FULL_OF; None: the node has neither resource."""
    return max((1 - max(0, free.get(name, 0)) / size[name] for name in FULL_OF if size.get(name)), default=None)


def is_closed(node: Node) -> bool:
    return not node.ready or any(taint.effect in REFUSING for taint in node.taints)
