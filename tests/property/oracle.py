"""The decision of a cycle, made the slow way: row by row, with all counts made anew from lists.

The oracle shares no code with the gates, only their reasons and their order (docs/protocol.md, section 6).
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from dispatcher.admission.gates import Candidate
from dispatcher.admission.snapshot import ClusterSnapshot
from dispatcher.model.jobs import Job, LaunchGroup
from dispatcher.model.launches import Launch, Offer
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Hold

Holder = tuple[str, str]
UNDER_WAY = ("Launched", "NodeLost", "Finishing")
NEVER = datetime.min.replace(tzinfo=UTC)


class Decided(Struct):
    """Rows launched so far, and the reasons of the others. `new`: tasks of launches that are no repeated creates."""

    launched: list[Candidate]
    new: list[Task]
    reasons: dict[int, str]


def decide(snapshot: ClusterSnapshot, candidates: Sequence[Candidate], in_flight: Sequence[Job]) -> Decided:
    """`in_flight`: Jobs that exist before the cycle. The snapshot only has their counts."""
    decided = Decided([], [], {})
    waiting, later, turns = list(candidates), list[Candidate](), rows_in_turn(snapshot, candidates)
    while waiting:
        candidate = turns.pop(0) if turns else next_row(snapshot, waiting, holders_of(in_flight, decided))
        waiting.remove(candidate)
        if would_only_wait(snapshot, candidate):
            later.append(candidate)
        else:
            decide_row(snapshot, candidate, in_flight, decided)
    for candidate in later:
        decide_row(snapshot, candidate, in_flight, decided)
    return decided


def decide_row(snapshot: ClusterSnapshot, candidate: Candidate, in_flight: Sequence[Job], decided: Decided) -> None:
    if candidate.jobs.verdict is None:
        return
    reason = next((word for word, holds in all_reasons(snapshot, candidate, in_flight, decided) if holds), "")
    if reason:
        decided.reasons[candidate.task.id] = reason
        return
    decided.launched.append(candidate)
    if not is_repeat(candidate):
        decided.new.append(candidate.task)


def would_only_wait(snapshot: ClusterSnapshot, candidate: Candidate) -> bool:
    """A row whose Pod would only wait is judged after the others."""
    offer = candidate.offer
    return isinstance(offer, Offer) and offer.shape in snapshot.stuck_shapes and not is_repeat(candidate)


def rows_in_turn(snapshot: ClusterSnapshot, candidates: Sequence[Candidate]) -> list[Candidate]:
    """A row of each queue without a launch for a second, the queue first that has waited longest."""
    if snapshot.launched_at is None or snapshot.is_probing:
        return []
    found = list[tuple[Any, Candidate]]()
    for name in {one.task.queue for one in candidates}:
        own = sorted((one for one in candidates if one.task.queue == name), key=rank)
        times = [at for (queue, _), at in snapshot.launched_at.items() if queue == name]
        able = [one for one in own if isinstance(one.jobs.verdict, Launch)]
        if able and (not times or (snapshot.now - max(times)).total_seconds() >= 1):
            row = min(able, key=lambda one: (launched(snapshot, one), rank(one)))
            found.append(((max(times, default=NEVER), rank(own[0])), row))
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def launched(snapshot: ClusterSnapshot, candidate: Candidate) -> datetime:
    """When the row's submitter was launched last, if its queue is fair between submitters."""
    task, at = candidate.task, snapshot.launched_at or {}
    return at.get((task.queue, task.submitted_by), NEVER) if snapshot.queue(task.queue).fair_submitters else NEVER


def next_row(snapshot: ClusterSnapshot, waiting: Sequence[Candidate], holders: Sequence[Holder]) -> Candidate:
    """The row of the queue with the least share, and there of the submitter with the least share if it is so set."""
    if snapshot.is_probing:
        return min(waiting, key=lambda one: (one.tried_at, *rank(one)))
    firsts = [first_row(snapshot, name, waiting, holders) for name in sorted({one.task.queue for one in waiting})]
    return min(firsts, key=lambda one: (share(snapshot, one.task.queue, holders), rank(one)))


def first_row(
    snapshot: ClusterSnapshot, name: str, waiting: Sequence[Candidate], holders: Sequence[Holder]
) -> Candidate:
    is_fair = snapshot.queue(name).fair_submitters
    own = [one for one in waiting if one.task.queue == name]
    return min(own, key=lambda one: (holders.count((name, one.task.submitted_by)) if is_fair else 0, rank(one)))


def share(snapshot: ClusterSnapshot, name: str, holders: Sequence[Holder]) -> float:
    return len([one for one in holders if one[0] == name]) / snapshot.queue(name).weight


def rank(candidate: Candidate) -> tuple[int, int]:
    return candidate.task.priority, candidate.task.id


def holders_of(in_flight: Sequence[Job], decided: Decided) -> list[Holder]:
    """(queue, submitter) of each Job in flight and of each new launch."""
    of_jobs = [(job.queue, job.submitted_by) for job in in_flight]
    return of_jobs + [(task.queue, task.submitted_by) for task in decided.new]


def group_of(candidate: Candidate) -> LaunchGroup:
    task, offer = candidate.task, candidate.offer
    return LaunchGroup(task.queue, task.template, offer.image if isinstance(offer, Offer) else "", task.submitted_by)


def is_repeat(candidate: Candidate) -> bool:
    return isinstance(candidate.jobs.verdict, Launch) and candidate.jobs.verdict.is_repeat


def all_reasons(
    snapshot: ClusterSnapshot, candidate: Candidate, in_flight: Sequence[Job], decided: Decided
) -> list[tuple[str, Any]]:
    """Every reason in the order of the gates, each with whether it applies."""
    asked = row_reasons(snapshot, candidate) + job_reasons(snapshot, candidate, in_flight, decided)
    if not is_repeat(candidate):
        asked += cap_reasons(snapshot, candidate, in_flight, decided)
    writes, batch = snapshot.allowance.writes - len(decided.launched), snapshot.allowance.batch - len(decided.launched)
    return [*asked, ("RateLimited", writes < 1), ("NextCycle", batch < 1)]


def row_reasons(snapshot: ClusterSnapshot, candidate: Candidate) -> list[tuple[str, Any]]:
    task, verdict, offer = candidate.task, candidate.jobs.verdict, candidate.offer
    queue = snapshot.queues.get(task.queue)
    of_job = str(verdict.reason) if isinstance(verdict, Hold) else ""
    return [
        (of_job, of_job in UNDER_WAY and not snapshot.is_blind),
        ("PolicyDenied", queue is None),
        (str(offer.reason) if isinstance(offer, Hold) else "", isinstance(offer, Hold)),
        ("NotDue", task.run_at is not None and task.run_at > snapshot.now),
        ("Paused", queue is not None and queue.paused_until is not None and queue.paused_until > snapshot.now),
        ("DispatcherNotReady", snapshot.is_blind),
        (of_job, of_job != ""),
    ]


def job_reasons(
    snapshot: ClusterSnapshot, candidate: Candidate, in_flight: Sequence[Job], decided: Decided
) -> list[tuple[str, Any]]:
    group = group_of(candidate)
    is_busy = group in snapshot.busy_groups or group in map(group_of, decided.launched)
    return [
        ("TemplateFailing", group in snapshot.failing_groups and is_busy),
        ("DispatcherNotReady", snapshot.not_ready is not None),
    ]


def cap_reasons(
    snapshot: ClusterSnapshot, candidate: Candidate, in_flight: Sequence[Job], decided: Decided
) -> list[tuple[str, Any]]:
    task, offer = candidate.task, candidate.offer
    holders = holders_of(in_flight, decided)
    queue = snapshot.queues.get(task.queue)
    of_submitter = [one for one in holders if one == (task.queue, task.submitted_by)]
    of_queue = [one for one in holders if one[0] == task.queue]
    shape = offer.shape if isinstance(offer, Offer) else ""
    if queue is None or queue.max_pending is None:
        is_stuck = snapshot.pending.stuck_by_shape.get(shape, 0) > snapshot.max_pending
    else:
        is_stuck = snapshot.pending.stuck_of_queue.get((task.queue, shape), 0) > queue.max_pending
    held = snapshot.held.by_submitter.get((task.queue, task.submitted_by), 0)
    if snapshot.is_strict:
        is_stuck = snapshot.pending.total + len(decided.launched) > 0
    return [
        ("SubmitterCap", queue is not None and is_full(of_submitter, queue.max_jobs_per_submitter)),
        ("QueueCap", queue is not None and is_full(of_queue, queue.max_jobs)),
        ("JobCap", len(holders) >= snapshot.max_jobs),
        ("QuotaExceeded", snapshot.quota is not None),
        ("PendingPods", is_stuck or held >= max(1, snapshot.max_jobs // max(10, len(snapshot.held.by_submitter)))),
    ]  # fmt: skip


def is_full(holders: Sequence[object], cap: int | None) -> bool:
    return cap is not None and len(holders) >= cap
