"""The cluster: Jobs, their Pods and one node, with names, uids and versions, and the history that watches tell.

It does what the API server and the Job controller do to one-Pod Jobs, step by step and never by itself: the machine
says when. A container is more than its Pod: behind a partition it lives on when its Pod is gone, and may still report.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.kube.objects import read_job
from dispatcher.model.cluster import Node, Pod
from dispatcher.model.jobs import ApiAnswer, End, Job, Manifest, Phase
from tests.property.timing import Timeline

NODE: Final = "node-1"


class Event(Struct, frozen=True):
    """What a watch tells; `found` is None when the object is gone."""

    version: int
    kind: str
    name: str
    found: Job | Pod | Node | None


class Container(Struct):
    """A container's process: what it was told, and how far it is."""

    job: str
    job_uid: str
    pod: str
    told: dict[str, str]
    token: str | None = None

    @property
    def task_id(self) -> int:
        return int(self.told["TASK_ID"])

    @property
    def at(self) -> tuple[int, int]:
        return int(self.told["TASK_ATTEMPT"]), int(self.told["TASK_LAUNCH"])


class Cluster:
    """The truth; what a dispatcher sees of it is told by `views`."""

    def __init__(self, clock: Timeline) -> None:
        self._clock = clock
        self.jobs: dict[str, Job] = {}
        self.pods: dict[str, Pod] = {}
        self.manifests: dict[str, Manifest] = {}
        self.containers: list[Container] = []
        self.history: list[Event] = []
        self.is_quota_full = self.is_terminating = False
        self.poison: set[str] = set()
        self.made_at: dict[str, int] = {}
        self._numbers = 0
        self.nodes: dict[str, Node] = {}
        self.set_node(unreachable=False)

    @property
    def version(self) -> int:
        return len(self.history)

    def set_node(self, *, unreachable: bool) -> None:
        self.nodes[NODE] = Node(name=NODE, ready=not unreachable, unreachable=unreachable)
        self._tell("nodes", NODE, self.nodes[NODE])

    def create(self, manifest: Manifest) -> ApiAnswer:
        """The order of checks is the API server's: admission first, so that a full quota hides the 409."""
        name, labels = manifest["metadata"]["name"], manifest["metadata"]["labels"]
        if self.is_terminating:
            return ApiAnswer(403, "Forbidden", "the namespace is being terminated", ("NamespaceTerminating",))
        if self.is_quota_full:
            return ApiAnswer(403, "Forbidden", f'jobs.batch "{name}" is forbidden: exceeded quota: jobs, used: 1')
        if labels["dispatcher.internal/task-id"] in self.poison:
            return ApiAnswer(422, "Invalid", "spec.template.spec: Invalid value")
        if name in self.jobs:
            return ApiAnswer(409, "AlreadyExists", f'jobs.batch "{name}" already exists')
        self._numbers += 1
        self.manifests[name] = manifest
        self.made_at[name] = self.version + 1
        self.put(born(manifest, f"uid-{self._numbers}", self.version + 1, self._clock))
        return ApiAnswer(201, job=self.jobs[name])

    def get(self, name: str) -> ApiAnswer:
        job = self.jobs.get(name)
        return ApiAnswer(200, job=job) if job else ApiAnswer(404, "NotFound", f'jobs.batch "{name}" not found')

    def of_task(self, task_id: int) -> list[Job]:
        return [job for job in self.jobs.values() if job.task_id == task_id]

    def delete(self, end: End) -> ApiAnswer:
        """With preconditions, in the foreground: a Job that has Pods is gone only after them."""
        found = self.jobs.get(end.name) if end.kind == "jobs" else self.pods.get(end.name)
        if found is None:
            return ApiAnswer(404, "NotFound")
        version = found.resource_version if isinstance(found, Job) else None
        if found.uid != end.uid or (end.resource_version is not None and end.resource_version != version):
            return ApiAnswer(409, "Conflict", "the precondition does not hold")
        if isinstance(found, Pod):
            self.end_pod(found, "BackoffLimitExceeded")
        else:
            self.begin_delete(found)
        return ApiAnswer(200)

    def begin_delete(self, job: Job) -> None:
        self.change(job, deleting=True)
        if not any(pod.job_uid == job.uid for pod in self.pods.values()):
            self.bury(self.jobs[job.name])

    def bury(self, job: Job, *, lives_on: bool = False) -> None:
        """The Job and its Pods are gone; behind a partition its container is not."""
        for pod in [pod for pod in self.pods.values() if pod.job_uid == job.uid]:
            self._drop_pod(pod)
            if not lives_on:
                self._stop(pod)
        del self.jobs[job.name]
        self._tell("jobs", job.name, None)

    def add_pod(self, job: Job) -> None:
        """What the Job controller does for a Job that has no Pod."""
        self._numbers += 1
        name = f"{job.name}-{self._numbers}"
        shape = self.manifests[job.name]["spec"]["template"]["metadata"]["annotations"]["dispatcher.internal/shape"]
        self.put_pod(Pod(name=name, uid=f"pod-{self._numbers}", job_uid=job.uid, queue=job.queue, shape=shape,
                         created_at=self._clock.of_cluster))  # fmt: skip

    def bind(self, pod: Pod) -> None:
        """A node takes the Pod, and its container comes up."""
        job = self.job_of(pod)
        assert job is not None
        self.put_pod(msgspec.structs.replace(
            pod, phase="Running", node_name=NODE, had_run=True, waiting_reason="", unschedulable_since=None
        ))  # fmt: skip
        env = self.manifests[job.name]["spec"]["template"]["spec"]["containers"][0]["env"]
        told = {one["name"]: one.get("value", "") for one in env}
        self.containers.append(Container(job.name, job.uid, pod.name, told))

    def end_container(self, container: Container, code: int) -> bool:
        """Its process ends. True: its Job failed by that, and not by anything before."""
        self.containers.remove(container)
        pod = self.pods.get(container.pod)
        job = self.job_of(pod) if pod else None
        if pod is None or job is None or job.phase is not Phase.ACTIVE:
            return False
        self.put_pod(msgspec.structs.replace(pod, phase="Succeeded" if code == 0 else "Failed"))
        if code == 0:
            self._end(job, Phase.COMPLETE, "CompletionsReached")
        else:
            self._end(job, Phase.FAILED, "BackoffLimitExceeded")
        return code != 0

    def end_pod(self, pod: Pod, reason: str, *, lives_on: bool = False) -> None:
        """A Pod is deleted or evicted: its Job fails, for this reason."""
        job = self.job_of(pod)
        if not lives_on:
            self._stop(pod)
        self._drop_pod(pod)
        if job is not None and job.phase in {Phase.ACTIVE, Phase.FAILING}:
            self._end(job, Phase.FAILED, reason)

    def lose(self, pod: Pod) -> None:
        """Its node is gone: the Job wants to fail and cannot, because its Pod cannot be confirmed dead."""
        job = self.job_of(pod)
        self.set_node(unreachable=True)
        self.put_pod(msgspec.structs.replace(pod, deleting=True))
        if job is not None and job.phase is Phase.ACTIVE:
            self.change(job, phase=Phase.FAILING, reason="PodFailurePolicy")

    def find(self) -> None:
        """The node is back, and what was to be deleted there is gone."""
        self.set_node(unreachable=False)
        for pod in [pod for pod in self.pods.values() if pod.deleting]:
            self.end_pod(pod, "PodFailurePolicy")

    def job_of(self, pod: Pod) -> Job | None:
        return next((job for job in self.jobs.values() if job.uid == pod.job_uid), None)

    def podless(self) -> list[Job]:
        with_pod = {pod.job_uid for pod in self.pods.values()}
        active = (job for job in self.jobs.values() if job.phase is Phase.ACTIVE and not job.deleting)
        return [job for job in active if job.uid not in with_pod]

    def expire(self) -> None:
        """Jobs end at their own deadline, whatever keeps their Pod."""
        for job in list(self.jobs.values()):
            age = (self._clock.of_cluster - job.created_at).total_seconds()
            if job.phase is Phase.ACTIVE and age >= self.manifests[job.name]["spec"]["activeDeadlineSeconds"]:
                self._end(job, Phase.FAILED, "DeadlineExceeded")
                for pod in [pod for pod in self.pods.values() if pod.job_uid == job.uid]:
                    self._stop(pod)
                    self._drop_pod(pod)

    def truth(self, kind: str) -> Mapping[str, Job | Pod | Node]:
        """All objects of a kind, as a list would give them."""
        of_kind: dict[str, Mapping[str, Job | Pod | Node]] = {"jobs": self.jobs, "pods": self.pods, "nodes": self.nodes}
        return of_kind[kind]

    def unfinished(self) -> Iterator[Job]:
        return (job for job in self.jobs.values() if not job.is_finished)

    def put_pod(self, pod: Pod) -> None:
        self.pods[pod.name] = pod
        self._tell("pods", pod.name, pod)

    def change(self, job: Job, **changes: Any) -> None:
        self.put(msgspec.structs.replace(self.jobs[job.name], **changes))

    def put(self, job: Job) -> None:
        self.jobs[job.name] = msgspec.structs.replace(job, resource_version=str(self.version + 1))
        self._tell("jobs", job.name, self.jobs[job.name])

    def _end(self, job: Job, phase: Phase, reason: str) -> None:
        self.change(job, phase=phase, reason=reason, ended_at=self._clock.of_cluster)

    def _drop_pod(self, pod: Pod) -> None:
        del self.pods[pod.name]
        self._tell("pods", pod.name, None)

    def _stop(self, pod: Pod) -> None:
        self.containers = [one for one in self.containers if one.pod != pod.name]

    def _tell(self, kind: str, name: str, found: Job | Pod | Node | None) -> None:
        self.history.append(Event(self.version + 1, kind, name, found))


def born(manifest: Manifest, uid: str, version: int, clock: Timeline) -> Job:
    """The object that the API server makes of a manifest, as the adapter reads it."""
    meta = {
        "uid": uid,
        "resourceVersion": str(version),
        "creationTimestamp": clock.of_cluster.isoformat(),
        **manifest["metadata"],
    }
    job = read_job(json.dumps({**manifest, "metadata": meta}).encode())
    assert job is not None, "a Job of ours that our own adapter does not read"
    return job
