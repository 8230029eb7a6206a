"""The state that a demo shows at one moment, and texts of its rows. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from dispatcher.explain.reasons import Cause
from dispatcher.model.texts import for_terminal
from dispatcher.model.verdicts import PARKED, HoldReason

ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})
STATUSES: Final = ("waiting", "processing", "succeeded", "failed", "cancelled")
LONGEST_ERROR: Final = 120


class State(StrEnum):
    """The word for a row. It says more than the row's status: a waiting row may have a Job, or need a person."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    AGAIN = "tried again"
    NEEDS_YOU = "needs you"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OF_STATUS: Final = {
    "processing": State.RUNNING, "succeeded": State.DONE, "failed": State.FAILED, "cancelled": State.CANCELLED,
}  # fmt: skip


class Row(Struct, frozen=True):
    """A task as its submitter sees it.

    seconds: the duration of its last run.
    progress, note: what its container says of its work.
    is_stopping: its submitter has cancelled it, and its container runs.
    cause: why it waits, by the last cycle; None: it does not wait, or no cycle has judged it as it is now.
    """

    id: int
    queue: str
    status: str
    attempt: int = 1
    error: str | None = None
    result: Any = None
    node: str | None = None
    seconds: float | None = None
    progress: float | None = None
    note: str | None = None
    is_stopping: bool = False
    cause: Cause | None = None

    @property
    def is_ended(self) -> bool:
        return self.status in ENDED

    @property
    def state(self) -> State:
        if self.status != "waiting":
            return State.STOPPING if self.is_stopping and self.status == "processing" else OF_STATUS[self.status]
        reason = self.cause.reason if self.cause else None
        if reason in PARKED:
            return State.NEEDS_YOU
        if reason is HoldReason.LAUNCHED:
            return State.STARTING
        return State.AGAIN if self.attempt > 1 else State.WAITING


class NodeLoad(Struct, frozen=True):
    """The load of one node.

    cores: its allocatable cores.
    used: cores that the Pods on it request.
    pods: the number of these Pods.
    """

    name: str
    cores: float
    used: float
    pods: int


class QueueLoad(Struct, frozen=True):
    """What the rows of one queue wait for.

    reasons: the number of waiting rows by reason.
    in_flight, max_jobs: unfinished Jobs, and how many there may be; None: no cap.
    unjudged: the number of waiting rows that no cycle has judged yet.
    """

    queue: str
    reasons: Mapping[HoldReason, int] = {}
    in_flight: int = 0
    max_jobs: int | None = None
    unjudged: int = 0


class DemoView(Struct, frozen=True):
    """The state of a demo.

    rows: all tasks.
    nodes: the nodes with their load.
    queues: what the rows of each queue wait for, by the last cycle. None: it is not known at the moment.
    in_flight, max_jobs: unfinished Jobs of all queues, and how many there may be.
    away: the servers that do not answer.
    passing: park reasons that end by themselves.
    """

    rows: Sequence[Row] = ()
    nodes: Sequence[NodeLoad] = ()
    queues: Sequence[QueueLoad] | None = None
    in_flight: int = 0
    max_jobs: int = 0
    away: Sequence[str] = ()
    passing: frozenset[HoldReason] = frozenset()

    @property
    def statuses(self) -> Counter[str]:
        return Counter(row.status for row in self.rows)

    @property
    def states(self) -> Counter[State]:
        return Counter(row.state for row in self.rows)

    @property
    def ended(self) -> int:
        return sum(row.is_ended for row in self.rows)

    @property
    def parked(self) -> int:
        """The number of rows that wait for a person."""
        needs = PARKED - self.passing
        return sum(n for queue in self.queues or () for reason, n in queue.reasons.items() if reason in needs)

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens without a person."""
        statuses = self.statuses
        return self.queues is not None and not statuses["processing"] and statuses["waiting"] == self.parked


def outcome(row: Row) -> str:
    """The result or error of a row that has ended, or empty."""
    if row.status != "succeeded":
        return error_line(row.error)
    result = row.result if isinstance(row.result, dict) else {}
    return for_terminal(", ".join(f"{key} {value}" for key, value in result.items()))


def error_line(text: str | None) -> str:
    """The first line of an error, or the last one of a traceback of Python, as a terminal may show it."""
    lines = (text or "").strip().splitlines() or [""]
    line = lines[-1] if lines[0].startswith("Traceback ") else lines[0]
    return for_terminal(line[:LONGEST_ERROR])
