"""Reads the row that somebody asks for, and explains it by the last cycle.

It has a connection of its own, so that no question delays a cycle.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from dispatcher.admission.heads import Index
from dispatcher.admission.last_cycle import LastCycle
from dispatcher.dashboard.estimates import Estimates
from dispatcher.dashboard.lists import ListedRows, Lists, learn
from dispatcher.explain.caches import CacheNow, Caches, cache_now
from dispatcher.explain.explanation import Explanation, RowFacts, explain
from dispatcher.model.errors import DispatcherError
from dispatcher.model.history import RecordedLaunch, Start
from dispatcher.model.tasks import Line, Request, Task


class Rows(Index, ListedRows, Protocol):
    """The rows in one snapshot of the database."""

    async def task(self, task_id: int) -> Task | None: ...
    async def line(self, task: Task) -> Line: ...
    async def starts(self, task: Task) -> Sequence[Start]: ...
    async def launches(self, task_id: int) -> Sequence[RecordedLaunch]: ...
    async def requests(self, ids: Sequence[int]) -> dict[int, Request]: ...
    async def histories(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, float]]: ...


class Place(Struct, frozen=True):
    """The namespace of Jobs, and what is known of the caches on nodes."""

    jobs_namespace: str
    caches: Caches


class NotYet(DispatcherError):
    """No cycle has ended yet."""

    def __init__(self) -> None:
        super().__init__("no cycle has ended yet: /readyz of the dispatcher tells what is missing")


class Asking:
    """Answers questions about rows.

    rows: opens a snapshot of the rows.
    last: the last cycle; None: there was none.
    estimates: keeps the estimates that were told.

    The attribute `lists` answers questions about many rows.
    """

    def __init__(
        self, rows: Callable[[], AbstractAsyncContextManager[Rows]], last: Callable[[], LastCycle | None],
        place: Place, estimates: Estimates,
    ) -> None:  # fmt: skip
        self.estimates = estimates
        self.lists = Lists(rows, self._cycle)
        self._rows = rows
        self._last = last
        self._place = place

    async def explain(self, task_id: int) -> Explanation | None:
        """Why the row waits; None: there is no such row. Raises NotYet and DatabaseError."""
        async with self._rows() as rows:
            cycle = self._cycle()
            task = await rows.task(task_id)
            if task is None:
                return None
            request = (await rows.requests([task_id])).get(task_id)
            found = await explained(rows, cycle, (task, request), self._place)
        self.estimates.note(task.id, task.attempt, found.estimate)
        return found

    def _cycle(self) -> LastCycle:
        return ended(self._last())


def ended(cycle: LastCycle | None) -> LastCycle:
    """The last cycle. Raises NotYet if there was none."""
    if cycle is None:
        raise NotYet
    return cycle


async def explained(rows: Rows, cycle: LastCycle, row: tuple[Task, Request | None], place: Place) -> Explanation:
    """The explanation of a row, with all that the database tells of it."""
    task, request = row
    await learn(rows, cycle, [task])
    cache = await cache_of(rows, (task.queue, request.cache_key), place) if request and request.cache_key else None
    line, starts = await rows.line(task), await rows.starts(task)
    return explain(RowFacts(task, line, starts, await rows.launches(task.id), cache), cycle, place.jobs_namespace)


async def cache_of(rows: Rows, key: tuple[str, str], place: Place) -> CacheNow:
    return cache_now(key, (await rows.histories([key])).get(key, {}), place.caches)
