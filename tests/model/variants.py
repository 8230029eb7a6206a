"""Parts of the table of outcomes without one of their rules."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from dispatcher.jobs import outcome
from dispatcher.jobs.observed import TaskWithJobs
from dispatcher.jobs.outcome import TABLE
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job
from dispatcher.model.launches import JobsVerdict
from tests.model.decisions import Line


class JobsAlone(TaskWithJobs, frozen=True):
    """N from the Jobs alone."""

    @property
    def last(self) -> int:
        return max([0, *(job.launch for job in self.of_attempt)])


class RowAlone(TaskWithJobs, frozen=True):
    """N from the row alone."""

    @property
    def last(self) -> int:
        return self.task.launch


class NobodyNoted(TaskWithJobs, frozen=True):
    """Jobs without the note who has deleted their Pod."""

    @property
    def of_attempt(self) -> list[Job]:
        return [msgspec.structs.replace(job, ended_by="") for job in super().of_attempt]


class NobodyRejected(TaskWithJobs, frozen=True):
    """Pods whose rejection by a kubelet is not seen."""

    @property
    def pods(self) -> Sequence[Pod]:
        return [msgspec.structs.replace(pod, end=None) for pod in super().pods]


def any_uid(case: TaskWithJobs) -> JobsVerdict | None:
    """`exited_without_report` without its comparison of job_uid."""
    uid = case.job.uid if case.job else None
    task = msgspec.structs.replace(case.task, job_uid=uid)
    return outcome.exited_without_report(TaskWithJobs(task, case.jobs, case.cluster))


def ends_unplaced(case: TaskWithJobs) -> JobsVerdict | None:
    """`launched`, for which every Pod has a node."""
    placed = {
        uid: [msgspec.structs.replace(pod, node_name=pod.node_name or "node") for pod in pods]
        for uid, pods in case.cluster.pods.items()
    }
    cluster = msgspec.structs.replace(case.cluster, pods=placed)
    return outcome.launched(TaskWithJobs(case.task, case.jobs, cluster))


def forgets_unplaced(case: TaskWithJobs) -> JobsVerdict | None:
    """`failed`, for which a launch that was taken back is like any other."""
    jobs = [msgspec.structs.replace(job, is_unplaced=False) for job in case.jobs]
    return outcome.failed(TaskWithJobs(case.task, jobs, case.cluster))


def never_started(case: TaskWithJobs) -> JobsVerdict | None:
    """`failed`, for which a marked launch has never started."""
    is_marked = any(job.is_unplaced and job.launch == case.last for job in case.of_attempt)
    task = msgspec.structs.replace(case.task, launch=0) if is_marked else case.task
    return outcome.failed(TaskWithJobs(task, case.jobs, case.cluster))


def without_line(*lines: Line) -> tuple[Line, ...]:
    return tuple(line for line in TABLE if line not in lines)


def with_line(old: Line, new: Callable[[TaskWithJobs], JobsVerdict | None]) -> tuple[Line, ...]:
    return tuple(new if line is old else line for line in TABLE)


ANY_UID: Final = with_line(outcome.exited_without_report, any_uid)
