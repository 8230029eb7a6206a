"""One row with its Jobs and Pods: the input of the table of outcomes."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from dispatcher.model.cluster import Node, Pod, PodRefusal
from dispatcher.model.jobs import Job
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Stage

CANNOT_START: Final = frozenset({
    "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
    "RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
})  # fmt: skip
"""Waiting reasons of a container whose image or configuration is wrong. Such a Job never fails by itself."""

GRACE: Final = timedelta(seconds=60)
"""For cancels, reports, ended rows, older attempts and image errors. A container can stop; a registry can recover."""
POD_APPEARS_IN: Final = timedelta(seconds=30)


class Rules(Struct, frozen=True):
    """The settings that the table of outcomes needs.

    max_launches: launches of an attempt that may end without a start.
    start_deadline_seconds: time between the binding of a Pod to a node and its start.
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
    refusals: Jobs whose Pods are refused, by UID.
    """

    now: datetime
    cluster_now: datetime
    pods: Mapping[str, Sequence[Pod]]
    nodes: Mapping[str, Node]
    first_seen: Mapping[str, datetime] = {}
    rules: Rules = Rules()
    refusals: Mapping[str, PodRefusal] = {}

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
    def refusal(self) -> PodRefusal | None:
        """Why J has no Pod; None if it has one, or if no reason is known."""
        return self.cluster.refusals.get(self.job.uid) if self.job and not self.pods else None

    @property
    def pods(self) -> Sequence[Pod]:
        return self.cluster.pods.get(self.job.uid, ()) if self.job else ()


def due_at(task: Task) -> datetime:
    """The time since when the row may run."""
    return max(task.created_at, task.run_at or task.created_at)


def stage(job: Job, pods: Sequence[Pod], now: datetime, refusal: PodRefusal | None = None) -> str:
    """The progress of a launch for people: one of `Stage`, and what the cluster says about it."""
    if job.suspended:
        return Stage.SUSPENDED
    if not pods and refusal is not None:
        return f"{Stage.QUOTA_EXCEEDED if refusal.is_quota else Stage.POD_REFUSED}: {refusal.message}"
    if not pods:
        is_young = now - job.created_at < POD_APPEARS_IN  # the Job controller has a queue of its own
        if job.is_finished:
            return Stage.ENDING
        return Stage.STARTING if is_young else f"{Stage.STARTING}: its Job has no Pod yet"
    return stage_of_pod(pods[0])


def stage_of_pod(pod: Pod) -> str:
    if pod.phase != "Pending":
        return Stage.RUNNING
    if pod.unschedulable_since:
        return ": ".join(filter(None, (Stage.UNSCHEDULABLE, pod.waiting_message)))
    if pod.waiting_reason in CANNOT_START:
        return ": ".join(filter(None, (Stage.IMAGE_PULL, pod.waiting_reason, pod.waiting_message)))
    return Stage.STARTING
