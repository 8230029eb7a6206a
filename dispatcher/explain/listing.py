"""A page of rows, each with the reason why it waits. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from dispatcher.admission.last_cycle import LastCycle
from dispatcher.explain.explanation import what_holds
from dispatcher.explain.reasons import Cause, cause_of
from dispatcher.model.history import ListedTask, Wanted
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Hold, HoldReason


class ListedRow(Struct, frozen=True, kw_only=True):
    """A row of a page.

    reason, message: why it waits; None: it does not wait.
    error: why it failed, or what its last run reported; the first 300 characters.
    """

    task: int
    queue: str
    status: str
    attempt: int
    priority: int
    template: str
    submitted_by: str
    created_at: datetime
    run_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    reason: HoldReason | None
    message: str | None
    error: str | None


class Page(Struct, frozen=True):
    """A page of rows, the newest first.

    as_of: time of the cycle that gave the reasons.
    next_after: `after` of the next page; None: this is the last one.
    """

    as_of: datetime
    tasks: Sequence[ListedRow]
    next_after: int | None


def ids_for(wanted: Wanted, cycle: LastCycle) -> list[int] | None:
    """The only rows that can match; None: every row can. A reason is known of the rows that the cycle judged."""
    if wanted.reason is None:
        return None
    return [id_ for id_, told in cycle.told.items() if told.hold.reason is wanted.reason]


def page_of(rows: Sequence[ListedTask], tasks: Mapping[int, Task], wanted: Wanted, cycle: LastCycle) -> Page:
    """The page. `tasks`: the same rows as the gates judge them."""
    found = [listed(row, why_waits(tasks.get(row.id), cycle)) for row in rows]
    return Page(cycle.at, found, rows[-1].id if len(rows) == wanted.limit else None)


def why_waits(task: Task | None, cycle: LastCycle) -> Cause | None:
    """Why the row waits; None: it does not wait."""
    holds = what_holds(task, cycle) if task is not None else None
    return None if holds is None else cause_of(next(iter(holds), Hold(HoldReason.IN_LINE)))


def listed(row: ListedTask, cause: Cause | None) -> ListedRow:
    return ListedRow(
        task=row.id, queue=row.queue, status=row.status, attempt=row.attempt, priority=row.priority,
        template=row.template, submitted_by=row.submitted_by, created_at=row.created_at, run_at=row.run_at,
        started_at=row.started_at, finished_at=row.finished_at, reason=cause.reason if cause else None,
        message=cause.message if cause else None, error=row.error,
    )  # fmt: skip
