"""The sweep: finds finished Jobs whose tombstone time is over, reads their rows from the primary, and deletes the Jobs.

`Remover`: ends objects for all stages, bounded and with preconditions. Each outcome is counted. A failed call is
planned again, not retried.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from math import inf
from typing import Final, Protocol

import structlog
from msgspec import Struct

from dispatcher.model.cluster import ClusterView, Quota, is_full_of_objects
from dispatcher.model.jobs import ApiAnswer, Job, ObjectWrite
from dispatcher.model.tasks import Task
from dispatcher.runtime.clock import Bucket, Clock, elapsed
from dispatcher.runtime.metrics import JOBS, KEPT_OBJECTS, SWEEP_DELETES, TAKEN_BACK
from dispatcher.settings.definition import SweepSettings
from dispatcher.sweep.plan import (
    CONFIRM_EVERY,
    Absences,
    are_many,
    kept_by_finalizers,
    plan_due,
    plan_sweep,
    plan_uncounted,
)

LOOKED_AT: Final = 1000
"""Jobs whose rows one sweep reads, at most."""
BATCH: Final = 100
"""Deletes of one sweep, at most."""
EVERY_SECONDS: Final = 1
"""Seconds between two sweeps."""


class SweepRows(Protocol):
    """The part of the database that a sweep reads."""

    now: datetime
    database_id: str

    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]: ...


class SweepPorts(Struct, frozen=True):
    """What a sweep reads, and how it deletes.

    view: the cluster as known now.
    rows: opens a snapshot of the database.
    may_write: whether this replica leads.
    unanswered: names of creates without an answer.
    remove: sends at most so many of the deletes, and returns their number.
    clock: monotonic seconds.
    quotas: the ResourceQuotas of the namespace of Jobs, as far as they are known.
    apart: time between two looks that found no row, and count.
    """

    view: Callable[[], ClusterView]
    rows: Callable[[], AbstractAsyncContextManager[SweepRows]]
    may_write: Callable[[], bool]
    unanswered: Callable[[], frozenset[str]]
    remove: Callable[[Sequence[ObjectWrite], int], Awaitable[int]]
    clock: Clock = elapsed
    quotas: Callable[[], Sequence[Quota]] = tuple
    apart: timedelta = CONFIRM_EVERY


class Sweep:
    """Runs sweeps. Deletes use only write tokens that creates leave over; half of all where finished Jobs pile up."""

    def __init__(self, ports: SweepPorts, settings: SweepSettings, bucket: Bucket) -> None:
        self._ports = ports
        self._tombstone = timedelta(seconds=settings.tombstone_seconds)
        self._bucket = bucket
        self._absences = Absences(ports.apart)
        self._start = 0
        self._spared_at = ports.clock()

    async def run_once(self) -> float:
        """Runs one sweep and returns the seconds until the next. A stale view or a missing lease stops all deletes."""
        view = self._ports.view()
        if view.stale:  # its clock goes on: a Job that has gone meanwhile would seem to be kept
            return EVERY_SECONDS
        report(view)
        if not self._ports.may_write():
            return EVERY_SECONDS
        is_crowded = is_full_of_objects(self._ports.quotas())
        due = self._take_turns(plan_due(view.jobs.values(), view.now, self._tombstone, is_crowded=is_crowded))
        spare = self._spare(view)
        if not due or not spare:
            return EVERY_SECONDS
        async with self._ports.rows() as rows:
            tasks = await rows.tasks(sorted({job.task_id for job in due}))
            ends = plan_sweep(due, tasks, rows.database_id, rows.now, self._absences)
            ends += plan_uncounted(due, tasks, rows.database_id, view, is_crowded=is_crowded)
        unanswered = self._ports.unanswered()
        ends = [end for end in ends if end.name not in unanswered]
        self._bucket.take(await self._ports.remove(ends, spare))
        return EVERY_SECONDS

    def _spare(self, view: ClusterView) -> int:
        """Number of deletes that this sweep may send."""
        now = self._ports.clock()
        since, self._spared_at = now - self._spared_at, now
        own = self._bucket.half(since) if are_many(view.jobs.values()) else 0
        return max(own, min(BATCH, self._bucket.spare(now)))

    def _take_turns(self, due: Sequence[Job]) -> Sequence[Job]:
        """At most LOOKED_AT of the due Jobs, in turns. Jobs of parked rows stay due, and must not block the others."""
        self._absences.keep_only(job.uid for job in due)
        if len(due) <= LOOKED_AT:
            return due
        self._start = (self._start + LOOKED_AT) % len(due)
        return [*due[self._start :], *due[: self._start]][:LOOKED_AT]


def report(view: ClusterView) -> None:
    JOBS.clear()
    for (queue, phase), count in Counter((job.queue, job.phase) for job in view.jobs.values()).items():
        JOBS.labels(queue, phase).set(count)
    KEPT_OBJECTS.clear()
    for finalizer, count in kept_by_finalizers(view.jobs.values(), view.pods.values(), view.now).items():
        KEPT_OBJECTS.labels(finalizer).set(count)


log = structlog.get_logger(component="sweep")

AT_A_TIME: Final = 8
"""Calls that end objects at the same time, at most."""
AGAIN_AT_A_TIME: Final = 4
"""Objects that are tried again at the same time after a slow call in vain, at most."""
BEGUN: Final = 200
"""Calls that are under way or wait for a place, at most."""
WAITED_SECONDS: Final = 1
"""Seconds for which a round waits for the answers. A webhook may be silent for ten, and a cycle creates Jobs, too."""
AGAIN_SECONDS: Final = 10
"""Seconds before an object is ended again: the watch may still have to show the effect."""


class JobDeletion(Protocol):
    """The call to the cluster that a `Remover` needs."""

    async def end(self, end: ObjectWrite) -> ApiAnswer: ...


REFUSED_SECONDS: Final = 60
"""A refusal is told for so many seconds. A refused object is ended again within that time."""
MOST_SLOW: Final = 10_000
"""Slow calls in vain that are remembered, at most."""


class Remover:
    """Ends objects, and remembers the newest refusal.

    under_way: the calls without an answer, by UID of the object.
    """

    def __init__(self, cluster: JobDeletion, refused: Callable[[], None], clock: Clock = elapsed) -> None:
        """`refused` is called when our identity may not end objects any more."""
        self._cluster = cluster
        self._refused = refused
        self._clock = clock
        self._places = asyncio.Semaphore(AT_A_TIME)
        self.under_way: dict[str, asyncio.Task[None]] = {}
        self._sent: dict[str, float] = {}
        self._slow: dict[str, None] = {}
        """Objects whose last call was slow and in vain."""
        self._refusal = "", 0.0

    @property
    def fault(self) -> str:
        """Which object could not be ended, and why; empty: none lately.

        It keeps its place in the caps, and a launch whose end cannot be noted counts as a failure.
        """
        words, at = self._refusal
        return words if words and self._clock() - at < REFUSED_SECONDS else ""

    async def remove(self, ends: Sequence[ObjectWrite], most: int) -> int:
        """Begins to end at most so many of the objects that were not tried within AGAIN_SECONDS. Returns their number,
        after WAITED_SECONDS at the latest.

        Those that were tried longest ago, or never, come first, and of those with a slow call in vain there are few:
        objects that a policy keeps, or whose webhook is silent, must not hide others.
        """
        now = self._clock()
        self._sent = {uid: at for uid, at in self._sent.items() if now - at < REFUSED_SECONDS}
        tried = {end.uid: self._sent.get(end.uid, -inf) for end in ends if end.uid not in self.under_way}
        wanted = {end.uid: end for end in ends if now - tried.get(end.uid, now) >= AGAIN_SECONDS}
        every = sorted(wanted.values(), key=lambda end: tried[end.uid])
        again = [end for end in every if end.uid in self._slow][: max(0, AGAIN_AT_A_TIME - len(self.under_way))]
        chosen = [*(end for end in every if end.uid not in self._slow), *again]
        chosen = chosen[: max(0, min(most, BEGUN - len(self.under_way)))]
        begun = {end.uid: asyncio.create_task(self._remove(end)) for end in chosen}
        self._sent |= dict.fromkeys(begun, now)
        self.under_way |= begun
        if begun:
            await asyncio.wait(begun.values(), timeout=WAITED_SECONDS)
        self._settle()
        return len(begun)

    async def drain(self) -> None:
        """Waits until every call has its answer."""
        while self.under_way:
            await asyncio.wait(self.under_way.values())
            self._settle()

    def _settle(self) -> None:
        for uid, call in list(self.under_way.items()):
            if call.done():
                del self.under_way[uid]
                call.result()  # a bug ends the round

    async def _remove(self, end: ObjectWrite) -> None:
        async with self._places:
            began = self._sent[end.uid] = self._clock()
            answer = await self._cluster.end(end)
        outcome = read_end(answer)
        SWEEP_DELETES.labels(outcome).inc()
        self._slow.pop(end.uid, None)
        if outcome in {"failed", "unknown"} and self._clock() - began >= WAITED_SECONDS:
            self._slow[end.uid] = None
            if len(self._slow) > MOST_SLOW:
                del self._slow[next(iter(self._slow))]
        if end.kind == "mark" and outcome == "deleted":
            TAKEN_BACK.inc()
        if outcome == "forbidden":
            self._refused()
        if outcome in {"forbidden", "failed"}:
            what = f"{end.kind} {end.name} ({end.cause})" if end.cause else f"{end.kind} {end.name}"
            self._refusal = f"{what}: {answer.status} {answer.message}", self._clock()
        say = log.info if outcome in {"deleted", "gone"} else log.warning
        say("removed", outcome=outcome, kind=end.kind, job=end.name, cause=end.cause, message=answer.message)


def read_end(answer: ApiAnswer) -> str:
    """Outcome of the call. 404 is a success. 409: the object changed since it was judged, so it is judged anew."""
    if not answer.is_sent:
        return "not-sent"
    if 200 <= answer.status < 300:
        return "deleted"
    return {404: "gone", 409: "changed", 403: "forbidden", 0: "unknown"}.get(answer.status, "failed")
