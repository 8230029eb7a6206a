"""Answers with lists of rows: pages by filters, batches, failures."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, Protocol

from dispatcher.admission.kinds import Kinds, learn_kinds
from dispatcher.admission.last_cycle import LastCycle
from dispatcher.explain import failures as grouping
from dispatcher.explain.batches import BatchesPage, batch_status
from dispatcher.explain.failures import MOST_PARKED, Failure, FailuresPage, Groups
from dispatcher.explain.listing import Page, ReadRows, judged_ids, labels_of, page_of, queues_behind
from dispatcher.model.history import BatchCount, FailedTask, Found, ListedTask, Source, Wanted, WantedBatch
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import HoldReason
from dispatcher.runtime.clock import elapsed

KEPT_SECONDS: Final = 10
"""For so long the failures are told again, because all of them together cost some 50 ms."""
AT_ONCE: Final = 100
"""So many rows are grouped before something else has its turn: about 3 ms."""


class ListedRows(Kinds, Protocol):
    """The rows in one snapshot of the database."""

    now: datetime

    async def find(self, wanted: Wanted, labels: str | None, among: Sequence[int] | None) -> Found: ...
    async def newest_waiting(self, queues: Sequence[str] | None, wanted: Wanted, *, are_due: bool) -> Sequence[int]: ...
    async def page(self, ids: Sequence[int]) -> Sequence[ListedTask]: ...
    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]: ...
    async def sources(self, ids: Sequence[int]) -> Sequence[Source]: ...
    async def batches(self, queue: str | None, submitted_by: str | None, batch: str) -> Sequence[BatchCount]: ...
    async def failed(self, since: datetime) -> Sequence[FailedTask]: ...
    async def failed_of_batch(self, queue: str, submitted_by: str, batch: str) -> Sequence[FailedTask]: ...


class Lists:
    """Answers questions about many rows. Each method raises NotYet and DatabaseError.

    rows: opens a snapshot of the rows.
    cycle: the last cycle. Raises NotYet.
    now: a clock in seconds.
    """

    def __init__(
        self, rows: Callable[[], AbstractAsyncContextManager[ListedRows]], cycle: Callable[[], LastCycle],
        now: Callable[[], float] = elapsed,
    ) -> None:  # fmt: skip
        self._rows = rows
        self._cycle = cycle
        self._now = now
        self._lock = asyncio.Lock()
        self._told: tuple[float, FailuresPage, Mapping[str, Sequence[int]]] | None = None

    async def page(self, wanted: Wanted) -> Page:
        """A page of rows. Raises ValueError with what is wrong with the label."""
        labels = labels_of(wanted)
        group = None if wanted.group is None else await self._of_group(wanted, wanted.group)
        async with self._rows() as rows:
            cycle = self._cycle()
            ids = both(await ids_for(rows, wanted, cycle), group)
            found = await rows.find(wanted, labels, ids)
            tasks = await rows.tasks(found.ids)
            await learn(rows, cycle, tasks.values())
            return page_of(ReadRows(rows.now, await rows.page(found.ids), tasks), found, wanted, cycle)

    async def batches(self, wanted: WantedBatch) -> BatchesPage:
        cycle = self._cycle()
        if wanted.batch is None:
            return BatchesPage(as_of=cycle.at, batches=[])
        async with self._rows() as rows:
            counts = await rows.batches(wanted.queue, wanted.submitted_by, wanted.batch)
            groups = Groups(cycle.at)
            if len(counts) == 1 and counts[0].failed:
                one = counts[0]
                groups = await groups_of_batch(rows, cycle, (one.queue, one.submitted_by, one.batch))
            at = rows.now  # the rows are counted now, not when the cycle read them
        return BatchesPage(as_of=at, batches=[batch_status(one) for one in counts], failures=groups.largest()[0])

    async def failures(self) -> FailuresPage:
        return (await self._last_failures())[0]

    async def _of_group(self, wanted: Wanted, key: str) -> Sequence[int]:
        """The rows of a group of failures: those that the page which names the group has counted."""
        if wanted.batch is None or wanted.queue is None or wanted.submitted_by is None:
            return grouping.rows_of(key, (await self._last_failures())[1])
        async with self._rows() as rows:
            batch = wanted.queue, wanted.submitted_by, wanted.batch
            return grouping.rows_of(key, (await groups_of_batch(rows, self._cycle(), batch)).rows())

    async def _last_failures(self) -> tuple[FailuresPage, Mapping[str, Sequence[int]]]:
        """The page, and the rows of each group."""
        async with self._lock:
            now = self._now()
            if self._told is None or now - self._told[0] >= KEPT_SECONDS:
                self._told = now, *await self._failures()
            return self._told[1:]

    async def _failures(self) -> tuple[FailuresPage, Mapping[str, Sequence[int]]]:
        async with self._rows() as rows:
            cycle = self._cycle()
            since, ids, groups = cycle.at - timedelta(days=1), grouping.parked_ids(cycle), Groups(cycle.at)
            failed, parked = await rows.failed(since), await rows.sources(ids[:MOST_PARKED])
        await gather(groups, grouping.failures_of(failed, cycle.picture))
        await gather(groups, grouping.parked_of(parked, cycle.told, cycle.picture))
        found, left_out = groups.largest()
        page = FailuresPage(
            as_of=cycle.at, groups=found, groups_left_out=left_out, failed=len(failed),
            failed_since=grouping.failed_since(failed, since), parked=len(ids), parked_left_out=len(ids) - len(parked),
        )  # fmt: skip
        return page, groups.rows()


def both(ids: Sequence[int] | None, others: Sequence[int] | None) -> Sequence[int] | None:
    """The ids that are in both; None: every id is."""
    if ids is None or others is None:
        return others if ids is None else ids
    return sorted({*ids} & {*others})


async def groups_of_batch(rows: ListedRows, cycle: LastCycle, batch: tuple[str, str, str]) -> Groups:
    """The failed rows of a batch: of a queue and a submitter."""
    groups = Groups(cycle.at)
    await gather(groups, grouping.failures_of(await rows.failed_of_batch(*batch), cycle.picture))
    return groups


async def ids_for(rows: ListedRows, wanted: Wanted, cycle: LastCycle) -> list[int] | None:
    """The only rows that can match; None: every row can.

    The cycle knows the reason of the rows that it judged. Behind them, the rows of a queue wait for one reason.
    """
    if wanted.reason is None:
        return None
    more: Sequence[int] = ()
    if wanted.reason is HoldReason.NOT_DUE:
        more = await rows.newest_waiting([wanted.queue] if wanted.queue else None, wanted, are_due=False)
    elif queues := queues_behind(wanted, cycle):
        more = await rows.newest_waiting(queues, wanted, are_due=True)
    return [*judged_ids(wanted.reason, cycle), *(id_ for id_ in more if id_ not in cycle.told)]


async def gather(groups: Groups, failures: Iterable[Failure]) -> None:
    """Adds the failures, some at a time."""
    left = iter(failures)
    while some := list(islice(left, AT_ONCE)):
        groups.add(some)
        await asyncio.sleep(0)


async def learn(rows: Kinds, cycle: LastCycle, tasks: Iterable[Task]) -> None:
    """Judges the kinds of rows that no cycle has judged yet."""
    unknown = {task.kind: task.id for task in tasks if cycle.picture.known_offer(task.kind) is None}
    await learn_kinds(rows, cycle.picture, list(unknown.values()))
