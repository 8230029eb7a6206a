"""The Job of a launch, from template, row and contract. Nothing of a row gets in but what is named here."""

import copy
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from dispatcher import identity as ids
from dispatcher.jobs.env import build_env, escape
from dispatcher.jobs.templates import Template
from dispatcher.model import Manifest, Order, Task

DISRUPTION_ENDS_THE_JOB = {
    # With `Ignore` the Job would make a second Pod under the same launch number. As a rule of the Job, not a look at
    # the Pod, so that the Job still says "disrupted" when its Pod is long gone.
    "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}


class Site(Struct, frozen=True):
    """What is the same for every Job of an installation."""

    installation: str
    namespace: str
    timeout_seconds: int
    start_deadline_seconds: int
    scheduler_name: str
    passed: Mapping[str, str]


def run_limit(task: Task, template: Template, site: Site) -> int:
    """Seconds that the container may run: what the row asks, else the default inside the template's bound."""
    return task.timeout_seconds or min(site.timeout_seconds, template.max_seconds)


def build_job(order: Order, template: Template, site: Site) -> Manifest:
    """A complete batch/v1 Job, fresh for this launch."""
    limit = run_limit(order.task, template, site)
    manifest = copy.deepcopy(template.manifest)
    spec, pod = manifest["spec"], manifest["spec"]["template"]
    labels = build_labels(order, site)
    spec |= {
        "backoffLimit": 0,
        "podFailurePolicy": DISRUPTION_ENDS_THE_JOB,
        # Counts Pending too; the Pod's own limit below counts from its start and leaves exit code and log.
        "activeDeadlineSeconds": limit + site.start_deadline_seconds,
    }
    pod["metadata"] = merge(pod.get("metadata"), labels, build_pod_annotations(order))
    pod["spec"] |= {"restartPolicy": "Never", "activeDeadlineSeconds": limit}
    if site.scheduler_name:
        pod["spec"]["schedulerName"] = site.scheduler_name
    apply_row(pod["spec"]["containers"][template.container], order, template, site)
    meta = manifest.get("metadata") or {}
    kept = {key: value for key, value in (meta.get("annotations") or {}).items() if key not in ids.OPENINGS}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": ids.name_of(order, site.installation),
            "namespace": site.namespace,
            **merge({"labels": meta.get("labels"), "annotations": kept}, labels, build_annotations(order, template)),
        },
        "spec": spec,
    }


def build_labels(order: Order, site: Site) -> dict[str, str]:
    """How we find things."""
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
    """How we prove identity, and what the next launch has to know of this one and those before."""
    return {
        ids.IDENTITY: ids.identity_of(order),
        ids.DATABASE_ID: order.database_id,
        ids.SUBMITTED_BY: order.task.submitted_by,
        ids.UNSTARTED: str(order.launch.unstarted),
        ids.DISRUPTED: str(order.launch.disrupted),
        ids.REPORT: template.report,
    }


def build_pod_annotations(order: Order) -> dict[str, str]:
    annotations = {ids.SHAPE: order.offer.shape}
    if order.request.cache_key is not None:
        annotations[ids.CACHE_KEY] = order.request.cache_key
    return annotations


def build_contract(order: Order, limit: int) -> dict[str, str]:
    """What every container is told; the fields that only the cluster knows are added by `build_env`."""
    return {
        "TASK_ID": str(order.task.id),
        "TASK_QUEUE": order.task.queue,
        "TASK_ATTEMPT": str(order.task.attempt),
        "TASK_LAUNCH": str(order.launch.number),
        "TASK_START_KEY": order.request.start_key,
        "TASK_TIMEOUT_SECONDS": str(limit),
        "TASK_CACHE_DIR": "",
    }


def apply_row(container: dict[str, Any], order: Order, template: Template, site: Site) -> None:
    """Puts the opened parts of a row into its container. Whether they are inside the bounds was judged by its kind."""
    spec = order.request.spec
    contract = build_contract(order, run_limit(order.task, template, site))
    container["env"] = build_env(site.passed, container.get("env") or [], order.request.env, contract)
    if "image" in spec:
        container["image"] = spec["image"]
    for field in ("command", "args"):
        if field in spec:
            container[field] = [escape(word) for word in spec[field]]
    amounts = {resource: spec[resource] for resource in ("cpu", "memory") if resource in spec}
    if amounts:
        resources = dict(container.get("resources") or {})
        for side in ("requests", "limits"):
            resources[side] = {**(resources.get(side) or {}), **amounts}
        container["resources"] = resources


def merge(meta: Mapping[str, Any] | None, labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, Any]:
    """Metadata with ours over the template's."""
    theirs = dict(meta or {})
    return {
        **theirs,
        "labels": {**(theirs.get("labels") or {}), **labels},
        "annotations": {**(theirs.get("annotations") or {}), **annotations},
    }
