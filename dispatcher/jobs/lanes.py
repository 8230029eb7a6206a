"""Which lanes fail: the same image under the same template for the same queue, launch after launch."""

from collections.abc import Iterable, Mapping
from itertools import groupby

from dispatcher.jobs.case import CANNOT_START, Scene
from dispatcher.model import Job, Lane, Phase, Task


def failing_lanes(tasks: Mapping[int, Task], jobs: Iterable[Job], scene: Scene) -> frozenset[Lane]:
    """Lanes whose newest three launches that came to a verdict all failed to start."""
    told = [(job, starts) for job in jobs if (starts := has_started(tasks.get(job.task_id), job, scene)) is not None]
    told.sort(key=lambda pair: (pair[0].lane.queue, pair[0].lane.template, pair[0].lane.image, pair[0].created_at))
    failing = set()
    for lane, launches in groupby(told, key=lambda pair: pair[0].lane):
        newest = [starts for _, starts in launches][-3:]
        if len(newest) == 3 and not any(newest):
            failing.add(lane)
    return frozenset(failing)


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
