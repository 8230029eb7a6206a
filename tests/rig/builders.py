"""Builders of the inputs of decisions. A test names only the values that it is about; the rest are defaults.

The time is always `NOW`. The default row is task 42 of queue `default`: waiting, never launched. By default Jobs belong
to this row, and have the name and the identity that they would have in a cluster.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from dispatcher.admission.last_cycle import AskedPicture, LastCycle, RowReason
from dispatcher.admission.launch_inputs import PlacementPlanner
from dispatcher.admission.snapshot import Allowance, ClusterSnapshot, Load, plan_shares
from dispatcher.jobs.manifest import JobSite, PlacedBy
from dispatcher.jobs.observed import ObservedCluster, Rules
from dispatcher.jobs.picture import JobsPicture, by_task
from dispatcher.jobs.row_check import plan_shape
from dispatcher.jobs.templates import Template, judge_template
from dispatcher.kube.pods import needs_of_manifest
from dispatcher.model import launches as ids
from dispatcher.model.caches import Placement
from dispatcher.model.cluster import Node, Pod, PodEnd, PodRefusal
from dispatcher.model.jobs import Job, Manifest, Phase
from dispatcher.model.launches import Launch, LaunchSpec, Offer, PodKind
from dispatcher.model.needs import PodNeeds
from dispatcher.model.tasks import IndexedRow, Kind, Queue, Request, Status, Task
from dispatcher.model.verdicts import Hold
from dispatcher.settings.definition import PlacementSettings

NOW = datetime(2026, 3, 14, 12, tzinfo=UTC)
CREATED = NOW - timedelta(hours=1)
DATABASE_ID = "0b7c1f0e-8a52-4c39-9d5c-6f0f3f6f1c11"
START_KEY = "5d8c6a0a-7f0e-4d5b-9a43-0f1f6f3b9c77"
OTHER_DATABASE = "ffffffff-0000-4000-8000-000000000000"
IMAGE = "registry.example/team-a/app:1"
SITE = JobSite("dispatcher", "jobs", 3600, PlacementSettings(), {})
NOT_PLACED = PlacedBy(needs_of_manifest)
RULES = Rules()
NOWHERE = Placement()
ANYWHERE = PlacementPlanner(
    lambda queue, request, past: NOWHERE, lambda key: (), lambda _, nodes: tuple(nodes), lambda _, nodes: iter(nodes), 3
)
FIRST_LAUNCH = Launch(1)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


TASK = Task(
    id=42, queue="default", priority=100, run_at=None, timeout_seconds=None, max_failures=3, template="default",
    status=Status.WAITING, attempt=1, launch=0, failures=0, job_uid=None, pod_name=None,
    submitted_by="team_a", created_at=CREATED,
    started_at=None, heartbeat_at=None, finished_at=None, cancel_requested_at=None, kind=b"kind",
)  # fmt: skip


def a_task(**changes: Any) -> Task:
    return msgspec.structs.replace(TASK, **changes)


def a_running_task(launch: int = 1, **changes: Any) -> Task:
    """A processing row that the container of this launch holds."""
    held = {"status": Status.PROCESSING, "launch": launch, "started_at": ago(600), "heartbeat_at": ago(5)}
    return a_task(**(held | {"job_uid": f"job-{changes.get('attempt', 1)}-{launch}"} | changes))


def an_indexed_row(id_: int, **changes: Any) -> IndexedRow:
    row = IndexedRow(id=id_, attempt=1, priority=100, queue="default", kind=b"kind", submitted_by="team_a")
    return msgspec.structs.replace(row, **changes)


def a_kind(**changes: Any) -> Kind:
    """A kind of row. By default `spec_names` are the names in `spec`."""
    changes.setdefault("spec_names", frozenset(changes.get("spec", {})))
    return msgspec.structs.replace(Kind(b"kind", "default", None, {}, frozenset(), frozenset()), **changes)


def a_queue(name: str = "default", **changes: Any) -> Queue:
    return msgspec.structs.replace(Queue(name), **changes)


def a_job(attempt: int = 1, launch: int = 1, *, task_id: int = 42, deleting: bool = False, **changes: Any) -> Job:
    """A Job of this launch, made ten minutes ago. Its UID is `job-ATTEMPT-LAUNCH`. `deleting`: since now."""
    identity = ids.task_identity(DATABASE_ID, task_id, CREATED)
    job = Job(
        name=ids.job_name("dispatcher", task_id, identity, attempt, launch), uid=f"job-{attempt}-{launch}",
        resource_version=f"{attempt}{launch}", task_id=task_id, attempt=attempt, launch=launch, queue="default",
        template="default", image=IMAGE, identity=identity, database_id=DATABASE_ID, submitted_by="team_a",
        created_at=ago(600), deleting_since=NOW if deleting else None,
    )  # fmt: skip
    return msgspec.structs.replace(job, **changes)


def a_failed_job(attempt: int = 1, launch: int = 1, **changes: Any) -> Job:
    """A Job that failed an hour ago, which is longer than any backoff."""
    over: dict[str, Any] = {"phase": Phase.FAILED, "reason": "BackoffLimitExceeded"}
    return a_job(attempt, launch, **(over | {"created_at": ago(4200), "ended_at": ago(3600)} | changes))


def a_disrupted_job(attempt: int = 1, launch: int = 1, **changes: Any) -> Job:
    return a_failed_job(attempt, launch, **({"reason": "PodFailurePolicy"} | changes))


def a_complete_job(attempt: int = 1, launch: int = 1, **changes: Any) -> Job:
    return a_failed_job(attempt, launch, **({"phase": Phase.COMPLETE, "reason": "CompletionsReached"} | changes))


def a_pod(job: Job | None = None, **changes: Any) -> Pod:
    """A Pending Pod of a Job, on a node."""
    uid, created_at = (job.uid, job.created_at) if job else ("job-1-1", ago(600))
    name, node = f"pod-of-{uid}", "node-of-pod"
    pod = Pod(name=name, uid=name, job_uid=uid, shape="small", created_at=created_at, node_name=node)
    return msgspec.structs.replace(pod, **changes)


def an_exited_pod(job: Job | None = None, exit_code: int = 0, *, was_told: bool = False, **changes: Any) -> Pod:
    """A Pod whose container `task` has ended by itself."""
    end = PodEnd(container="task", exit_code=exit_code, was_told=was_told, started_at=ago(300), ended_at=ago(60))
    ended = {"phase": "Failed" if exit_code else "Succeeded", "had_run": True, "had_begun": True, "exit": end}
    return a_pod(job, **(ended | {"end": end if exit_code else None} | changes))


def a_node(name: str = "node-1", *, ready: bool = True, unreachable: bool = False) -> Node:
    return Node(name=name, ready=ready, unreachable=unreachable)


def a_cluster(
    pods: Iterable[Pod] = (),
    nodes: Iterable[Node] = (),
    *,
    first_seen: Mapping[str, datetime] | None = None,
    rules: Rules = RULES,
    refusals: Mapping[str, PodRefusal] | None = None,
    made: Mapping[str, PodNeeds] = {},
    suspensions: Mapping[str, str] = {},
    at: datetime = NOW,
) -> ObservedCluster:
    by_job = defaultdict(list)
    for pod in pods:
        by_job[pod.job_uid].append(pod)
    by_name = {node.name: node for node in nodes}
    return ObservedCluster(at, at, by_job, by_name, first_seen or {}, rules, refusals or {}, made, suspensions)


class NoOffers:
    """Templates of tests that judge no kinds."""

    def offer(self, kind: Kind) -> Offer | Hold:
        raise AssertionError(f"{kind} is not judged here")

    def known_offer(self, digest: bytes) -> None:
        return None


class OneOffer:
    """A template that allows each kind of row."""

    def __init__(self, answer: Offer | Hold) -> None:
        self.answer = answer

    def offer(self, kind: Kind) -> Offer | Hold:
        return self.answer

    def known_offer(self, digest: bytes) -> Offer | Hold | None:
        return self.answer


def a_picture(jobs: Iterable[Job] = (), cluster: ObservedCluster | None = None, **changes: Any) -> JobsPicture:
    """A picture of these Jobs. This process has no unseen creates."""
    all_jobs = list(jobs)
    picture = JobsPicture(
        installation="dispatcher",
        database_id=DATABASE_ID,
        cluster=cluster or a_cluster(),
        all_jobs=all_jobs,
        jobs=by_task(all_jobs),
        offers=NoOffers(),
    )
    return msgspec.structs.replace(picture, **changes)


def a_snapshot(*queues: Queue, **changes: Any) -> ClusterSnapshot:
    """A snapshot with no Job in flight, and with room under all caps. Shares are numbers of Jobs."""
    picture = ClusterSnapshot(
        now=NOW,
        queues={queue.name: queue for queue in queues or (a_queue(),)},
        max_jobs=100,
        max_pending=1,
        allowance=Allowance(writes=100, batch=100),
    )
    load: Load = changes.get("load", Load())
    by_jobs = {PodKind(queue, who, "", None): count for (queue, who), count in load.by_submitter.items()}
    return msgspec.structs.replace(picture, **{"shares": plan_shares(by_jobs, {}), **changes})


def a_last_cycle(
    snapshot: ClusterSnapshot | None = None, picture: AskedPicture | None = None, told: Mapping[int, RowReason] = {},
    **changes: Any,
) -> LastCycle:  # fmt: skip
    """A cycle of the leader that launched nothing."""
    facts = {"launched": frozenset(), "held": {}, "since": {}, "leads": True, **changes}
    return LastCycle(snapshot or a_snapshot(), picture or a_picture(), told, **facts)


def a_manifest(
    *,
    annotations: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    pod: Mapping[str, Any] | None = None,
    container: Mapping[str, Any] | None = None,
) -> Manifest:
    """A Job manifest as a task author writes it. Each argument replaces values of the default manifest."""
    task = {
        "name": "task",
        "image": IMAGE,
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
    }
    template = {"spec": {"containers": [task | dict(container or {})]} | dict(pod or {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"annotations": {f"dispatcher.internal/{key}": v for key, v in (annotations or {}).items()}},
        "spec": {"template": template} | dict(spec or {}),
    }


def a_template(
    name: str = "default", *, opens: str | None = None, bounds: Mapping[str, str] | None = None, **parts: Any
) -> Template:
    """A template.

    opens: fields that rows may set.
    bounds: annotations such as max-cpu.
    parts: arguments of `a_manifest`.
    """
    openings = dict(bounds or {}) | ({} if opens is None else {"row-may-set": opens})
    return judge_template(name, a_manifest(annotations=openings, **parts))


def a_request(**changes: Any) -> Request:
    return msgspec.structs.replace(Request(42, 1, {}, {}, None), **changes)


def an_order(
    template: Template | None = None,
    *,
    task: Task = TASK,
    launch: Launch = FIRST_LAUNCH,
    placement: Placement = NOWHERE,
    **asked: Any,
) -> LaunchSpec:
    """An order for a launch of a row. `asked`: values of its request, such as env and spec."""
    request = a_request(task_id=task.id, attempt=task.attempt, **asked)
    offered = template or a_template()
    image = request.spec.get("image", offered.task_container["image"])
    offer = Offer(image, plan_shape(offered, request.spec), offered.name)
    return LaunchSpec(task, request, launch, offer, DATABASE_ID, placement, START_KEY)
