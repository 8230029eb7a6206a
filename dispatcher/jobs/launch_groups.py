"""Launch groups that fail. A launch group is one image under one template for one queue."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final

from dispatcher.jobs.observed import CANNOT_START, ObservedCluster
from dispatcher.model.jobs import Job, LaunchGroup, Phase
from dispatcher.model.tasks import Task

LAUNCHES: Final = 3


def failing_groups(tasks: Mapping[int, Task], jobs: Sequence[Job], cluster: ObservedCluster) -> frozenset[LaunchGroup]:
    """Groups whose newest three launches with a known result all failed to start."""
    suspects = Counter(job.group for job in jobs if is_suspect(job, cluster))
    failing = set()
    for group in (group for group, count in suspects.items() if count >= LAUNCHES):
        known = [(job.created_at, started) for job in jobs if job.group == group
                 if (started := has_started(tasks.get(job.task_id), job, cluster)) is not None]  # fmt: skip
        newest = [started for _, started in sorted(known, key=itemgetter(0))][-LAUNCHES:]
        if len(newest) == LAUNCHES and not any(newest):
            failing.add(group)
    return frozenset(failing)


def is_suspect(job: Job, cluster: ObservedCluster) -> bool:
    """Whether the Job may have failed to start. Few Jobs are suspects, so only their groups are examined."""
    return job.phase is Phase.FAILED or any(pod.waiting_reason in CANNOT_START for pod in cluster.pods.get(job.uid, ()))


def busy_groups(jobs: Iterable[Job], failing: frozenset[LaunchGroup]) -> frozenset[LaunchGroup]:
    """The failing groups that have an unfinished Job."""
    return frozenset(job.group for job in jobs if not job.is_finished and job.group in failing) if failing else failing


def has_started(task: Task | None, job: Job, cluster: ObservedCluster) -> bool | None:
    """Whether a launch started; None if that is not known yet, or if the image is not the cause."""
    pods = cluster.pods.get(job.uid, ())
    if job.phase is Phase.COMPLETE or any(pod.had_run or pod.phase == "Running" for pod in pods):
        return True
    if any(pod.waiting_reason in CANNOT_START for pod in pods):
        return False
    if job.is_unplaced:
        return None
    if job.phase is not Phase.FAILED or job.was_disrupted or task is None or task.attempt != job.attempt:
        return None
    if task.launch >= job.launch:
        return True
    # The start was slow, or the Pod had waited for a node. Nothing tells whether the image is the cause.
    late = ((job.ended_at or job.created_at) - job.created_at).total_seconds() >= cluster.rules.start_deadline_seconds
    return None if late else False
