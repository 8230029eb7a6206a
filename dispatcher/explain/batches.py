"""How far batches are, and what failed in them. Pure.

The names of the fields are public: they are the names in JSON.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from dispatcher.explain.failures import FailureGroup
from dispatcher.model.history import BatchCount


class BatchStatus(Struct, frozen=True, kw_only=True):
    """One batch.

    tasks: number of its rows.
    by_status: the same by status.
    first_started_at: when the first of its present attempts started; None: none has.
    last_finished_at: when the last row ended; None: none has. The batch is over if no row waits or runs.
    is_whole: False: it has more rows, and only 100,000 of them were counted.
    """

    queue: str
    submitted_by: str
    batch: str
    tasks: int
    by_status: Mapping[str, int]
    first_started_at: datetime | None
    last_finished_at: datetime | None
    is_whole: bool


class BatchesPage(Struct, frozen=True, kw_only=True):
    """The batches that match.

    as_of: when the rows were counted, by the database's clock; without a batch, time of the last cycle.
    batches: by queue and submitter, at most 20; empty: no batch was asked for, or there is none.
    failures: groups of failed rows, of at most 1,000 rows; only if one batch matches.
    """

    as_of: datetime
    batches: Sequence[BatchStatus]
    failures: Sequence[FailureGroup] = ()


def batch_status(count: BatchCount) -> BatchStatus:
    names = ("waiting", "processing", "succeeded", "failed", "cancelled")
    return BatchStatus(
        queue=count.queue, submitted_by=count.submitted_by, batch=count.batch, tasks=count.tasks,
        by_status={name: getattr(count, name) for name in names if getattr(count, name)},
        first_started_at=count.first_started_at, last_finished_at=count.last_finished_at, is_whole=count.is_whole,
    )  # fmt: skip
