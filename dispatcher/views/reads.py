"""Reads rows that somebody asks for, and explains them by the last cycle.

All reads use a connection of their own, so that no question delays a cycle.

`Estimates`: whether the estimates came true.

`ListPages`: lists of rows: pages by filters, batches, failures.

`ExplanationReader`: one row, explained.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, Protocol

from msgspec import Struct

from dispatcher.admission.heads import Kinds, learn_kinds
from dispatcher.admission.last_cycle import LastCycle
from dispatcher.model.errors import DispatcherError
from dispatcher.model.history import RowFilter, WantedBatch
from dispatcher.model.tasks import TERMINAL, Request, Task
from dispatcher.model.verdicts import HoldReason
from dispatcher.pg.questions import Questions
from dispatcher.placement.placing import Warmth
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.metrics import ESTIMATE_HITS
from dispatcher.views import failures as grouping
from dispatcher.views.explanation import Estimate, Explanation, RowFacts, explain
from dispatcher.views.failures import MOST_PARKED, Failure, FailureGroups, FailuresPage
from dispatcher.views.first_page import EstimateRecord
from dispatcher.views.launches import CacheNow, cache_now
from dispatcher.views.rows import BatchesPage, ReadRows, RowsPage, judged_ids, labels_of, page_of, queues_behind

OpenRows = Callable[[], AbstractAsyncContextManager[Questions]]
"""Opens a snapshot of the rows. Raises DatabaseError without one."""
ReadLastCycle = Callable[[], LastCycle | None]
"""The last cycle; None: there was none."""
LOOK_SECONDS: Final = 30
"""Seconds between two looks whether estimated rows have started."""
MOST: Final = 1000
"""Estimates that are remembered, at most. Further ones are not counted."""


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
        """The numbers of estimates that came true, and of those that did not."""
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
    """Whether a row started in time: hit, early or late. None: it is too early to say. Empty: nobody will know."""
    if task is None or task.attempt != attempt or (task.status in TERMINAL and task.started_at is None):
        return ""  # the row will not start in this attempt any more
    return judge(estimate, task.started_at, now) or None


def judge(estimate: Estimate, started_at: datetime | None, now: datetime) -> str:
    """Whether the start was in the range: hit, early or late. Empty: it is too early to say."""
    if started_at is None:
        return "late" if now > estimate.latest else ""
    if started_at < estimate.earliest:
        return "early"
    return "hit" if started_at <= estimate.latest else "late"


KEPT_SECONDS: Final = 10
"""Seconds for which the failures are answered again, because reading all of them costs some 50 ms."""
AT_ONCE: Final = 100
"""Rows that are grouped before other work has its turn: about 3 ms."""


class ListPages:
    """Answers questions about many rows. Each method raises NoCycleYet and DatabaseError."""

    def __init__(self, rows: OpenRows, last: ReadLastCycle) -> None:
        self._rows = rows
        self._last = last
        self._lock = asyncio.Lock()
        self._told: tuple[float, FailuresPage, Mapping[str, Sequence[int]]] | None = None

    async def page(self, wanted: RowFilter) -> RowsPage:
        """A page of rows. Raises ValueError with what is wrong with the label."""
        labels = labels_of(wanted)
        group = None if wanted.group is None else await self._of_group(wanted, wanted.group)
        async with self._rows() as rows:
            cycle = ended_cycle(self._last())
            ids = both(await ids_for(rows, wanted, cycle), group)
            found = await rows.find(wanted, labels, ids)
            tasks = await rows.tasks(found.ids)
            await learn(rows, cycle, tasks.values())
            return page_of(ReadRows(rows.now, await rows.page(found.ids), tasks), found, wanted, cycle)

    async def batches(self, wanted: WantedBatch) -> BatchesPage:
        cycle = ended_cycle(self._last())
        if wanted.batch is None:
            return BatchesPage(as_of=cycle.at, batches=[])
        async with self._rows() as rows:
            counts = await rows.batches(wanted.queue, wanted.submitted_by, wanted.batch)
            groups = FailureGroups(cycle.at)
            if len(counts) == 1 and "failed" in counts[0].by_status:
                one = counts[0]
                groups = await groups_of_batch(rows, cycle, (one.queue, one.submitted_by, one.batch))
            at = rows.now  # the rows are counted now, not when the cycle read them
        return BatchesPage(as_of=at, batches=counts, failures=groups.largest()[0])

    async def failures(self) -> FailuresPage:
        return (await self._last_failures())[0]

    async def _of_group(self, wanted: RowFilter, key: str) -> Sequence[int]:
        """The rows of a group of failures, as the page that names the group has counted them."""
        if wanted.batch is None or wanted.queue is None or wanted.submitted_by is None:
            return grouping.rows_of(key, (await self._last_failures())[1])
        async with self._rows() as rows:
            batch = wanted.queue, wanted.submitted_by, wanted.batch
            return grouping.rows_of(key, (await groups_of_batch(rows, ended_cycle(self._last()), batch)).rows())

    async def _last_failures(self) -> tuple[FailuresPage, Mapping[str, Sequence[int]]]:
        """The page, and the rows of each group."""
        async with self._lock:
            now = elapsed()
            if self._told is None or now - self._told[0] >= KEPT_SECONDS:
                self._told = now, *await self._failures()
            return self._told[1:]

    async def _failures(self) -> tuple[FailuresPage, Mapping[str, Sequence[int]]]:
        async with self._rows() as rows:
            cycle = ended_cycle(self._last())
            since, ids, groups = cycle.at - timedelta(days=1), grouping.parked_ids(cycle), FailureGroups(cycle.at)
            failed, parked = await rows.failed(since), await rows.sources(ids[:MOST_PARKED])
        await gather(groups, grouping.failures_of(failed, cycle.picture))
        await gather(groups, grouping.parked_of(parked, cycle.told, cycle.picture))
        found, left_out = groups.largest()
        page = FailuresPage(
            as_of=cycle.at, leads=cycle.leads, groups=found, groups_left_out=left_out, failed=len(failed),
            failed_since=grouping.failed_since(failed, since), parked=len(ids), parked_left_out=len(ids) - len(parked),
        )  # fmt: skip
        return page, groups.rows()


def both(ids: Sequence[int] | None, others: Sequence[int] | None) -> Sequence[int] | None:
    """The ids that are in both; None: all ids are."""
    if ids is None or others is None:
        return others if ids is None else ids
    return sorted({*ids} & {*others})


async def groups_of_batch(rows: Questions, cycle: LastCycle, batch: tuple[str, str, str]) -> FailureGroups:
    """The failed rows of a batch: of a queue and a submitter."""
    groups = FailureGroups(cycle.at)
    await gather(groups, grouping.failures_of(await rows.failed_of_batch(*batch), cycle.picture))
    return groups


async def ids_for(rows: Questions, wanted: RowFilter, cycle: LastCycle) -> list[int] | None:
    """The only rows that can match; None: every row can.

    The cycle knows the reason of the rows that it judged. The rows of a queue behind them all wait for one reason.
    """
    if wanted.reason is None:
        return None
    more: Sequence[int] = ()
    if wanted.reason is HoldReason.NOT_DUE:
        more = await rows.newest_waiting([wanted.queue] if wanted.queue else None, wanted, are_due=False)
    elif queues := queues_behind(wanted, cycle):
        more = await rows.newest_waiting(queues, wanted, are_due=True)
    return [*judged_ids(wanted.reason, cycle), *(id_ for id_ in more if id_ not in cycle.told)]


async def gather(groups: FailureGroups, failures: Iterable[Failure]) -> None:
    """Adds the failures, some at a time."""
    left = iter(failures)
    while some := list(islice(left, AT_ONCE)):
        groups.add(some)
        await asyncio.sleep(0)


async def learn(rows: Kinds, cycle: LastCycle, tasks: Iterable[Task]) -> None:
    """Judges the kinds of rows that no cycle has judged yet."""
    unknown = {task.kind: task.id for task in tasks if cycle.picture.known_offer(task.kind) is None}
    await learn_kinds(rows, cycle.picture, list(unknown.values()))


class CacheContext(Struct, frozen=True):
    """The namespace of Jobs, and what is known of the caches on nodes."""

    jobs_namespace: str
    caches: Warmth


class NoCycleYet(DispatcherError):
    """No cycle has ended yet."""

    def __init__(self) -> None:
        super().__init__("no cycle has ended yet: /readyz of the dispatcher tells what is missing")


class ExplanationReader:
    """Answers questions about rows. `estimates`: keeps the estimates that were given.

    The attribute `lists` answers questions about many rows.
    """

    def __init__(self, rows: OpenRows, last: ReadLastCycle, place: CacheContext, estimates: Estimates) -> None:
        self.estimates = estimates
        self.lists = ListPages(rows, last)
        self._rows = rows
        self._last = last
        self._place = place

    async def explain(self, task_id: int) -> Explanation | None:
        """Why the row waits; None: there is no such row. Raises NoCycleYet and DatabaseError."""
        async with self._rows() as rows:
            cycle = ended_cycle(self._last())
            task = await rows.task(task_id)
            if task is None:
                return None
            request = (await rows.requests([task_id])).get(task_id)
            found = await explained(rows, cycle, (task, request), self._place)
        self.estimates.note(task.id, task.attempt, found.estimate)
        return found


def ended_cycle(last: LastCycle | None) -> LastCycle:
    """The last cycle. Raises NoCycleYet if there was none."""
    if last is None:
        raise NoCycleYet
    return last


async def explained(
    rows: Questions, cycle: LastCycle, row: tuple[Task, Request | None], place: CacheContext
) -> Explanation:
    """The explanation of a row, with everything that the database says about it."""
    task, request = row
    await learn(rows, cycle, [task])
    cache = await cache_of(rows, (task.queue, request.cache_key), place) if request and request.cache_key else None
    line, starts = await rows.line(task), await rows.starts(task)
    return explain(RowFacts(task, line, starts, await rows.launches(task.id), cache), cycle, place.jobs_namespace)


async def cache_of(rows: Questions, key: tuple[str, str], place: CacheContext) -> CacheNow:
    return cache_now(key, (await rows.histories([key])).get(key, {}), place.caches)
