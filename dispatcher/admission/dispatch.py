"""One cycle: reads Jobs and rows, judges the rows, launches.

The view of Jobs is fixed first, and rows are read second. So no Job is newer than the row that it is judged with. The
other order would launch a task again that has just reported. All decisions are made against one immutable picture.

Failure story: if the rows cannot be read (the database is away, is a standby or does not fit), the cycle ends with a
fault and writes nothing. If the view of the cluster is too old, the cycle still judges rows, so that their reasons are
known, but launches and deletes nothing.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from itertools import count
from typing import Final, Generic

import structlog
from msgspec import Struct

from dispatcher.admission.claims import Claim, Claims
from dispatcher.admission.cycle import Plan, plan_cycle
from dispatcher.admission.gates import Candidate
from dispatcher.admission.heads import Index
from dispatcher.admission.kinds import learn_kinds
from dispatcher.admission.last_cycle import LastCycle, QueueReason, candidate_of, held_since, tell
from dispatcher.admission.orders import NodesNow, make_orders
from dispatcher.admission.ports import DispatchPorts, Jobs, P, Picture, RestingRow, Rows
from dispatcher.admission.probes import plan_pauses, plan_taken_back
from dispatcher.admission.room import Room, room_of
from dispatcher.admission.room_view import RoomView
from dispatcher.admission.scan import Found, Scan
from dispatcher.admission.shares import holders, plan_shares
from dispatcher.admission.snapshot import (
    Allowance,
    ClusterSnapshot,
    effective_queues,
    plan_load,
    plan_pending,
    plan_quotas,
)
from dispatcher.model.amounts import NOTHING
from dispatcher.model.jobs import End
from dispatcher.model.launches import InFlight, Order, PodKind, ToCome
from dispatcher.model.snapshot import ClusterView
from dispatcher.model.tasks import Request, Status, Task
from dispatcher.model.verdicts import PARKED, Hold, HoldReason, NotReady
from dispatcher.runtime.metrics import CYCLE_SECONDS, CYCLE_TASKS, PARKED_TASKS, QUEUE_SHARE
from dispatcher.runtime.rate import Bucket
from dispatcher.settings.definition import AdmissionSettings

log = structlog.get_logger(component="admission.dispatch")

BATCH: Final = 100
SPARE: Final = 200
TAIL_SECONDS: Final = 0.05
"""Pause after a cycle that found work. The notify for further rows may be delayed."""
TAIL_LOOKS: Final = 4
DEAF_SECONDS: Final = 0.25


class Decision(Struct, frozen=True):
    """The decision of one cycle.

    candidates: the rows that were judged.
    plan: launches, holds and deletes.
    found: the result of the scan.
    resting: waiting rows with a Job under way that were not judged.
    orders: one order for each launch; empty on a replica that does not lead.
    held: number of held waiting rows by queue and reason.
    parked: number of parked rows by reason.
    due: seconds until the next row with a `run_at` is due.
    shares: what each queue has in flight, as a share of the cluster.
    """

    candidates: Sequence[Candidate]
    plan: Plan
    found: Found
    resting: Sequence[int]
    orders: Sequence[Order]
    held: Mapping[QueueReason, int]
    parked: Mapping[HoldReason, int]
    due: float
    shares: Mapping[str, float] = {}

    @property
    def comes_again(self) -> bool:
        """Whether another cycle soon would find something to do."""
        return bool(self.plan.launches) or any(reason in COMES_AGAIN for _, reason in self.held)


class Dispatch(Generic[P]):
    """Runs cycles. The next cycle uses only sizes and counters of the last one, never its rows or Jobs.

    waits_for_room: whether the last cycle held a row that no node, or no ResourceQuota, had room for.
    last: the last cycle, for those who ask why a row waits; None: there was none.
    """

    def __init__(self, ports: DispatchPorts, jobs: Jobs[P], settings: AdmissionSettings, bucket: Bucket) -> None:
        self._ports = ports
        self._jobs = jobs
        self._settings = settings
        self._bucket = bucket
        self._scan = Scan(BATCH)
        self.waits_for_room = False
        self.last: LastCycle | None = None
        self._last_room: tuple[RoomView, Mapping[PodKind, int], Sequence[Claim], Room] | None = None
        self._claims = Claims()
        self._paused_since: Mapping[str, datetime] = {}
        self._empty = 0
        self._without_job = 0
        self._numbers = count(1)

    async def run_once(self) -> float:
        """One cycle. Returns the longest pause before the next cycle, in seconds."""
        with structlog.contextvars.bound_contextvars(cycle=next(self._numbers)):
            term = self._ports.lead.term()
            view, room = self._ports.view(), self._ports.room()  # 1 Jobs first, and fixed
            began = time.perf_counter()
            async with self._ports.rows(self._held_at_most(view)) as rows:  # 2 rows second, in one snapshot
                picture = self._jobs.picture(view, rows.now, rows.database_id)  # 3 one picture
                decision = await self._decide(view, room, rows, picture)  # 4 one decision
            CYCLE_SECONDS.observe(time.perf_counter() - began)
            self.waits_for_room = any(reason in FOR_ROOM for _, reason in decision.held)
            leads = term != 0 and self._ports.lead.term() == term
            self.last = last_cycle(decision, picture, self.last, leads=leads)
            await self._act(picture, decision, leads=leads, deletes=leads and not view.stale)  # 5 act
            report(decision)
            self._ports.tell(self.last)
            return self._pause(decision)  # 6 when to run again

    def _held_at_most(self, view: ClusterView) -> int:
        """How many rows that a container holds or held are read. Rows with a Job must not hide rows without one."""
        return len(view.jobs) + self._without_job + SPARE

    async def _act(self, picture: P, decision: Decision, *, leads: bool, deletes: bool) -> None:
        """Sends deletes and creates at the same time. A slow delete must not delay a create."""
        judged = [(candidate.task, candidate.jobs) for candidate in decision.candidates]
        async with asyncio.TaskGroup() as acts:
            if deletes and decision.plan.ends:
                acts.create_task(self._remove(decision.plan.ends[:BATCH]))
            if deletes and self._ports.claims:
                acts.create_task(self._ports.claims.keep(self._claims.current))
            self._bucket.take(await self._jobs.launch(picture, judged, decision.orders if leads else []))

    async def _remove(self, ends: Sequence[End]) -> None:
        self._bucket.take(await self._ports.remove(ends))

    async def _decide(self, view: ClusterView, room: RoomView | None, rows: Rows, picture: P) -> Decision:
        known, resting, in_flight = picture.rows_to_read(), picture.resting(), picture.in_flight()
        snapshot = self._snapshot(view, room, rows, (picture, in_flight))
        without_job = set(rows.frame.held) - known - resting.keys()
        # Parked rows stay in this number from cycle to cycle, and must not hide other rows.
        self._without_job = len(without_job) + in_flight.unseen
        tasks = await rows.tasks(sorted(known | without_job))
        snapshot = snapshot.with_groups(*picture.launch_groups(tasks))
        at = {id_: row.attempt for rows_ in (resting, tasks) for id_, row in rows_.items()}
        found = await self._scan.run(rows, picture, snapshot, at)
        waiting, requests = await rows.waiting(found.ids)
        tasks |= waiting
        candidates = await self._candidates(rows, picture, tasks)
        plan = plan_cycle(snapshot, candidates).with_ends(self._taken_back(picture, snapshot))
        self._plan_claims(found.roomless, view, room, picture)
        orders = await self._orders(rows, plan, requests, snapshot.room)
        holds = [(tasks[id_], hold.reason) for id_, hold in plan.holds.items()]
        held = found.held + Counter((task.queue, reason) for task, reason in holds if task.status is Status.WAITING)
        rests = await still_waiting(rows, resting, {*tasks, *rows.frame.held})
        held += Counter((queue, HoldReason.LAUNCHED) for queue in rests.values())
        parked = Counter(reason for _, reason in (*holds, *found.held.elements()) if reason in PARKED)
        due = seconds_until(rows.frame.next_due, rows.now)
        shares = {name: snapshot.shares.of_queue(name) for name in snapshot.queues}
        return Decision(candidates, plan, found, list(rests), orders, held, parked, due, shares)

    def _taken_back(self, picture: Picture, snapshot: ClusterSnapshot) -> Sequence[End]:
        self._paused_since = plan_pauses(self._paused_since, snapshot.queues.values(), snapshot.now)
        return plan_taken_back(picture.probes(), snapshot, self._paused_since)

    def _plan_claims(
        self, roomless: Mapping[int, PodKind], view: ClusterView, room: RoomView | None, picture: Picture
    ) -> None:
        if room is not None and not view.stale:
            known = self._ports.claims.known() if self._ports.claims else {}
            self._claims.update(roomless, picture, room, view.now, known)

    def _snapshot(
        self, view: ClusterView, room: RoomView | None, rows: Rows, jobs: tuple[Picture, InFlight]
    ) -> ClusterSnapshot:
        """The snapshot that the gates use."""
        picture, in_flight = jobs
        settings, brakes = self._settings, picture.brakes
        quotas = self._ports.quotas()
        return ClusterSnapshot(
            now=rows.now,
            queues=effective_queues(rows.frame.queues),
            max_jobs=settings.max_jobs,
            max_pending=settings.max_pending,
            is_strict=settings.pending_mode == "any",
            load=plan_load(holders(in_flight.every)),
            shares=plan_shares(in_flight.with_room, room.size if room is not None else NOTHING),
            pending=plan_pending(view, in_flight, settings.pending_grace_seconds),
            allowance=Allowance(self._bucket.left(self._ports.clock()), brakes.places(BATCH)),
            not_ready=self._not_ready(view) or brakes.api,
            is_blind=bool(view.stale),
            is_probing=brakes.is_probing,
            quota=brakes.quota,
            quotas=plan_quotas(quotas, picture.to_come() if quotas else ToCome()),
            room=self._room(room, in_flight.unplaced) if room is not None and not view.stale else None,
        )

    def _room(self, view: RoomView, unplaced: Mapping[PodKind, int]) -> Room:
        """The room that Pods without a node leave. It is the last one if nothing has changed."""
        claims, last = self._claims.current, self._last_room
        if last is None or last[0] is not view or last[1:3] != (unplaced, claims):
            last = self._last_room = view, unplaced, claims, room_of(view, unplaced, claims)
        return last[3]

    def _not_ready(self, view: ClusterView) -> Hold | None:
        if view.stale:
            return Hold(HoldReason.DISPATCHER_NOT_READY, f"{NotReady.STALE_CACHE}: {view.stale}")
        if missing := self._ports.not_allowed():
            return Hold(HoldReason.DISPATCHER_NOT_READY, f"{NotReady.FORBIDDEN}: {missing}")
        if vacancy := self._ports.lead.vacancy():
            return Hold(HoldReason.DISPATCHER_NOT_READY, f"{NotReady.NO_LEADER}: {vacancy}")
        return None

    async def _candidates(self, rows: Index, picture: Picture, tasks: Mapping[int, Task]) -> list[Candidate]:
        unknown = {task.kind: task.id for task in tasks.values() if picture.known_offer(task.kind) is None}
        await learn_kinds(rows, picture, list(unknown.values()))
        ordered = sorted(tasks.values(), key=lambda task: (picture.tried_at(task.id), task.priority, task.id))
        return [candidate_of(task, picture) for task in ordered]

    async def _orders(self, rows: Rows, plan: Plan, requests: Mapping[int, Request], room: Room | None) -> list[Order]:
        """The orders for the planned launches. A replica that does not lead only plans."""
        if not plan.launches or not self._ports.lead.term():
            return []
        now = NodesNow(room, self._claims.nodes())
        return await make_orders(rows, plan.launches, requests, self._ports.planner, now)

    def _pause(self, decision: Decision) -> float:
        if not self._ports.lead.term():
            return self._settings.poll_seconds
        if len(decision.plan.launches) == BATCH:
            return 0.001  # there are more rows; the answers to these creates come in meanwhile
        self._empty = 0 if decision.comes_again else self._empty + 1
        longest = self._settings.poll_seconds if self._ports.is_listening() else DEAF_SECONDS
        return max(0.001, min(TAIL_SECONDS if self._empty < TAIL_LOOKS else longest, longest, decision.due))


async def still_waiting(rows: Rows, resting: Mapping[int, RestingRow], read: Set[int]) -> dict[int, str]:
    """The queues of the resting rows that wait, by id. A row that was not read may have ended before its Job."""
    ids = [id_ for id_, row in resting.items() if row.is_waiting and id_ not in read]
    return {id_: resting[id_].queue for id_ in await rows.still_waiting(ids)}


def seconds_until(due: datetime | None, now: datetime) -> float:
    return (due - now).total_seconds() if due else float("inf")


FOR_ROOM: Final = frozenset({HoldReason.NEVER_FITS, HoldReason.NO_ROOM_NOW, HoldReason.QUOTA_EXCEEDED})
COMES_AGAIN: Final = frozenset({HoldReason.RATE_LIMITED, HoldReason.NEXT_CYCLE})


def last_cycle(decision: Decision, picture: Picture, before: LastCycle | None, *, leads: bool) -> LastCycle:
    """The cycle, as it is kept for those who ask."""
    plan, found, rows = (
        decision.plan,
        decision.found,
        {candidate.task.id: candidate.task for candidate in decision.candidates},
    )
    holds = ((rows[id_], hold) for id_, hold in plan.holds.items() if not runs(rows[id_], hold))
    last = before.told if before else {}
    told = {id_: last[id_] for id_ in decision.resting if id_ in last}
    told |= {id_: one for id_, one in last.items() if one.queue in found.unread and one.hold.reason in PARKED}
    told |= tell([*found.told, *holds], last, plan.after.now)
    launched = frozenset(candidate.task.id for candidate in plan.launches)
    since = held_since(decision.held, plan.after, before.since if before else {})
    return LastCycle(plan.after, picture, told, launched, decision.held, since, leads, found.whole)


def runs(task: Task, hold: Hold) -> bool:
    """Whether the row is held because its container runs. Such a row does not wait."""
    return task.status is Status.PROCESSING and hold.reason is HoldReason.LAUNCHED


def report(decision: Decision) -> None:
    """Sets the gauges for the rows that this cycle judged: the heads of the queues."""
    plan = decision.plan
    QUEUE_SHARE.clear()
    PARKED_TASKS.clear()
    for reason, number in decision.parked.items():
        PARKED_TASKS.labels(reason).set(number)
    for queue, share in decision.shares.items():
        QUEUE_SHARE.labels(queue).set(share)
    CYCLE_TASKS.labels("admit").set(len(plan.launches))
    CYCLE_TASKS.labels("hold").set(len(plan.holds))
