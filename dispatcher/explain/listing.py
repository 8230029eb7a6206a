"""A page of rows, each with the reason why it waits. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from dispatcher.admission.last_cycle import LastCycle
from dispatcher.explain.counting import reason_of_rest
from dispatcher.explain.explanation import what_holds
from dispatcher.explain.reasons import Cause, cause_of
from dispatcher.model.history import MOST_MATCHING, Found, ListedTask, Wanted
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Hold, HoldReason


class ListedRow(Struct, frozen=True, kw_only=True):
    """A row of a page.

    reason, message: why it waits; None: it does not wait.
    error: why it failed, or what its last run reported; the first 300 characters.
    progress, note: how much is done, from 0 to 1, and what it does, as its newest container says.
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
    batch: str | None = None
    progress: float | None = None
    note: str | None = None


class Page(Struct, frozen=True):
    """A page of rows, the newest first.

    as_of: when the rows were read, by the database's clock.
    judged_at: time of the cycle that gave the reasons.
    next_after: `after` of the next page; None: this is the last one.
    matching: number of rows that match, from the first row of this page on, counted up to 10,000.
    more_match: whether there are more than were counted.
    looked_to: older rows than this one were not looked at, and may match; the next page looks at them. None: all were.
    """

    as_of: datetime
    judged_at: datetime
    tasks: Sequence[ListedRow]
    next_after: int | None
    matching: int = 0
    more_match: bool = False
    looked_to: int | None = None


class ReadRows(Struct, frozen=True):
    """The rows of a page as they were read. `at`: when. `tasks`: the same rows as the gates judge them."""

    at: datetime
    rows: Sequence[ListedTask]
    tasks: Mapping[int, Task]


def judged_ids(reason: HoldReason, cycle: LastCycle) -> list[int]:
    """The rows that the cycle judged one by one, and held for this reason."""
    return [id_ for id_, told in cycle.told.items() if told.hold.reason is reason]


def queues_behind(wanted: Wanted, cycle: LastCycle) -> list[str]:
    """The queues whose rows behind the judged ones wait for the reason that is asked for."""
    names = cycle.snapshot.queues.keys() - cycle.whole
    return [name for name in names if wanted.queue in {None, name}
            and reason_of_rest(name, cycle.snapshot) is wanted.reason]  # fmt: skip


def labels_of(wanted: Wanted) -> str | None:
    """The label that is asked for, as JSON; None: none is. Raises ValueError with what is wrong."""
    if wanted.label is None:
        return None
    name, sign, value = wanted.label.partition("=")
    if not name or not sign:
        raise ValueError(f"label is {wanted.label[:80]!r}: write NAME=VALUE, as the row has it in tasks.labels")
    return msgspec.json.encode({name: value}).decode()


def page_of(read: ReadRows, found: Found, wanted: Wanted, cycle: LastCycle) -> Page:
    """The page. A row that waits for another reason is left out."""
    causes = [(row, why_waits(read.tasks.get(row.id), cycle)) for row in read.rows]
    listed_rows = [listed(row, cause) for row, cause in causes
                   if wanted.reason is None or (cause is not None and cause.reason is wanted.reason)]  # fmt: skip
    return Page(
        read.at, cycle.at, listed_rows, next_after(found, wanted.limit),
        min(found.matching, MOST_MATCHING), found.matching > MOST_MATCHING, found.looked_to,
    )  # fmt: skip


def next_after(found: Found, limit: int) -> int | None:
    """Where the next page begins: after this page if more rows match, else after all rows that were looked at."""
    return found.ids[-1] if found.matching > limit else found.looked_to


def why_waits(task: Task | None, cycle: LastCycle) -> Cause | None:
    """Why the row waits; None: it does not wait."""
    holds = what_holds(task, cycle) if task is not None else None
    return None if holds is None else cause_of(next(iter(holds), Hold(HoldReason.IN_LINE)))


def listed(row: ListedTask, cause: Cause | None) -> ListedRow:
    return ListedRow(
        task=row.id, queue=row.queue, status=row.status, attempt=row.attempt, priority=row.priority,
        template=row.template, submitted_by=row.submitted_by, created_at=row.created_at, run_at=row.run_at,
        started_at=row.started_at, finished_at=row.finished_at, reason=cause.reason if cause else None,
        message=cause.message if cause else None, error=row.error, batch=row.batch,
        progress=row.progress, note=row.note,
    )  # fmt: skip
