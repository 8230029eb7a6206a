"""Who keeps a Job from having Pods, and an object from being gone."""

from typing import Any

import pytest

from dispatcher.kube.objects import read_job, read_pod
from dispatcher.model.jobs import Job
from tests.unit.wire import AT, a_wire_job, written

MANAGED_BY = "app.kubernetes.io/managed-by"
KUEUE = "kueue.x-k8s.io/queue-name"
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
    job = suspended([set_by("pg-job-dispatcher", "f:suspend")], labels={KUEUE: "team-a"})
    assert job.suspended_by == f"Kueue, by the Job's label {KUEUE}=team-a"


def test_job_that_runs_is_suspended_by_nobody() -> None:
    job = suspended([set_by("kubectl-patch", "f:suspend")], labels={KUEUE: "team-a"}, suspend=False)
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
