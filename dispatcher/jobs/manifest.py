"""Builds the Job of a launch from template, row and contract. Only the fields of a row that are named here get in.

`place_pod`: writes a placement into a Pod's spec: pool, preferred nodes, cache. The template's own entries stay. One of
several `nodeSelectorTerms` has to match, so the demand of a pool goes into each term. A template that mounts something
at `/cache`, or has a volume with the name of our cache volume, gets no cache.

`plan_needs`: the needs of such a Pod, before there is a Job.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from dispatcher.jobs.env import build_env, escape
from dispatcher.jobs.templates import Template
from dispatcher.model import launches as ids
from dispatcher.model.caches import Placement, Pool
from dispatcher.model.jobs import Manifest
from dispatcher.model.launches import LaunchSpec
from dispatcher.model.needs import PodNeeds
from dispatcher.model.stored_json import Json
from dispatcher.model.tasks import Task
from dispatcher.settings.definition import PlacementSettings

CACHE_VOLUME: Final = "dispatcher-cache"
CACHE_DIR: Final = "/cache"
WEIGHTS: Final = (100, 60, 30)
"""Weights of the preferred nodes, newest first. kube-scheduler scales the highest sum to 100."""
AVOIDED: Final = 100
"""Weight of every node except one to avoid. A node's free room never outweighs it."""
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def place_pod(pod: Manifest, placement: Placement) -> Manifest:
    """A Pod's spec with the placement. `pod` itself is not changed."""
    changed: Json = {}
    if affinity := build_affinity(pod.get("affinity") or {}, placement):
        changed["affinity"] = affinity
    if (pool := placement.pool) is not None and pool.is_private:
        changed["tolerations"] = [*(pod.get("tolerations") or []), toleration(pool)]
    if has_cache(pod, placement):
        changed["volumes"] = [*(pod.get("volumes") or []), cache_volume(placement.cache_path)]
        for field in ("initContainers", "containers"):
            if pod.get(field):
                changed[field] = [with_cache(container) for container in pod[field]]
    return {**pod, **changed}


def cache_dir(pod: Mapping[str, Any], placement: Placement) -> str:
    """Path of the cache directory in the container; empty: no cache."""
    return CACHE_DIR if has_cache(pod, placement) else ""


def has_cache(pod: Mapping[str, Any], placement: Placement) -> bool:
    names = {volume.get("name") for volume in pod.get("volumes") or []}
    taken = any(mount.get("mountPath", "").rstrip("/") == CACHE_DIR for mount in mounts(pod))
    return bool(placement.cache_path) and CACHE_VOLUME not in names and not taken


def mounts(pod: Mapping[str, Any]) -> Iterator[Json]:
    for field in ("initContainers", "containers"):
        for container in pod.get(field) or []:
            yield from container.get("volumeMounts") or []


def with_cache(container: Json) -> Json:
    mount = {"name": CACHE_VOLUME, "mountPath": CACHE_DIR}
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or []), mount]}


def cache_volume(path: str) -> Json:
    return {"name": CACHE_VOLUME, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}


def toleration(pool: Pool) -> Json:
    return {"key": pool.label, "operator": "Equal", "value": pool.value, "effect": "NoSchedule"}


def build_affinity(theirs: Json, placement: Placement) -> Json:
    """The template's affinity with the pool's demand and the preferred nodes."""
    node: Json = dict(theirs.get("nodeAffinity") or {})
    if placement.pool is not None:
        demand = {"key": placement.pool.label, "operator": "In", "values": [placement.pool.value]}
        terms = (node.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
        node[REQUIRED] = {"nodeSelectorTerms": [with_demand(term, demand) for term in terms]}
    if placement.preferred or placement.avoided:
        node[PREFERRED] = [*(node.get(PREFERRED) or []), *preferences(placement)]
    return {**theirs, "nodeAffinity": node} if node else theirs


def with_demand(term: Json, demand: Json) -> Json:
    return {**term, "matchExpressions": [*(term.get("matchExpressions") or []), demand]}


def preferences(placement: Placement) -> Iterator[Json]:
    """Preferences by the name of the node. Its label `hostname` may differ from the name."""
    wanted = [("In", node, weight) for node, weight in zip(placement.preferred, WEIGHTS, strict=False)]
    for operator, node, weight in (*wanted, *(("NotIn", node, AVOIDED) for node in placement.avoided)):
        field = {"key": "metadata.name", "operator": operator, "values": [node]}
        yield {"weight": weight, "preference": {"matchFields": [field]}}


class PlacedBy(Struct, frozen=True):
    """How Pods are placed, and how their needs are read.

    needs_of: the needs of a Pod with this spec; None: it cannot be read as a Pod.
    pool_of: the pool that a row's spec names; None: no pool.
    scheduler_name: the scheduler of all Pods; empty: the one of the template.
    """

    needs_of: Callable[[Manifest], PodNeeds | None]
    pool_of: Callable[[Mapping[str, Any]], Pool | None] = lambda _: None
    scheduler_name: str = ""


def plan_needs(template: Template, spec: Mapping[str, Any], placed_by: PlacedBy) -> PodNeeds | None:
    """The needs of a Pod that `build_job` makes for a kind of row. None: its template cannot be read as a Pod.

    spec: the row's spec, with the pool that it names.
    """
    containers = list(template.pod_spec["containers"])
    containers[template.container] = with_amounts(containers[template.container], spec)
    pod = place_pod({**template.pod_spec, "containers": containers}, Placement(pool=placed_by.pool_of(spec)))
    return placed_by.needs_of({**pod, "schedulerName": placed_by.scheduler_name or pod.get("schedulerName") or ""})


def with_amounts(container: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The container with the row's cpu and memory, as request and as limit."""
    amounts = {resource: spec[resource] for resource in ("cpu", "memory") if resource in spec}
    if not amounts:
        return dict(container)
    resources = dict(container.get("resources") or {})
    for side in ("requests", "limits"):
        resources[side] = {**(resources.get(side) or {}), **amounts}
    return {**container, "resources": resources}


DISRUPTION_ENDS_THE_JOB = {
    # With `Ignore` the Job would make a second Pod under the same launch number. The rule is in the Job, so that the
    # Job still says "disrupted" after its Pod is gone.
    "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}


class JobSite(Struct, frozen=True):
    """Settings that are the same for every Job of an installation.

    installation: name of the installation; first part of the names of its Jobs.
    namespace: namespace of the Jobs.
    timeout_seconds: run limit where neither row nor template has one.
    placement: how Pods are placed.
    passed: variables of this process that every container gets, by PASS_ENV.
    """

    installation: str
    namespace: str
    timeout_seconds: int
    placement: PlacementSettings
    passed: Mapping[str, str]


def run_limit(task: Task, template: Template, site: JobSite) -> int:
    """The run limit of the Pod in seconds.

    It is the row's own, else the template's, else the installation's; at most the template's bound.
    """
    return task.timeout_seconds or min(template.timeout_seconds or site.timeout_seconds, template.max_seconds)


def build_job(order: LaunchSpec, template: Template, site: JobSite) -> Manifest:
    """The complete batch/v1 Job of this launch. Parts that it shares with the template are never changed."""
    limit = run_limit(order.task, template, site)
    labels, theirs = build_labels(order, site), template.manifest.get("metadata") or {}
    kept = {key: value for key, value in (theirs.get("annotations") or {}).items() if key not in ids.OPENINGS}
    named = {"name": ids.name_of(order, site.installation), "namespace": site.namespace}
    meta = merge({"labels": theirs.get("labels"), "annotations": kept}, labels, build_annotations(order, template))
    pod = template.manifest["spec"]["template"]
    pod_meta = merge(pod.get("metadata"), labels, build_pod_annotations(order, template))
    spec = {
        **template.manifest["spec"],
        "backoffLimit": 0,
        "podFailurePolicy": DISRUPTION_ENDS_THE_JOB,
        "template": {**pod, "metadata": pod_meta, "spec": build_pod(order, template, site, limit)},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {**named, **meta}, "spec": spec}


def build_pod(order: LaunchSpec, template: Template, site: JobSite, limit: int) -> Manifest:
    """The template's Pod. The task's container has this row's values."""
    containers = list(template.pod_spec["containers"])
    containers[template.container] = build_container(containers[template.container], order, template, site, limit)
    ours = {"restartPolicy": "Never", "activeDeadlineSeconds": limit, "containers": containers}
    if scheduler := site.placement.scheduler_name:
        ours["schedulerName"] = scheduler
    return place_pod({**template.pod_spec, **ours}, order.placement)


def build_labels(order: LaunchSpec, site: JobSite) -> dict[str, str]:
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


def build_annotations(order: LaunchSpec, template: Template) -> dict[str, str]:
    """Annotations that prove the Job's identity, and the counts of earlier launches for the next launch."""
    return {
        ids.IDENTITY: ids.identity_of(order),
        ids.DATABASE_ID: order.database_id,
        ids.SUBMITTED_BY: order.task.submitted_by,
        ids.UNSTARTED: str(order.launch.unstarted),
        ids.DISRUPTED: str(order.launch.disrupted),
        ids.REPORT: template.report,
        **({ids.FINAL_CODES: template.final_codes} if template.final_codes else {}),
        ids.IMAGE: order.offer.image,
        **({ids.DISRUPTED_AT: ids.written_times(times)} if (times := order.launch.disrupted_at) else {}),
        **({ids.UNPLACED_BEFORE: str(order.launch.unplaced)} if order.launch.unplaced else {}),
    }


def build_pod_annotations(order: LaunchSpec, template: Template) -> dict[str, str]:
    annotations = {
        ids.SHAPE: order.offer.shape,
        ids.CONTAINER: template.task_container["name"],
        **order.placement.notes,
    }
    if order.request.cache_key is not None:
        annotations[ids.CACHE_KEY] = order.request.cache_key
    return annotations


def build_contract(order: LaunchSpec, limit: int, cache: str) -> dict[str, str]:
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
    theirs: Mapping[str, Any], order: LaunchSpec, template: Template, site: JobSite, limit: int
) -> dict[str, Any]:
    """The template's container with the row's values. They are inside the bounds, because their kind was judged."""
    spec, contract = order.request.spec, build_contract(order, limit, cache_dir(template.pod_spec, order.placement))
    env = build_env(site.passed, theirs.get("env") or [], order.request.env, contract, template.opened)
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
