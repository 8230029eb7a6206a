"""Why Jobs are suspended, and who keeps a Job from having Pods and an object from being gone."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
import pytest

from dispatcher.kube.client import AnswerTooLarge, KubeClient, Reply
from dispatcher.kube.events import PodRefusals, read_in_turn
from dispatcher.kube.job_api import KUEUE, LONGEST_WORDS, Suspensions, suspended_jobs
from dispatcher.kube.objects import read_job, read_pod
from dispatcher.model.cluster import ClusterView
from dispatcher.model.errors import ClusterError
from dispatcher.model.jobs import Job
from tests.rig.builders import NOW, a_failed_job, a_job, ago
from tests.unit.wire import AT, a_wire_job, written

PENDING = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed"
WORKLOADS = f"{KUEUE}/v1beta2/namespaces/jobs/workloads"
EVENTS = "/api/v1/namespaces/jobs/events"
GROUP = {"preferredVersion": {"version": "v1beta2"}}


def a_condition(type_: str, status: str, message: str, seconds: float) -> dict[str, Any]:
    return {"type": type_, "status": status, "message": message, "lastTransitionTime": timestamp(ago(seconds))}


def an_event(writer: str, message: str, seconds: float = 1) -> dict[str, Any]:
    return {"source": {"component": writer}, "message": message, "lastTimestamp": timestamp(ago(seconds))}


def timestamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


class Server(KubeClient):
    """Answers each path. A path that is not there is not found."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = dict(answers)
        self.asked = list[tuple[str, str]]()

    async def request(
        self, method: str, path: str, body: bytes | None = None, params: Mapping[str, str] | None = None,
        seconds: float = 0,
    ) -> Reply:  # fmt: skip
        about = (params or {}).get("labelSelector", "") or (params or {}).get("fieldSelector", "")
        self.asked.append((path, about))
        found = self.answers.get(path, 404)
        return Reply(found, b"{}") if isinstance(found, int) else Reply(200, msgspec.json.encode(found))


def of_workload(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {KUEUE: GROUP, WORKLOADS: {"items": [{"status": {"conditions": list(conditions)}}]}, EVENTS: {"items": []}}


def asking(server: Server, *jobs: Job) -> Suspensions:
    return Suspensions(server, "jobs", lambda: ClusterView(NOW, {job.name: job for job in jobs}, {}, {}))


SUSPENDED = a_job(suspended=True, created_at=ago(60))


async def test_workload_of_kueue_tells_why_its_job_waits() -> None:
    server = Server(of_workload(a_condition("QuotaReserved", "False", PENDING, 5)))
    suspensions = asking(server, SUSPENDED)
    await suspensions.run_once()
    assert suspensions.known == {SUSPENDED.uid: PENDING}
    assert server.asked == [(KUEUE, ""), (WORKLOADS, f"kueue.x-k8s.io/job-uid={SUSPENDED.uid}")]


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ([a_condition("QuotaReserved", "False", "old", 90), a_condition("Admitted", "False", "a\n b", 5)], "a b"),
        ([a_condition("QuotaReserved", "True", "reserved", 9), a_condition("Admitted", "False", "check", 50)], "check"),
        ([{"type": "QuotaReserved", "status": "False", "message": "no time"}], "no time"),
        ([a_condition("QuotaReserved", "False", "x" * 999, 1)], "x" * LONGEST_WORDS),
        ([a_condition("Finished", "False", "another sort", 1)], None),
        ([a_condition("QuotaReserved", "False", "", 1)], None),
    ],
)  # fmt: skip
async def test_newest_condition_that_holds_is_told(conditions: list[dict[str, Any]], words: str | None) -> None:
    suspensions = asking(Server(of_workload(*conditions)), SUSPENDED)
    await suspensions.run_once()
    assert suspensions.known.get(SUSPENDED.uid) == words


@pytest.mark.parametrize(
    "found", [{}, {KUEUE: 403}, {KUEUE: 500}, {KUEUE: GROUP, WORKLOADS: 503}, {KUEUE: GROUP, WORKLOADS: {}}]
)
async def test_events_of_others_tell_it_where_kueue_does_not(found: Mapping[str, Any]) -> None:
    events = [
        an_event("job-controller", "Job suspended"), an_event("dispatcher", "launched again"), an_event("", "nobody"),
        an_event("night-shift", "from 20:00 on", 5), an_event("night-shift", "from 19:00 on", 50),
        an_event("night-shift", "", 0),
    ]  # fmt: skip
    suspensions = asking(Server({**found, EVENTS: {"items": events}}), SUSPENDED)
    await suspensions.run_once()
    assert suspensions.known == {SUSPENDED.uid: "night-shift: from 20:00 on"}


class Flooded(Server):
    """Everything about the Jobs of these UIDs is too large."""

    def __init__(self, answers: Mapping[str, Any], *uids: str) -> None:
        super().__init__(answers)
        self.uids = uids

    async def request(
        self, method: str, path: str, body: bytes | None = None, params: Mapping[str, str] | None = None,
        seconds: float = 0,
    ) -> Reply:  # fmt: skip
        if any(uid in str(params) for uid in self.uids):
            raise AnswerTooLarge("the answer has more than 16777216 bytes")
        return await super().request(method, path, body, params, seconds)


async def test_large_or_odd_words_about_one_job_hide_no_words_about_another() -> None:
    """Whoever may write Events writes a hundred large ones about one Job. The API server bounds only each of them."""
    other = a_job(2, suspended=True, created_at=ago(60))
    answers = of_workload(a_condition("QuotaReserved", "False", PENDING, 5))
    answers[WORKLOADS]["items"].insert(0, {"status": {"conditions": [{"lastTransitionTime": "2026-01-01T99:00:00Z"}]}})
    suspensions = asking(Flooded(answers, SUSPENDED.uid), SUSPENDED, other)
    await suspensions.run_once()
    assert suspensions.known == {other.uid: PENDING}


async def test_large_events_of_one_job_hide_no_refused_pod_of_another() -> None:
    jobs = {job.uid: job for job in (a_job(1, created_at=ago(60)), a_job(2, created_at=ago(60)))}
    events = {EVENTS: {"items": [an_event("job-controller", 'pods "x" is forbidden: no')]}}
    refusals = PodRefusals(Flooded(events, "job-1-1"), "jobs", lambda: ClusterView(NOW, jobs, {}, {}))
    await refusals.run_once()
    assert refusals.known.keys() == {"job-2-1"}


async def test_slow_reads_of_events_take_a_fifth_of_the_time_and_reach_every_job_in_turns() -> None:
    """The API server reads all Events of the namespace for those of one Job, and others need it, too."""
    jobs = {job.name: job for job in (a_job(n, uid=str(n), suspended=True, created_at=ago(60)) for n in range(1, 6))}
    now = [0.0]

    class Slow(Server):
        async def request(
            self, method: str, path: str, body: bytes | None = None, params: Mapping[str, str] | None = None,
            seconds: float = 0,
        ) -> Reply:  # fmt: skip
            now[0] += 0.9 if path == EVENTS else 0
            return await super().request(method, path, body, params, seconds)

    server = Slow({EVENTS: {"items": []}})
    suspensions = Suspensions(server, "jobs", lambda: ClusterView(NOW, jobs, {}, {}), lambda: now[0])
    pauses = [await read_in_turn([suspensions.run_once], lambda: now[0]) for _ in range(3)]
    asked = [about for path, about in server.asked if path == EVENTS]
    assert asked == [f"involvedObject.uid={n}" for n in (1, 2, 3, 4, 5, 1)]
    assert pauses == pytest.approx([4 * 1.8] * 3)


async def test_server_that_fails_is_a_fault_and_not_an_answer() -> None:
    with pytest.raises(ClusterError):
        await asking(Server({EVENTS: 500}), SUSPENDED).run_once()


async def test_words_stay_while_nothing_newer_is_said_and_go_with_the_suspension() -> None:
    server = Server(of_workload(a_condition("QuotaReserved", "False", PENDING, 5)))
    jobs = {SUSPENDED.name: SUSPENDED}
    suspensions = Suspensions(server, "jobs", lambda: ClusterView(NOW, jobs, {}, {}))
    await suspensions.run_once()
    known = suspensions.known
    server.answers[WORKLOADS] = {}
    await suspensions.run_once()
    assert suspensions.known is known
    jobs.clear()
    await suspensions.run_once()
    assert suspensions.known == {}


async def test_no_job_is_suspended_so_nobody_is_asked() -> None:
    server = Server({})
    suspensions = asking(server, a_job())
    await suspensions.run_once()
    suspensions.forget()
    assert (server.asked, suspensions.known) == ([], {})


@pytest.mark.parametrize(
    ("job", "is_asked"),
    [
        (SUSPENDED, True), (a_job(suspended=True, created_at=ago(1)), False), (a_job(created_at=ago(60)), False),
        (a_job(suspended=True, created_at=ago(60), deleting=True), False),
        (a_failed_job(suspended=True, created_at=ago(60)), False),
    ],
)  # fmt: skip
def test_only_unfinished_suspended_jobs_are_asked_about(job: Job, is_asked: bool) -> None:
    assert list(suspended_jobs(ClusterView(NOW, {job.name: job}, {}, {}))) == [job] * is_asked


MANAGED_BY = "app.kubernetes.io/managed-by"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
OF_STATUS = {"manager": "kube-controller-manager", "fieldsV1": {"f:status": {"f:active": {}}}}


def set_by(manager: str, *fields: str) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {name: {} for name in fields}}}


def suspended(managed: Any, *, labels: dict[str, str] | None = None, **spec: Any) -> Job:
    wire = a_wire_job()
    wire["spec"] |= spec or {"suspend": True}
    wire["metadata"] |= {"managedFields": managed, "labels": wire["metadata"]["labels"] | (labels or {})}
    job = read_job(written(wire))
    assert job is not None
    return job


@pytest.mark.parametrize(
    ("managed", "by"),
    [
        ([OF_STATUS, set_by("kubectl-patch", "f:suspend")], "kubectl-patch, by the Job's managed fields"),
        ([set_by("pg-job-dispatcher", "f:parallelism", "f:template"), set_by("night-shift", "f:suspend")],
         "night-shift, by the Job's managed fields"),
        ([set_by("argo-rollouts", "f:parallelism")], ""),
        ([set_by("pg-job-dispatcher", "f:suspend"), OF_STATUS], "a policy or webhook, when it was made"),
        ([set_by("pg-job-dispatcher", "f:template"), set_by("m" * 300, "f:suspend")],
         f"{'m' * 100}, by the Job's managed fields"),
        ([OF_STATUS, {"manager": "x"}, {"fieldsV1": {"f:spec": None}}], ""),
        ([], ""),
        ({"no": "list"}, ""),
        (None, ""),
    ],
)  # fmt: skip
def test_job_that_is_suspended_names_who_did_it_if_its_managed_fields_tell(managed: Any, by: str) -> None:
    job = suspended(managed)
    assert (job.suspended, job.suspended_by) == (True, by)


def test_label_of_kueue_tells_more_than_the_managed_fields() -> None:
    """Its webhook suspends the Job in our own request, so that we have set the field."""
    job = suspended([set_by("pg-job-dispatcher", "f:suspend")], labels={KUEUE_QUEUE: "team-a"})
    assert job.suspended_by == f"Kueue, by the Job's label {KUEUE_QUEUE}=team-a"


def test_job_that_runs_is_suspended_by_nobody() -> None:
    job = suspended([set_by("kubectl-patch", "f:suspend")], labels={KUEUE_QUEUE: "team-a"}, suspend=False)
    assert (job.suspended, job.suspended_by) == (False, "")


def test_parallelism_of_0_is_a_suspension() -> None:
    managed = [set_by("pg-job-dispatcher", "f:suspend"), set_by("kubectl-edit", "f:parallelism")]
    assert suspended(managed, parallelism=0).suspended_by.startswith("kubectl-edit")


OURS_AND_OTHERS = [
    "batch.kubernetes.io/job-tracking",
    "backup.example/copy",
    "foregroundDeletion",
    "mesh.example/drain",
]


@pytest.mark.parametrize(
    ("deleted", "kept"), [({}, ()), ({"deletionTimestamp": AT}, ("backup.example/copy", "mesh.example/drain"))]
)
def test_finalizers_of_others_keep_what_is_being_deleted(deleted: dict[str, str], kept: tuple[str, ...]) -> None:
    wire = a_wire_job()
    wire["metadata"] |= {"finalizers": OURS_AND_OTHERS, **deleted}
    job = read_job(written(wire))
    pod = read_pod(written({"metadata": {"name": "p", "finalizers": OURS_AND_OTHERS, **deleted}}))
    assert job is not None
    assert (job.kept_by, pod.kept_by) == (kept, kept)


def relabelled(manager: str, value: str | None) -> str:
    wire = a_wire_job()
    labels = wire["metadata"]["labels"] | {MANAGED_BY: value}
    wire["metadata"]["labels"] = {key: given for key, given in labels.items() if given is not None}
    owned: dict[str, Any] = {"f:metadata": {"f:labels": {f"f:{MANAGED_BY}": {}}}}
    wire["metadata"]["managedFields"] = [OF_STATUS, {"manager": manager, "fieldsV1": owned}]
    job = read_job(written(wire))
    assert job is not None
    return job.lacks


def test_label_that_somebody_changed_names_who_if_the_managed_fields_tell() -> None:
    assert relabelled("argocd-controller", "argocd") == f"{MANAGED_BY} is 'argocd', by argocd-controller"
    assert relabelled("pg-job-dispatcher", "argocd") == f"{MANAGED_BY} is 'argocd'"  # a webhook, in our own request
    assert relabelled("nobody", None) == f"{MANAGED_BY} is gone"
