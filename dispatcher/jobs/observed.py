"""One row with its Jobs and Pods: the input of the table of outcomes."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from dispatcher.model.cluster import Node, Pod
from dispatcher.model.jobs import Job
from dispatcher.model.tasks import Task

CANNOT_START: Final = frozenset({
    "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
    "RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
})  # fmt: skip
"""Waiting reasons of a container whose image or configuration is wrong. Such a Job never fails by itself."""


POD_APPEARS_IN: Final = timedelta(seconds=30)


class Rules(Struct, frozen=True):
    """The settings that the table of outcomes needs.

    max_launches: launches of an attempt that may end without a start.
    start_deadline_seconds: time between the creation of a Pod and its start.
    node_lost_seconds: time after which the Pod on a lost node is deleted by force; 0: never.
    """

    max_launches: int = 3
    start_deadline_seconds: int = 1800
    node_lost_seconds: int = 0


class ObservedCluster(Struct, frozen=True):
    """The cluster as one cycle sees it.

    now: the database's clock.
    cluster_now: the API server's clock.
    pods: Pods by the UID of their Job.
    nodes: nodes by name.
    first_seen: when this process first saw a state that has no timestamp of its own, by the API server's clock.
    rules: the settings that the table of outcomes needs.
    """

    now: datetime
    cluster_now: datetime
    pods: Mapping[str, Sequence[Pod]]
    nodes: Mapping[str, Node]
    first_seen: Mapping[str, datetime] = {}
    rules: Rules = Rules()

    def has_lasted(self, key: str, duration: timedelta) -> bool:
        """Whether the state `key` was first seen at least `duration` ago. A state that is new has lasted no time."""
        return self.cluster_now - self.first_seen.get(key, self.cluster_now) >= duration


class TaskWithJobs(Struct, frozen=True):
    """One row with its Jobs.

    of_attempt: Jobs of the row's attempt.
    last: N, the highest launch of this attempt that the Jobs or the row know of.
    job: J, the Job of launch N; None: it is not in the view.
    pods: Pods of J.
    """

    task: Task
    jobs: Sequence[Job]
    cluster: ObservedCluster

    @property
    def of_attempt(self) -> list[Job]:
        return [job for job in self.jobs if job.attempt == self.task.attempt]

    @property
    def last(self) -> int:
        return max([self.task.launch, *(job.launch for job in self.of_attempt)])

    @property
    def job(self) -> Job | None:
        return next((job for job in self.of_attempt if job.launch == self.last), None)

    @property
    def pods(self) -> Sequence[Pod]:
        return self.cluster.pods.get(self.job.uid, ()) if self.job else ()


def due_at(task: Task) -> datetime:
    """The time since when the row may run."""
    return max(task.created_at, task.run_at or task.created_at)


def stage(job: Job, pods: Sequence[Pod], now: datetime) -> str:
    """The progress of a launch, as one word for people."""
    if job.suspended:
        return "Suspended"
    if not pods:
        is_young = now - job.created_at < POD_APPEARS_IN  # the Job controller has a queue of its own
        return "Ending" if job.is_finished else "Starting" if is_young else "PodRefused"
    pod = pods[0]
    if pod.phase != "Pending":
        return "Running"
    if pod.unschedulable_since:
        return "Unschedulable"
    return "ImagePull" if pod.waiting_reason in CANNOT_START else "Starting"
