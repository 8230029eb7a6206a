"""A cycle's decision as a child would make it: row by row, counting everything anew from lists. It shares no code with
the gates, only their words and the order of docs/protocol.md, section 6.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from dispatcher.admission.gates import Candidate
from dispatcher.model.jobs import Job
from dispatcher.model.launches import Launch, Offer
from dispatcher.model.snapshot import ClusterSnapshot
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Hold

UNDER_WAY = ("Launched", "NodeLost", "Finishing")


class Decided(Struct):
    """Rows launched so far, and the reasons of the others."""

    launched: list[Candidate]
    new: list[Task]
    reasons: dict[int, str]


def decide(picture: ClusterSnapshot, candidates: Sequence[Candidate], before: Sequence[Job]) -> Decided:
    """`before`: what is in flight already, which the picture only has as counts."""
    done = Decided([], [], {})
    waiting = list(candidates)
    while waiting:
        key = [(one.tried_at if picture.is_probing else 0, one.task.priority, one.task.id) for one in waiting]
        candidate = waiting.pop(key.index(min(key)))
        if candidate.jobs.verdict is None:
            continue
        reason = next((word for word, holds in questions(picture, candidate, before, done) if holds), "")
        if reason:
            done.reasons[candidate.task.id] = reason
            continue
        done.launched.append(candidate)
        if not is_repeat(candidate):
            done.new.append(candidate.task)
    return done


def is_repeat(candidate: Candidate) -> bool:
    return isinstance(candidate.jobs.verdict, Launch) and candidate.jobs.verdict.is_repeat


def questions(
    picture: ClusterSnapshot, candidate: Candidate, before: Sequence[Job], done: Decided
) -> list[tuple[str, Any]]:
    """Every reason with whether it holds, in the order of the gates."""
    asked = of_the_row(picture, candidate) + of_its_jobs(picture, candidate, before, done)
    if not is_repeat(candidate):
        asked += of_the_caps(picture, candidate, before, done)
    writes, batch = picture.allowance.writes - len(done.launched), picture.allowance.batch - len(done.launched)
    return [*asked, ("RateLimited", writes < 1), ("NextCycle", batch < 1)]


def of_the_row(picture: ClusterSnapshot, candidate: Candidate) -> list[tuple[str, Any]]:
    task, verdict, offer = candidate.task, candidate.jobs.verdict, candidate.offer
    queue = picture.queues.get(task.queue)
    of_job = str(verdict.reason) if isinstance(verdict, Hold) else ""
    return [
        (of_job, of_job in UNDER_WAY and not picture.is_blind),
        (str(offer.reason) if isinstance(offer, Hold) else "", isinstance(offer, Hold)),
        ("NotDue", task.run_at is not None and task.run_at > picture.now),
        ("Paused", queue is not None and queue.paused_until is not None and queue.paused_until > picture.now),
        ("DispatcherNotReady", picture.is_blind),
        (of_job, of_job != ""),
    ]


def of_its_jobs(
    picture: ClusterSnapshot, candidate: Candidate, before: Sequence[Job], done: Decided
) -> list[tuple[str, Any]]:
    group = candidate.group
    is_busy = group in picture.busy_groups or group in [one.group for one in done.launched]
    return [
        ("TemplateFailing", group in picture.failing_groups and is_busy),
        ("DispatcherNotReady", picture.not_ready is not None),
    ]


def of_the_caps(
    picture: ClusterSnapshot, candidate: Candidate, before: Sequence[Job], done: Decided
) -> list[tuple[str, Any]]:
    task, offer = candidate.task, candidate.offer
    holders = [(job.queue, job.submitted_by) for job in before] + [(one.queue, one.submitted_by) for one in done.new]
    queue = picture.queues.get(task.queue)
    mine = [one for one in holders if one == (task.queue, task.submitted_by)]
    ours = [one for one in holders if one[0] == task.queue]
    shape = offer.shape if isinstance(offer, Offer) else ""
    stuck = picture.pending.stuck_by_shape.get(shape, 0)
    of_queue = queue.max_pending if queue and queue.max_pending is not None else picture.max_pending
    is_stuck = stuck > of_queue
    if picture.is_strict:
        is_stuck = picture.pending.total + len(done.launched) > 0
    return [
        ("SubmitterCap", queue is not None and is_full(mine, queue.max_jobs_per_submitter)),
        ("QueueCap", queue is not None and is_full(ours, queue.max_jobs)),
        ("JobCap", len(holders) >= picture.max_jobs),
        ("QuotaExceeded", picture.quota is not None),
        ("PendingPods", is_stuck),
    ]  # fmt: skip


def is_full(holders: Sequence[object], cap: int | None) -> bool:
    return cap is not None and len(holders) >= cap
