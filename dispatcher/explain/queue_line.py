"""The rows of a queue that are launched next, in their order, each as `explain` judges it. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from dispatcher.admission.heads import pod_of, sort_key
from dispatcher.admission.last_cycle import LastCycle
from dispatcher.admission.order import between_submitters, first_of
from dispatcher.explain.estimate import Estimate, estimate_by, telling_starts
from dispatcher.explain.explanation import OF_ROOM, explain_row, place_for
from dispatcher.explain.reasons import Turn
from dispatcher.model.tasks import IndexedRow, Line, Status, Task
from dispatcher.model.verdicts import HoldReason

NEXT_ROWS: Final = 50
LONGEST_MESSAGE: Final = 300
LONGEST_LINE: Final = 10_000
"""More rows than are read of a queue."""


class NextRow(Struct, frozen=True, kw_only=True):
    """A row that waits and has no Job.

    place: among the rows of its queue that wait and are due, from 1 on.
    reason, message, since, whose_turn, estimate: as `explain` tells them.
    """

    task: int
    place: int
    priority: int
    attempt: int
    submitted_by: str
    template: str
    created_at: datetime
    reason: HoldReason
    message: str
    since: datetime | None
    whose_turn: Turn
    estimate: Estimate | None


class Place(Struct, frozen=True):
    """A row at its place in the line. `before`, `alike`: rows that come first, and those of them of its kind."""

    row: IndexedRow
    before: int
    alike: int


def in_order(rows: Sequence[IndexedRow], queue: str, cycle: LastCycle) -> list[IndexedRow]:
    """The rows of one queue in the order in which a cycle takes them, if it launches each of them."""
    ordered = sorted(rows, key=sort_key)
    if not cycle.snapshot.queue(queue).fair_submitters:
        return ordered
    line = between_submitters(queue, ordered, lambda row: pod_of(row, cycle.picture.known_offer(row.kind)), sort_key)
    return first_of(
        line, lambda row: pod_of(row, cycle.picture.known_offer(row.kind)), cycle.snapshot.shares, len(ordered)
    )


def next_places(ordered: Sequence[IndexedRow], cycle: LastCycle) -> list[Place]:
    """The first rows without a Job. Rows whose Job is there wait for their container alone."""
    kinds, found = Counter[bytes](), list[Place]()
    for before, row in enumerate(ordered):
        if len(found) < NEXT_ROWS and not has_job(row, cycle):
            found.append(Place(row, before, kinds[row.kind]))
        kinds[row.kind] += 1
    return found


def has_job(row: IndexedRow, cycle: LastCycle) -> bool:
    jobs = cycle.picture.jobs.get(row.id, ())
    return any(job.attempt == row.attempt and not job.is_finished for job in jobs)


def next_rows(
    places: Sequence[Place], tasks: Mapping[int, Task], starts: Sequence[tuple[datetime, bytes | None]],
    cycle: LastCycle,
) -> list[NextRow]:  # fmt: skip
    """The rows, as they are now; those that moved on meanwhile are left out.

    tasks: the same rows as the gates judge them.
    starts: starts of the queue in the last hour, with kinds.
    """
    by_kind = StartsByKind(starts, cycle.at)
    found = (next_row(place, tasks.get(place.row.id), by_kind, cycle) for place in places)
    return [row for row in found if row is not None]


class StartsByKind:
    """The starts of a queue, as the rows of it see them. They are put in order once for all rows of a kind."""

    def __init__(self, starts: Sequence[tuple[datetime, bytes | None]], now: datetime) -> None:
        self._starts = starts
        self._now = now
        self._known: dict[bytes | None, Sequence[datetime]] = {}

    def estimate(self, row: Task, line: Line, reason: HoldReason) -> Estimate | None:
        """When a row will start, as `explain` tells it. A row that waits for room looks at starts of its kind alone."""
        place = place_for(line, reason)
        if place is None:
            return None
        kind = row.kind if reason in OF_ROOM else None
        if kind not in self._known:
            seen = [at for at, one in self._starts if kind is None or one == kind]
            self._known[kind] = telling_starts(seen, self._now)
        return estimate_by(place, self._known[kind], self._now)


def next_row(place: Place, task: Task | None, starts: StartsByKind, cycle: LastCycle) -> NextRow | None:
    if task is None or task.status is not Status.WAITING or task.attempt != place.row.attempt:
        return None
    line = Line(place.before, place.before + 1, LONGEST_LINE, place.alike)
    found = explain_row(task, cycle, line)
    assert found.reason is not None  # a row that waits has a reason
    return NextRow(
        task=task.id, place=place.before + 1, priority=task.priority, attempt=task.attempt,
        submitted_by=task.submitted_by, template=task.template, created_at=task.created_at, reason=found.reason,
        message=found.message[:LONGEST_MESSAGE], since=found.since, whose_turn=found.whose_turn,
        estimate=starts.estimate(task, line, found.reason),
    )  # fmt: skip
