"""Reads the row that somebody asks for, and explains it by the last cycle.

It has a connection of its own, so that no question delays a cycle.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from dispatcher.admission.heads import Index
from dispatcher.admission.kinds import learn_kinds
from dispatcher.admission.last_cycle import LastCycle
from dispatcher.dashboard.estimates import Estimates
from dispatcher.explain.explanation import Explanation, RowFacts, explain
from dispatcher.explain.listing import Page, ids_for, page_of
from dispatcher.explain.nodes import NodeStatus, node_statuses
from dispatcher.model.errors import DispatcherError
from dispatcher.model.history import ListedTask, RecordedLaunch, Start, Wanted
from dispatcher.model.tasks import Line, Task


class Rows(Index, Protocol):
    """The rows in one snapshot of the database."""

    async def task(self, task_id: int) -> Task | None: ...
    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]: ...
    async def line(self, task: Task) -> Line: ...
    async def starts(self, task: Task) -> Sequence[Start]: ...
    async def launches(self, task_id: int) -> Sequence[RecordedLaunch]: ...
    async def page(self, wanted: Wanted, ids: Sequence[int] | None) -> Sequence[ListedTask]: ...


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
    """

    def __init__(
        self, rows: Callable[[], AbstractAsyncContextManager[Rows]], last: Callable[[], LastCycle | None],
        jobs_namespace: str, estimates: Estimates,
    ) -> None:  # fmt: skip
        self._estimates = estimates
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
            await learn(rows, cycle, [task])
            facts = RowFacts(task, await rows.line(task), await rows.starts(task), await rows.launches(task.id))
            found = explain(facts, cycle, self._jobs_namespace)
        self._estimates.note(task.id, task.attempt, found.estimate)
        return found

    async def page(self, wanted: Wanted) -> Page:
        """A page of rows. Raises NotYet and DatabaseError."""
        async with self._rows() as rows:
            cycle = self._cycle()
            found = await rows.page(wanted, ids_for(wanted, cycle))
            tasks = await rows.tasks([row.id for row in found])
            await learn(rows, cycle, tasks.values())
            return page_of(found, tasks, wanted, cycle)

    def nodes(self) -> list[NodeStatus] | None:
        """The nodes; None: they are not watched. Raises NotYet."""
        room = self._cycle().snapshot.room
        return None if room is None else node_statuses(room)

    def _cycle(self) -> LastCycle:
        cycle = self._last()
        if cycle is None:
            raise NotYet
        return cycle


async def learn(rows: Rows, cycle: LastCycle, tasks: Iterable[Task]) -> None:
    """Judges the kinds of rows that no cycle has judged yet."""
    unknown = {task.kind: task.id for task in tasks if cycle.picture.known_offer(task.kind) is None}
    await learn_kinds(rows, cycle.picture, list(unknown.values()))
