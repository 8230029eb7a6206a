"""The first page: problems first, then queues with their last hour, then nodes. Pure.

The names of the fields are public: they are the names in JSON.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import nsmallest
from typing import Final

from msgspec import Struct, structs

from dispatcher.dashboard.last_hour import QueueHour
from dispatcher.explain.status import InstallationStatus, QueueStatus
from dispatcher.model.amounts import Amounts
from dispatcher.model.cluster import Node
from dispatcher.model.needs import REFUSING

MOST_CELLS: Final = 120
MOST_BUSY: Final = 20
"""Queues with a row of their own on the page."""
FULL_OF: Final = ("cpu", "memory")
MOST_PROBLEMS: Final = 20
USUAL_FACTOR: Final = 2
LONG_WAIT_SECONDS: Final = 300
"""A shorter wait is no problem, however unusual it is."""
FEW_ESTIMATES: Final = 20
"""Of fewer estimates nothing is said."""
MISSED_SHARE: Final = 0.5


class Problem(Struct, frozen=True):
    """Something that a person should look at.

    what: the problem in words.
    next_step: what to do.
    page: where the page tells more.
    """

    what: str
    next_step: str
    page: str = ""


class NodeCell(Struct, frozen=True):
    """Some nodes, which are neighbours by name.

    first, count: name of the first one, and their number.
    used: largest part of cpu or memory that Pods have asked for, on average; None: no node has a size.
    closed: how many take no new Pod: they do not answer, are cordoned, or are tainted.
    """

    first: str
    count: int
    used: float | None
    closed: int


class EstimateRecord(Struct, frozen=True):
    """The estimates that this replica told, by the start of their rows: in time, early, late."""

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
    estimates: what became of the estimates that this replica told.
    """

    problems: Sequence[Problem] = ()
    busiest: Sequence[str] = ()
    hours: Mapping[str, QueueHour] = {}
    counted_since: datetime | None = None
    nodes: Sequence[NodeCell] = ()
    estimates: EstimateRecord = EstimateRecord()


Hours = Callable[[str], QueueHour | None]
"""The last hour of a queue; None: it was not counted."""


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
    """The worst ones, and the number of the others."""
    if len(found) <= MOST_PROBLEMS:
        return found
    left_out = Problem(f"and {len(found) - MOST_PROBLEMS:,} more problems", "mend these first")
    return [*found[:MOST_PROBLEMS], left_out]


def problems(status: InstallationStatus, hours: Hours, estimates: EstimateRecord) -> Iterator[Problem]:
    for name, fault in status.unhealthy.items():
        yield Problem(f"not ready: {name}: {fault}", "mend it; /readyz tells when it is mended", "/about")
    if status.not_ready and not status.unhealthy:
        yield Problem(f"nothing is launched now: {status.not_ready.message}", "mend what the message names", "/about")
    if status.parked:
        rows = "1 row waits" if status.parked == 1 else f"{status.parked:,} rows wait"
        yield Problem(f"{rows} until somebody mends the row or its template", "look at the messages", "/failures")
    for what in status.slowed:
        yield Problem(f"launches are slowed: {what}", "look at the rows", "/failures")
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
            wait = f"{waits / 60:,.0f} min, where {usual / 60:,.0f} min are usual"
            what = f"the oldest row of queue {queue.queue} waits for {wait}"
            yield Problem(what, "look at the reasons of its rows", f"/queues/{queue.queue}")


def missed(estimates: EstimateRecord) -> Iterator[Problem]:
    told, wrong = estimates.hit + estimates.early + estimates.late, estimates.early + estimates.late
    if told >= FEW_ESTIMATES and wrong > MISSED_SHARE * told:
        yield Problem(f"{wrong} of {told} estimates of a start were wrong", "do not rely on the estimates now")


def cells(nodes: Sequence[tuple[Node, Amounts]]) -> Iterator[NodeCell]:
    """At most MOST_CELLS cells. `nodes`: by name, each with what is free on it."""
    size = -(-len(nodes) // MOST_CELLS) or 1
    for start in range(0, len(nodes), size):
        some = nodes[start : start + size]
        used = [part for node, free in some if (part := used_part(node.size, free)) is not None]
        average = round(sum(used) / len(used), 3) if used else None
        yield NodeCell(some[0][0].name, len(some), average, sum(is_closed(node) for node, _ in some))


def used_part(size: Amounts, free: Amounts) -> float | None:
    """The larger part of FULL_OF that is not free; None: the node has neither."""
    return max((1 - max(0, free.get(name, 0)) / size[name] for name in FULL_OF if size.get(name)), default=None)


def is_closed(node: Node) -> bool:
    return not node.ready or any(taint.effect in REFUSING for taint in node.taints)
