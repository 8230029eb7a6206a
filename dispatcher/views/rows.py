"""A page of rows, each with the reason why it waits; and the progress of batches. Pure.

The names of the fields are public: they are the names in JSON.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.admission.last_cycle import LastCycle
from dispatcher.model.history import MOST_MATCHING, BatchStatus, ListedRow, RowFilter, RowMatches
from dispatcher.model.reasons import ReasonInWords, cause_of
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views.explanation import what_holds
from dispatcher.views.failures import FailureGroup
from dispatcher.views.status import reason_of_rest


class RowsPage(Struct, frozen=True):
    """A page of rows, the newest first.

    as_of: when the rows were read, by the database's clock.
    judged_at: time of the cycle that gave the reasons.
    next_after: `after` of the next page; None: this is the last one.
    matching: number of rows that match, from the first row of this page on, counted up to 10,000.
    more_match: whether more rows match than were counted.
    looked_to: older rows than this one were not looked at, and may match; the next page looks at them. None: all were.
    leads: whether the replica that answers leads. Only the leader knows which Jobs and Pods are refused, or suspended.
    """

    as_of: datetime
    judged_at: datetime
    tasks: Sequence[ListedRow]
    next_after: int | None
    matching: int = 0
    more_match: bool = False
    looked_to: int | None = None
    leads: bool = True


class ReadRows(Struct, frozen=True):
    """The rows of a page. `at`: when they were read. `tasks`: these rows as the gates judge them."""

    at: datetime
    rows: Sequence[ListedRow]
    tasks: Mapping[int, Task]


def judged_ids(reason: HoldReason, cycle: LastCycle) -> list[int]:
    """The rows that the cycle judged one by one, and held for this reason."""
    return [id_ for id_, told in cycle.told.items() if told.hold.reason is reason]


def queues_behind(wanted: RowFilter, cycle: LastCycle) -> list[str]:
    """The queues whose rows behind the judged ones wait for the wanted reason."""
    names = cycle.snapshot.queues.keys() - cycle.whole
    return [name for name in names if wanted.queue in {None, name}
            and reason_of_rest(name, cycle.snapshot) is wanted.reason]  # fmt: skip


def labels_of(wanted: RowFilter) -> str | None:
    """The wanted label, as JSON; None: none is wanted. Raises ValueError with what is wrong."""
    if wanted.label is None:
        return None
    name, sign, value = wanted.label.partition("=")
    if not name or not sign:
        raise ValueError(f"label is {wanted.label[:80]!r}: write NAME=VALUE, as the row has it in tasks.labels")
    return msgspec.json.encode({name: value}).decode()


def page_of(read: ReadRows, found: RowMatches, wanted: RowFilter, cycle: LastCycle) -> RowsPage:
    """The page. A row that waits for another reason is left out."""
    causes = [(row, why_waits(read.tasks.get(row.task), cycle)) for row in read.rows]
    listed_rows = [
        replace(row, reason=cause.reason, message=cause.message) if cause else row
        for row, cause in causes
        if wanted.reason is None or (cause is not None and cause.reason is wanted.reason)
    ]
    return RowsPage(
        read.at, cycle.at, listed_rows, next_after(found, wanted.limit),
        min(found.matching, MOST_MATCHING), found.matching > MOST_MATCHING, found.looked_to, cycle.leads,
    )  # fmt: skip


def next_after(found: RowMatches, limit: int) -> int | None:
    """Where the next page begins: after this page if more rows match, else after all rows that were looked at."""
    return found.ids[-1] if found.matching > limit else found.looked_to


def why_waits(task: Task | None, cycle: LastCycle) -> ReasonInWords | None:
    """Why the row waits; None: it does not wait."""
    holds = what_holds(task, cycle) if task is not None else None
    return None if holds is None else cause_of(next(iter(holds), Hold(HoldReason.IN_LINE)))


class BatchesPage(Struct, frozen=True, kw_only=True):
    """The batches that match.

    as_of: when the rows were counted, by the database's clock; without a batch, time of the last cycle.
    batches: by queue and submitter, at most 20; empty: no batch is wanted, or none matches.
    failures: groups of failed rows, of at most 1,000 rows; only if one batch matches.
    """

    as_of: datetime
    batches: Sequence[BatchStatus]
    failures: Sequence[FailureGroup] = ()
