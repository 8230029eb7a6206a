"""One cycle: reads Jobs and rows, judges the rows, launches. Also the ports that it uses.

The view of Jobs is fixed first, and rows are read second. So no Job is newer than the row that it is judged with. The
other order would launch a task again that has just reported. All decisions use one immutable picture.

Failure story: if the rows cannot be read (the database is away, is a standby or does not fit), the cycle ends with a
fault and writes nothing. If the view of the cluster is too old, the cycle still judges rows, so that their reasons are
known, but launches and deletes nothing.
"""

import asyncio
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import cached_property
from itertools import count
from typing import Final, Generic, Protocol, TypeVar

import structlog
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.admission.claims import Claim, Claims
from dispatcher.admission.cycle import (
    Plan,
    mark,
    outdated_shapes,
    plan_cycle,
    plan_outranked,
    plan_pauses,
    plan_taken_back,
    plan_yields,
    rows_at_a_cap,
)
from dispatcher.admission.demand import Demands
from dispatcher.admission.gates import Candidate, wants_place
from dispatcher.admission.heads import CycleOffers, Index, known_rows, learn_kinds
from dispatcher.admission.last_cycle import (
    AskedPicture,
    LastCycle,
    QueueReason,
    RestingRow,
    candidate_of,
    held_since,
    is_running,
    still_resting,
    tell,
)
from dispatcher.admission.launch_inputs import Histories, NodesNow, PlacementPlanner, make_orders
from dispatcher.admission.room import Room
from dispatcher.admission.room_memory import RoomMemory
from dispatcher.admission.room_view import RoomView
from dispatcher.admission.scan import Scan, ScanResult
from dispatcher.admission.snapshot import (
    Allowance,
    ClusterSnapshot,
    effective_queues,
    holders,
    plan_load,
    plan_pending,
    plan_quotas,
    plan_shares,
    plan_stuck,
)
from dispatcher.model.cluster import ClusterView, Quota, ScaleAnswer
from dispatcher.model.jobs import LaunchGroup, ObjectWrite
from dispatcher.model.launches import CreatePauses, InFlight, JobsVerdict, LaunchSpec, PodRun, Probe, UncountedPods
from dispatcher.model.resources import NOTHING
from dispatcher.model.tasks import Frame, Request, Task
from dispatcher.model.verdicts import PARKED, Hold, HoldReason, NotReady
from dispatcher.runtime.clock import Bucket, Clock, elapsed
from dispatcher.runtime.metrics import (
    CYCLE_SECONDS,
    CYCLE_TASKS,
    DEMAND_PODS,
    DEMAND_UNANSWERED,
    NODE_REJECTIONS,
    PARKED_TASKS,
    QUEUE_SHARE,
    REJECTING_NODES,
)
from dispatcher.settings.definition import AdmissionSettings


class RowSnapshot(Index, Histories, Protocol):
    """The rows in one snapshot of the database."""

    now: datetime
    frame: Frame

    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]: ...
    async def still_waiting(self, ids: Sequence[int]) -> dict[int, int]: ...
    async def waiting(self, ids: Sequence[int]) -> tuple[dict[int, Task], dict[int, Request]]: ...


class Picture(CycleOffers, AskedPicture, Protocol):
    """The Jobs stage's immutable picture of one cycle: judges rows by their Jobs."""

    @property
    def brakes(self) -> CreatePauses: ...
    def rows_to_read(self) -> set[int]: ...
    def resting(self) -> Mapping[int, RestingRow]: ...
    def in_flight(self) -> InFlight: ...
    def to_come(self) -> UncountedPods: ...
    def probes(self) -> Iterable[Probe]: ...
    def runs(self) -> Iterable[PodRun]: ...
    def launch_groups(self, tasks: Mapping[int, Task]) -> tuple[frozenset[LaunchGroup], frozenset[LaunchGroup]]: ...


P = TypeVar("P", bound=Picture)
"""The type of picture that the Jobs stage makes and gets back."""


class JobsStage(Protocol[P]):
    """The Jobs stage: makes the picture of a cycle, and sends the orders that were decided by it."""

    def picture(self, view: ClusterView, now: datetime, database_id: str) -> P: ...
    async def launch(
        self, picture: P, judged: Sequence[tuple[Task, JobsVerdict]], orders: Sequence[LaunchSpec]
    ) -> int: ...


class LeaderLease(Protocol):
    """The lease, as a cycle uses it."""

    def term(self) -> int: ...
    def vacancy(self) -> str: ...


class ClaimStore(Protocol):
    """Claims as objects of the cluster, so that other people's Pods keep away from the nodes, too."""

    def known(self) -> Mapping[int, str]: ...
    async def keep(self, claims: Sequence[Claim]) -> int: ...


class DispatchPorts(Struct, frozen=True):
    """The adapters that a cycle uses.

    view: the view of the cluster.
    rows: a snapshot of the rows. Its argument bounds the number of rows that a container holds or held.
    not_allowed: rights that our account lacks; empty: none.
    is_listening: whether the database notifies us of new rows.
    lead: the lease.
    remove: begins to delete at most so many of the objects; returns the number of writes.
    planner: placement of launches.
    room: nodes and their free amounts now; None: room is not judged.
    quotas: the ResourceQuotas of the namespace of Jobs; none if they are not known.
    claims: the claims as NodeReservations; None: nobody enforces them.
    answers: what autoscalers said of our Pods, by UID.
    tell: hears of each cycle after it has acted.
    clock: this process's clock, in seconds.
    """

    view: Callable[[], ClusterView]
    rows: Callable[[int], AbstractAsyncContextManager[RowSnapshot]]
    not_allowed: Callable[[], str]
    is_listening: Callable[[], bool]
    lead: LeaderLease
    remove: Callable[[Sequence[ObjectWrite], int], Awaitable[int]]
    planner: PlacementPlanner
    room: Callable[[], RoomView | None] = lambda: None
    quotas: Callable[[], tuple[Quota, ...]] = tuple
    claims: ClaimStore | None = None
    answers: Callable[[], Mapping[str, ScaleAnswer]] = dict
    tell: Callable[[LastCycle], None] = lambda _: None
    clock: Clock = elapsed


log = structlog.get_logger(component="admission.dispatch")

BATCH: Final = 100
"""Launches of one cycle, at most. Deletes have the same bound."""
SPARE: Final = 200
"""Further rows that `_held_at_most` allows."""
WITHOUT_JOB: Final = 2000
"""Rows that a container holds or held without a Job, that one cycle reads at most, in turns. A team may have any number
of them: it starts its rows with their keys, which it has from earlier launches.
"""
TAIL_SECONDS: Final = 0.05
"""Seconds between cycles while they find work. The notify for further rows may be delayed."""
TAIL_LOOKS: Final = 4
"""Cycles without work after which the pause is no longer TAIL_SECONDS."""
DEAF_SECONDS: Final = 0.25
"""Seconds between polls while LISTEN is down."""


class Decision(Struct, frozen=True, dict=True):
    """The decision of one cycle.

    candidates: the rows that were judged.
    plan: launches, holds and deletes.
    found: the result of the scan.
    resting: rows with a Job that were not judged, and wait or are parked: queue, reason, and whether they wait.
    orders: one order for each launch; empty on a replica that does not lead.
    due: seconds until the next row with a `run_at` is due.
    shares: what each queue has in flight, as a share of the cluster.
    unread: rows without a Job that a container holds or held, and that another cycle reads.
    """

    candidates: Sequence[Candidate]
    plan: Plan
    found: ScanResult
    resting: Mapping[int, tuple[str, HoldReason, bool]]
    orders: Sequence[LaunchSpec]
    due: float
    shares: Mapping[str, float]
    unread: Set[int]

    @cached_property
    def rows(self) -> Mapping[int, Task]:
        return {one.task.id: one.task for one in self.candidates}

    @cached_property
    def held(self) -> Counter[QueueReason]:
        """Number of held waiting rows by queue and reason."""
        holds = [(self.rows[id_], hold.reason) for id_, hold in self.plan.holds.items()]
        held = self.found.held + Counter((task.queue, reason) for task, reason in holds if task.is_waiting)
        return held + Counter((queue, reason) for queue, reason, waits in self.resting.values() if waits)

    @cached_property
    def parked(self) -> Mapping[HoldReason, int]:
        """Number of parked rows by reason."""
        reasons = [hold.reason for hold in self.plan.holds.values()] + [one for _, one in self.found.held.elements()]
        reasons += [reason for _, reason, _ in self.resting.values()]
        return Counter(reason for reason in reasons if reason in PARKED)

    @property
    def comes_again(self) -> bool:
        """Whether another cycle soon would find something to do."""
        return bool(self.plan.launches) or any(reason in COMES_AGAIN for _, reason in self.held)

    @property
    def is_calm(self) -> bool:
        """Whether each row that was found has its Job. Rows of queues that were not read may have none."""
        reasons = {reason for _, reason in self.held} | {hold.reason for hold in self.plan.holds.values()}
        return reasons <= {HoldReason.LAUNCHED} and not self.found.unread


class Dispatch(Generic[P]):
    """Runs cycles. The next cycle uses only sizes and counters of the last one, never its rows or Jobs.

    waits_for_room: whether the last cycle held a row that no node, or no ResourceQuota, had room for.
    is_calm: whether the last cycle found no row that waits for its next Job. Then news of the cluster are not urgent.
    last: the last cycle, for those who ask why a row waits; None: there was none.
    """

    def __init__(self, ports: DispatchPorts, jobs: JobsStage[P], settings: AdmissionSettings, bucket: Bucket) -> None:
        self._ports = ports
        self._jobs = jobs
        self._settings = settings
        self._bucket = bucket
        self._scan = Scan(BATCH)
        self.waits_for_room = self.is_calm = False
        self.last: LastCycle | None = None
        self.demands = Demands(settings.demand, settings.pending_grace_seconds)
        self._memory = RoomMemory(self.demands, Claims(is_enforced=ports.claims is not None))
        self._paused_since: Mapping[str, datetime] = {}
        self._empty = 0
        self._without_job = self._read_to = 0
        self._unread: Set[int] = frozenset()
        self._numbers = count(1)

    async def run_once(self) -> float:
        """Runs one cycle. Returns the longest pause before the next cycle, in seconds."""
        with structlog.contextvars.bound_contextvars(cycle=next(self._numbers)):
            term = self._ports.lead.term()
            view, room = self._ports.view(), self._ports.room()  # 1 Jobs first, and fixed
            began = time.perf_counter()
            async with self._ports.rows(self._held_at_most(view)) as rows:  # 2 rows second, in one snapshot
                picture = self._jobs.picture(view, rows.now, rows.database_id)  # 3 one picture
                decision = await self._decide(view, room, rows, picture)  # 4 one decision
            CYCLE_SECONDS.observe(time.perf_counter() - began)
            self.waits_for_room = any(reason in FOR_ROOM for _, reason in decision.held)
            self.is_calm = decision.is_calm
            leads = term != 0 and self._ports.lead.term() == term
            self.last = last_cycle(decision, picture, self.last, leads=leads)
            await self._act(picture, decision, leads=leads, deletes=leads and not view.stale)  # 5 act
            if leads:
                report(decision, view.now, len(self._memory.rejections.current.every))
            self._ports.tell(self.last)
            return self._pause(decision)  # 6 when to run again

    def _held_at_most(self, view: ClusterView) -> int:
        """Limit for rows that a container holds: Jobs + such rows without a Job + SPARE. None must hide another."""
        return len(view.jobs) + self._without_job + SPARE

    async def _act(self, picture: P, decision: Decision, *, leads: bool, deletes: bool) -> None:
        """Sends deletes and creates at the same time. A slow delete must not delay a create, nor the next cycle."""
        judged = [(candidate.task, candidate.jobs) for candidate in decision.candidates]
        async with asyncio.TaskGroup() as acts:
            if deletes and decision.plan.ends:
                acts.create_task(self._remove(decision.plan.ends))
            if deletes and self._ports.claims:
                acts.create_task(self._ports.claims.keep(self._memory.claims.current))
            self._bucket.take(await self._jobs.launch(picture, judged, decision.orders if leads else []))

    async def _remove(self, ends: Sequence[ObjectWrite]) -> None:
        self._bucket.take(await self._ports.remove(ends, BATCH))

    async def _decide(self, view: ClusterView, room: RoomView | None, rows: RowSnapshot, picture: P) -> Decision:
        probes, resting, in_flight = list(picture.probes()), picture.resting(), picture.in_flight()
        self._look_at_room(view, room, probes)
        snapshot = self._snapshot(view, room, rows, (picture, in_flight))
        tasks = await self._tasks_with_jobs(rows, picture.rows_to_read(), resting.keys(), in_flight.unseen)
        snapshot = snapshot.with_groups(*picture.launch_groups(tasks))
        found = await self._scan.run(rows, picture, snapshot, known_rows(resting, tasks))
        waiting, requests = await rows.waiting(found.ids)
        tasks |= waiting
        candidates = readable(await self._candidates(rows, picture, tasks), requests)
        plan = plan_cycle(snapshot, candidates)
        taken_back = self._taken_back(probes, snapshot, plan, (candidates, found, resting))
        if room is not None and not view.stale:
            known = self._ports.claims.known() if self._ports.claims else {}
            self._memory.plan_claims(found.roomless, picture, room, view.now, known)
        return Decision(
            candidates,
            replace(plan, ends=(*plan.ends, *taken_back)),
            found,
            resting=await still_resting(rows, resting, tasks.keys(), self.last),
            unread=self._unread,
            orders=await self._orders(rows, plan, requests, snapshot.room),
            due=seconds_until(rows.frame.next_due, rows.now),
            shares={name: snapshot.shares.of_queue(name) for name in snapshot.queues},
        )

    def _look_at_room(self, view: ClusterView, room: RoomView | None, probes: Sequence[Probe]) -> None:
        self._memory.look(view, room, probes, self._ports.answers())
        for node in self._memory.rejections.told:
            NODE_REJECTIONS.labels(node).inc()

    async def _tasks_with_jobs(
        self, rows: RowSnapshot, known: Set[int], resting: Set[int], unseen: int
    ) -> dict[int, Task]:
        """The rows that have Jobs, and those that a container holds or held without one. `unseen`: awaited creates."""
        without_job = sorted(set(rows.frame.held) - known - resting)
        # Parked rows stay in this number from cycle to cycle, and must not hide other rows.
        self._without_job = len(without_job) + unseen
        begin = bisect_right(without_job, self._read_to)
        read = [*without_job[begin:], *without_job[:begin]][:WITHOUT_JOB]
        self._read_to, self._unread = read[-1] if read else 0, set(without_job) - set(read)
        return await rows.tasks(sorted(known | set(read)))

    def _taken_back(
        self,
        probes: Sequence[Probe],
        snapshot: ClusterSnapshot,
        plan: Plan,
        judged: tuple[Sequence[Candidate], ScanResult, Mapping[int, RestingRow]],
    ) -> Sequence[ObjectWrite]:
        self._paused_since = plan_pauses(self._paused_since, snapshot.queues.values(), snapshot.now)
        if not probes:
            return ()
        candidates, found, resting = judged
        priorities = {id_: row.priority for id_, row in resting.items()} if found.behind else {}
        priorities |= {one.task.id: one.task.priority for one in candidates}
        held = [(one.pod, plan.holds[one.task.id]) for one in candidates if one.task.id in plan.holds]
        reasons = FOR_ROOM | ({HoldReason.PENDING_PODS} if snapshot.is_strict else frozenset[HoldReason]())
        lacking = [*found.wanting, *(pod for pod, hold in held if hold.reason in reasons)]
        wanting = [pod for pod in lacking if wants_place(pod, plan.after)]
        ends = [
            *plan_taken_back(probes, snapshot, self._paused_since),
            *plan_yields(rows_at_a_cap(held), probes, plan.after),
        ]
        if snapshot.room is not None:
            outdated = outdated_shapes(probes, snapshot.room.view)
            ends += (mark(probe, cause) for probe, cause in self.demands.given_back(probes, wanting, outdated))
            ends += plan_outranked(found.behind, probes, priorities, plan.after, self.demands.looked_at)
        return list({end.name: end for end in ends}.values())

    def _snapshot(
        self, view: ClusterView, room: RoomView | None, rows: RowSnapshot, jobs: tuple[Picture, InFlight]
    ) -> ClusterSnapshot:
        """The snapshot that the gates use."""
        (picture, in_flight), held = jobs, plan_load(holders(jobs[1].held))
        settings, brakes, quotas = self._settings, picture.brakes, self._ports.quotas()
        size = room.size if room is not None else NOTHING
        places = settings.max_jobs if self.last is not None and self.last.lacks_places else 0
        left = self._memory.room(room, in_flight.unplaced) if room is not None and not view.stale else None
        return ClusterSnapshot(
            now=rows.now,
            queues=effective_queues(rows.frame.queues),
            max_jobs=settings.max_jobs,
            max_pending=settings.max_pending,
            is_strict=settings.pending_mode == "any",
            load=plan_load(holders(in_flight.every)).sparing(held),
            held=held,
            shares=plan_shares(in_flight.with_room, size, left.waiting.every if left else {}, places),
            pending=plan_pending(view, in_flight, settings.pending_grace_seconds),
            allowance=Allowance(self._bucket.left(self._ports.clock()), brakes.places(BATCH)),
            not_ready=self._not_ready(view, rows.frame) or brakes.api,
            is_blind=bool(view.stale),
            is_probing=brakes.is_probing,
            quota=brakes.quota,
            quotas=plan_quotas(quotas, picture.to_come() if quotas else UncountedPods()),
            room=left,
            first=self._memory.first_pods(in_flight.unplaced, view) if left is not None else None,
            stuck=plan_stuck(picture.probes() if room is None else (), self.demands.current),
            in_line=self._scan.in_line,
            stuck_shapes=self.demands.current.waited_lately(view.now) if room is None else frozenset(),
            launched_at=self.last.launched_at if self.last is not None and self.last.lacks_writes else None,
        )

    def _not_ready(self, view: ClusterView, frame: Frame) -> Hold | None:
        if view.stale:
            return Hold(HoldReason.DISPATCHER_NOT_READY, f"{NotReady.STALE_CACHE}: {view.stale}")
        if missing := self._ports.not_allowed():
            return Hold(HoldReason.DISPATCHER_NOT_READY, f"{NotReady.FORBIDDEN}: {missing}")
        if vacancy := self._ports.lead.vacancy():
            return Hold(HoldReason.DISPATCHER_NOT_READY, f"{NotReady.NO_LEADER}: {vacancy}")
        if frame.tasks_refused:
            return Hold(HoldReason.DISPATCHER_NOT_READY, f"{NotReady.TASKS_REFUSED}: {frame.tasks_refused}")
        return None

    async def _candidates(self, rows: Index, picture: Picture, tasks: Mapping[int, Task]) -> list[Candidate]:
        unknown = {task.kind: task.id for task in tasks.values() if picture.known_offer(task.kind) is None}
        await learn_kinds(rows, picture, list(unknown.values()))
        ordered = sorted(tasks.values(), key=lambda task: (picture.tried_at(task.id), task.priority, task.id))
        return [candidate_of(task, picture) for task in ordered]

    async def _orders(
        self, rows: RowSnapshot, plan: Plan, requests: Mapping[int, Request], room: Room | None
    ) -> list[LaunchSpec]:
        """The orders for the planned launches. A replica that does not lead only plans."""
        if not plan.launches or not self._ports.lead.term():
            return []
        now = NodesNow(room, self._memory.claims.nodes(), self._memory.rejections.current)
        return await make_orders(rows, plan.launches, requests, self._ports.planner, now)

    def _pause(self, decision: Decision) -> float:
        if not self._ports.lead.term():
            return self._settings.poll_seconds
        if len(decision.plan.launches) == BATCH:
            return 0.001  # there are more rows; the answers to these creates come in meanwhile
        self._empty = 0 if decision.comes_again else self._empty + 1
        longest = self._settings.poll_seconds if self._ports.is_listening() else DEAF_SECONDS
        return max(0.001, min(TAIL_SECONDS if self._empty < TAIL_LOOKS else longest, longest, decision.due))


def seconds_until(due: datetime | None, now: datetime) -> float:
    return (due - now).total_seconds() if due else float("inf")


FOR_ROOM: Final = frozenset({HoldReason.NEVER_FITS, HoldReason.NO_ROOM_NOW, HoldReason.QUOTA_EXCEEDED})
COMES_AGAIN: Final = frozenset({HoldReason.RATE_LIMITED, HoldReason.NEXT_CYCLE})


def readable(candidates: Sequence[Candidate], requests: Mapping[int, Request]) -> list[Candidate]:
    """The candidates. Those of which no Job can be made are held, so that they stop no other row."""
    faults = {request.task_id: request.fault for request in requests.values() if request.fault}
    return [
        replace(one, offer=Hold(HoldReason.POLICY_DENIED, faults[one.task.id])) if one.task.id in faults else one
        for one in candidates
    ]


def last_cycle(decision: Decision, picture: Picture, before: LastCycle | None, *, leads: bool) -> LastCycle:
    plan, found = decision.plan, decision.found
    rows = decision.rows
    holds = ((rows[id_], hold) for id_, hold in plan.holds.items() if not is_running(rows[id_], hold, plan.after.now))
    last = before.told if before else {}
    told = {id_: last[id_] for id_ in (*decision.resting, *decision.unread) if id_ in last}
    told |= {id_: one for id_, one in last.items() if one.queue in found.unread and one.hold.reason in PARKED}
    told |= tell([*found.told, *holds], last, plan.after.now)
    launched = [candidate.task for candidate in plan.launches]
    reason = HoldReason.LAUNCHED if leads else HoldReason.IN_LINE
    # They wait until their containers start. A create may take long, and the next cycle comes after it.
    held = decision.held + Counter((task.queue, reason) for task in launched if task.is_waiting)
    since = held_since(held, plan.after, before.since if before else {})
    ids = frozenset(task.id for task in launched)
    launched_at = {(task.queue, task.submitted_by): plan.after.now for task in launched} if leads else {}
    cycle = LastCycle(plan.after, picture, told, ids, held, since, leads, found.whole, launched_at=launched_at)
    return cycle.after(before)


def report(decision: Decision, now: datetime, rejecting: int) -> None:
    """Sets the gauges for the rows that this cycle judged: the heads of the queues. Only the leader has them.

    now: the API server's clock.
    rejecting: number of nodes whose kubelets reject Pods.
    """
    plan = decision.plan
    REJECTING_NODES.set(rejecting)
    if (room := plan.after.room) is not None:
        waiting, since = room.waiting, room.waiting.demand.unanswered_since()
        asking = sum(waiting.asking.values())
        DEMAND_PODS.labels("asking").set(asking)
        DEMAND_PODS.labels("grown").set(waiting.total - asking)
        DEMAND_UNANSWERED.set((now - since).total_seconds() if since else 0)
    QUEUE_SHARE.clear()
    PARKED_TASKS.clear()
    for reason, number in decision.parked.items():
        PARKED_TASKS.labels(reason).set(number)
    for queue, share in decision.shares.items():
        QUEUE_SHARE.labels(queue).set(share)
    CYCLE_TASKS.labels("admit").set(len(plan.launches))
    CYCLE_TASKS.labels("hold").set(len(plan.holds))
