"""Rows of the database as decisions see them: tasks, queues, and what a template offers. Times are by its clock. Pure.

`printable`, `one_line`, `for_terminal`: they clean texts of others for people who read them in a terminal or a table.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

LARGEST_ID: Final = 2**63 - 1
"""The largest id of a row, a bigint."""


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
    """A row, without the columns that only its Job needs.

    second_process: whether another process of the Pod that holds the row has asked for it, and was refused.
    """

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
    pod_name: str | None
    submitted_by: str
    created_at: datetime
    started_at: datetime | None
    heartbeat_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    kind: bytes
    second_process: bool = False

    @property
    def is_waiting(self) -> bool:
        return self.status is Status.WAITING

    @property
    def is_retried(self) -> bool:
        """Whether somebody has retried it. Then nothing tells since when it waits."""
        return self.attempt > 1 and self.run_at is None


class IndexedRow(Struct, frozen=True, gc=False):
    """A waiting row with the columns of the index. They suffice to drop it without reading the row."""

    id: int
    attempt: int
    priority: int
    queue: str
    kind: bytes
    submitted_by: str


class LinePosition(Struct, frozen=True):
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
"""Minutes over which starts and ends are counted, as in query `counts` of sql/queries/queues.sql."""


class EndCount(Struct, frozen=True):
    """Number of rows of a queue that have ended with this status within the counted time."""

    queue: str
    status: str
    rows: int


class QueueCount(Struct, frozen=True):
    """The waiting rows of one queue.

    due: rows that are due.
    not_due: rows whose `run_at` is in the future.
    oldest: since when the oldest due row waits; None: there is none. Rows whose container runs, and those that somebody
    has retried, do not count.
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
    """The part of a row that a template's bounds are checked against. Rows of one kind get one verdict.

    fault: why it cannot be read; empty: it can. Only an administrator can write such a row.
    """

    digest: bytes
    template: str
    timeout_seconds: int | None
    spec: dict[str, str]  # without command and args
    spec_names: frozenset[str]
    env_names: frozenset[str]
    fault: str = ""


class Request(Struct, frozen=True):
    """The columns of a row that its Job is made from. They are read only for rows that are about to be launched.

    fault: why they cannot be read; empty: they can. Only an administrator can write such a row.
    """

    task_id: int
    attempt: int
    env: dict[str, str]
    spec: dict[str, Any]
    cache_key: str | None
    fault: str = ""


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

    def pause_at(self, now: datetime) -> datetime | None:
        """The end of the pause that it has now; None: it is not paused."""
        return self.paused_until if self.paused_until is not None and self.paused_until > now else None


CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""All control characters except tab and line feed. One of them could steer a terminal, and Postgres stores no NUL."""
UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"
MARKS: Final = re.compile(
    r"[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
"""Invisible characters (Cf) and line separators. They turn the direction of a line, or change its width."""


def printable(text: str) -> str:
    """The text without control characters, and without signs that turn its direction."""
    return MARKS.sub("", CONTROLS.sub(UNPRINTABLE, text))


def one_line(text: str) -> str:
    """The text as a single line, so that no part of it looks like a line of ours."""
    return printable(" ".join(CONTROLS.sub(UNPRINTABLE, text).splitlines()))


def for_terminal(text: str) -> str:
    """The text as a single line whose width in a terminal is known, and whose direction nobody can turn."""
    return one_line(text.replace("\t", " "))


class OfferedTemplate(Struct, frozen=True):
    """What a template lets rows set: one row of the table `templates`. The fields are its columns, in their order.

    row_may_set: fields and variables that rows may set; None: the template has a fault.
    bounds: most cpu and memory, as quantities, and most seconds.
    images, machines: globs.
    sets: variables that the template or PASS_ENV sets.
    note: the template's description, or its fault.
    """

    name: str
    row_may_set: tuple[str, ...] | None
    bounds: Mapping[str, str | int]
    images: tuple[str, ...]
    machines: tuple[str, ...]
    sets: tuple[str, ...]
    note: str


class Frame(Struct, frozen=True):
    """The first query of every snapshot of the rows.

    queues: declared queues.
    held: ids of rows that a container holds or held.
    next_due: the next `run_at` in the future; None: no row has one.
    tasks_refused: why no login of containers could report; empty: nothing is known against it.
    """

    queues: Sequence[Queue]
    held: Sequence[int]
    next_due: datetime | None
    tasks_refused: str = ""
