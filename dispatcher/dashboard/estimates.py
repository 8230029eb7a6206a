"""Remembers the estimates that people were told, and counts how many came true."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final, Protocol

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

    def note(self, task_id: int, attempt: int, estimate: Estimate | None) -> None:
        if estimate is not None and len(self._told) < MOST:
            self._told.setdefault(task_id, (attempt, estimate))

    async def run_once(self) -> float:
        """Counts the estimates of rows that have started, or are late. Raises DatabaseError."""
        if self._told:
            async with self._rows() as rows:
                tasks = await rows.tasks(sorted(self._told))
            self._told = {id_: one for id_, one in self._told.items() if is_open(tasks.get(id_), *one, rows.now)}
        return LOOK_SECONDS


def is_open(task: Task | None, attempt: int, estimate: Estimate, now: datetime) -> bool:
    """Whether it is too early to tell what became of an estimate. If it is not, counts it."""
    if task is None or task.attempt != attempt or (task.status in TERMINAL and task.started_at is None):
        return False  # the row will not start in this attempt any more
    outcome = judge(estimate, task.started_at, now)
    if outcome:
        ESTIMATE_HITS.labels(outcome).inc()
    return not outcome


def judge(estimate: Estimate, started_at: datetime | None, now: datetime) -> str:
    """What became of an estimate; empty: it is too early to tell."""
    if started_at is None:
        return "late" if now > estimate.latest else ""
    if started_at < estimate.earliest:
        return "early"
    return "hit" if started_at <= estimate.latest else "late"
