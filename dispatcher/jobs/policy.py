"""The second, independent check: compares the finished Job with its template. Pure.

`manifest.py` builds by allow-list; this module compares for equality. Every field that a row may not set must be in the
Job exactly as in the template. Every field that a row may set must be inside the bounds. The two modules do not call
each other, so each finds mistakes of the other. With a single check, one mistake is enough (three Argo Workflows
advisories of 2026).

`placement_violations`: a Pod may have only these additions to its template:

* a pool that the row may name,
* preferred nodes,
* a cache below the root.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from dispatcher.jobs.env import CONTRACT, ENV_NAME, FIELDS, literal
from dispatcher.jobs.manifest import DISRUPTION_ENDS_THE_JOB, JobSite
from dispatcher.jobs.row_check import check_amount, check_image
from dispatcher.jobs.templates import Template
from dispatcher.model import launches as ids
from dispatcher.model.jobs import Manifest
from dispatcher.model.launches import LaunchSpec
from dispatcher.model.stored_json import Json
from dispatcher.settings.definition import PlacementSettings

DIGEST: Final = re.compile(r"[0-9a-f]{40}")
NODE: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
NOTES: Final = {f"dispatcher.internal/{name}" for name in ("history-nodes", "cold-nodes", "real-resources")}
CACHE_MOUNT: Final = {"name": "dispatcher-cache", "mountPath": "/cache"}


def placement_violations(
    pod: Json, order: LaunchSpec, template: Template, settings: PlacementSettings
) -> Iterator[str]:
    base = template.pod_spec
    if order.placement.notes.keys() - NOTES:
        yield "the Pod is told what is no advice"
    ours, theirs = ((spec.get("affinity") or {}) for spec in (pod, base))
    if without_node_affinity(ours) != without_node_affinity(theirs):
        yield "the affinity to other Pods differs from its template"
    demand = demand_of(order.request.spec, template, settings)
    here, there = ((affinity.get("nodeAffinity") or {}) for affinity in (ours, theirs))
    if required(here) != [[*term, *demand] for term in required(there) or [[]] if term or demand]:
        yield "the nodes that it demands are not those of its template and pool"
    if not all(is_preference_by_name(one) for one in entries_added(preferred(here), preferred(there))):
        yield "it prefers something else than nodes by name"
    added = entries_added(pod.get("tolerations"), base.get("tolerations"))
    is_private = bool(order.request.spec.get("private_machine"))
    if added != [{**taint_of(one), "operator": "Equal", "effect": "NoSchedule"} for one in demand if is_private]:
        yield "it tolerates more than its template and pool"


def demand_of(spec: Mapping[str, Any], template: Template, settings: PlacementSettings) -> list[tuple[str, ...]]:
    """The pool's conditions in every term of the template: a machine that the row may name, or the default selector."""
    for field, label in (
        ("private_machine", settings.private_machine_label), ("special_machine", settings.special_machine_label)
    ):  # fmt: skip
        if field in spec:
            is_allowed = field in template.opened and any(
                fnmatchcase(str(spec[field]), glob) for glob in template.machines
            )
            return [(label, "In", spec[field])] if is_allowed else []
    label, _, value = settings.node_selector.partition("=")
    return [(label, "In", value)] if label else []


def required(affinity: Json) -> list[list[tuple[str, ...]]]:
    """Required node terms, each as a list of its conditions."""
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or []
    both = ("matchFields", "matchExpressions")
    return [[condition_of(one) for field in both for one in term.get(field) or []] for term in terms]


def condition_of(expression: Json) -> tuple[str, ...]:
    return (expression["key"], expression["operator"], *(expression.get("values") or []))


def taint_of(demand: tuple[str, ...]) -> Json:
    return {"key": demand[0], "value": demand[2]}


def preferred(affinity: Json) -> Sequence[Json]:
    found: Sequence[Json] = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    return found


def without_node_affinity(affinity: Json) -> Json:
    return {key: value for key, value in affinity.items() if key != "nodeAffinity"}


def is_preference_by_name(one: Json) -> bool:
    preference = one.get("preference") or {}
    fields = preference.get("matchFields") or []
    return preference.keys() == {"matchFields"} and len(fields) == 1 and all(
        field["key"] == "metadata.name"
        and field["operator"] in {"In", "NotIn"}
        and all(map(NODE.fullmatch, field["values"]))
        for field in fields
    )  # fmt: skip


def entries_added(ours: Sequence[Json] | None, theirs: Sequence[Json] | None) -> list[Json]:
    """The entries after the template's own. If these are not first and unchanged: `[{}]`, which no check accepts."""
    mine, base = list(ours or []), list(theirs or [])
    return mine[len(base) :] if mine[: len(base)] == base else [{}]


def cache_violations(pod: Json, base: Mapping[str, Any], folder: str) -> Iterator[str]:
    """Checks the cache. `folder`: the folder of this installation's caches; empty: there are none."""
    for volume in entries_added(pod.get("volumes"), base.get("volumes")):
        parent, _, name = (volume.get("hostPath") or {}).get("path", "").rpartition("/")
        is_ours = volume == {
            "name": "dispatcher-cache",
            "hostPath": {"path": f"{parent}/{name}", "type": "DirectoryOrCreate"},
        }
        if not (is_ours and folder and parent == folder and DIGEST.fullmatch(name)):
            yield "it has a volume that is neither its template's nor a cache of this installation"


def without_cache(container: Mapping[str, Any]) -> Json:
    """The container without the mount of the cache."""
    mounts = [mount for mount in container.get("volumeMounts") or [] if mount != CACHE_MOUNT]
    rest = {key: value for key, value in container.items() if key != "volumeMounts"}
    return rest | ({"volumeMounts": mounts} if mounts else {})


JOB_FIELDS = frozenset({"backoffLimit", "podFailurePolicy", "template"})
POD_FIELDS = frozenset({"restartPolicy", "activeDeadlineSeconds", "schedulerName", "containers"}) | {
    "affinity", "tolerations", "volumes", "initContainers",  # may change; see `placement_violations`
}  # fmt: skip
RUNS_OR_TRUSTS = re.compile(
    r"(PATH|HOME|USER|SHELL|IFS|(BASH_)?ENV|BROWSER|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|CLASSPATH|GCONV_PATH|LOCPATH"
    r"|REQUESTS_CA_BUNDLE|KUBECONFIG|(?i:(HTTPS?|ALL|NO)_PROXY))$"
    r"|BASH_FUNC_|PG|PYTHON|NODE_|NPM_|JDK_|PERL|RUBY|GEM_|GIT_|SSH_|SSL_|CURL_|AWS_|GOOGLE_|AZURE_"
)
"""Variables whose value programs run or trust. A row may set them only if the template opens them by name."""
ROW_FIELDS = frozenset({"env", "image", "command", "args", "resources"})


def check_job(job: Manifest, order: LaunchSpec, template: Template, site: JobSite) -> str:
    """The first difference in a finished Job that its template does not allow; empty: none."""
    return next(violations(job, order, template, site), "")


def violations(job: Manifest, order: LaunchSpec, template: Template, site: JobSite) -> Iterator[str]:
    yield from meta_violations(job, order, template, site)
    yield from spec_violations(job["spec"], template, site)
    pod = job["spec"]["template"]["spec"]
    yield from placement_violations(pod, order, template, site.placement)
    yield from cache_violations(pod, template.pod_spec, cache_folder(site))
    for field in ("initContainers", "containers"):
        here, there = pod.get(field) or [], template.pod_spec.get(field) or []
        if len(here) != len(there):
            yield "the Pod has another number of containers"
        for index, (ours, theirs) in enumerate(zip(here, there, strict=False)):
            is_tasks = field == "containers" and index == template.container
            yield from container_violations(without_cache(ours), without_cache(theirs), template if is_tasks else None)
    yield from env_violations(pod["containers"][template.container], order, template, site)


def cache_folder(site: JobSite) -> str:
    """The folder of this installation's caches on a node; empty: there are none."""
    return f"{root}/{site.installation}" if (root := site.placement.cache_root) else ""


def meta_violations(job: Manifest, order: LaunchSpec, template: Template, site: JobSite) -> Iterator[str]:
    """Checks the metadata of Job and Pod: the template's own, with exactly our labels and annotations added."""
    task, number, theirs = order.task, order.launch.number, template.manifest.get("metadata") or {}
    labels = {
        "app.kubernetes.io/managed-by": "dispatcher", "dispatcher.internal/installation": site.installation,
        "dispatcher.internal/task-id": str(task.id), "dispatcher.internal/queue": task.queue,
        "dispatcher.internal/attempt": str(task.attempt), "dispatcher.internal/launch": str(number),
        "dispatcher.internal/template": template.name,
    }  # fmt: skip
    times, before = order.launch.disrupted_at, order.launch.unplaced
    notes = {
        "dispatcher.internal/identity": ids.task_identity(order.database_id, task.id, task.created_at),
        "dispatcher.internal/database-id": order.database_id, "dispatcher.internal/submitted-by": task.submitted_by,
        "dispatcher.internal/unstarted": str(order.launch.unstarted), "dispatcher.internal/report": template.report,
        "dispatcher.internal/disrupted": str(order.launch.disrupted), "dispatcher.internal/image": order.offer.image,
        **({"dispatcher.internal/final-codes": template.final_codes} if template.final_codes else {}),
        **({"dispatcher.internal/disrupted-at": ",".join(at.isoformat() for at in times)} if times else {}),
        **({"dispatcher.internal/unplaced-before": str(before)} if before else {}),
    }  # fmt: skip
    kept = {
        key: note for key, note in (theirs.get("annotations") or {}).items() if not key.startswith(f"{ids.DOMAIN}/")
    }
    wanted = {
        "name": ids.name_of(order, site.installation), "namespace": site.namespace,
        "labels": {**(theirs.get("labels") or {}), **labels}, "annotations": {**kept, **notes},
    }  # fmt: skip
    if (job["apiVersion"], job["kind"], job["metadata"]) != ("batch/v1", "Job", wanted):
        yield "the Job is not this task's"
    pod, base = job["spec"]["template"]["metadata"], template.manifest["spec"]["template"].get("metadata") or {}
    added = {ids.SHAPE: order.offer.shape, ids.CONTAINER: template.task_container["name"]}
    added |= {ids.CACHE_KEY: key} if (key := order.request.cache_key) else {}
    said = {**(base.get("annotations") or {}), **added, **order.placement.notes}
    if pod != {**base, "labels": {**(base.get("labels") or {}), **labels}, "annotations": said}:
        yield "the Pod's metadata differ from its template"


def spec_violations(spec: Manifest, template: Template, site: JobSite) -> Iterator[str]:
    pod = spec["template"]["spec"]
    if without(spec, JOB_FIELDS) != without(template.manifest["spec"], JOB_FIELDS):
        yield "the Job's spec differs from its template"
    if without(pod, POD_FIELDS) != without(template.pod_spec, POD_FIELDS):
        yield "the Pod's spec differs from its template"
    if (spec["backoffLimit"], spec["podFailurePolicy"], pod["restartPolicy"]) != (0, DISRUPTION_ENDS_THE_JOB, "Never"):
        yield "the Job could make a second Pod"
    if any(could_run_twice(one, kind) for kind in ("containers", "initContainers") for one in pod.get(kind) or ()):
        yield "a container could run twice in its Pod"
    limit = pod["activeDeadlineSeconds"]
    if not 0 < limit <= template.max_seconds:
        yield "the run limit is over the template's"
    if pod.get("schedulerName") != (site.placement.scheduler_name or template.pod_spec.get("schedulerName")):
        yield "the scheduler is another"


def could_run_twice(container: Mapping[str, Any], kind: str) -> bool:
    policy = container.get("restartPolicy") or "Never"
    is_sidecar = kind == "initContainers" and policy == "Always"
    return not (is_sidecar or policy == "Never") or bool(container.get("restartPolicyRules"))


def container_violations(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], template: Template | None
) -> Iterator[str]:
    """Checks one container. `template` is None for a container that no row may change."""
    if template is None:
        if ours != theirs:
            yield "another container differs from its template"
        return
    if without(ours, ROW_FIELDS) != without(theirs, ROW_FIELDS):
        yield "the container differs from its template"
    for field in ("image", "command", "args"):
        if ours.get(field) != theirs.get(field):
            yield from field_violations(field, ours.get(field), template)
    yield from resource_violations(ours.get("resources") or {}, theirs.get("resources") or {}, template)


def field_violations(field: str, value: Any, template: Template) -> Iterator[str]:
    """Checks a field that differs from the template."""
    if field not in template.opened:
        yield f"{field} differs from the template, which does not open it"
    if field == "image":
        yield from filter(None, [check_image(str(value), template)])
    elif any(is_expanded(word) for word in value or ()):
        yield f"{field} would be expanded"


def resource_violations(ours: Mapping[str, Any], theirs: Mapping[str, Any], template: Template) -> Iterator[str]:
    both = ("requests", "limits")
    if without(ours, both) != without(theirs, both):
        yield "resources differ from the template"
    for side in both:
        mine, base = ours.get(side) or {}, theirs.get(side) or {}
        for resource in mine.keys() | base.keys():
            if mine.get(resource) == base.get(resource):
                continue
            if resource not in {"cpu", "memory"} or resource not in template.opened:
                yield f"{side}.{resource} differs from the template, which does not open it"
            else:
                yield from filter(None, [check_amount(resource, str(mine.get(resource)), template)])


def env_violations(container: Mapping[str, Any], order: LaunchSpec, template: Template, site: JobSite) -> Iterator[str]:
    env = container["env"]
    by_name = {variable["name"]: variable for variable in env}
    if len(by_name) != len(env):
        yield "an env name stands twice"
    given = {name: literal(name, value) for name, value in site.passed.items()}
    given |= {variable["name"]: variable for variable in template.task_container.get("env") or []}
    if not by_name.keys() >= CONTRACT | given.keys():
        yield "the contract, or what the template gives, is incomplete"
    own = template.task_container.get("volumeMounts") or []
    cache = "/cache" if CACHE_MOUNT in (container.get("volumeMounts") or []) and CACHE_MOUNT not in own else ""
    usual = min(template.timeout_seconds or site.timeout_seconds, template.max_seconds)
    truth = contract_of(order, order.task.timeout_seconds or usual, cache)
    for name, variable in by_name.items():
        if name in CONTRACT:
            if variable != truth[name]:
                yield f"env.{name} is not what the contract says"
        elif given.get(name) != variable:
            yield from row_violations(variable, name in given, template.opened)
    yield from size_violations(container, given, template)


def size_violations(
    container: Mapping[str, Any], given: Mapping[str, Any], template: Template
) -> Iterator[str]:  # fmt: skip
    """Checks the size of the row's text. etcd keeps many copies of a Job."""
    rows = [one for one in container["env"] if one["name"] not in CONTRACT and given.get(one["name"]) != one]
    words = [text for one in rows for text in (one["name"], one.get("value", ""))]
    for field in ("command", "args"):
        if container.get(field) != template.task_container.get(field):
            words += container.get(field) or ()
    size = sum(len(str(word).encode(errors="replace")) for word in words)
    if 0 < template.max_bytes < size:
        yield f"env, command and args have {size} bytes, more than {template.max_bytes}: put large input into payload"


def contract_of(order: LaunchSpec, limit: int, cache: str) -> dict[str, dict[str, Any]]:
    """The variables of the contract as they must be in the container, by name."""
    task = order.task
    told = {
        "TASK_ID": str(task.id), "TASK_QUEUE": task.queue, "TASK_ATTEMPT": str(task.attempt),
        "TASK_LAUNCH": str(order.launch.number), "TASK_START_KEY": order.start_key,
        "TASK_TIMEOUT_SECONDS": str(limit), "TASK_CACHE_DIR": cache,
    }  # fmt: skip
    asked = {name: {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in FIELDS.items()}
    return asked | {name: {"name": name, "value": value} for name, value in told.items()}


def row_violations(variable: Mapping[str, Any], is_given: bool, opened: frozenset[str]) -> Iterator[str]:
    """Checks a variable that the row set, which neither template, PASS_ENV nor contract has with this value."""
    name = variable["name"]
    if f"env.{name}" not in opened and (is_given or "env" not in opened or RUNS_OR_TRUSTS.match(name)):
        yield f"env.{name} is not opened"
    if not ENV_NAME.fullmatch(name) or name.startswith(("TASK_", "DISPATCHER_", "KUBERNETES_", "LD_")):
        yield "an env name is illegal"
    if variable.keys() != {"name", "value"}:
        yield f"env.{name} is not a plain value"
    elif is_expanded(variable["value"]):
        yield f"env.{name} would be expanded"


def is_expanded(text: str) -> bool:
    """Whether the text has a `$` that kubelet could expand."""
    return "$" in text.replace("$$", "")


def without(mapping: Mapping[str, Any], fields: frozenset[str] | tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in fields and value != {}}
