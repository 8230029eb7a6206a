"""Queries that answer people's questions. No cycle waits for them."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

import asyncpg

from dispatcher.model.history import ListedTask, RecordedLaunch, Start, Wanted
from dispatcher.model.tasks import Line, QueueCount, Task
from dispatcher.pg.connect import Session
from dispatcher.pg.tasks import Look, snapshot

MOST_IN_LINE: Final = 10_000
MOST_STARTS: Final = 1000
LARGEST_ID: Final = 2**63 - 1
MOST_LAUNCHES: Final = 20


class Questions(Look):
    """One snapshot, with the queries that answer questions."""

    async def task(self, task_id: int) -> Task | None:
        return (await self.tasks([task_id])).get(task_id)

    async def line(self, task: Task) -> Line:
        """The place of a waiting row in its queue."""
        parameters = task.queue, task.priority, task.id, self.now, MOST_IN_LINE, task.kind
        return (await self.all("line", read_line, *parameters))[0]

    async def launches(self, task_id: int) -> list[RecordedLaunch]:
        """The newest launches of a row, newest first."""
        return await self.all("launches", lambda row: RecordedLaunch(*row), task_id, MOST_LAUNCHES)

    async def starts(self, task: Task) -> list[Start]:
        """Starts of the row's queue in the last hour, newest first."""
        return await self.all("starts", lambda row: Start(*row), task.queue, self.now, task.kind, MOST_STARTS)

    async def page(self, wanted: Wanted, ids: Sequence[int] | None) -> list[ListedTask]:
        """The newest rows that match. `ids`: only these rows."""
        before = LARGEST_ID if wanted.after is None else wanted.after
        parameters = before, wanted.queue, wanted.status, wanted.submitted_by, ids, wanted.limit
        return await self.all("page", lambda row: ListedTask(*row), *parameters)

    async def counts(self) -> list[QueueCount]:
        """The waiting rows of every queue. It reads their whole index: 0.2 s for a million rows."""
        return await self.all("counts", lambda row: QueueCount(*row), self.now)


def read_line(row: asyncpg.Record) -> Line:
    return Line(row["before"], row["of"], MOST_IN_LINE, row["alike"])


def questions(session: Session) -> AbstractAsyncContextManager[Questions]:
    """Opens a snapshot. Raises DatabaseError without one."""
    return snapshot(session, Questions)
