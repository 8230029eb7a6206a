"""One queue: its settings, who is next, what ended last. Pure.

The names of the fields are public: they are the names in JSON.
"""

import difflib
from collections.abc import Iterable, Sequence
from datetime import datetime
from heapq import nlargest
from os.path import commonprefix
from typing import Final

from msgspec import Struct, structs

from dispatcher.dashboard.last_hour import QueueHour
from dispatcher.explain.queue_line import NextRow
from dispatcher.explain.status import QueueStatus
from dispatcher.model.history import DeclaredQueue, EndedRow, Percentiles

DEFAULTS: Final = "*"
INHERITED: Final = ("max_jobs", "max_jobs_per_submitter", "max_pending", "max_waiting_per_submitter")
LAST_ENDS: Final = 20
LIKELY_NAMES: Final = 20
"""Names that are compared with a wrong one. To compare two long names takes 0.3 ms."""
MEASURED: Final = 1000
"""So many of the newest ends are measured."""


class QueueSettings(Struct, frozen=True, kw_only=True):
    """What holds for a queue: its own row of `dispatch.queues`, and what it inherits from row `*`.

    max_jobs, max_jobs_per_submitter: caps of unfinished Jobs; None: no cap.
    max_pending: Pods of one shape that may wait without a node.
    paused_until: end of the pause; None: it is not paused.
    owner_role: members see, cancel and retry all rows; None: nobody but their submitters.
    submit_role: who may insert rows; None: every submitter.
    max_waiting_per_submitter: None: no bound.
    inherited: names of those that are of row `*`.
    """

    weight: int
    max_jobs: int | None
    max_jobs_per_submitter: int | None
    max_pending: int
    paused_until: datetime | None
    owner_role: str | None
    submit_role: str | None
    max_waiting_per_submitter: int | None
    fair_submitters: bool
    note: str | None
    inherited: Sequence[str]


class EndedTask(Struct, frozen=True, kw_only=True):
    """A row that is over.

    outcome: its status.
    run_seconds: from the start of its last run to its end; None: its last attempt never started.
    node: where it ran last.
    """

    task: int
    outcome: str
    attempt: int
    submitted_by: str
    finished_at: datetime
    run_seconds: float | None
    node: str | None


class QueueTimes(Struct, frozen=True):
    """How long the rows waited and ran that ended last, in seconds. `of`: at most so many rows are looked at.

    wait: from the time when the row was due to its first launch.
    run: of the last run.
    """

    of: int
    wait: Percentiles
    run: Percentiles


class QueuePage(QueueStatus, frozen=True, kw_only=True):
    """One queue.

    as_of: time of the cycle that judged the rows, by the database's clock.
    counted_at: when the waiting rows were counted.
    settings: what holds for it.
    next: the rows that are launched next, in their order.
    ended: the rows that ended last, newest first.
    times: how long rows waited and ran.
    hour: its last hour, as this replica counted it; None: it did not.
    counted_since: since when it has counted.
    """

    as_of: datetime
    counted_at: datetime
    settings: QueueSettings
    next: Sequence[NextRow]
    ended: Sequence[EndedTask]
    times: QueueTimes
    hour: QueueHour | None
    counted_since: datetime | None


def effective_settings(
    own: DeclaredQueue, defaults: DeclaredQueue, max_pending: int, now: datetime
) -> QueueSettings:  # fmt: skip
    """What holds for a queue. `max_pending`: what holds if neither row has one."""
    values = structs.asdict(own)
    del values["name"]
    inherited = [name for name in INHERITED if values[name] is None and getattr(defaults, name) is not None]
    values |= {name: getattr(defaults, name) for name in inherited}
    if own.submit_role is None:
        values["submit_role"] = own.owner_role or defaults.submit_role
        inherited += ["submit_role"] if own.owner_role is None and defaults.submit_role else []
    pauses = [(at, of) for of in (defaults, own) if (at := of.paused_until) is not None and at > now]
    values["paused_until"], paused = max(pauses, key=lambda one: one[0], default=(None, own))
    inherited += ["paused_until"] if paused is defaults else []
    if values["max_pending"] is None:
        values["max_pending"] = max_pending
    return QueueSettings(**values, inherited=sorted(inherited))


def ended_task(row: EndedRow) -> EndedTask:
    seconds = (row.finished_at - row.started_at).total_seconds() if row.started_at else None
    return EndedTask(
        task=row.id, outcome=row.status, attempt=row.attempt, submitted_by=row.submitted_by,
        finished_at=row.finished_at, run_seconds=seconds, node=row.node,
    )  # fmt: skip


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
    """How many characters of both names are the same, counted from the first one and from the last one."""
    pairs = [name, other], [name[::-1], other[::-1]]
    return sum(len(commonprefix(pair)) for pair in pairs)  # noqa: RUF071  # a typo changes characters
