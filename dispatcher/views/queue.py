"""One queue: its settings, the rows that are launched next, and the rows that ended last. Pure.

The names of the fields are public: they are the names in JSON.

`next_rows`: the rows are in the order of launches, each as `explain` judges it.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from heapq import nlargest
from os.path import commonprefix
from typing import Final

from msgspec import Struct, structs

from dispatcher.admission.cycle import between_submitters, first_of
from dispatcher.admission.heads import pod_of, sort_key
from dispatcher.admission.last_cycle import LastCycle
from dispatcher.model.history import EndedTask, Percentiles, QueueSettings
from dispatcher.model.reasons import Turn
from dispatcher.model.tasks import IndexedRow, LinePosition, Status, Task
from dispatcher.model.verdicts import HoldReason
from dispatcher.views.explanation import OF_ROOM, Estimate, estimate_by, explain_row, place_for, telling_starts
from dispatcher.views.first_page import QueueHour
from dispatcher.views.status import QueueStatus

NEXT_ROWS: Final = 50
"""Rows of the page that are launched next, at most."""
LONGEST_MESSAGE: Final = 300
"""Characters of a message, at most."""
LONGEST_LINE: Final = 10_000
"""More rows than are read of a queue."""


class NextRow(Struct, frozen=True, kw_only=True):
    """A row that waits and has no Job.

    place: among the due waiting rows of its queue, from 1 on.
    reason, message, since, whose_turn, estimate: as in `explain`.
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


class QueuePlace(Struct, frozen=True):
    """A row at its place in the line. `before`: number of rows that come first; `alike`: those of its kind."""

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


def next_places(ordered: Sequence[IndexedRow], cycle: LastCycle) -> list[QueuePlace]:
    """The first rows without a Job. Rows with a Job wait only for their container."""
    kinds, found = Counter[bytes](), list[QueuePlace]()
    for before, row in enumerate(ordered):
        if len(found) < NEXT_ROWS and not has_job(row, cycle):
            found.append(QueuePlace(row, before, kinds[row.kind]))
        kinds[row.kind] += 1
    return found


def has_job(row: IndexedRow, cycle: LastCycle) -> bool:
    jobs = cycle.picture.jobs.get(row.id, ())
    return any(job.attempt == row.attempt and not job.is_finished for job in jobs)


def next_rows(
    places: Sequence[QueuePlace], tasks: Mapping[int, Task], starts: Sequence[tuple[datetime, bytes | None]],
    cycle: LastCycle,
) -> list[NextRow]:  # fmt: skip
    """The rows, as they are now. Rows that moved on meanwhile are left out.

    tasks: these rows as the gates judge them.
    starts: starts of the queue in the last hour, with kinds.
    """
    by_kind = StartsByKind(starts, cycle.at)
    found = (next_row(place, tasks.get(place.row.id), by_kind, cycle) for place in places)
    return [row for row in found if row is not None]


class StartsByKind:
    """The starts of a queue, as its rows see them. They are sorted once for all rows of a kind."""

    def __init__(self, starts: Sequence[tuple[datetime, bytes | None]], now: datetime) -> None:
        self._starts = starts
        self._now = now
        self._known: dict[bytes | None, Sequence[datetime]] = {}

    def estimate(self, row: Task, line: LinePosition, reason: HoldReason) -> Estimate | None:
        """When a row will start, as in `explain`. A row that waits for room looks only at starts of its kind."""
        place = place_for(line, reason)
        if place is None:
            return None
        kind = row.kind if reason in OF_ROOM else None
        if kind not in self._known:
            seen = [at for at, one in self._starts if kind is None or one == kind]
            self._known[kind] = telling_starts(seen, self._now)
        return estimate_by(place, self._known[kind], self._now)


def next_row(place: QueuePlace, task: Task | None, starts: StartsByKind, cycle: LastCycle) -> NextRow | None:
    if task is None or task.status is not Status.WAITING or task.attempt != place.row.attempt:
        return None
    line = LinePosition(place.before, place.before + 1, LONGEST_LINE, place.alike)
    found = explain_row(task, cycle, line)
    assert found.reason is not None  # a row that waits has a reason
    return NextRow(
        task=task.id, place=place.before + 1, priority=task.priority, attempt=task.attempt,
        submitted_by=task.submitted_by, template=task.template, created_at=task.created_at, reason=found.reason,
        message=found.message[:LONGEST_MESSAGE], since=found.since, whose_turn=found.whose_turn,
        estimate=starts.estimate(task, line, found.reason),
    )  # fmt: skip


DEFAULTS: Final = "*"
INHERITED: Final = ("max_jobs", "max_jobs_per_submitter", "max_pending", "max_waiting_per_submitter")
LAST_ENDS: Final = 20
"""Ended rows of the page, at most."""
LIKELY_NAMES: Final = 20
"""Names that are compared with a wrong one, at most. The comparison of two long names takes 0.3 ms."""
MEASURED: Final = 1000
"""Newest ends of which times are measured, at most."""


class QueueTimes(Struct, frozen=True):
    """How long the rows waited and ran that ended last, in seconds. `of`: most rows that are looked at.

    wait: from the time when the row was due to its first launch.
    run: of the last run.
    """

    of: int
    wait: Percentiles
    run: Percentiles


class QueuePage(QueueStatus, frozen=True, kw_only=True):
    """One queue.

    as_of: time of the cycle that judged the rows, by the database's clock.
    leads: whether the replica that answers leads. Only the leader knows which Jobs and Pods are refused, or suspended.
    counted_at: when the waiting rows were counted.
    settings: its settings.
    next: the rows that are launched next, in their order.
    ended: the rows that ended last, newest first.
    times: how long rows waited and ran.
    hour: its last hour, as this replica counted it; None: it did not.
    counted_since: since when it has counted.
    """

    as_of: datetime
    leads: bool
    counted_at: datetime
    settings: QueueSettings
    next: Sequence[NextRow]
    ended: Sequence[EndedTask]
    times: QueueTimes
    hour: QueueHour | None
    counted_since: datetime | None


def effective_settings(own: QueueSettings, defaults: QueueSettings, max_pending: int, now: datetime) -> QueueSettings:
    """The settings of a queue. `max_pending`: the value if neither row has one."""
    inherited = [name for name in INHERITED if getattr(own, name) is None and getattr(defaults, name) is not None]
    values = {name: getattr(defaults, name) for name in inherited}
    if own.submit_role is None:
        values["submit_role"] = own.owner_role or defaults.submit_role
        inherited += ["submit_role"] if own.owner_role is None and defaults.submit_role else []
    pauses = [(at, of) for of in (defaults, own) if (at := of.paused_until) is not None and at > now]
    values["paused_until"], paused = max(pauses, key=lambda one: one[0], default=(None, own))
    inherited += ["paused_until"] if paused is defaults else []
    if own.max_pending is None and defaults.max_pending is None:
        values["max_pending"] = max_pending
    return structs.replace(own, **values, inherited=sorted(inherited))


def no_queue(name: str, known: Iterable[str]) -> str:
    """Why there is no page of a queue, and what to do."""
    if name == DEFAULTS:
        return "queue * holds the defaults of the others and has no rows: /api/v1/queues lists the queues"
    likely = nlargest(LIKELY_NAMES, known, key=lambda other: shared_ends(name[:63], other))
    near = difflib.get_close_matches(name[:63], likely, 1, 0.5)
    guess = f"the nearest name is {near[0]!r}; " if near else ""
    told = f"there is no queue {name[:63]!r} in dispatch.queues: {guess}"
    return f"{told}/api/v1/queues lists all, and an operator declares a queue by an INSERT"


def shared_ends(name: str, other: str) -> int:
    """Number of equal characters of both names, counted from the first one and from the last one."""
    pairs = [name, other], [name[::-1], other[::-1]]
    return sum(len(commonprefix(pair)) for pair in pairs)  # noqa: RUF071  # a typo changes characters
