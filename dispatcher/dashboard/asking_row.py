"""Reads one row with all that is known of it, for its page. One snapshot of the database tells all."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from dispatcher.admission.last_cycle import LastCycle
from dispatcher.dashboard.asking import Place, Rows, ended, explained
from dispatcher.dashboard.estimates import Estimates
from dispatcher.dashboard.row_page import RowPage, Seen, row_page
from dispatcher.model.cache_history import CacheHistory
from dispatcher.model.errors import DispatcherError
from dispatcher.model.history import RowMarks
from dispatcher.model.jobs import Manifest
from dispatcher.model.launches import Offer
from dispatcher.model.tasks import Request, Task
from dispatcher.model.verdicts import Hold

Preview = Callable[[Task, tuple[Request, CacheHistory], Offer, str], Manifest]
"""The Job of the row's next launch, without its start key. The text is the database's id. Raises DispatcherError."""


class RowsOfPages(Rows, Protocol):
    """The rows in one snapshot, with what the page of one row needs."""

    now: datetime
    database_id: str

    async def marks(self, task_id: int) -> RowMarks | None: ...


class RowSite(Struct, frozen=True):
    """The installation, as the page of a row needs it.

    place: where its Jobs and caches are.
    max_launches: how many launches of an attempt may end without a start.
    preview: makes the Job of a row.
    """

    place: Place
    max_launches: int
    preview: Preview


class AskingRow:
    """Answers what is known of one row. The parameters are those of `Asking`."""

    def __init__(
        self, rows: Callable[[], AbstractAsyncContextManager[RowsOfPages]], last: Callable[[], LastCycle | None],
        site: RowSite, estimates: Estimates,
    ) -> None:  # fmt: skip
        self._rows = rows
        self._last = last
        self._site = site
        self._estimates = estimates

    async def page(self, task_id: int) -> RowPage | None:
        """The page of a row; None: there is no such row. Raises NotYet and DatabaseError."""
        async with self._rows() as rows:
            cycle = ended(self._last())
            task, marks = await rows.task(task_id), await rows.marks(task_id)
            request = (await rows.requests([task_id])).get(task_id)
            if task is None or marks is None or request is None:
                return None
            found = await explained(rows, cycle, (task, request), self._site.place)
            nodes = tuple(found.cache.nodes) if found.cache else ()
            preview = self._preview(task, (request, CacheHistory(nodes)), cycle, rows.database_id)
            seen = Seen(rows.now, marks, found, preview)
        self._estimates.note(task.id, task.attempt, found.estimate)
        return row_page(task, seen, self._site.max_launches, self._site.place.jobs_namespace)

    def _preview(
        self, task: Task, asked: tuple[Request, CacheHistory], cycle: LastCycle, database_id: str
    ) -> Manifest | str:
        """The row's Job, or why there is none."""
        offer = cycle.picture.known_offer(task.kind)
        if offer is None or isinstance(offer, Hold):
            return f"{offer.reason}: {offer.detail}" if offer else "its template was not judged yet: ask again"
        try:
            return self._site.preview(task, asked, offer, database_id)
        except DispatcherError as fault:
            return str(fault)
