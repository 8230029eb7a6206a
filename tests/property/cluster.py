"""The cluster: Jobs, their Pods and one node, with names, uids and versions, and the history that watches read.

`Cluster` does what the API server and the Job controller do for Jobs with one Pod. Nothing happens by itself: the state
machine calls each step. A container may outlive its Pod: behind a partition it runs on, and may still report.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.kube.objects import read_job
from dispatcher.model.cluster import Node, Pod, PodEnd
from dispatcher.model.jobs import ApiAnswer, EndedBy, Job, Manifest, ObjectWrite, Phase
from tests.property.timing import Timeline

NODE: Final = "node-1"
OF_PODS: Final = frozenset({"pods", "unplaced-pods"})


class Event(Struct, frozen=True):
    """A watch event. `found`: the object, or None when it is gone."""

    version: int
    kind: str
    name: str
    found: Job | Pod | Node | None


class Container(Struct):
    """A running container. `environment`: its variables. `token`: its run token, once `task_start` gave it one."""

    job: str
    job_uid: str
    pod: str
    environment: dict[str, str]
    token: str | None = None

    @property
    def task_id(self) -> int:
        return int(self.environment["TASK_ID"])

    @property
    def at(self) -> tuple[int, int]:
        return int(self.environment["TASK_ATTEMPT"]), int(self.environment["TASK_LAUNCH"])


class Cluster:
    """The real state of the cluster. `views.View` is what a dispatcher sees of it."""

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
        self.put_node(Node(name=NODE, ready=not unreachable, unreachable=unreachable))

    def put_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        self._record("nodes", node.name, node)

    def remove_node(self, name: str) -> None:
        del self.nodes[name]
        self._record("nodes", name, None)

    def create(self, manifest: Manifest) -> ApiAnswer:
        """Checks in the order of the API server: admission comes first, so a full quota hides the 409."""
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
        self.put(read_created(manifest, f"uid-{self._numbers}", self.version + 1, self._clock))
        return ApiAnswer(201, job=self.jobs[name])

    def get(self, name: str) -> ApiAnswer:
        job = self.jobs.get(name)
        return ApiAnswer(200, job=job) if job else ApiAnswer(404, "NotFound", f'jobs.batch "{name}" not found')

    def of_task(self, task_id: int) -> list[Job]:
        return [job for job in self.jobs.values() if job.task_id == task_id]

    def end(self, end: ObjectWrite) -> ApiAnswer:
        """A call with preconditions. Deletes propagate in the foreground: a Job is gone only after its Pods."""
        found = self.pods.get(end.name) if end.kind in OF_PODS else self.jobs.get(end.name)
        if found is None:
            return ApiAnswer(404, "NotFound")
        version = found.resource_version if isinstance(found, Job) else None
        if found.uid != end.uid or (end.resource_version is not None and end.resource_version != version):
            return ApiAnswer(409, "Conflict", "the precondition does not hold")
        if isinstance(found, Pod) and end.kind == "unplaced-pods" and found.node_name:
            return ApiAnswer(409, "Conflict", "it has a node")
        if isinstance(found, Pod):
            self.end_pod(found, "BackoffLimitExceeded")
        elif end.kind == "deadline":
            self.fail(found)
        elif end.kind == "mark":
            self.change(found, is_unplaced=True)
        elif end.kind in {*EndedBy}:
            self.change(found, ended_by=end.kind)
        else:
            assert end.kind == "jobs", f"{end.kind} is unknown here"
            self.begin_delete(found)
        return ApiAnswer(200)

    def begin_delete(self, job: Job) -> None:
        self.change(job, deleting_since=self._clock.of_cluster)
        if not any(pod.job_uid == job.uid for pod in self.pods.values()):
            self.finish_delete(self.jobs[job.name])

    def finish_delete(self, job: Job, *, lives_on: bool = False) -> None:
        """Removes the Job and its Pods. With `lives_on`, behind a partition, the container runs on."""
        for pod in [pod for pod in self.pods.values() if pod.job_uid == job.uid]:
            self._drop_pod(pod)
            if not lives_on:
                self._stop(pod)
        del self.jobs[job.name]
        self._record("jobs", job.name, None)

    def add_pod(self, job: Job) -> None:
        """Creates a Pod for a Job without one, as the Job controller does."""
        self._numbers += 1
        name = f"{job.name}-{self._numbers}"
        shape = self.manifests[job.name]["spec"]["template"]["metadata"]["annotations"]["dispatcher.internal/shape"]
        uid, created_at = f"pod-{self._numbers}", self._clock.of_cluster
        self.put_pod(Pod(name=name, uid=uid, job_uid=job.uid, shape=shape, created_at=created_at))

    def bind(self, pod: Pod, node: str = NODE) -> None:
        """Binds the Pod to the node and starts its container."""
        job = self.job_of(pod)
        assert job is not None
        self.put_pod(msgspec.structs.replace(
            pod, phase="Running", node_name=node, scheduled_at=self._clock.of_cluster, had_run=True, waiting_reason="",
            unschedulable_since=None,
        ))  # fmt: skip
        env = self.manifests[job.name]["spec"]["template"]["spec"]["containers"][0]["env"]
        environment = {one["name"]: one.get("value", "") for one in env}
        self.containers.append(Container(job.name, job.uid, pod.name, environment))

    def end_container(self, container: Container, code: int) -> bool:
        """Ends the container's process. Returns True if its Job failed by this exit."""
        self.containers.remove(container)
        pod = self.pods.get(container.pod)
        job = self.job_of(pod) if pod else None
        if pod is None or job is None or job.phase is not Phase.ACTIVE:
            return False
        phase, end = "Succeeded" if code == 0 else "Failed", PodEnd(container="task", exit_code=code)
        self.put_pod(msgspec.structs.replace(pod, phase=phase, exit=end))
        if code == 0:
            self._end(job, Phase.COMPLETE, "CompletionsReached")
        else:
            self._end(job, Phase.FAILED, "BackoffLimitExceeded")
        return code != 0

    def end_pod(self, pod: Pod, reason: str, *, lives_on: bool = False) -> None:
        """Deletes or evicts a Pod. Its Job fails with this reason."""
        job = self.job_of(pod)
        if not lives_on:
            self._stop(pod)
        self._drop_pod(pod)
        if job is not None and job.phase in {Phase.ACTIVE, Phase.FAILING}:
            self._end(job, Phase.FAILED, reason)

    def lose_node(self, pod: Pod) -> None:
        """Makes the Pod's node unreachable. The Job cannot fail, because nothing confirms that its Pod has ended."""
        job = self.job_of(pod)
        self.set_node(unreachable=True)
        self.put_pod(msgspec.structs.replace(pod, deleting=True))
        if job is not None and job.phase is Phase.ACTIVE:
            self.change(job, phase=Phase.FAILING, reason="PodFailurePolicy")

    def restore_node(self) -> None:
        """Makes the node reachable again. Its Pods that were being deleted are gone."""
        self.set_node(unreachable=False)
        for pod in [pod for pod in self.pods.values() if pod.deleting]:
            self.end_pod(pod, "PodFailurePolicy")

    def job_of(self, pod: Pod) -> Job | None:
        return next((job for job in self.jobs.values() if job.uid == pod.job_uid), None)

    def jobs_without_pod(self) -> list[Job]:
        with_pod = {pod.job_uid for pod in self.pods.values()}
        active = (job for job in self.jobs.values() if job.phase is Phase.ACTIVE and not job.deleting)
        return [job for job in active if job.uid not in with_pod]

    def fail(self, job: Job) -> None:
        """Fails a Job whose deadline has passed, even if its Pod cannot be deleted."""
        if job.phase is Phase.ACTIVE:
            self._end(job, Phase.FAILED, "DeadlineExceeded")
        for pod in [pod for pod in self.pods.values() if pod.job_uid == job.uid]:
            self._stop(pod)
            self._drop_pod(pod)

    def objects(self, kind: str) -> Mapping[str, Job | Pod | Node]:
        """All objects of a kind, as a LIST returns them."""
        of_kind: dict[str, Mapping[str, Job | Pod | Node]] = {"jobs": self.jobs, "pods": self.pods, "nodes": self.nodes}
        return of_kind[kind]

    def unfinished(self) -> Iterator[Job]:
        return (job for job in self.jobs.values() if not job.is_finished)

    def put_pod(self, pod: Pod) -> None:
        self.pods[pod.name] = pod
        self._record("pods", pod.name, pod)

    def change(self, job: Job, **changes: Any) -> None:
        self.put(msgspec.structs.replace(self.jobs[job.name], **changes))

    def put(self, job: Job) -> None:
        self.jobs[job.name] = msgspec.structs.replace(job, resource_version=str(self.version + 1))
        self._record("jobs", job.name, self.jobs[job.name])

    def _end(self, job: Job, phase: Phase, reason: str) -> None:
        self.change(job, phase=phase, reason=reason, ended_at=self._clock.of_cluster)

    def _drop_pod(self, pod: Pod) -> None:
        del self.pods[pod.name]
        self._record("pods", pod.name, None)

    def _stop(self, pod: Pod) -> None:
        self.containers = [one for one in self.containers if one.pod != pod.name]

    def _record(self, kind: str, name: str, found: Job | Pod | Node | None) -> None:
        self.history.append(Event(self.version + 1, kind, name, found))


def read_created(manifest: Manifest, uid: str, version: int, clock: Timeline) -> Job:
    """The Job that the API server makes of a manifest, as the adapter reads it."""
    meta = {
        "uid": uid,
        "resourceVersion": str(version),
        "creationTimestamp": clock.of_cluster.isoformat(),
        **manifest["metadata"],
    }
    job = read_job(json.dumps({**manifest, "metadata": meta}).encode())
    assert job is not None, "the adapter does not read a Job of the dispatcher"
    return job
