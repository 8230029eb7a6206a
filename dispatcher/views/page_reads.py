"""Reads what the pages of one row, of one queue and of nodes show.

`RowPageReader`, `QueuePageReader`: each answer comes from one snapshot of the database and the last cycle or count.

`NodePageReader`: answers by the last cycle. The database knows warm caches; without it the page lacks only these.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct, structs

from dispatcher.admission.heads import FIRST_WINDOW
from dispatcher.admission.last_cycle import LastCycle
from dispatcher.admission.room import Room
from dispatcher.admission.scan import first_windows
from dispatcher.model.caches import CacheHistory, NodeCaches
from dispatcher.model.errors import DatabaseError, DispatcherError
from dispatcher.model.jobs import Manifest
from dispatcher.model.launches import Offer
from dispatcher.model.needs import PodNeeds
from dispatcher.model.tasks import IndexedRow, QueueCount, Request, Task
from dispatcher.model.verdicts import Hold
from dispatcher.pg.questions import Questions
from dispatcher.views.counting import LOOKED_AT_SECONDS, Overview
from dispatcher.views.node_room import (
    KeptCaches,
    NodePageInputs,
    NodesPage,
    WantedNodes,
    WarmKeys,
    names_of,
    nodes_page,
)
from dispatcher.views.nodes import PodFits, fitting_of
from dispatcher.views.queue import (
    DEFAULTS,
    LAST_ENDS,
    MEASURED,
    NEXT_ROWS,
    NextRow,
    QueuePage,
    QueueTimes,
    effective_settings,
    in_order,
    next_places,
    next_rows,
)
from dispatcher.views.reads import CacheContext, Estimates, OpenRows, ReadLastCycle, ended_cycle, explained, learn
from dispatcher.views.row_page import RowPage, RowReadings, row_page
from dispatcher.views.status import InstallationStatus, QueueStatus, count_reasons, queue_status

Preview = Callable[[Task, tuple[Request, CacheHistory], Offer, str], Manifest]
"""Makes the Job of the row's next launch, without start key, by the database's id. Raises DispatcherError."""


class RowSite(Struct, frozen=True):
    """What the page of a row needs of the installation.

    place: the namespace of Jobs, and the caches.
    max_launches: how many launches of an attempt may end without a start.
    preview: makes the Job of a row.
    """

    place: CacheContext
    max_launches: int
    preview: Preview


class RowPageReader:
    """Answers questions about one row. The parameters are those of `ExplanationReader`."""

    def __init__(self, rows: OpenRows, last: ReadLastCycle, site: RowSite, estimates: Estimates) -> None:
        self._rows = rows
        self._last = last
        self._site = site
        self._estimates = estimates

    async def page(self, task_id: int) -> RowPage | None:
        """The page of a row; None: there is no such row. Raises NoCycleYet and DatabaseError."""
        async with self._rows() as rows:
            cycle = ended_cycle(self._last())
            task, marks = await rows.task(task_id), await rows.marks(task_id)
            request = (await rows.requests([task_id])).get(task_id)
            if task is None or marks is None or request is None:
                return None
            found = await explained(rows, cycle, (task, request), self._site.place)
            nodes = tuple(found.cache.nodes) if found.cache else ()
            preview = self._preview(task, (request, CacheHistory(nodes)), cycle, rows.database_id)
            seen = RowReadings(rows.now, marks, found, preview)
        self._estimates.note(task.id, task.attempt, found.estimate)
        return row_page(task, seen, self._site.max_launches, self._site.place.jobs_namespace)

    def _preview(
        self, task: Task, asked: tuple[Request, CacheHistory], cycle: LastCycle, database_id: str
    ) -> Manifest | str:
        """The row's Job, or why there is none."""
        if asked[0].fault:
            return asked[0].fault
        offer = cycle.picture.known_offer(task.kind)
        if offer is None or isinstance(offer, Hold):
            return f"{offer.reason}: {offer.detail}" if offer else "its template was not judged yet: ask again"
        try:
            return self._site.preview(task, asked, offer, database_id)
        except DispatcherError as fault:
            return str(fault)


WIDEST_LINE: Final = 5000
"""Rows of a queue that one question reads from the index, at most."""


class QueuePageReader:
    """Answers questions about queues. `overview`: counts the rows."""

    def __init__(self, rows: OpenRows, last: ReadLastCycle, overview: Overview) -> None:
        self._rows = rows
        self._last = last
        self._overview = overview

    async def known(self) -> Iterable[str]:
        """Names of the queues, by the last count. Raises NoCycleYet and DatabaseError."""
        return [one.queue for one in (await self._overview.status()).queues]

    async def page(self, name: str) -> QueuePage | None:
        """One queue; None: no queue has this name. Raises NoCycleYet and DatabaseError."""
        status = await self._overview.status(LOOKED_AT_SECONDS)
        async with self._rows() as rows:
            cycle = ended_cycle(self._last())
            declared = await rows.queue_settings(name)
            if name == DEFAULTS or name not in declared:
                return None
            line = in_order(await line_of(rows, name, cycle), name, cycle)
            next_ = await self._next(rows, name, line, cycle)
            ends, (wait, run) = await rows.queue_ends(name, LAST_ENDS), await rows.queue_times(name, MEASURED)
        hour, since = self._overview.hour(name)
        settings = effective_settings(declared[name], declared[DEFAULTS], cycle.snapshot.max_pending, cycle.at)
        return QueuePage(
            **structs.asdict(counted(name, status, len(line), cycle)), as_of=cycle.at, leads=cycle.leads,
            counted_at=status.counted_at, settings=settings, next=next_, ended=ends,
            times=QueueTimes(MEASURED, wait, run), hour=hour, counted_since=since,
        )  # fmt: skip

    async def _next(
        self, rows: Questions, name: str, line: Sequence[IndexedRow], cycle: LastCycle
    ) -> Sequence[NextRow]:  # fmt: skip
        places = next_places(line, cycle)
        tasks = await rows.tasks([place.row.id for place in places])
        await learn(rows, cycle, tasks.values())
        return next_rows(places, tasks, await rows.queue_starts(name) if places else (), cycle)


async def line_of(rows: Questions, name: str, cycle: LastCycle) -> Sequence[IndexedRow]:
    """The first due rows of a queue, read as a cycle reads them, and as many more as have Jobs."""
    snapshot = cycle.snapshot
    window = min(WIDEST_LINE, max(FIRST_WINDOW, NEXT_ROWS + snapshot.load.by_queue.get(name, 0)))
    if not snapshot.queue(name).fair_submitters:
        return await rows.indexed_rows({name: window})
    return await rows.indexed_rows_of(first_windows(await rows.submitters([name]), window))


def counted(name: str, status: InstallationStatus, read: int, cycle: LastCycle) -> QueueStatus:
    """The queue by the last count. A queue that was declared later has the rows that were just read."""
    found = next((one for one in status.queues if one.queue == name), None)
    if found is not None:
        return found
    count = QueueCount(name, due=read)
    reasons = count_reasons([count], cycle, cycle.at)
    return queue_status(count, cycle, {reason: number for (_, reason), number in reasons.items()})


WARM_ENDS: Final = 2000
"""Newest ends of rows from which warm caches are counted: some milliseconds."""


class NodePageReader:
    """Answers questions about nodes. `caches`: the report of a node's cache keeper; None: there is none."""

    def __init__(self, rows: OpenRows, last: ReadLastCycle, caches: Callable[[str], NodeCaches | None]) -> None:
        self._caches = caches
        self._rows = rows
        self._last = last
        self._fitting: tuple[Room, PodNeeds, PodFits] | None = None

    async def page(self, wanted: WantedNodes, needs: PodNeeds | None) -> NodesPage | None:
        """A page of nodes; None: nodes are not watched. Raises NoCycleYet. `needs`: of a Pod of the wanted size."""
        cycle = ended_cycle(self._last())
        room = cycle.snapshot.room
        if room is None:
            return None
        names = names_of(room, wanted)
        fitting = self._fitting_of(needs, room, wanted) if needs is not None else None
        caches = {name: told for name in names if (told := self._caches(name)) is not None}
        kept = {name: KeptCaches(len(told.directories), told.size, told.whole) for name, told in caches.items()}
        return nodes_page(names, wanted, cycle, room, NodePageInputs(fitting, await self._warm(names), kept))

    def _fitting_of(self, needs: PodNeeds, room: Room, wanted: WantedNodes) -> PodFits:
        """How many Pods fit. The answer stays for its cycle: a look at 5,000 nodes takes some milliseconds."""
        if self._fitting is None or self._fitting[0] is not room or self._fitting[1] != needs:
            self._fitting = room, needs, fitting_of(needs, room, wanted.cpu, wanted.memory)
        return self._fitting[2]

    async def _warm(self, names: Sequence[str]) -> WarmKeys | None:
        """The warm caches; None: the database cannot be read, which /readyz shows. The page shows its nodes anyway."""
        try:
            async with self._rows() as rows:
                return WarmKeys(WARM_ENDS, await rows.warm_keys(names, WARM_ENDS))
        except DatabaseError:
            return None
