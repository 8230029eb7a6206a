"""One row with its Jobs and Pods, the input of the table of outcomes; and how a launch ended. Pure."""

import signal
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

from msgspec import Struct

from dispatcher.model.cluster import CRASHES, DEADLINE, START_FAULTS, ClusterView, Node, Pod, PodEnd, PodRefusal
from dispatcher.model.jobs import EndedBy, Job, Phase
from dispatcher.model.needs import PodNeeds
from dispatcher.model.tasks import Status, Task
from dispatcher.model.verdicts import Stage

NEVER: Final = datetime.max.replace(tzinfo=UTC)
GRACE: Final = timedelta(seconds=60)
"""Time for a container to stop (cancels, reports, ended rows, older attempts), or for a registry to recover."""
POD_APPEARS_IN: Final = timedelta(seconds=30)
"""Age of a Job from which on a missing Pod is shown as a fault."""
LATE_KUBELET: Final = timedelta(minutes=10)
"""Time after a Pod's run limit from which on its kubelet does not keep it. A real one counts from a while after the
binding."""


class Rules(Struct, frozen=True):
    """The settings and pauses that the table of outcomes needs.

    max_launches: launches of an attempt that may end without a start.
    start_deadline_seconds: time between the binding of a Pod to a node and its start.
    node_lost_seconds: time after which the Pod on a lost node is deleted by force; 0: never.
    first_backoff_seconds: the pause after the second failed launch. It doubles with each further launch.
    report_grace: a report may arrive within this time after the end of its container.
    refused_for: time from the first refusal of a Pod to the end of its launch. A webhook can recover.
    rest_seconds: the longest time for which a row whose Job is under way is not read.
    """

    max_launches: int = 3
    start_deadline_seconds: int = 1800
    node_lost_seconds: int = 0
    first_backoff_seconds: float = 10
    report_grace: timedelta = GRACE
    refused_for: timedelta = timedelta(seconds=60)
    rest_seconds: float = 30


OWN_RULES: Final = Rules()


class ObservedCluster(Struct, frozen=True):
    """The cluster as one cycle sees it.

    now: the database's clock.
    cluster_now: the API server's clock.
    pods: Pods by the UID of their Job.
    nodes: nodes by name.
    first_seen: when this process first saw a state that has no timestamp of its own, by the API server's clock.
    refusals: Jobs whose Pods are refused, by UID.
    made: what Pods of each shape need of a node, as admitted.
    suspensions: why Jobs are suspended, in the words of others, by UID.
    """

    now: datetime
    cluster_now: datetime
    pods: Mapping[str, Sequence[Pod]]
    nodes: Mapping[str, Node]
    first_seen: Mapping[str, datetime] = {}
    rules: Rules = Rules()
    refusals: Mapping[str, PodRefusal] = {}
    made: Mapping[str, PodNeeds] = {}
    suspensions: Mapping[str, str] = {}

    def is_over(self, job: Job) -> bool:
        """Whether no container of the Job runs any more, and no new one will.

        The Job controller writes no condition on a Job that is being deleted, and the finalizers of others can keep
        such a Job and its Pods for ever. The controller makes no Pod then, but the last Pod may not be in the view yet.
        """
        if job.is_finished or not job.deleting:
            return job.is_finished
        pods = self.pods.get(job.uid, ())
        return all(pod.has_ended for pod in pods) if pods else not self.may_go(job)

    def may_go(self, job: Job) -> bool:
        """Whether the Job's deletion is so young that the Job may be gone soon."""
        return job.deleting_since is not None and self.cluster_now - job.deleting_since < GRACE

    def next_over(self, jobs: Iterable[Job]) -> datetime:
        """The earliest time at which a Job under deletion will be over. No event shows it."""
        since = (job.deleting_since for job in jobs if self.may_go(job))
        return min((one + GRACE for one in since if one is not None), default=NEVER)

    def needs_of(self, job: Job) -> PodNeeds | None:
        """What the Pod of a Job needs: as the API server made the newest one of its shape, else as its Job says."""
        return self.made.get(job.shape, job.needs)

    def has_lasted(self, key: str, duration: timedelta) -> bool:
        """Whether the state `key` was first seen at least `duration` ago. A new state has lasted no time."""
        return self.cluster_now - self.first_seen.get(key, self.cluster_now) >= duration


def observe(
    view: ClusterView, pods: Mapping[str, Sequence[Pod]], now: datetime, rules: Rules,
    first_seen: Mapping[str, datetime],
) -> ObservedCluster:  # fmt: skip
    """The view in the form that the table of outcomes takes. `pods`: by Job. `now`: the database's clock."""
    return ObservedCluster(
        now, view.now, pods, view.nodes, first_seen, rules, view.refusals, view.made, view.suspensions
    )


def by_job(pods: Iterable[Pod]) -> Mapping[str, Sequence[Pod]]:
    found = defaultdict(list)
    for pod in pods:
        found[pod.job_uid].append(pod)
    return dict(found)


SCHEDULER_SILENT: Final = timedelta(seconds=30)
"""A scheduler that has looked at none of its Pods for this time does not work, or is not there."""


def overlooked_jobs(pods: Iterable[Pod], now: datetime) -> tuple[frozenset[str], datetime]:
    """UIDs of Jobs whose Pods no scheduler looks at, and the earliest time at which there may be more of them.

    now: the API server's clock. Of a scheduler that is only slow, some Pods have just got a node or a word.
    """
    every = list(pods)
    waiting = [pod for pod in every if pod.phase == "Pending" and not (pod.node_name or pod.unschedulable_since)]
    waiting = [pod for pod in waiting if not (pod.is_gated or pod.deleting)]
    if not waiting:
        return frozenset(), NEVER
    looked: dict[str, datetime] = {}
    for pod in every:
        at = pod.unschedulable_since or pod.scheduled_at
        if at is not None:
            looked[pod.scheduler] = max(at, looked.get(pod.scheduler, at))
    since = {pod.job_uid: max(pod.created_at, looked.get(pod.scheduler, pod.created_at)) for pod in waiting}
    ignored = frozenset(uid for uid, at in since.items() if now - at >= SCHEDULER_SILENT)
    return ignored, min((at + SCHEDULER_SILENT for uid, at in since.items() if uid not in ignored), default=NEVER)


class TaskWithJobs(Struct, frozen=True, dict=True):
    """One row with its Jobs. Values that many lines of the table need are computed once.

    of_attempt: Jobs of the row's attempt.
    last: N, the highest launch of this attempt that the Jobs or the row know of.
    job: J, the Job of launch N; None: it is not in the view.
    pods: Pods of J.
    """

    task: Task
    jobs: Sequence[Job]
    cluster: ObservedCluster

    @cached_property
    def of_attempt(self) -> list[Job]:
        return [job for job in self.jobs if job.attempt == self.task.attempt]

    @cached_property
    def last(self) -> int:
        return max([self.task.launch, *(job.launch for job in self.of_attempt)])

    @cached_property
    def job(self) -> Job | None:
        return next((job for job in self.of_attempt if job.launch == self.last), None)

    @cached_property
    def unfinished(self) -> list[Job]:
        """Jobs of any attempt that may have a running container."""
        return [job for job in self.jobs if not self.cluster.is_over(job)]

    @property
    def has_exited(self) -> bool:
        """Whether the container of J ended by itself with 0. A container that was told to stop did not end by itself.

        The Pod proves it. So does the note on the Job, because ended Pods go with their nodes.
        """
        return 0 in self._exit_codes() or self.is_noted_as_exited

    @property
    def is_noted_as_exited(self) -> bool:
        return self.job is not None and self.job.ended_by == EndedBy.ITSELF

    @property
    def has_failed(self) -> bool:
        """Whether the container of J ended by itself with another code, in any Pod that counts."""
        return any(self._exit_codes())

    def _exit_codes(self) -> list[int | None]:
        """Exit codes of J's Pods. If J holds the row, only the Pod that started it counts: a resumed Job has another
        Pod.
        """
        task, job = self.task, self.job
        starter = task.pod_name if job and (task.launch, task.job_uid) == (job.launch, job.uid) else None
        pods = (pod for pod in self.pods if starter in {None, pod.name})
        return [pod.exit.exit_code for pod in pods if pod.exit is not None and not pod.exit.was_told]

    @property
    def exit_code(self) -> int | None:
        """The status of the task's container if it ended by itself; None: it did not, it never began, or nobody knows.

        A node that is under load, or whose disk is full, fails to start a container, and gives it the status 128.
        """
        ends = [pod.exit for pod in self.pods if pod.exit is not None and not pod.exit.was_told]
        if ends and ends[0].cause not in NEVER_BEGAN:
            return ends[0].exit_code
        return 0 if self.is_noted_as_exited else None

    @property
    def has_succeeded(self) -> bool | None:
        """The outcome of J by the exit code of its container; None: there is no code, or another report counts."""
        job = self.job
        if job is None or job.report != "exit-code" or self.task.status is not Status.WAITING:
            return None
        code = self.exit_code
        if code == 0 or job.was_disrupted:  # a container beside the task may be disrupted after its end
            return True if code == 0 else None
        if code is not None and job.phase is not Phase.FAILING:
            return False
        if job.ended_by == EndedBy.LIMIT and job.is_finished:
            return False
        if job.phase is not Phase.FAILED or job.ended_by == EndedBy.OTHERS:
            return None
        return False if any(pod.had_run and not is_stopped(pod) for pod in self.pods) else None

    @property
    def rejected(self) -> list[Pod]:
        """The Pods of this attempt that kubelets have rejected."""
        pods = (pod for job in self.of_attempt for pod in self.cluster.pods.get(job.uid, ()))
        return [pod for pod in pods if pod.is_rejected]

    @property
    def rejections(self) -> int:
        """Number of Jobs of this attempt whose Pods no node took. Such a Pod may be gone."""
        noted = {job.uid for job in self.of_attempt if job.ended_by == EndedBy.NODE}
        return len(noted | {pod.job_uid for pod in self.rejected})

    @property
    def rejecting(self) -> tuple[str, ...]:
        """The nodes of the rejected Pods."""
        return tuple(sorted({pod.node_name for pod in self.rejected}))

    @property
    def refusal(self) -> PodRefusal | None:
        """Why J has no Pod; None if it has one, or if no reason is known."""
        return self.cluster.refusals.get(self.job.uid) if self.job and not self.pods else None

    @cached_property
    def pods(self) -> Sequence[Pod]:
        return self.cluster.pods.get(self.job.uid, ()) if self.job else ()


def is_stopped(pod: Pod) -> bool:
    """Whether the Pod was told to stop by something else than its own run limit."""
    is_late = pod.end is not None and pod.end.reason == DEADLINE
    return pod.exit is not None and pod.exit.was_told and not is_late


def is_outlived(pod: Pod, row: TaskWithJobs) -> bool:
    """Whether the task's container has ended by itself, and another one keeps the Pod although no report came."""
    end, grace = pod.exit, row.cluster.rules.report_grace
    if end is None or end.ended_at is None or end.was_told or end.cause in NEVER_BEGAN:
        return False
    if pod.has_ended or pod.deleting or row.cluster.cluster_now - end.ended_at < grace:
        return False
    task = row.task  # another container of the Pod may have started it, and be at work
    is_alive = task.heartbeat_at is not None and row.cluster.now - task.heartbeat_at < grace
    return not is_alive and not (task.started_at is not None and task.started_at > end.ended_at)


def bound_at(pod: Pod) -> datetime:
    """When a Pod got its node. Its start deadline and its run limit count from then on."""
    return pod.scheduled_at or pod.created_at


def overruns(job: Job, pod: Pod, cluster: ObservedCluster) -> bool:
    """Whether the run limit is over, and no kubelet keeps it.

    A policy may have taken the limit from the Pod. Some virtual kubelets keep none. A node that does not answer may
    have kept it.
    """
    if not job.limit_seconds or is_unreachable(cluster.nodes.get(pod.node_name)):
        return False
    late = LATE_KUBELET if pod.limit_seconds else cluster.rules.report_grace
    return cluster.cluster_now - bound_at(pod) >= timedelta(seconds=pod.limit_seconds or job.limit_seconds) + late


def awaits_pod(job: Job, cluster: ObservedCluster) -> bool:
    """Whether the Job has no Pod yet, and one will come: none does while anything but a full quota refuses it."""
    if job.phase is not Phase.ACTIVE or job.uid in cluster.pods or job.suspended or job.deleting:
        return False
    refusal = cluster.refusals.get(job.uid)
    return refusal is None or refusal.is_quota


def is_unreachable(node: Node | None) -> bool:
    return node is not None and node.unreachable


def due_at(task: Task) -> datetime:
    """The time from which on the row may run."""
    return max(task.created_at, task.run_at or task.created_at)


def stage(job: Job, pods: Sequence[Pod], now: datetime, refusal: PodRefusal | None = None) -> str:
    """The progress of a launch for people: one of `Stage`, and the words of the cluster about it."""
    if job.suspended:
        return f"{Stage.SUSPENDED}: by {job.suspended_by}" if job.suspended_by else Stage.SUSPENDED
    if not pods and refusal is not None:
        return f"{stage_of_refusal(refusal)}: {refusal.message}"
    if not pods:
        is_young = now - job.created_at < POD_APPEARS_IN  # the Job controller has a queue of its own
        if job.is_finished:
            return Stage.ENDING
        return Stage.STARTING if is_young else f"{Stage.STARTING}: its Job has no Pod yet"
    if pods[0].has_ended:
        return Stage.ENDING if job.is_finished else f"{Stage.ENDING}: its Pod has ended, and its Job has not"
    return stage_of_pod(pods[0])


def detail_of(row: TaskWithJobs, job: Job) -> str:
    """How far the launch is, and what others have done to its Job."""
    detail = stage(job, row.pods, row.cluster.cluster_now, row.refusal)
    away = [pod.node_name for pod in row.pods if is_unreachable(row.cluster.nodes.get(pod.node_name))]
    if away and not row.pods[0].has_ended:
        detail = f"{detail}; node {away[0]} is not ready"
    elif any(pod.deleting and not pod.has_ended for pod in row.pods):
        detail = f"{detail}; its Pod is being deleted, and its node has not ended it yet"
    if job.suspended and (words := row.cluster.suspensions.get(job.uid)):
        detail = f'{detail}: "{words}"'
    return f"{detail}; somebody changed labels or annotations of its Job: {job.lacks}" if job.lacks else detail


def stage_of_refusal(refusal: PodRefusal) -> Stage:
    if refusal.is_quota:
        return Stage.QUOTA_EXCEEDED
    return Stage.POD_OUTAGE if refusal.is_outage else Stage.POD_REFUSED


def stage_of_pod(pod: Pod) -> str:
    # A Pod is Pending, too, while a container beside the task cannot start.
    if not pod.cannot_start and (pod.phase != "Pending" or pod.had_run):
        return Stage.RUNNING if pod.exit is None else Stage.SIDECAR_STAYS
    if pod.is_gated:
        return joined(f"{Stage.SUSPENDED}: by scheduling gates of its Pod", pod.waiting_message)
    if pod.unschedulable_since:
        return joined(Stage.UNSCHEDULABLE, pod.waiting_message)
    if pod.cannot_start:
        return joined(Stage.IMAGE_PULL, pod.waiting_reason, pod.waiting_message)
    if pod.waiting_reason == CRASHES:
        return joined(Stage.SIDECAR_CRASHES, pod.waiting_message)
    prepares = "its init containers run, or have run" if pod.had_prepared else ""
    ignored = "" if pod.node_name or pod.scheduled_at else f"the scheduler {pod.scheduler} has not looked at its Pod"
    return joined(Stage.STARTING, prepares or ignored or pod.waiting_reason, pod.waiting_message)


NEVER_BEGAN: Final = START_FAULTS | {"ContainerStatusUnknown"}
"""Causes whose message is the node's, not the container's."""
SIGNALS: Final = {128 + number: number.name for number in signal.Signals}
"""Exit codes of processes that a signal ended."""
UNITS: Final = (("d", 86_400), ("h", 3600), ("min", 60))


GONE: Final[Mapping[str, str]] = {
    EndedBy.US: "it did not start, so the dispatcher deleted its Pod",
    EndedBy.LIMIT: "ran over its run limit, which its kubelet did not keep, so the dispatcher deleted its Pod",
    EndedBy.OTHERS: "Disrupted: its Pod was evicted, preempted or deleted",
    EndedBy.NODE: "no node took its Pod: a kubelet rejected it, or it was deleted while it waited for a node",
    EndedBy.ITSELF: "exit code 0",
    EndedBy.SIDECAR: "its container failed, and another one kept its Pod",
}
"""The end of a launch whose Pod is gone, by who has ended it. A Pod may end and go between two looks."""


class LaunchEnd(Struct, frozen=True, kw_only=True):
    """How a launch ended.

    reason: in few words, such as `OOMKilled (limit 64Mi)`.
    exit_code: exit code of its container; None: it never ran, or nobody knows.
    output: the end of the container's output; empty: none, or nobody knows.
    pod_name, node_name: empty: not known.
    started_at, ended_at: when its container began and ended; None: it never ran, or nobody knows.
    """

    reason: str
    exit_code: int | None = None
    output: str = ""
    pod_name: str = ""
    node_name: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None


def launch_end(job: Job, pods: Sequence[Pod]) -> LaunchEnd | None:
    """How the launch of the Job ended, or why its container cannot start; None: it runs, or nobody knows."""
    pod = pods[0] if pods else None
    if pod is None:
        is_cut = job.was_disrupted and job.ended_by != EndedBy.ITSELF
        why = GONE.get(EndedBy.OTHERS if is_cut else job.ended_by) if job.is_finished else None
        return LaunchEnd(reason=why) if why else None
    is_alone = job.report == "exit-code" or not (pod.has_ended or pod.cannot_start)
    end = pod.exit if is_alone and pod.exit is not None and not pod.exit.was_told else pod.end
    if end is not None:
        output = "" if end.cause in NEVER_BEGAN else end.output
        return LaunchEnd(
            reason=GONE[EndedBy.LIMIT] if job.ended_by == EndedBy.LIMIT else of_pod(end, pod, job.limit_seconds),
            exit_code=end.exit_code, output=output, pod_name=pod.name,
            node_name=pod.node_name, started_at=end.started_at if pod.had_run else None,
            ended_at=end.ended_at,
        )  # fmt: skip
    if pod.cannot_start or pod.waiting_reason == CRASHES:
        reason = joined(pod.waiting_reason, pod.waiting_message)
        return LaunchEnd(reason=reason, pod_name=pod.name, node_name=pod.node_name)
    return None


def of_pod(end: PodEnd, pod: Pod, limit_seconds: int) -> str:
    """`limit_seconds`: the run limit that its Job gave it. A policy may have given the Pod another one."""
    if end.reason == DEADLINE:
        own = pod.limit_seconds or limit_seconds
        limit = f"its limit of {span(own)}" if own else "its limit"
        changed = (
            f", which somebody changed from {span(limit_seconds)}" if limit_seconds and own != limit_seconds else ""
        )
        return f"{doing(pod, end, own)} over {limit}{changed}"
    if end.reason or end.disruption:
        return joined(end.reason or end.disruption, end.message)
    if end.exit_code is None:
        return "its Pod failed"
    return of_container(end, end.exit_code)


def doing(pod: Pod, end: PodEnd, limit_seconds: int) -> str:
    """What took so long. The run limit counts from the start of the Pod, so images and init containers count.

    kubelet does not stop a pull at the limit: the container begins after the pull, and is stopped at once.
    """
    if not pod.had_run:
        return "its init containers ran" if pod.had_prepared else "its image was pulled"
    if end.started_at is None or end.ended_at is None or not limit_seconds:
        return "ran"
    ran = round((end.ended_at - end.started_at).total_seconds())  # both by the clock of the node
    is_late = ran < limit_seconds / 2
    return f"ran for {ran} s, after its image and its init containers," if is_late else "ran"


def of_container(end: PodEnd, exit_code: int) -> str:
    whose = "" if end.container == "task" else f"container {end.container}: "
    if end.cause == "OOMKilled":
        return f"{whose}OOMKilled (limit {end.memory_limit})" if end.memory_limit else f"{whose}OOMKilled"
    if end.cause in NEVER_BEGAN:
        return whose + joined(end.cause, end.output)
    return f"{whose}exit code {exit_code}" + (f" ({SIGNALS[exit_code]})" if exit_code in SIGNALS else "")


def joined(*words: str) -> str:
    """The words that are not empty, with colons between them."""
    return ": ".join(filter(None, words))


def span(seconds: int) -> str:
    """A duration in the largest unit that has a whole number of it: `90 s`, `2 h`."""
    return next((f"{seconds // length} {unit}" for unit, length in UNITS if seconds % length == 0), f"{seconds} s")
