"""Queries that answer people's questions. No cycle waits for them."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from dispatcher.model.history import DeclaredQueue, EndedRow, Percentiles, RecordedLaunch, RowMarks, Start
from dispatcher.model.tasks import Line, QueueCount, Task
from dispatcher.model.templates import OfferedTemplate
from dispatcher.pg.connect import Session
from dispatcher.pg.lists import Lists
from dispatcher.pg.tasks import read_texts, snapshot

MOST_IN_LINE: Final = 10_000
MOST_STARTS: Final = 1000
MOST_LAUNCHES: Final = 20


class Questions(Lists):
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

    async def marks(self, task_id: int) -> RowMarks | None:
        """The marks of a row. None: there is no such row."""
        return next(iter(await self.all("marks", read_marks, task_id)), None)

    async def starts(self, task: Task) -> list[Start]:
        """Starts of the row's queue in the last hour, newest first."""
        return await self.all("starts", lambda row: Start(*row), task.queue, self.now, task.kind, MOST_STARTS)

    async def queue_settings(self, queue: str) -> dict[str, DeclaredQueue]:
        """The rows of this queue and of `*` by name."""
        return {one.name: one for one in await self.all("queue_settings", lambda row: DeclaredQueue(*row), queue)}

    async def queue_starts(self, queue: str) -> list[tuple[datetime, bytes | None]]:
        """Starts of a queue in the last hour, newest first, each with the kind of its row."""
        return await self.all("queue_starts", tuple, queue, self.now, MOST_STARTS)

    async def queue_ends(self, queue: str, most: int) -> list[EndedRow]:
        """The rows of a queue that ended last, newest first."""
        return await self.all("queue_ends", lambda row: EndedRow(*row), queue, most)

    async def queue_times(self, queue: str, most: int) -> tuple[Percentiles, Percentiles]:
        """How long the rows of a queue waited and ran that ended last."""
        return (await self.all("queue_times", read_times, queue, most))[0]

    async def warm_keys(self, nodes: Sequence[str], most: int) -> dict[str, dict[str, int]]:
        """Number of different cache keys by node and queue, of the newest ends."""
        found: dict[str, dict[str, int]] = {}
        for node, queue, keys in await self.all("warm_keys", tuple, list(nodes), most):
            found.setdefault(node, {})[queue] = keys
        return found

    async def counts(self) -> list[QueueCount]:
        """The waiting rows of every queue. It reads their whole index: 0.2 s for a million rows."""
        return await self.all("counts", lambda row: QueueCount(*row), self.now)

    async def templates(self) -> list[OfferedTemplate]:
        """The templates by which INSERT judges rows."""
        return await self.all("templates", read_template)


def read_template(row: asyncpg.Record) -> OfferedTemplate:
    bounds = msgspec.json.decode(row["bounds"], type=dict[str, str | int])
    lists = {name: tuple(row[name]) for name in ("images", "machines", "sets")}
    opened = row["row_may_set"]
    return OfferedTemplate(row["name"], None if opened is None else tuple(opened), bounds, note=row["note"], **lists)


def read_marks(row: asyncpg.Record) -> RowMarks:
    return RowMarks(row["batch"], read_texts(row["labels"]), row["progress"], row["note"], row["error"])


def read_times(row: asyncpg.Record) -> tuple[Percentiles, Percentiles]:
    """(wait, run)."""
    return Percentiles(row["waits"], *(row["wait"] or ())), Percentiles(row["runs"], *(row["run"] or ()))


def read_line(row: asyncpg.Record) -> Line:
    return Line(row["before"], row["of"], MOST_IN_LINE, row["alike"])


def questions(session: Session) -> AbstractAsyncContextManager[Questions]:
    """Opens a snapshot. Raises DatabaseError without one."""
    return snapshot(session, Questions)
