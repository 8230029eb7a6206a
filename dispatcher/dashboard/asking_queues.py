"""Tells one queue: its settings, who is next, what ended last, by one snapshot of the database and the last count."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final, Protocol

from msgspec import structs

from dispatcher.admission.by_submitter import first_windows
from dispatcher.admission.heads import FIRST_WINDOW
from dispatcher.admission.last_cycle import LastCycle
from dispatcher.dashboard.asking import NotYet, Rows
from dispatcher.dashboard.lists import learn
from dispatcher.dashboard.overview import LOOKED_AT_SECONDS, Overview
from dispatcher.dashboard.queue_view import (
    DEFAULTS,
    LAST_ENDS,
    MEASURED,
    QueuePage,
    QueueTimes,
    effective_settings,
    ended_task,
)
from dispatcher.explain.counting import count_reasons
from dispatcher.explain.queue_line import NEXT_ROWS, NextRow, in_order, next_places, next_rows
from dispatcher.explain.status import InstallationStatus, QueueStatus, queue_status
from dispatcher.model.history import DeclaredQueue, EndedRow, Percentiles
from dispatcher.model.tasks import IndexedRow, QueueCount

WIDEST_LINE: Final = 5000
"""Rows of a queue that one question reads from the index."""


class QueueRows(Rows, Protocol):
    """The rows in one snapshot of the database."""

    async def queue_settings(self, queue: str) -> Mapping[str, DeclaredQueue]: ...
    async def queue_starts(self, queue: str) -> Sequence[tuple[datetime, bytes | None]]: ...
    async def queue_ends(self, queue: str, most: int) -> Sequence[EndedRow]: ...
    async def queue_times(self, queue: str, most: int) -> tuple[Percentiles, Percentiles]: ...


class AskingQueues:
    """Answers questions about queues.

    rows: opens a snapshot of the rows.
    last: the last cycle; None: there was none.
    overview: counts the rows.
    """

    def __init__(
        self, rows: Callable[[], AbstractAsyncContextManager[QueueRows]], last: Callable[[], LastCycle | None],
        overview: Overview,
    ) -> None:  # fmt: skip
        self._rows = rows
        self._last = last
        self._overview = overview

    async def known(self) -> Iterable[str]:
        """Names of the queues, by the last count. Raises NotYet and DatabaseError."""
        return [one.queue for one in (await self._overview.status()).queues]

    async def page(self, name: str) -> QueuePage | None:
        """One queue; None: there is none of this name. Raises NotYet and DatabaseError."""
        status = await self._overview.status(LOOKED_AT_SECONDS)
        async with self._rows() as rows:
            cycle = self._last()
            if cycle is None:
                raise NotYet
            declared = await rows.queue_settings(name)
            if name == DEFAULTS or name not in declared:
                return None
            line = in_order(await line_of(rows, name, cycle), name, cycle)
            next_ = await self._next(rows, name, line, cycle)
            ends, (wait, run) = await rows.queue_ends(name, LAST_ENDS), await rows.queue_times(name, MEASURED)
        hour, since = self._overview.hour(name)
        settings = effective_settings(declared[name], declared[DEFAULTS], cycle.snapshot.max_pending, cycle.at)
        return QueuePage(
            **structs.asdict(counted(name, status, len(line), cycle)), as_of=cycle.at, counted_at=status.counted_at,
            settings=settings, next=next_, ended=[ended_task(row) for row in ends],
            times=QueueTimes(MEASURED, wait, run), hour=hour, counted_since=since,
        )  # fmt: skip

    async def _next(
        self, rows: QueueRows, name: str, line: Sequence[IndexedRow], cycle: LastCycle
    ) -> Sequence[NextRow]:  # fmt: skip
        places = next_places(line, cycle)
        tasks = await rows.tasks([place.row.id for place in places])
        await learn(rows, cycle, tasks.values())
        return next_rows(places, tasks, await rows.queue_starts(name) if places else (), cycle)


async def line_of(rows: QueueRows, name: str, cycle: LastCycle) -> Sequence[IndexedRow]:
    """The first due rows of a queue, read as a cycle reads them, and as many more as have Jobs."""
    snapshot = cycle.snapshot
    window = min(WIDEST_LINE, max(FIRST_WINDOW, NEXT_ROWS + snapshot.load.by_queue.get(name, 0)))
    if not snapshot.queue(name).fair_submitters:
        return await rows.indexed_rows({name: window})
    return await rows.indexed_rows_of(first_windows(await rows.submitters([name]), window))


def counted(name: str, status: InstallationStatus, read: int, cycle: LastCycle) -> QueueStatus:
    """The queue by the last count. A queue that was declared since then has the rows that were just read."""
    found = next((one for one in status.queues if one.queue == name), None)
    if found is not None:
        return found
    count = QueueCount(name, due=read)
    reasons = count_reasons([count], cycle)
    return queue_status(count, cycle, {reason: number for (_, reason), number in reasons.items()})
