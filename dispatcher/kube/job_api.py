"""Calls for Jobs and their Pods, the answers of autoscalers, and the reasons of suspended Jobs.

`JobApi`: creates, reads and deletes Jobs, and deletes Pods. Answers are values; `jobs.refusals.read_create` decides
what they mean.

`ScaleAnswers`: what cluster autoscalers say of Pods that wait for a node. Only Events of the Pods contain it.
cluster-autoscaler writes TriggeredScaleUp and NotTriggerScaleUp. Karpenter writes Nominated, and FailedScheduling under
its own name. The Events of few Pods are read at a time, and only while Pods wait. Any account that may write Events in
the namespace of Jobs can forge them. A forged Event costs no more than Pods that wait, within all caps.

`Suspensions`: why Jobs are suspended, by the Workload that Kueue keeps for a Job, or else by the Job's Events. Few Jobs
are asked about at a time. Any account that may write Events or Workloads in the namespace of Jobs can forge the words.
They are for people, and no decision uses them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dispatcher.kube.client import OF_A_ROUND_SECONDS, AnswerTooLarge, KubeClient, Reply
from dispatcher.kube.events import Turns, events_about
from dispatcher.kube.objects import encode, read_job, read_status
from dispatcher.kube.wire import UNREADABLE, Bare, Condition, ListPage, Meta, RawItems, Wire, WireEvent, in_namespace
from dispatcher.model.cluster import LONG_AGO, ClusterView, Pod, ScaleAnswer
from dispatcher.model.errors import ClusterAway, ClusterRefused
from dispatcher.model.jobs import ApiAnswer, EndedBy, Job, Manifest, ObjectWrite
from dispatcher.model.launches import ENDED_BY, UNPLACED, job_selector
from dispatcher.model.reservations import changes_of
from dispatcher.runtime.clock import Clock, elapsed

WRITE_SECONDS: Final = 10
"""Our own limit of a write, in seconds."""
SERVER_SECONDS: Final = 8
"""The server's limit in seconds, sent as `timeout`. It bounds how late a write of ours can take effect."""

COMPARED_SECONDS: Final = 1
"""Seconds between two comparisons of created Jobs of one template and submitter with what was sent."""
MOST_COMPARED: Final = 10_000
"""Templates and submitters whose last comparison is remembered, at most."""
WITHHELD: Final = ApiAnswer(0, message="not sent: this replica does not lead any more", is_sent=False)


def always() -> bool:
    return True


def jobs_path(namespace: str) -> str:
    return in_namespace("/apis/batch/v1", namespace, "jobs")


def pods_path(namespace: str) -> str:
    return in_namespace("/api/v1", namespace, "pods")


class JobApi:
    """Calls in the namespace of one installation's Jobs.

    `may_write` is asked directly before each write, because a term may end while a write waits.
    """

    def __init__(
        self, client: KubeClient, namespace: str, installation: str, may_write: Callable[[], bool] = always
    ) -> None:
        self._client = client
        self._may_write = may_write
        self._jobs = jobs_path(namespace)
        self._pods = pods_path(namespace)
        self._installation = installation
        self._compared: dict[tuple[str, str], float] = {}

    async def create(self, manifest: Manifest) -> ApiAnswer:
        """POST that refuses unknown fields. Status 0: the Job may have been made, unless the POST was not sent."""
        if not self._may_write():
            return WITHHELD
        params = {"fieldValidation": "Strict", "timeout": f"{SERVER_SECONDS}s"}
        return await self._made(manifest, params)

    async def try_create(self, manifest: Manifest) -> ApiAnswer:
        """The same POST as a dry run: the API server checks the Job and stores nothing."""
        params = {"fieldValidation": "Strict", "dryRun": "All", "timeout": f"{SERVER_SECONDS}s"}
        return await self._made(manifest, params)

    async def _made(self, manifest: Manifest, params: dict[str, str]) -> ApiAnswer:
        """The answer to a POST, with the changes that others made in the Job, if a comparison is due."""
        try:
            reply = await self._client.request("POST", self._jobs, encode(manifest), params, WRITE_SECONDS)
        except ClusterAway as fault:
            return ApiAnswer(0, message=str(fault))
        answer = read_answer(reply)
        if answer.job is None or not ("dryRun" in params or self._is_due(answer.job)):
            return answer
        changes = changes_of(manifest, msgspec.json.decode(reply.body))
        return msgspec.structs.replace(answer, changes=changes, is_compared=True)

    def _is_due(self, job: Job) -> bool:
        """Whether no such Job of the submitter was compared lately. A comparison takes a tenth of the time of a create.

        Policies of a cluster may mean the Jobs of one team alone.
        """
        now, key = elapsed(), (job.template, job.submitted_by)
        if now - self._compared.get(key, float("-inf")) < COMPARED_SECONDS:
            return False
        if len(self._compared) >= MOST_COMPARED:
            self._compared.pop(next(iter(self._compared)))
        self._compared[key] = now
        return True

    async def get(self, name: str) -> ApiAnswer:
        """A consistent read of one Job."""
        return await self._ask("GET", f"{self._jobs}/{name}", None, None)

    async def list_task(self, task_id: int) -> list[Job]:
        """A consistent list of one task's Jobs. Raises ClusterError if they are not known."""
        params = {"labelSelector": job_selector(self._installation, task_id)}
        reply = await self._client.request("GET", self._jobs, params=params, seconds=WRITE_SECONDS)
        page = reply.read("list the Jobs of a task", ListPage)
        return [job for raw in page.items if (job := read_job(raw)) is not None]

    async def end(self, end: ObjectWrite) -> ApiAnswer:
        """Ends the object in the judged version, or does nothing: all calls carry preconditions."""
        if not self._may_write():
            return WITHHELD
        if end.kind in {"deadline", "mark", *EndedBy}:
            return await self._change(end)
        return await (self._delete_unplaced(end) if end.kind == "unplaced-pods" else self._delete(end))

    async def _change(self, end: ObjectWrite) -> ApiAnswer:
        """PATCH: activeDeadlineSeconds=1, by which the Job fails and its Pods go; or an annotation.

        The note that others end its Pod is written to any version of the Job: its controller changes it in the same
        moment.
        """
        change: Manifest = {"metadata": {"uid": end.uid}}
        if end.resource_version is not None:
            change["metadata"]["resourceVersion"] = end.resource_version
        if end.kind in {*EndedBy}:
            change["metadata"]["annotations"] = {ENDED_BY: end.kind}
        elif end.kind == "mark":
            change["metadata"]["annotations"] = {UNPLACED: "true"}
        else:
            change["spec"] = {"activeDeadlineSeconds": 1}
        return await self._ask("PATCH", f"{self._jobs}/{end.name}", encode(change), {"timeout": f"{SERVER_SECONDS}s"})

    async def _delete_unplaced(self, end: ObjectWrite) -> ApiAnswer:
        """Deletes a Pod in the version in which it had no node. If the Pod gets a node meanwhile, it stays."""
        try:
            only = {"fieldSelector": f"metadata.name={end.name},spec.nodeName="}
            reply = await self._client.request("GET", self._pods, params=only, seconds=WRITE_SECONDS)
            found = [msgspec.json.decode(raw, type=Bare).metadata for raw in reply.read("list one Pod", ListPage).items]
        except ClusterRefused as fault:
            return ApiAnswer(fault.status, fault.reason, str(fault))
        except ClusterAway as fault:
            return ApiAnswer(0, message=str(fault), is_sent=False)
        if not found:
            return ApiAnswer(409, "Conflict", "the Pod has a node, or is gone")
        return await self._delete(msgspec.structs.replace(end, kind="pods", resource_version=found[0].resource_version))

    async def _delete(self, end: ObjectWrite) -> ApiAnswer:
        only_if = {"uid": end.uid}
        if end.resource_version is not None:
            only_if["resourceVersion"] = end.resource_version
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": only_if}
        if end.kind == "jobs":
            options["propagationPolicy"] = "Foreground"  # the default of batch/v1 leaves the Pods behind
        if end.grace_seconds is not None:
            options["gracePeriodSeconds"] = end.grace_seconds
        path = f"{self._jobs if end.kind == 'jobs' else self._pods}/{end.name}"
        return await self._ask("DELETE", path, encode(options), {"timeout": f"{SERVER_SECONDS}s"})

    async def _ask(self, method: str, path: str, body: bytes | None, params: dict[str, str] | None) -> ApiAnswer:
        try:
            reply = await self._client.request(method, path, body, params, WRITE_SECONDS)
        except ClusterAway as fault:
            return ApiAnswer(0, message=str(fault))
        return read_answer(reply)


def read_answer(reply: Reply) -> ApiAnswer:
    if reply.status < 300:
        try:
            return ApiAnswer(reply.status, job=read_job(reply.body))
        except UNREADABLE:  # a truncated body: the call is done, and only a GET can tell what was made
            return ApiAnswer(0, message="the answer was not whole")
    status = read_status(reply.body)
    details = status.details
    causes = tuple(cause.reason for cause in details.causes) if details else ()
    wait = max(reply.retry_after, details.retry_after_seconds if details else 0)
    told = status.kind == "Status"
    return ApiAnswer(reply.status, status.reason, status.message[:500], causes, wait, is_told=told)


ANSWERS_SECONDS: Final = 3
"""Seconds between two rounds of questions about Pods."""
COMES: Final = frozenset({"TriggeredScaleUp", "Nominated"})
REFUSES: Final = frozenset({"NotTriggerScaleUp", "FailedScaleUp"})
UNSCHEDULED: Final = "FailedScheduling"
"""The Pod's own scheduler writes this reason, too. Any other writer is an autoscaler, such as Karpenter."""
LONGEST_WORDS: Final = 300
"""Characters of words that are kept, at most."""


class ScaleAnswers:
    """The newest answer on each Pod, by its UID. `known` never changes; a round with news replaces it."""

    def __init__(self, client: KubeClient, namespace: str, asking: Callable[[], Sequence[Pod]]) -> None:
        self.known: Mapping[str, ScaleAnswer] = {}
        self._client = client
        self._events = in_namespace("/api/v1", namespace, "events")
        self._asking = asking
        self._turns = Turns(elapsed)

    async def run_once(self) -> float:
        """Reads the Events of some Pods that wait. Raises ClusterError if they cannot be read."""
        self.known = await self._turns.ask(self._asking(), self.known, self._read)
        return ANSWERS_SECONDS

    async def _read(self, pod: Pod) -> ScaleAnswer | None:
        events = await events_about(self._client, self._events, f"involvedObject.uid={pod.uid}")
        return answer_of(events, pod.scheduler)


def answer_of(events: Sequence[WireEvent], scheduler: str) -> ScaleAnswer | None:
    """The newest answer among a Pod's Events; None: no autoscaler has answered. `scheduler`: the Pod's scheduler."""
    said = [event for event in events if event.reason in COMES or is_refusal(event, scheduler)]
    if not said:
        return None
    last = max(said, key=lambda event: event.ended_at)
    return ScaleAnswer(last.reason in COMES, last.ended_at, in_one_line(last.message))


def is_refusal(event: WireEvent, scheduler: str) -> bool:
    return event.reason in REFUSES or (event.reason == UNSCHEDULED and event.writer not in {"", scheduler})


SUSPENSIONS_SECONDS: Final = 5
"""Seconds between two rounds of questions about suspended Jobs."""
SPEAKS_IN: Final = timedelta(seconds=2)
"""A program that suspends a Job says why within this time."""
KUEUE: Final = "/apis/kueue.x-k8s.io"
FAILED: Final = 400
"""Status from which on Workloads are not known: no Kueue, no right to read them, or no webhook. Events remain."""
JOB_LABEL: Final = "kueue.x-k8s.io/job-uid"
HOLDS: Final = frozenset({"QuotaReserved", "Admitted", "PodsReady"})
"""Conditions of a Workload that say why it waits, while they are false."""
OF_KUBERNETES: Final = "job-controller"
OURS: Final = "dispatcher"


class Version(Wire, frozen=True):
    version: str = ""


class ApiGroup(Wire, frozen=True):
    preferred_version: Version = Version()


class WorkloadStatus(Wire, frozen=True):
    conditions: list[Condition] | None = None


class Workload(Wire, frozen=True):
    """Kueue's object for a Job."""

    metadata: Meta = Meta()
    status: WorkloadStatus = WorkloadStatus()


class Suspensions:
    """Why Jobs are suspended, in the words of others, by UID. `known` never changes; a round with news replaces it."""

    def __init__(
        self, client: KubeClient, namespace: str, view: Callable[[], ClusterView], clock: Clock = elapsed
    ) -> None:
        self.known: Mapping[str, str] = {}
        self._client = client
        self._namespace = namespace
        self._view = view
        self._turns = Turns(clock)

    async def run_once(self) -> float:
        """Asks about some suspended Jobs. Raises ClusterError if the answers cannot be read."""
        suspended = list(suspended_jobs(self._view()))
        workloads = await self._workloads() if suspended else ""

        async def read(job: Job) -> str | None:
            words = await self._said_by_kueue(job, workloads) if workloads else ""
            return words or await self._said_by_events(job) or None

        self.known = await self._turns.ask(suspended, self.known, read)
        return SUSPENSIONS_SECONDS

    def forget(self) -> None:
        """Forgets all words. Call it if no round follows soon."""
        self.known = {}

    async def _workloads(self) -> str:
        """Path of the Workloads in the version that the server prefers. Empty: it has none."""
        reply = await self._client.request("GET", KUEUE, seconds=OF_A_ROUND_SECONDS)
        if reply.status >= FAILED:
            return ""
        version = reply.read("read the API group of Kueue", ApiGroup).preferred_version.version
        return in_namespace(f"{KUEUE}/{version}", self._namespace, "workloads")

    async def _said_by_kueue(self, job: Job, path: str) -> str:
        params = {"labelSelector": f"{JOB_LABEL}={job.uid}", "limit": "5"}
        try:
            reply = await self._client.request("GET", path, params=params, seconds=OF_A_ROUND_SECONDS)
        except AnswerTooLarge:
            return ""
        if reply.status >= FAILED:
            return ""
        return words_of_workloads(reply.read(f"list Workloads of Job {job.name}", RawItems).readable(Workload))

    async def _said_by_events(self, job: Job) -> str:
        path = in_namespace("/api/v1", self._namespace, "events")
        return words_of_events(await events_about(self._client, path, f"involvedObject.uid={job.uid}"))


def suspended_jobs(view: ClusterView) -> Iterator[Job]:
    for job in view.jobs.values():
        if job.suspended and not (job.is_finished or job.deleting) and view.now - job.created_at >= SPEAKS_IN:
            yield job


def words_of_workloads(workloads: Iterable[Workload]) -> str:
    """The words of the newest condition that keeps the Job from running. Empty: none says why."""
    every = (condition for workload in workloads for condition in workload.status.conditions or ())
    holds = [one for one in every if one.type in HOLDS and one.status == "False" and one.message]
    return in_one_line(max(holds, key=began_at).message) if holds else ""


def words_of_events(events: Iterable[WireEvent]) -> str:
    """The newest Event about a Job that neither Kubernetes nor we have written. Empty: there is none."""
    foreign = [event for event in events if event.message and event.writer not in {OF_KUBERNETES, OURS, ""}]
    if not foreign:
        return ""
    last = max(foreign, key=lambda event: event.ended_at)
    return in_one_line(f"{last.writer}: {last.message}")


def began_at(condition: Condition) -> datetime:
    return condition.last_transition_time or LONG_AGO


def in_one_line(words: str) -> str:
    return " ".join(words.split())[:LONGEST_WORDS]
