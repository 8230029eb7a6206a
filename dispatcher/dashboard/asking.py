"""Reads the row that somebody asks for, and explains it by the last cycle.

It has a connection of its own, so that no question delays a cycle.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from dispatcher.admission.heads import Index
from dispatcher.admission.last_cycle import LastCycle
from dispatcher.dashboard.estimates import Estimates
from dispatcher.dashboard.lists import ListedRows, Lists, learn
from dispatcher.explain.explanation import Explanation, RowFacts, explain
from dispatcher.model.errors import DispatcherError
from dispatcher.model.history import RecordedLaunch, Start
from dispatcher.model.tasks import Line, Task


class Rows(Index, ListedRows, Protocol):
    """The rows in one snapshot of the database."""

    async def task(self, task_id: int) -> Task | None: ...
    async def line(self, task: Task) -> Line: ...
    async def starts(self, task: Task) -> Sequence[Start]: ...
    async def launches(self, task_id: int) -> Sequence[RecordedLaunch]: ...


class NotYet(DispatcherError):
    """No cycle has ended yet."""

    def __init__(self) -> None:
        super().__init__("no cycle has ended yet: /readyz of the dispatcher tells what is missing")


class Asking:
    """Answers questions about rows.

    rows: opens a snapshot of the rows.
    last: the last cycle; None: there was none.
    jobs_namespace: the namespace of Jobs.
    estimates: keeps the estimates that were told.

    The attribute `lists` answers questions about many rows.
    """

    def __init__(
        self, rows: Callable[[], AbstractAsyncContextManager[Rows]], last: Callable[[], LastCycle | None],
        jobs_namespace: str, estimates: Estimates,
    ) -> None:  # fmt: skip
        self.estimates = estimates
        self.lists = Lists(rows, self._cycle)
        self._rows = rows
        self._last = last
        self._jobs_namespace = jobs_namespace

    async def explain(self, task_id: int) -> Explanation | None:
        """Why the row waits; None: there is no such row. Raises NotYet and DatabaseError."""
        async with self._rows() as rows:
            cycle = self._cycle()
            task = await rows.task(task_id)
            if task is None:
                return None
            found = await explained(rows, cycle, task, self._jobs_namespace)
        self.estimates.note(task.id, task.attempt, found.estimate)
        return found

    def _cycle(self) -> LastCycle:
        return ended(self._last())


def ended(cycle: LastCycle | None) -> LastCycle:
    """The last cycle. Raises NotYet if there was none."""
    if cycle is None:
        raise NotYet
    return cycle


async def explained(rows: Rows, cycle: LastCycle, task: Task, jobs_namespace: str) -> Explanation:
    """The explanation of a row, with all that the database tells of it."""
    await learn(rows, cycle, [task])
    facts = RowFacts(task, await rows.line(task), await rows.starts(task), await rows.launches(task.id))
    return explain(facts, cycle, jobs_namespace)
