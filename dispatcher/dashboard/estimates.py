"""Remembers the estimates that people were told, and counts how many came true."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final, Protocol

from dispatcher.dashboard.view import EstimateRecord
from dispatcher.explain.estimate import Estimate
from dispatcher.model.tasks import TERMINAL, Task
from dispatcher.runtime.metrics import ESTIMATE_HITS

LOOK_SECONDS: Final = 30
MOST: Final = 1000
"""Estimates that are remembered. Further ones are not counted."""


class StartedRows(Protocol):
    """The rows in one snapshot of the database."""

    now: datetime

    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]: ...


class Estimates:
    """The first estimate of each row that somebody asked for. `rows`: opens a snapshot of the rows."""

    def __init__(self, rows: Callable[[], AbstractAsyncContextManager[StartedRows]]) -> None:
        self._rows = rows
        self._told: dict[int, tuple[int, Estimate]] = {}
        self._came_of = Counter[str]()

    @property
    def record(self) -> EstimateRecord:
        """How many came true."""
        return EstimateRecord(**self._came_of)

    def note(self, task_id: int, attempt: int, estimate: Estimate | None) -> None:
        if estimate is not None and len(self._told) < MOST:
            self._told.setdefault(task_id, (attempt, estimate))

    async def run_once(self) -> float:
        """Counts the estimates of rows that have started, or are late. Raises DatabaseError."""
        if self._told:
            async with self._rows() as rows:
                tasks = await rows.tasks(sorted(self._told))
            found = {id_: outcome(tasks.get(id_), *one, rows.now) for id_, one in self._told.items()}
            self._told = {id_: one for id_, one in self._told.items() if found[id_] is None}
            for came_of in filter(None, found.values()):
                ESTIMATE_HITS.labels(came_of).inc()
                self._came_of[came_of] += 1
        return LOOK_SECONDS


def outcome(task: Task | None, attempt: int, estimate: Estimate, now: datetime) -> str | None:
    """Whether a row started in time: hit, early or late. None: it is too early to tell. Empty: nobody will know."""
    if task is None or task.attempt != attempt or (task.status in TERMINAL and task.started_at is None):
        return ""  # the row will not start in this attempt any more
    return judge(estimate, task.started_at, now) or None


def judge(estimate: Estimate, started_at: datetime | None, now: datetime) -> str:
    """Whether the start was in the range: hit, early or late. Empty: it is too early to tell."""
    if started_at is None:
        return "late" if now > estimate.latest else ""
    if started_at < estimate.earliest:
        return "early"
    return "hit" if started_at <= estimate.latest else "late"
