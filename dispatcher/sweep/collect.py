"""One sweep: finds finished Jobs whose tombstone time is over, reads their rows from the primary, deletes Jobs."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Final, Protocol

from msgspec import Struct

from dispatcher.model.jobs import End, Job
from dispatcher.model.snapshot import ClusterView
from dispatcher.model.tasks import Task
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import JOBS
from dispatcher.runtime.rate import Bucket
from dispatcher.settings.definition import SweepSettings
from dispatcher.sweep.plan import Absences, plan_due, plan_sweep

LOOKED_AT: Final = 1000
BATCH: Final = 100
EVERY_SECONDS: Final = 1


class Rows(Protocol):
    """The part of the database that a sweep reads."""

    now: datetime
    database_id: str

    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]: ...


class SweepPorts(Struct, frozen=True):
    """Sources of a sweep's facts, and the way to delete.

    view: the cluster as known now.
    rows: opens a snapshot of the database.
    may_write: whether this replica leads.
    unanswered: names of creates without an answer.
    remove: sends deletes and returns their number.
    clock: monotonic seconds.
    """

    view: Callable[[], ClusterView]
    rows: Callable[[], AbstractAsyncContextManager[Rows]]
    may_write: Callable[[], bool]
    unanswered: Callable[[], frozenset[str]]
    remove: Callable[[Sequence[End]], Awaitable[int]]
    clock: Clock = elapsed


class Sweep:
    """Runs sweeps. Deletes use only write tokens that creates leave over."""

    def __init__(self, ports: SweepPorts, settings: SweepSettings, bucket: Bucket) -> None:
        self._ports = ports
        self._tombstone = timedelta(seconds=settings.tombstone_seconds)
        self._bucket = bucket
        self._absences = Absences()
        self._start = 0

    async def run_once(self) -> float:
        """Runs one sweep and returns the seconds until the next. A stale view or a missing lease stops all deletes."""
        view = self._ports.view()
        report(view.jobs)
        if view.stale or not self._ports.may_write():
            return EVERY_SECONDS
        due = self._take_turns(plan_due(view.jobs.values(), view.now, self._tombstone))
        spare = min(BATCH, self._bucket.spare(self._ports.clock()))
        if not due or not spare:
            return EVERY_SECONDS
        async with self._ports.rows() as rows:
            tasks = await rows.tasks(sorted({job.task_id for job in due}))
            ends = plan_sweep(due, tasks, rows.database_id, rows.now, self._absences)
        unanswered = self._ports.unanswered()
        ends = [end for end in ends if end.name not in unanswered][:spare]
        self._bucket.take(await self._ports.remove(ends))
        return EVERY_SECONDS

    def _take_turns(self, due: Sequence[Job]) -> Sequence[Job]:
        """At most LOOKED_AT of the due Jobs, in turns. Jobs of parked rows stay due and must not block the others."""
        self._absences.keep_only(job.uid for job in due)
        if len(due) <= LOOKED_AT:
            return due
        self._start = (self._start + LOOKED_AT) % len(due)
        return [*due[self._start :], *due[: self._start]][:LOOKED_AT]


def report(jobs: Mapping[str, Job]) -> None:
    JOBS.clear()
    for (queue, phase), count in Counter((job.queue, job.phase) for job in jobs.values()).items():
        JOBS.labels(queue, phase).set(count)
