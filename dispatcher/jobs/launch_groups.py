"""Which lanes fail: the same image under the same template for the same queue, launch after launch."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final

from dispatcher.jobs.observed import CANNOT_START, Scene
from dispatcher.model.jobs import Job, Lane, Phase
from dispatcher.model.launches import Order
from dispatcher.model.tasks import Task

LAUNCHES: Final = 3


def failing_lanes(tasks: Mapping[int, Task], jobs: Sequence[Job], scene: Scene) -> frozenset[Lane]:
    """Lanes whose newest three launches that came to a verdict all failed to start."""
    suspects = Counter(job.lane for job in jobs if is_suspect(job, scene))
    failing = set()
    for lane in (lane for lane, count in suspects.items() if count >= LAUNCHES):
        told = [(job.created_at, starts) for job in jobs if job.lane == lane
                if (starts := has_started(tasks.get(job.task_id), job, scene)) is not None]  # fmt: skip
        newest = [starts for _, starts in sorted(told, key=itemgetter(0))][-LAUNCHES:]
        if len(newest) == LAUNCHES and not any(newest):
            failing.add(lane)
    return frozenset(failing)


def lane_of(order: Order) -> Lane:
    return Lane(order.task.queue, order.task.template, order.offer.image)


def is_suspect(job: Job, scene: Scene) -> bool:
    """Whether it may have failed to start: a few among thousands, so that only their lanes are looked at."""
    return job.phase is Phase.FAILED or any(pod.waiting_reason in CANNOT_START for pod in scene.pods.get(job.uid, ()))


def busy_lanes(jobs: Iterable[Job], failing: frozenset[Lane]) -> frozenset[Lane]:
    """Of the failing lanes those with a Job under way."""
    return frozenset(job.lane for job in jobs if not job.is_finished and job.lane in failing) if failing else failing


def has_started(task: Task | None, job: Job, scene: Scene) -> bool | None:
    """Whether a launch started; None: it is too early to say, or something else stopped it."""
    pods = scene.pods.get(job.uid, ())
    if job.phase is Phase.COMPLETE or any(pod.had_run or pod.phase == "Running" for pod in pods):
        return True
    if any(pod.waiting_reason in CANNOT_START for pod in pods):
        return False
    if job.phase is not Phase.FAILED or job.was_disrupted or task is None or task.attempt != job.attempt:
        return None
    if task.launch >= job.launch:
        return True
    # It lived until the start deadline: it found no room, or was slow, which says nothing of its image.
    late = ((job.ended_at or job.created_at) - job.created_at).total_seconds() >= scene.rules.start_deadline_seconds
    return None if late else False
