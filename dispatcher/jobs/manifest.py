"""Builds the Job of a launch from template, row and contract. Only the fields of a row that are named here get in."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from dispatcher.jobs.env import build_env, escape
from dispatcher.jobs.needs import with_amounts
from dispatcher.jobs.placed import cache_dir, place_pod
from dispatcher.jobs.templates import Template
from dispatcher.model import identity as ids
from dispatcher.model.jobs import Manifest
from dispatcher.model.launches import Order
from dispatcher.model.tasks import Task
from dispatcher.settings.definition import PlacementSettings

DISRUPTION_ENDS_THE_JOB = {
    # With `Ignore` the Job would make a second Pod under the same launch number. The rule is in the Job, so that the
    # Job still says "disrupted" after its Pod is gone.
    "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}


class Site(Struct, frozen=True):
    """Settings that are the same for every Job of an installation.

    installation: name of the installation; first part of the names of its Jobs.
    namespace: namespace of the Jobs.
    timeout_seconds: run limit of rows that set none.
    placement: how Pods are placed.
    passed: variables of this process that every container gets, by PASS_ENV.
    """

    installation: str
    namespace: str
    timeout_seconds: int
    placement: PlacementSettings
    passed: Mapping[str, str]


def run_limit(task: Task, template: Template, site: Site) -> int:
    """Seconds that the container may run: the row's own limit, or the default, at most the template's bound."""
    return task.timeout_seconds or min(site.timeout_seconds, template.max_seconds)


def build_job(order: Order, template: Template, site: Site) -> Manifest:
    """The complete batch/v1 Job of this launch. Parts that it shares with the template are never changed."""
    limit = run_limit(order.task, template, site)
    labels, theirs = build_labels(order, site), template.manifest.get("metadata") or {}
    kept = {key: value for key, value in (theirs.get("annotations") or {}).items() if key not in ids.OPENINGS}
    named = {"name": ids.name_of(order, site.installation), "namespace": site.namespace}
    meta = merge({"labels": theirs.get("labels"), "annotations": kept}, labels, build_annotations(order, template))
    pod = template.manifest["spec"]["template"]
    pod_meta = merge(pod.get("metadata"), labels, build_pod_annotations(order))
    spec = {
        **template.manifest["spec"],
        "backoffLimit": 0,
        "podFailurePolicy": DISRUPTION_ENDS_THE_JOB,
        "template": {**pod, "metadata": pod_meta, "spec": build_pod(order, template, site, limit)},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {**named, **meta}, "spec": spec}


def build_pod(order: Order, template: Template, site: Site, limit: int) -> Manifest:
    """The template's Pod. The task's container has this row's values."""
    containers = list(template.pod_spec["containers"])
    containers[template.container] = build_container(containers[template.container], order, template, site, limit)
    ours = {"restartPolicy": "Never", "activeDeadlineSeconds": limit, "containers": containers}
    if scheduler := site.placement.scheduler_name:
        ours["schedulerName"] = scheduler
    return place_pod({**template.pod_spec, **ours}, order.placement)


def build_labels(order: Order, site: Site) -> dict[str, str]:
    """Labels by which our programs select Jobs and Pods."""
    return {
        ids.MANAGED_BY: ids.MANAGER,
        ids.LABEL_INSTALLATION: site.installation,
        ids.LABEL_TASK_ID: str(order.task.id),
        ids.LABEL_QUEUE: order.task.queue,
        ids.LABEL_ATTEMPT: str(order.task.attempt),
        ids.LABEL_LAUNCH: str(order.launch.number),
        ids.LABEL_TEMPLATE: order.task.template,
    }


def build_annotations(order: Order, template: Template) -> dict[str, str]:
    """Annotations that prove the Job's identity, and the counts of earlier launches for the next launch."""
    return {
        ids.IDENTITY: ids.identity_of(order),
        ids.DATABASE_ID: order.database_id,
        ids.SUBMITTED_BY: order.task.submitted_by,
        ids.UNSTARTED: str(order.launch.unstarted),
        ids.DISRUPTED: str(order.launch.disrupted),
        ids.REPORT: template.report,
        **({ids.UNPLACED_BEFORE: str(order.launch.unplaced)} if order.launch.unplaced else {}),
    }


def build_pod_annotations(order: Order) -> dict[str, str]:
    annotations = {ids.SHAPE: order.offer.shape, **order.placement.notes}
    if order.request.cache_key is not None:
        annotations[ids.CACHE_KEY] = order.request.cache_key
    return annotations


def build_contract(order: Order, limit: int, cache: str) -> dict[str, str]:
    """The variables that every container gets. `build_env` adds those that only the cluster can fill."""
    return {
        "TASK_ID": str(order.task.id),
        "TASK_QUEUE": order.task.queue,
        "TASK_ATTEMPT": str(order.task.attempt),
        "TASK_LAUNCH": str(order.launch.number),
        "TASK_START_KEY": order.start_key,
        "TASK_TIMEOUT_SECONDS": str(limit),
        "TASK_CACHE_DIR": cache,
    }


def build_container(
    theirs: Mapping[str, Any], order: Order, template: Template, site: Site, limit: int
) -> dict[str, Any]:
    """The template's container with the row's values. They are inside the bounds: their kind was judged."""
    spec, contract = order.request.spec, build_contract(order, limit, cache_dir(template.pod_spec, order.placement))
    env = build_env(site.passed, theirs.get("env") or [], order.request.env, contract)
    ours = {**with_amounts(theirs, spec), "env": env}
    if "image" in spec:
        ours["image"] = spec["image"]
    for field in ("command", "args"):
        if field in spec:
            ours[field] = [escape(word) for word in spec[field]]
    return ours


def merge(meta: Mapping[str, Any] | None, labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, Any]:
    """The template's metadata with our labels and annotations. Ours win."""
    theirs = dict(meta or {})
    return {
        **theirs,
        "labels": {**(theirs.get("labels") or {}), **labels},
        "annotations": {**(theirs.get("annotations") or {}), **annotations},
    }
