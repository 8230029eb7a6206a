"""The gates, in their fixed order. A gate judges one candidate by the snapshot: a hold, or None to let it pass."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from msgspec import Struct

from dispatcher.admission.demand import ENOUGH, IN_TURN, NONE_ASKS, Demand, DemandBounds, why_not_ask
from dispatcher.admission.room import Room
from dispatcher.admission.snapshot import ClusterSnapshot, Shares, asks_of
from dispatcher.model.jobs import LaunchGroup
from dispatcher.model.launches import JobsVerdict, Launch, Offer, PodKind
from dispatcher.model.needs import PodNeeds, fits_wherever
from dispatcher.model.tasks import Queue, Task
from dispatcher.model.verdicts import MUCH_TEXT, Admit, Hold, HoldReason, Stage, Verdict


class Candidate(Struct, frozen=True, dict=True):
    """A row that may be launched.

    task: the row.
    offer: the offer of its template, or why there is none.
    jobs: the verdict by its Jobs.
    tried_at: time of its last failed create, in seconds of this process's clock.
    """

    task: Task
    offer: Offer | Hold
    jobs: JobsVerdict
    tried_at: float = float("-inf")

    @property
    def group(self) -> LaunchGroup:
        image = self.offer.image if isinstance(self.offer, Offer) else ""
        return LaunchGroup(self.task.queue, self.task.template, image, self.task.submitted_by)

    @property
    def is_repeat(self) -> bool:
        """Whether the launch repeats an unanswered create. It counts against the caps already, so no cap holds it."""
        verdict = self.jobs.verdict
        return isinstance(verdict, Launch) and verdict.is_repeat

    @cached_property
    def pod(self) -> PodKind:
        """The Pod of the launch, while it has no node."""
        offer = self.offer if isinstance(self.offer, Offer) else NO_OFFER
        return PodKind(self.task.queue, self.task.submitted_by, offer.shape, offer.needs)


class RowBehind(Struct, frozen=True):
    """The first row of a submitter in a queue whose shape already has its allowed number of waiting Pods."""

    pod: PodKind
    priority: int


NO_OFFER: Final = Offer("", "", "")
UNDER_WAY: Final = frozenset({HoldReason.LAUNCHED, HoldReason.NODE_LOST, HoldReason.FINISHING})
Gate = Callable[[Candidate, ClusterSnapshot], Hold | None]


def under_way(candidate: Candidate, snapshot: ClusterSnapshot) -> Hold | None:
    """A row with a Job under way waits for it, even if its template or queue has changed since."""
    verdict = candidate.jobs.verdict
    if not isinstance(verdict, Hold) or verdict.reason not in UNDER_WAY or snapshot.is_blind:
        return None
    waits_for_node = verdict.detail.startswith(Stage.UNSCHEDULABLE)
    answer = snapshot.waiting.demand.answer(candidate.pod.shape) if waits_for_node else ""
    return Hold(verdict.reason, f"{verdict.detail}; {answer}") if answer else verdict


def undeclared_queue(name: str, snapshot: ClusterSnapshot) -> Hold | None:
    """The hold of a row in an undeclared queue. Only an owner who disables the triggers can write such a row."""
    if name in snapshot.queues:
        return None
    return Hold(HoldReason.POLICY_DENIED, f"its queue {name[:63]!r} is not declared")


def template(candidate: Candidate, _: ClusterSnapshot) -> Hold | None:
    """UnknownTemplate, InvalidTemplate or PolicyDenied. All rows of a kind get one judgement."""
    return candidate.offer if isinstance(candidate.offer, Hold) else None


def due(candidate: Candidate, snapshot: ClusterSnapshot) -> Hold | None:
    run_at = candidate.task.run_at
    return (
        Hold(HoldReason.NOT_DUE, f"runs at {run_at:%Y-%m-%d %H:%M:%S %Z}") if run_at and run_at > snapshot.now else None
    )


def paused_queue(queue: Queue, now: datetime) -> Hold | None:
    until = queue.pause_at(now)
    if until is None:
        return None
    words = "until it is cleared" if until.year > 9000 else f"until {until:%Y-%m-%d %H:%M:%S %Z}"
    return Hold(HoldReason.PAUSED, words)


def blind(_: Candidate, snapshot: ClusterSnapshot) -> Hold | None:
    """Holds the row if the view of Jobs is too old: no verdict by Jobs may then become a row's reason."""
    return snapshot.not_ready if snapshot.is_blind else None


def by_jobs(candidate: Candidate, _: ClusterSnapshot) -> Hold | None:
    verdict = candidate.jobs.verdict
    return verdict if isinstance(verdict, Hold) else None


def group_failing(group: LaunchGroup, snapshot: ClusterSnapshot) -> Hold | None:
    """The hold of a failing group. It gets one launch at a time, to show whether the image can start again."""
    if group in snapshot.failing_groups and group in snapshot.busy_groups:
        words = "the last three launches of this image by its submitter never started; one at a time"
        return Hold(HoldReason.TEMPLATE_FAILING, words)
    return None


def over_submitter_cap(queue: str, submitter: str, snapshot: ClusterSnapshot, more: int = 0) -> Hold | None:
    """The hold if a submitter's Jobs, with `more` further rows, use up its cap."""
    cap = snapshot.queue(queue).max_jobs_per_submitter
    return over(HoldReason.SUBMITTER_CAP, snapshot.load.by_submitter.get((queue, submitter), 0) + more, cap)


def is_at_cap(hold: Hold) -> bool:
    """Whether the row is at its submitter's cap, as all rows behind it are. A Job with much text waits by itself."""
    return hold.reason is HoldReason.SUBMITTER_CAP and not hold.detail.startswith(MUCH_TEXT)


def over_queue_cap(queue: str, snapshot: ClusterSnapshot) -> Hold | None:
    return over(HoldReason.QUEUE_CAP, snapshot.load.by_queue.get(queue, 0), snapshot.queue(queue).max_jobs)


def too_many_held(queue: str, submitter: str, snapshot: ClusterSnapshot) -> Hold | None:
    """The hold if others keep too many Jobs of the submitter in this queue from running. More Jobs would only wait.

    Limit: MAX_JOBS / max(10, pairs of queue and submitter with such Jobs), at least 1. MAX_JOBS ignores these Jobs.
    """
    every = snapshot.held.by_submitter
    most, held = max(1, snapshot.max_jobs // max(10, len(every))), every.get((queue, submitter), 0)
    if held < most:
        return None
    what = "of its submitter in its queue are suspended, gated or get no Pod"
    return Hold(HoldReason.PENDING_PODS, f"{held} Jobs {what}, {most} may be")


def over_job_cap(snapshot: ClusterSnapshot) -> Hold | None:
    return over(HoldReason.JOB_CAP, snapshot.load.total, snapshot.max_jobs)


def quota(candidate: Candidate, snapshot: ClusterSnapshot) -> Hold | None:
    return snapshot.quota or over_quota(candidate.pod.needs, snapshot)


def over_quota(needs: PodNeeds | None, snapshot: ClusterSnapshot) -> Hold | None:
    """The hold of a launch whose Job or Pod would exceed a ResourceQuota."""
    excess = snapshot.quotas.why_not(needs)
    return Hold(HoldReason.QUOTA_EXCEEDED, excess) if excess else None


def pending(candidate: Candidate, snapshot: ClusterSnapshot) -> Hold | None:
    if snapshot.is_strict:
        waiting = snapshot.pending.total
        return Hold(HoldReason.PENDING_PODS, f"{waiting} Pods are pending (mode any)") if waiting else None
    offer = candidate.offer
    return too_many_stuck(candidate.task.queue, offer.shape, snapshot) if isinstance(offer, Offer) else None


def too_many_stuck(queue: str, shape: str, snapshot: ClusterSnapshot) -> Hold | None:
    """The hold if too many Pods of this shape are unschedulable. More would only lengthen kube-scheduler's queue."""
    if snapshot.is_strict:
        return None
    of_queue, most = snapshot.queue(queue).max_pending, snapshot.max_pending
    stuck = snapshot.pending.stuck_by_shape.get(shape, 0)
    if of_queue is not None:  # what other queues have says nothing about it
        stuck, most = snapshot.pending.stuck_of_queue.get((queue, shape), 0), of_queue
    if stuck <= most:
        return None
    return Hold(HoldReason.PENDING_PODS, f"{stuck} Pods of this shape are unschedulable, {most} may be")


def never_fits(candidate: Candidate, snapshot: ClusterSnapshot) -> Hold | None:
    room, pod = snapshot.room, candidate.pod
    if room is None or pod.shape not in room.waiting.demand.asked:  # only such a shape can be told NeverFits
        return None
    hold = without_room(candidate.task.id, pod, snapshot)
    return hold if hold is not None and hold.reason is HoldReason.NEVER_FITS else None


def without_room(task_id: int, pod: PodKind, snapshot: ClusterSnapshot) -> Hold | None:
    """The hold of a row for whose Pod no node has room, unless the Pod may wait as demand.

    A Pod that could take a claimed node may not wait.
    """
    room = snapshot.room
    if room is None or room.is_kept_for(task_id) or room.has_room_for(pod):
        return None
    if pod not in room.refusals:
        refusal = why_not_ask(pod, room.waiting, bounds_of(pod.queue, snapshot))
        refusal = refusal or (AFTER_OTHERS if comes_later(pod, room, snapshot) else "")
        room.refusals[pod] = no_node_for(pod, room, refusal) if refusal else None
    hold = room.refusals[pod]
    if hold is None and room.could_take_claimed(task_id, pod.shape, pod.needs):
        return no_node_for(pod, room)
    return hold


def no_node_for(pod: PodKind, room: Room, refusal: str = "") -> Hold:
    """The hold of a Pod that no node has room for. `refusal`: why it may not wait as demand; empty: not the cause."""
    demand, is_doubted = room.waiting.demand, pod.shape in room.waiting.demand.contradicted.doubted
    could_fit, why = (True, "") if is_doubted or pod.needs is None else room.view.why_not(pod.needs)
    told = refusal if refusal in {IN_TURN, NONE_ASKS} else demand.told(pod.shape)
    detail = "; ".join(filter(None, (why, told, refusal if refusal == AFTER_OTHERS else "")))
    # Our count alone is no proof. kube-scheduler must have said so of a Pod of this shape, too.
    has_asked = pod.shape in demand.asked and refusal not in {IN_TURN, NONE_ASKS}
    is_contradicted = demand.has_grown(pod.shape) or pod.shape in demand.contradicted.sizes
    is_never = has_asked and not could_fit and not is_contradicted
    return Hold(HoldReason.NEVER_FITS if is_never else HoldReason.NO_ROOM_NOW, detail)


AFTER_OTHERS: Final = "the next place goes to a row whose queue or submitter has less of the cluster"
TURN_COMES: Final = timedelta(minutes=3)
"""A submitter whose Pods others keep from waiting as demand gets one waiting Pod after this time."""
SIMILAR: Final = 2
"""A Pod that asks for up to this many times as much can use the same room."""


def comes_later(pod: PodKind, room: Room, snapshot: ClusterSnapshot) -> bool:
    """Whether the next place should go to another row in line, for a while.

    The other row may never get a node, for a cause that we do not see. So each submitter has its turn after TURN_COMES.
    """
    since = snapshot.in_line.since.get((pod.queue, pod.submitted_by), snapshot.now)
    return abs(snapshot.now - since) < TURN_COMES and is_behind_others(pod, room, snapshot)


def is_behind_others(pod: PodKind, room: Room, snapshot: ClusterSnapshot) -> bool:
    """Whether a row that could use the same room belongs to a queue or submitter with a smaller share.

    kube-scheduler gives free room to the Pod that waits longest, whatever its queue. So a Pod may wait as demand only
    if no such row exists, or if nodes come for its shape. Waiting Pods count as if they ran, so a queue gains nothing
    by rows of several shapes. A row that has room needs no Pod that waits.
    """
    demand = room.waiting.demand
    if pod.needs is None or demand.is_answered(pod.shape):
        return False
    if pod.shape in demand.contradicted.sizes:  # our count says little about it
        return False
    most = SIMILAR * snapshot.row_in_line(pod).size
    waiting = {
        one: count for one, count in room.waiting.every.items()
        if snapshot.row_in_line(one).size <= most and is_rival(one, pod, demand)
    }  # fmt: skip
    shares = snapshot.shares.with_launches(waiting)
    return any(
        one.size <= most and is_rival(one.pod, pod, demand) and has_less(one.pod, pod, shares, snapshot)
        and not room.has_room_for(one.pod)
        for one in snapshot.in_line.rows
    )  # fmt: skip


def is_rival(one: PodKind, pod: PodKind, demand: Demand) -> bool:
    """Whether one Pod could take the place that the other waits for. Nodes that come for its shape are its own."""
    if demand.is_answered(one.shape) or one.shape in demand.resting or one.shape in demand.contradicted.doubted:
        return False
    return one.needs is not None and pod.needs is not None and fits_wherever(one.needs, pod.needs)


def has_less(one: PodKind, other: PodKind, shares: Shares, snapshot: ClusterSnapshot) -> bool:
    """Whether a launch of the first Pod comes before a launch of the other one by these shares.

    Each side counts with half of its next Pod added (Webster's method for seats), so equal sides alternate.
    """
    pods = one, other
    halves = [{name: amount // 2 for name, amount in asks_of(pod.needs, 1).items()} for pod in pods]
    if one.queue != other.queue:
        own, theirs = (
            shares.of_queue(pod.queue, half) / snapshot.queue(pod.queue).weight
            for pod, half in zip(pods, halves, strict=True)
        )
        return own < theirs
    own, theirs = (
        shares.of_submitter(pod.queue, pod.submitted_by, half) for pod, half in zip(pods, halves, strict=True)
    )
    return own < theirs and snapshot.queue(one.queue).fair_submitters


def wants_place(pod: PodKind, snapshot: ClusterSnapshot) -> bool:
    """Whether a Pod of this kind would wait as demand, but finds no place among the asking shapes."""
    room = snapshot.room
    if room is not None and snapshot.is_strict:  # the one that waits has the only place
        return pod.shape not in room.waiting.demand.resting
    if room is None or why_not_ask(pod, room.waiting, bounds_of(pod.queue, snapshot)) != IN_TURN:
        return False
    return not comes_later(pod, room, snapshot)


def is_behind(pod: PodKind, snapshot: ClusterSnapshot) -> bool:
    """Whether a Pod of this kind would wait as demand, but its shape already has its allowed number of waiting Pods."""
    room, bounds = snapshot.room, bounds_of(pod.queue, snapshot)
    return room is not None and not snapshot.is_strict and why_not_ask(pod, room.waiting, bounds) == ENOUGH


def bounds_of(queue: str, snapshot: ClusterSnapshot) -> DemandBounds:
    return DemandBounds(snapshot.max_pending, snapshot.queue(queue).max_pending, snapshot.max_jobs)


def first_pods(candidate: Candidate, snapshot: ClusterSnapshot) -> Hold | None:
    """Until a Pod of its shape is seen, only a few rows of the shape are launched."""
    if snapshot.first is None or not snapshot.first.must_wait(candidate.pod.shape):
        return None
    return Hold(HoldReason.NEXT_CYCLE, "the first Pods of its shape show what it needs")


def rate(_: Candidate, snapshot: ClusterSnapshot) -> Hold | None:
    return Hold(HoldReason.RATE_LIMITED, "KUBE_WRITES_PER_SECOND is used up") if snapshot.allowance.writes < 1 else None


def batch(_: Candidate, snapshot: ClusterSnapshot) -> Hold | None:
    return Hold(HoldReason.NEXT_CYCLE) if snapshot.allowance.batch < 1 else None


GATES: Final[tuple[Gate, ...]] = (
    under_way,
    lambda row, snapshot: undeclared_queue(row.task.queue, snapshot),
    template,
    due,
    lambda row, snapshot: paused_queue(snapshot.queue(row.task.queue), snapshot.now),
    blind,
    by_jobs,
    lambda row, snapshot: group_failing(row.group, snapshot),
    lambda _, snapshot: snapshot.not_ready,
    never_fits,
    lambda row, snapshot: over_submitter_cap(row.task.queue, row.task.submitted_by, snapshot),
    lambda row, snapshot: over_queue_cap(row.task.queue, snapshot),
    lambda _, snapshot: over_job_cap(snapshot),
    quota,
    lambda row, snapshot: too_many_held(row.task.queue, row.task.submitted_by, snapshot),
    pending,
    lambda row, snapshot: without_room(row.task.id, row.pod, snapshot),
    first_pods,
    rate,
    batch,
)
OF_REPEATS: Final = (*GATES[: GATES.index(never_fits)], rate, batch)
ADMIT: Final = Admit()


def judge(candidate: Candidate, snapshot: ClusterSnapshot) -> Verdict:
    """The first hold, or Admit."""
    for gate in gates_for(candidate):
        if (hold := gate(candidate, snapshot)) is not None:
            return hold
    assert isinstance(candidate.jobs.verdict, Launch)
    return ADMIT


def every_hold(candidate: Candidate, snapshot: ClusterSnapshot) -> Iterator[Hold]:
    """All holds of the candidate, in the order of the gates. The first one is shown as the row's reason."""
    return (hold for gate in gates_for(candidate) if (hold := gate(candidate, snapshot)) is not None)


def gates_for(candidate: Candidate) -> Sequence[Gate]:
    return OF_REPEATS if candidate.is_repeat else GATES


def holds_of_queue(name: str, snapshot: ClusterSnapshot) -> Iterator[Hold]:
    """The holds that all rows of a queue share, in the order of the gates."""
    holds = (
        undeclared_queue(name, snapshot), paused_queue(snapshot.queue(name), snapshot.now), snapshot.not_ready,
        over_queue_cap(name, snapshot), over_job_cap(snapshot),
    )  # fmt: skip
    return (hold for hold in holds if hold is not None)


def over(reason: HoldReason, count: int, cap: int | None) -> Hold | None:
    return Hold(reason, f"{count} of {cap}") if cap is not None and count >= cap else None
