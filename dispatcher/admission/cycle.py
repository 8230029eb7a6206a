"""The decision of one cycle: the order of launches, the plan, and the demand that is taken back. Pure.

`LaunchOrder`: fair between queues, then by priority (lower first), then by id. The queue with the least share of the
cluster for its weight comes first (`Shares`). In a queue with `fair_submitters`, so does the submitter with the least
share. Each admission changes the shares, so the order is decided anew after it (as in kueue's fair sharing). Where the
write rate or the batch is used up, a queue gets a launch a second in any case: rows that end at once have next to no
share.

`plan_cycle`: judges the candidates in their order, each after the admissions before it.

`plan_taken_back`, `plan_yields`, `plan_outranked`: a Job whose Pod waits for a node is taken back if it is not wanted:

* Its queue is paused, or has more Jobs than its cap.
* It could take a node that is claimed for another row.
* Only what admission added keeps it from every node, and that may be another by now.
* Its shape gives its place to another one, or falls back to one Pod (`demand`).
* A row of its shape that comes before its own waits for its place.
* It takes the place of a row that could run now.

Such a Job is taken back in two writes. First the Job is marked as unplaced. Then its Pod is deleted, in the version in
which it had no node. The Job fails and stays, so its launch number is not used again. The launch counts as nothing
(docs/protocol.md, section 6). A stop between the two writes is harmless: the mark alone says what to do next.
"""

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct

from dispatcher.admission.gates import (
    Candidate,
    RowBehind,
    is_at_cap,
    judge,
    over_queue_cap,
    over_quota,
    over_submitter_cap,
    too_many_held,
)
from dispatcher.admission.room_view import RoomView
from dispatcher.admission.snapshot import ClusterSnapshot, GrowingShares, Shares, asks_of
from dispatcher.model.cluster import LONG_AGO
from dispatcher.model.jobs import Job, ObjectWrite
from dispatcher.model.launches import Launch, PodKind, Probe
from dispatcher.model.resources import NOTHING, Amounts
from dispatcher.model.tasks import Queue
from dispatcher.model.verdicts import Admit, Hold, HoldReason, own_fault

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Rank = tuple[int, int]
"""(priority, id)."""


class RowLine(Protocol[T_co]):
    """A line of rows, of which only the first one may be taken. None: no row is left."""

    def first(self, shares: Shares) -> T_co | None: ...
    def pop(self, shares: Shares) -> T_co | None: ...


class SortedLine(Generic[T]):
    """Rows in a fixed order."""

    def __init__(self, rows: Iterable[T]) -> None:
        self._rows = deque(rows)

    def first(self, _: Shares) -> T | None:
        return self._rows[0] if self._rows else None

    def pop(self, _: Shares) -> T | None:
        return self._rows.popleft() if self._rows else None


class FairLine(Generic[T]):
    """Several lines. The line with the least share is first; of equal shares, the line whose first row ranks best."""

    def __init__(
        self, lines: Mapping[str, RowLine[T]], share: Callable[[str, Shares], float], rank: Callable[[T], Rank]
    ) -> None:
        self._lines = lines
        self._share = share
        self._rank = rank
        self._heap: list[tuple[float, Rank, str]] = []
        self._moved = list(lines)
        """Lines that are not in the heap. The share of the line that moved last may have changed."""

    def first(self, shares: Shares) -> T | None:
        self._settle(shares)
        return self._lines[self._heap[0][2]].first(shares) if self._heap else None

    def pop(self, shares: Shares) -> T | None:
        self._settle(shares)
        if not self._heap:
            return None
        *_, name = heapq.heappop(self._heap)
        self._moved.append(name)
        return self._lines[name].pop(shares)

    def _settle(self, shares: Shares) -> None:
        for name in self._moved:
            if (first := self._lines[name].first(shares)) is not None:
                heapq.heappush(self._heap, (self._share(name, shares), self._rank(first), name))
        self._moved.clear()


TURN: Final = timedelta(seconds=1)
"""A queue has its turn after this time without a launch, where the write rate or the batch is used up."""
TURNS: Final = 10
"""Queues that have a turn within TURN, at most. Of more queues each waits longer, so that weights order the rest."""


class LaunchOrder:
    """Candidates in their order. `pop` gives the next one, after the decision about the one before."""

    def __init__(self, candidates: Iterable[Candidate], snapshot: ClusterSnapshot) -> None:
        """Builds the lines. While one create at a time is sent, the row with the latest failed create comes last."""
        rows = list(candidates)
        self._turns = deque[Candidate]()
        self._line: SortedLine[Candidate] | FairLine[Candidate]
        if snapshot.is_probing:
            self._line = SortedLine(sorted(rows, key=retried_last))
        else:
            queues = split(sorted(rows, key=rank_of), lambda row: row.task.queue)
            self._turns.extend(rows_in_turn(queues, snapshot))
            first = {row.task.id for row in self._turns}
            queues = {name: [row for row in own if row.task.id not in first] for name, own in queues.items()}
            lines = {name: line_of(name, own, snapshot.queue(name)) for name, own in queues.items()}
            self._line = between_queues(lines, snapshot.queue, rank_of)

    def pop(self, snapshot: ClusterSnapshot) -> Candidate | None:
        """The next candidate; None: no candidate is left."""
        if self._turns:
            return self._turns.popleft()
        return self._line.pop(snapshot.shares)


def rows_in_turn(queues: Mapping[str, Sequence[Candidate]], snapshot: ClusterSnapshot) -> list[Candidate]:
    """A row of each queue that has its turn, the queue first that has waited longest. `queues`: rows in their order."""
    if snapshot.launched_at is None:
        return []
    at, last, turn = snapshot.launched_at, dict[str, datetime](), TURN * max(1, len(queues) / TURNS)
    for (queue, _), one in at.items():
        last[queue] = max(one, last.get(queue, one))
    due = [name for name in queues if abs(snapshot.now - last.get(name, LONG_AGO)) >= turn]
    found = (
        row_in_turn(queues[name], snapshot.queue(name), at) for name in sorted(due, key=lambda q: last.get(q, LONG_AGO))
    )
    return [row for row in found if row is not None]


def row_in_turn(rows: Sequence[Candidate], queue: Queue, at: Mapping[tuple[str, str], datetime]) -> Candidate | None:
    """The first row that may be launched; with `fair_submitters`, of the submitter that has waited longest."""
    able = [row for row in rows if isinstance(row.jobs.verdict, Launch)]
    if queue.fair_submitters:
        able.sort(key=lambda row: at.get((row.task.queue, row.task.submitted_by), LONG_AGO))
    return next(iter(able), None)


def between_queues(
    lines: Mapping[str, RowLine[T]], queue: Callable[[str], Queue], rank: Callable[[T], Rank]
) -> FairLine[T]:
    """Fair between queues by their weights. `lines`: the rows of each queue."""
    return FairLine(lines, lambda name, shares: shares.of_queue(name) / queue(name).weight, rank)


def between_submitters(
    queue: str, ordered: Iterable[T], pod_of: Callable[[T], PodKind], rank: Callable[[T], Rank]
) -> FairLine[T]:
    """Fair between the submitters of one queue. `pod_of`: the Pod that a row's launch would have."""
    lines = {who: SortedLine(own) for who, own in split(ordered, lambda row: pod_of(row).submitted_by).items()}
    return FairLine(lines, lambda who, shares: shares.of_submitter(queue, who), rank)


def split(rows: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def first_of(line: RowLine[T], pod_of: Callable[[T], PodKind], shares: Shares, most: int) -> list[T]:
    """The first `most` rows, if each of them is launched."""
    growing, found = GrowingShares(shares), list[T]()
    while len(found) < most and (row := line.pop(growing.shares)) is not None:
        found.append(row)
        growing.add(pod_of(row))
    return found


def line_of(name: str, ordered: Sequence[Candidate], queue: Queue) -> RowLine[Candidate]:
    if not queue.fair_submitters:
        return SortedLine(ordered)
    return between_submitters(name, ordered, lambda row: row.pod, rank_of)


def rank_of(candidate: Candidate) -> Rank:
    return candidate.task.priority, candidate.task.id


def retried_last(candidate: Candidate) -> tuple[float, int, int]:
    return candidate.tried_at, candidate.task.priority, candidate.task.id


class Plan(Struct, frozen=True):
    """The decision of one cycle.

    launches: candidates to launch, in their order.
    holds: the holds of the other rows, by task.
    ends: objects to delete.
    after: the snapshot after all admissions.
    """

    launches: tuple[Candidate, ...]
    holds: Mapping[int, Hold]
    ends: tuple[ObjectWrite, ...]
    after: ClusterSnapshot


def plan_cycle(snapshot: ClusterSnapshot, candidates: Iterable[Candidate]) -> Plan:
    """Judges every candidate. Each admission changes the snapshot for the candidates after it.

    Rows whose Pods would wait without room come last, so that they never take the place of a row that could run.
    """
    order = LaunchOrder(candidates, snapshot)
    planning = PlanBuilder(snapshot)
    while (candidate := order.pop(planning.snapshot)) is not None:
        planning.take(candidate)
    return planning.whole()


class PlanBuilder:
    """A plan in the making."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot
        self._launches: list[Candidate] = []
        self._holds: dict[int, Hold] = {}
        self._ends: list[ObjectWrite] = []
        self._later: list[Candidate] = []

    def take(self, candidate: Candidate) -> None:
        """Judges the candidate, or leaves it for the end."""
        self._apart(self._take, candidate)

    def _apart(self, judge_one: Callable[[Candidate], None], candidate: Candidate) -> None:
        """Judges a candidate, or holds it if it cannot be judged: one candidate must not end the cycle of all teams."""
        try:
            judge_one(candidate)
        except Exception as bug:  # noqa: BLE001  # whatever is wrong with one row
            self._holds[candidate.task.id] = own_fault(bug)

    def _take(self, candidate: Candidate) -> None:
        self._ends.extend(candidate.jobs.ends)
        if candidate.jobs.verdict is None:
            return
        room, pod = self.snapshot.room, candidate.pod
        would_run = pod.shape not in self.snapshot.stuck_shapes if room is None else room.has_room_for(pod)
        if candidate.is_repeat or would_run:
            self._judge(candidate)
        else:
            self._later.append(candidate)

    def whole(self) -> Plan:
        for candidate in self._later:
            self._apart(self._judge, candidate)
        return Plan(tuple(self._launches), self._holds, tuple(self._ends), self.snapshot)

    def _judge(self, candidate: Candidate) -> None:
        verdict = judge(candidate, self.snapshot)
        if isinstance(verdict, Admit):
            self.snapshot = self.snapshot.with_launch(candidate.group, candidate.pod, is_new=not candidate.is_repeat)
            self._launches.append(candidate)  # last: a launch that was not counted would break a cap
        else:
            self._holds[candidate.task.id] = verdict


PAUSE_GRACE: Final = timedelta(seconds=60)
"""A pause that ends within this time takes no probe back."""
PAUSED: Final = "its queue is paused"
OVER_CAP: Final = "its queue has more Jobs than its max_jobs"
YIELDS: Final = "a row that could run now needs its place"
MOST_YIELDS: Final = 20
"""Places that one cycle gives back for rows that could run, at most."""
CLAIMED: Final = "it could take a node that is kept for another row"


def plan_pauses(known: Mapping[str, datetime], queues: Iterable[Queue], now: datetime) -> dict[str, datetime]:
    """When the pause of each paused queue was first seen. `known`: the result of the cycle before."""
    return {queue.name: min(known.get(queue.name, now), now) for queue in queues if queue.pause_at(now)}


def plan_taken_back(
    probes: Iterable[Probe], snapshot: ClusterSnapshot, paused_since: Mapping[str, datetime]
) -> list[ObjectWrite]:
    """The next write for each probe that is not wanted, and for each that is already marked."""
    by_queue, room = defaultdict[str, list[Probe]](list), snapshot.room
    ends = []
    for probe in probes:
        if probe.job.is_unplaced:
            ends.append(ObjectWrite("unplaced-pods", probe.pod.name, probe.pod.uid, "its launch is taken back"))
        elif room is not None and room.could_take_claimed(probe.job.task_id, probe.job.shape, probe.needs):
            ends.append(mark(probe, CLAIMED))
        else:
            by_queue[probe.job.queue].append(probe)
    for queue, waiting in by_queue.items():
        since = paused_since.get(queue)
        if since is not None and snapshot.now - since >= PAUSE_GRACE:
            ends += [mark(probe, PAUSED) for probe in waiting]
        else:
            ends += [mark(probe, OVER_CAP) for probe in beyond_cap(queue, waiting, snapshot)]
    return ends


def outdated_shapes(probes: Iterable[Probe], view: RoomView) -> frozenset[str]:
    """Shapes that only what admission added keeps from every node, such as the default of a LimitRange.

    Whoever takes the cause away changes no Pod that waits already. So such a Pod would stand for its shape for ever.
    """
    made = {probe.job.shape: (probe.job.needs, probe.made) for probe in probes}
    return frozenset(
        shape
        for shape, (asked, found) in made.items()
        if asked and found and not view.sizes_for(found).is_enough and view.sizes_for(asked).is_enough
    )


def beyond_cap(queue: str, waiting: list[Probe], snapshot: ClusterSnapshot) -> list[Probe]:
    """The newest probes of the queue, as many as it has Jobs beyond its cap."""
    cap = snapshot.queue(queue).max_jobs
    excess = 0 if cap is None else max(0, snapshot.load.by_queue.get(queue, 0) - cap)
    return newest_first(waiting)[:excess]


def rows_at_a_cap(held: Iterable[tuple[PodKind, Hold]]) -> list[tuple[PodKind, HoldReason]]:
    """The rows that a cap holds, with the cap."""
    caps = HoldReason.QUEUE_CAP, HoldReason.JOB_CAP
    return [(pod, hold.reason) for pod, hold in held if hold.reason in caps or is_at_cap(hold)]


def plan_yields(
    capped: Iterable[tuple[PodKind, HoldReason]], probes: Iterable[Probe], snapshot: ClusterSnapshot
) -> list[ObjectWrite]:
    """The marks of waiting Pods whose places in a cap are needed by rows that could run now, the newest Pods first.

    Without a look at room, a row of any new shape could run. So the submitter with most waiting Pods gives first: rows
    of many shapes take no places of others for ever.

    capped: the rows that a cap holds, with the cap. A Pod that is already marked makes place for one of them.
    """
    room, ends, left = snapshot.room, list[ObjectWrite](), newest_first(probes)
    if room is None:
        waiting = Counter(one.job.submitted_by for one in left)
        left.sort(key=lambda one: -waiting[one.job.submitted_by])
    for pod, cap in capped:
        if not left or len(ends) == MOST_YIELDS:
            break
        if pod.shape in snapshot.stuck_shapes or (room is not None and not room.has_room_for(pod)):
            continue
        found = next((one for one in left if makes_place(one, pod, cap)), None)
        if found is not None:
            left.remove(found)
            room = room and room.with_launches(pod)
            ends += [] if found.job.is_unplaced else [mark(found, YIELDS)]
    return ends


OUTRANKED: Final = "a row that comes before its own waits for its place"
OUTRANKED_AFTER: Final = timedelta(seconds=5)
"""Time for which kube-scheduler must have found no node for a Pod before it gives its place."""


def plan_outranked(
    behind: Iterable[RowBehind],
    probes: Iterable[Probe],
    priorities: Mapping[int, int | None],
    snapshot: ClusterSnapshot,
    now: datetime,
) -> list[ObjectWrite]:
    """The marks of waiting Pods whose places go to rows of their shape that come before theirs, one for each shape.

    behind: first rows of submitters whose shape already has its allowed number of waiting Pods.
    priorities: priorities of the rows whose Pods wait, by task.
    now: the API server's clock.
    """
    going, last = set[str](), dict[tuple[str, str, str], Probe]()
    claiming = snapshot.room.closed.values() if snapshot.room is not None else ()
    for probe in probes:
        job, since = probe.job, probe.pod.unschedulable_since
        if job.task_id in claiming:
            continue  # the claim would end with its Pod, and come again with the next one
        if job.is_unplaced:
            going.add(job.shape)
        elif since is not None and now - since >= OUTRANKED_AFTER:
            key = job.shape, job.queue, job.submitted_by
            last[key] = max(last.get(key, probe), probe, key=lambda one: rank_of_probe(one, priorities))
    places, ends = WaitingPlaces(snapshot, priorities), list[ObjectWrite]()
    for row in behind if last else ():
        own = [probe for key, probe in last.items() if key[0] == row.pod.shape and key[0] not in going]
        own = [probe for probe in own if not is_capped(row.pod, probe.job, snapshot)]
        if found := next((one for one in newest_first(own) if places.comes_before(row, one)), None):
            going.add(row.pod.shape)
            ends.append(mark(found, OUTRANKED))
    return ends


def rank_of_probe(probe: Probe, priorities: Mapping[int, int | None]) -> tuple[int, datetime, str]:
    return priorities.get(probe.job.task_id) or 0, probe.job.created_at, probe.job.name


class WaitingPlaces:
    """Decides which rows of a shape have the Pods that wait for a node, in the order of launches.

    A place moves only if that brings the two shares closer together, so it never moves back. These shares count all
    waiting Pods.
    """

    def __init__(self, snapshot: ClusterSnapshot, priorities: Mapping[int, int | None]) -> None:
        self._snapshot, self._priorities = snapshot, priorities
        room, shares = snapshot.room, snapshot.shares
        self._with_waiting = shares.with_launches(room.waiting.every) if room is not None else shares

    def comes_before(self, row: RowBehind, probe: Probe) -> bool:
        """Whether the row should have the place of this Pod."""
        job, pod, snapshot = probe.job, row.pod, self._snapshot
        known = self._priorities.get(job.task_id)
        priority = row.priority if known is None else known
        if pod.queue == job.queue and not snapshot.queue(pod.queue).fair_submitters:
            return row.priority < priority
        if (pod.queue, pod.submitted_by) == (job.queue, job.submitted_by):
            return row.priority < priority
        own, theirs = self._share(snapshot.shares, pod, job), self._share(snapshot.shares, pod, job, is_theirs=True)
        if (own, row.priority) >= (theirs, priority) or (pod.queue != job.queue and is_at_max_pending(pod, snapshot)):
            return False
        before = self._share(self._with_waiting, pod, job, is_theirs=True)
        return self._share(self._with_waiting, pod, job, asks_of(pod.needs, 1)) < before

    def _share(
        self, shares: Shares, pod: PodKind, job: Job, more: Amounts = NOTHING, *, is_theirs: bool = False
    ) -> float:
        """Share of the row's queue, or of its submitter if both are in one queue; with `is_theirs` that of the Pod.

        more: further requests that are added.
        """
        if pod.queue == job.queue:
            return shares.of_submitter(job.queue, job.submitted_by if is_theirs else pod.submitted_by, more)
        name = job.queue if is_theirs else pod.queue
        return shares.of_queue(name, more) / self._snapshot.queue(name).weight


def is_capped(pod: PodKind, job: Job, snapshot: ClusterSnapshot) -> bool:
    """Whether a cap or a quota would still hold a row of this kind after the Pod of this Job is taken back."""
    if over_queue_cap(pod.queue, snapshot) and pod.queue != job.queue:
        return True
    is_same = (pod.queue, pod.submitted_by) == (job.queue, job.submitted_by)
    if over_submitter_cap(pod.queue, pod.submitted_by, snapshot) and not is_same:
        return True
    return bool(too_many_held(pod.queue, pod.submitted_by, snapshot) or over_quota(pod.needs, snapshot))


def is_at_max_pending(pod: PodKind, snapshot: ClusterSnapshot) -> bool:
    """Whether the queue has its own allowed number of waiting Pods of the shape."""
    most, room = snapshot.queue(pod.queue).max_pending, snapshot.room
    count = room.waiting.by_queue.get((pod.queue, pod.shape), 0) if room is not None else 0
    return count >= (snapshot.max_pending if most is None else most)


def makes_place(probe: Probe, pod: PodKind, cap: HoldReason) -> bool:
    """Whether the cap has a place for the Pod after this one is taken back."""
    of_queue = probe.job.queue == pod.queue
    if cap is HoldReason.SUBMITTER_CAP:
        return of_queue and probe.job.submitted_by == pod.submitted_by
    return of_queue or cap is HoldReason.JOB_CAP


def newest_first(probes: Iterable[Probe]) -> list[Probe]:
    return sorted(probes, key=lambda probe: (probe.job.created_at, probe.job.name), reverse=True)


def mark(probe: Probe, cause: str) -> ObjectWrite:
    return ObjectWrite("mark", probe.job.name, probe.job.uid, cause, resource_version=probe.job.resource_version)
