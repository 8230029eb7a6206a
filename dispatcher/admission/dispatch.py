"""One cycle: look, judge, launch.

Jobs are looked at first, rows second, so that no Job is newer than the row it is judged with: the other way round,
work that has just reported would be launched again. Everything between the look and the first write is decided
synchronously against one picture.

Failure story: no rows (database away, standby, unfit) ends the cycle with a fault and nothing is written; a cluster
view that is too old still judges, so that reasons can be told, but launches and removes nothing.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from itertools import count
from typing import Final, Protocol

import structlog
from msgspec import Struct

from dispatcher.admission.cycle import Plan, plan_cycle
from dispatcher.admission.gates import Candidate
from dispatcher.admission.heads import Index, Offers
from dispatcher.admission.orders import Histories, PlacementPlanner, make_orders
from dispatcher.admission.scan import Scan
from dispatcher.model.jobs import End, LaunchGroup
from dispatcher.model.launches import JobsVerdict, Order
from dispatcher.model.snapshot import (
    Allowance,
    Brakes,
    ClusterSnapshot,
    ClusterView,
    Frame,
    effective_queues,
    plan_load,
    plan_pending,
)
from dispatcher.model.tasks import Queue, Request, Task
from dispatcher.model.verdicts import PARKED, Hold, HoldReason
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import CYCLE_SECONDS, CYCLE_TASKS, PARKED_TASKS, WAITING_TASKS
from dispatcher.runtime.rate import Bucket
from dispatcher.settings.definition import AdmissionSettings

log = structlog.get_logger(component="admission.dispatch")

BATCH: Final = 100
SPARE: Final = 200
TAIL_SECONDS: Final = 0.05
"""After work was found, look again soon: the notify that would tell of more may have been held back."""
TAIL_LOOKS: Final = 4
DEAF_SECONDS: Final = 0.25


class Rows(Index, Histories, Protocol):
    """One snapshot of the rows."""

    now: datetime
    frame: Frame

    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]: ...
    async def candidates(self, ids: Sequence[int]) -> tuple[dict[int, Task], dict[int, Request]]: ...


class Rests(Protocol):
    """A row that need not be read."""

    @property
    def attempt(self) -> int: ...
    @property
    def queue(self) -> str: ...


class Jobs(Offers, Protocol):
    """The stage that follows: what Jobs mean, and launching."""

    def begin(self, view: ClusterView, now: datetime, database_id: str) -> None: ...
    def rows_to_read(self) -> set[int]: ...
    def in_flight(self) -> list[tuple[str, str]]: ...
    def unseen_count(self) -> int: ...
    def tried_at(self, task_id: int) -> float: ...
    def resting(self) -> Mapping[int, Rests]: ...
    def groups(self, tasks: Mapping[int, Task]) -> tuple[frozenset[LaunchGroup], frozenset[LaunchGroup]]: ...
    def brakes(self) -> Brakes: ...
    def standing(self, task: Task) -> JobsVerdict: ...
    async def launch(self, orders: Sequence[Order]) -> int: ...


class Lead(Protocol):
    """Who leads."""

    def term(self) -> int: ...
    def vacancy(self) -> str: ...


class World(Struct, frozen=True):
    """Where a cycle's facts come from, and where removals go."""

    view: Callable[[], ClusterView]
    rows: Callable[[int], AbstractAsyncContextManager[Rows]]
    not_allowed: Callable[[], str]
    is_listening: Callable[[], bool]
    lead: Lead
    remove: Callable[[Sequence[End]], Awaitable[int]]
    places: PlacementPlanner
    clock: Clock = elapsed


class Decision(Struct, frozen=True):
    """What one look came to; `due`: seconds until the next row with a time."""

    plan: Plan
    orders: Sequence[Order]
    held: Mapping[tuple[str, HoldReason], int]
    due: float

    @property
    def comes_again(self) -> bool:
        """Whether another look soon would find something to do."""
        return bool(self.plan.launches) or any(reason in COMES_AGAIN for _, reason in self.held)


class Dispatch:
    """Runs cycles; what it keeps between them is a memory of sizes, never of work."""

    def __init__(self, world: World, jobs: Jobs, settings: AdmissionSettings, bucket: Bucket) -> None:
        self._world = world
        self._jobs = jobs
        self._settings = settings
        self._bucket = bucket
        self._scan = Scan(jobs, BATCH)
        self._empty = 0
        self._jobless = 0
        self._numbers = count(1)

    async def run_once(self) -> float:
        """One cycle; returns in how many seconds to look again at the latest."""
        with structlog.contextvars.bound_contextvars(cycle=next(self._numbers)):
            term = self._world.lead.term()
            view = self._world.view()  # 1 Jobs first, and fixed
            began = time.perf_counter()
            async with self._world.rows(self._held_at_most(view)) as rows:  # 2 rows second, in one snapshot
                decision = await self._decide(view, rows)  # 3 one picture, one decision
            CYCLE_SECONDS.observe(time.perf_counter() - began)
            async with asyncio.TaskGroup() as acts:  # 4 act: a slow delete must not keep a create waiting
                leads = term != 0 and self._world.lead.term() == term
                if leads and not view.stale and decision.plan.ends:
                    acts.create_task(self._remove(decision.plan.ends[:BATCH]))
                self._bucket.take(await self._jobs.launch(decision.orders if leads else []))
            report(decision)
            return self._pause(decision)  # 5 come again

    def _held_at_most(self, view: ClusterView) -> int:
        """Held rows to ask for: those without a Job must not be hidden by those with one."""
        return len(view.jobs) + self._jobs.unseen_count() + self._jobless + SPARE

    async def _remove(self, ends: Sequence[End]) -> None:
        self._bucket.take(await self._world.remove(ends))

    async def _decide(self, view: ClusterView, rows: Rows) -> Decision:
        self._jobs.begin(view, rows.now, rows.database_id)
        known, resting = self._jobs.rows_to_read(), self._jobs.resting()
        snapshot = self._picture(view, rows.now, rows.frame.queues)
        jobless = set(rows.frame.held) - known - resting.keys()
        self._jobless = len(jobless)  # parked ones among them stay, and must not hide those behind
        tasks = await rows.tasks(sorted(known | jobless))
        snapshot = snapshot.with_groups(*self._jobs.groups(tasks))
        at = {id_: row.attempt for rows_ in (resting, tasks) for id_, row in rows_.items()}
        found = await self._scan.run(rows, snapshot, at)
        waiting, requests = await rows.candidates(found.ids)
        tasks |= waiting
        candidates = await self._candidates(rows, tasks)
        plan = plan_cycle(snapshot, candidates)
        orders = await self._orders(rows, plan, requests)
        held = found.held + Counter((tasks[id_].queue, hold.reason) for id_, hold in plan.holds.items())
        held += Counter((row.queue, HoldReason.LAUNCHED) for id_, row in resting.items() if id_ not in tasks)
        return Decision(plan, orders, held, seconds_until(rows.frame.next_due, rows.now))

    def _picture(self, view: ClusterView, now: datetime, queues: Sequence[Queue]) -> ClusterSnapshot:
        """What the gates look at."""
        settings, brakes = self._settings, self._jobs.brakes()
        grace = settings.pending_grace_seconds
        return ClusterSnapshot(
            now=now,
            queues=effective_queues(queues),
            max_jobs=settings.max_jobs,
            max_pending=settings.max_pending,
            is_strict=settings.pending_mode == "any",
            load=plan_load(self._jobs.in_flight()),
            pending=plan_pending(view, self._jobs.unseen_count(), grace),
            allowance=Allowance(self._bucket.left(self._world.clock()), brakes.places(BATCH)),
            not_ready=self._not_ready(view) or brakes.api,
            is_blind=bool(view.stale),
            is_probing=brakes.is_probing,
            quota=brakes.quota,
        )

    def _not_ready(self, view: ClusterView) -> Hold | None:
        if view.stale:
            return Hold(HoldReason.DISPATCHER_NOT_READY, f"StaleCache: {view.stale}")
        if missing := self._world.not_allowed():
            return Hold(HoldReason.DISPATCHER_NOT_READY, f"Forbidden: {missing}")
        if vacancy := self._world.lead.vacancy():
            return Hold(HoldReason.DISPATCHER_NOT_READY, f"NoLeader: {vacancy}")
        return None

    async def _candidates(self, rows: Index, tasks: Mapping[int, Task]) -> list[Candidate]:
        unknown = {task.kind: task.id for task in tasks.values() if self._jobs.known_offer(task.kind) is None}
        for kind in await rows.kinds(list(unknown.values())) if unknown else ():
            self._jobs.offer(kind)
        return [
            Candidate(
                task,
                self._jobs.known_offer(task.kind) or NOT_JUDGED,
                self._jobs.standing(task),
                self._jobs.tried_at(task.id),
            )
            for task in sorted(tasks.values(), key=lambda task: (self._jobs.tried_at(task.id), task.priority, task.id))
        ]

    async def _orders(self, rows: Rows, plan: Plan, requests: Mapping[int, Request]) -> list[Order]:
        """Launches with what their Jobs are made from; a replica that does not lead plans, and leaves it at that."""
        if not plan.launches or not self._world.lead.term():
            return []
        return await make_orders(rows, plan.launches, requests, self._world.places)

    def _pause(self, decision: Decision) -> float:
        if not self._world.lead.term():
            return self._settings.poll_seconds
        if len(decision.plan.launches) == BATCH:
            return 0.001  # there are more, and the answers to these come in meanwhile
        self._empty = 0 if decision.comes_again else self._empty + 1
        longest = self._settings.poll_seconds if self._world.is_listening() else DEAF_SECONDS
        return max(0.001, min(TAIL_SECONDS if self._empty < TAIL_LOOKS else longest, longest, decision.due))


def seconds_until(due: datetime | None, now: datetime) -> float:
    return (due - now).total_seconds() if due else float("inf")


NOT_JUDGED: Final = Hold(HoldReason.NEXT_CYCLE, "its kind is not judged yet")
COMES_AGAIN: Final = frozenset({HoldReason.RATE_LIMITED, HoldReason.NEXT_CYCLE})


def report(decision: Decision) -> None:
    """Gauges of this cycle's judgement: of the rows that were looked at, the heads of the queues."""
    plan = decision.plan
    WAITING_TASKS.clear()
    PARKED_TASKS.clear()
    for (queue, reason), number in decision.held.items():
        WAITING_TASKS.labels(queue, reason).set(number)
        if reason in PARKED:
            PARKED_TASKS.labels(reason).inc(number)
    CYCLE_TASKS.labels("admit").set(len(plan.launches))
    CYCLE_TASKS.labels("hold").set(len(plan.holds))
