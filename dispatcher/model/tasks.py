"""Rows of the database: tasks and queues, as decisions see them. Times are by the database's clock."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct


class Status(StrEnum):
    """Values of `tasks.status`."""

    WAITING = "waiting"
    PROCESSING = "processing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"  # written by a newer schema; such a row is left alone


TERMINAL = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED})


class Task(Struct, frozen=True, kw_only=True):
    """A row, without the columns that only its Job needs."""

    id: int
    queue: str
    priority: int
    run_at: datetime | None
    timeout_seconds: int | None
    max_failures: int
    template: str
    status: Status
    attempt: int
    launch: int
    failures: int
    job_uid: str | None
    submitted_by: str
    created_at: datetime
    started_at: datetime | None
    heartbeat_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    kind: bytes


class IndexedRow(Struct, frozen=True, gc=False):
    """A waiting row with the columns of the index. They suffice to drop it without reading the row."""

    id: int
    attempt: int
    priority: int
    queue: str
    kind: bytes
    submitted_by: str


class Line(Struct, frozen=True):
    """The place of a waiting row in its queue. All numbers stop at `most`.

    before: waiting and due rows of the queue that come first by priority and id.
    of: all waiting and due rows of the queue.
    alike: those that come first and are of the same kind.
    """

    before: int
    of: int
    most: int
    alike: int = 0


COUNTED_MINUTES: Final = 5
"""As in sql/queries/counts.sql."""


class QueueCount(Struct, frozen=True):
    """The waiting rows of one queue.

    due: rows that are due.
    not_due: rows whose `run_at` is in the future.
    oldest: since when the oldest due row waits; None: there is none.
    note: the operator's note on the queue.
    starts, ends: launches that started, and rows that ended, in the last COUNTED_MINUTES.
    """

    queue: str
    due: int = 0
    not_due: int = 0
    oldest: datetime | None = None
    note: str | None = None
    starts: int = 0
    ends: int = 0


class Kind(Struct, frozen=True):
    """The part of a row that a template's bounds are checked against. Rows of one kind get one verdict."""

    digest: bytes
    template: str
    timeout_seconds: int | None
    spec: dict[str, str]  # without command and args
    spec_names: frozenset[str]
    env_names: frozenset[str]


class Request(Struct, frozen=True):
    """The columns of a row that its Job is made from. They are read only for rows that are about to be launched."""

    task_id: int
    attempt: int
    env: dict[str, str]
    spec: dict[str, Any]
    cache_key: str | None


class Queue(Struct, frozen=True):
    """A declared queue, with the defaults of queue `*` filled in. A cap of None means: no cap.

    weight: its share of Jobs in flight, relative to other queues.
    fair_submitters: whether its submitters share it fairly.
    """

    name: str
    weight: int = 1
    max_jobs: int | None = None
    max_jobs_per_submitter: int | None = None
    max_pending: int | None = None
    paused_until: datetime | None = None
    fair_submitters: bool = False
