"""The kinds of objects that are served, and what all of them need. Pure, except for random parts of names.

`ObjectKind`, `Target`: the kinds, and the targets of API paths.

`with_condition`: conditions and times in statuses.

`ApiFault`: refusals of the API, as metav1.Status.

`made`: defaults that the API server adds to a new object.
"""

import base64
import secrets
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.model.stored_json import Json

NAMED: Final = frozenset({"metadata.name", "metadata.namespace"})


class ObjectKind(Struct, frozen=True):
    """One kind of objects. `fields`: the fields that a fieldSelector may name."""

    kind: str
    plural: str
    group: str = ""
    namespaced: bool = True
    has_status: bool = False
    fields: frozenset[str] = NAMED

    @property
    def api_version(self) -> str:
        return f"{self.group}/v1" if self.group else "v1"


NAMESPACE: Final = ObjectKind("Namespace", "namespaces", namespaced=False, has_status=True)
NODE: Final = ObjectKind(
    "Node", "nodes", namespaced=False, has_status=True, fields=frozenset({"metadata.name", "spec.unschedulable"})
)
POD: Final = ObjectKind(
    "Pod", "pods", has_status=True, fields=NAMED | {"spec.nodeName", "spec.schedulerName", "status.phase"}
)
JOB: Final = ObjectKind("Job", "jobs", "batch", has_status=True, fields=NAMED | {"status.successful"})
EVENT: Final = ObjectKind(
    "Event", "events", fields=NAMED | {"involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason"}
)
SECRET: Final = ObjectKind("Secret", "secrets", fields=NAMED | {"type"})
LEASE: Final = ObjectKind("Lease", "leases", "coordination.k8s.io")
REVIEW: Final = ObjectKind(
    "SelfSubjectAccessReview", "selfsubjectaccessreviews", "authorization.k8s.io", namespaced=False
)
PRIORITY_CLASS: Final = ObjectKind("PriorityClass", "priorityclasses", "scheduling.k8s.io", namespaced=False)
RESOURCE_QUOTA: Final = ObjectKind("ResourceQuota", "resourcequotas", has_status=True)
"""No controller counts for it, so it limits nothing."""
KINDS: Final = (
    NAMESPACE, NODE, POD, JOB, EVENT, SECRET, ObjectKind("ConfigMap", "configmaps"), LEASE, REVIEW, PRIORITY_CLASS,
    RESOURCE_QUOTA,
)  # fmt: skip
BY_PLACE: Final = {(kind.group, kind.plural): kind for kind in KINDS}


class Target(Struct, frozen=True):
    """The target of a path: a collection, an object (`name`), or a subresource of it (`part`)."""

    kind: ObjectKind
    namespace: str = ""
    name: str = ""
    part: str = ""


ENDED: Final = frozenset({"Succeeded", "Failed"})
"""Phases of a Pod whose containers have ended."""


def with_condition(conditions: list[Json], new: Json) -> list[Json]:
    """Puts the condition in the place of its type, or at the end. An unchanged status keeps its time."""
    for number, one in enumerate(conditions):
        if one["type"] == new["type"]:
            since = one.get("lastTransitionTime") if one["status"] == new["status"] else new["lastTransitionTime"]
            return [*conditions[:number], {**new, "lastTransitionTime": since}, *conditions[number + 1 :]]
    return [*conditions, new]


def stamp(at: datetime) -> str:
    """The time as a metav1.Time: whole seconds."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


REASONS: Final = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
    409: "Conflict", 410: "Expired", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType", 422: "Invalid",
    500: "", 504: "Timeout",
}  # fmt: skip


class FieldCause(Struct, frozen=True):
    """One fault of one field. `reason`: a field.ErrorType, like FieldValueRequired or FieldValueInvalid."""

    field: str
    reason: str
    message: str


class ApiFault(Exception):
    """A refused request. `status`: the whole answer."""

    def __init__(self, code: int, message: str, reason: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status: dict[str, Any] = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason or REASONS[code], "code": code,
        } | ({} if details is None else {"details": details})  # fmt: skip


def bad_request(message: str) -> ApiFault:
    return ApiFault(400, message)


def unprocessable(field: str, reason: str, message: str) -> ApiFault:
    """The refusal for a fault of the request, not of an object."""
    details = {"causes": [{"reason": reason, "message": message, "field": field}]}
    return ApiFault(422, f"{field}: {message}", details=details)


def not_found() -> ApiFault:
    return ApiFault(404, "the server could not find the requested resource", details={})


def missing(target: Target) -> ApiFault:
    return about(404, target.kind, target.name, "not found")


def conflict(target: Target, why: str, reason: str = "") -> ApiFault:
    fault = about(409, target.kind, target.name, why, reason)
    if target.part == "binding":
        fault.status["details"]["kind"] = "pods/binding"
    return fault


def invalid(kind: ObjectKind, name: str, causes: list[FieldCause]) -> ApiFault:
    """The refusal with all faults of an object."""
    words = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
    fault = about(422, kind, name, f"is invalid: {words if len(causes) == 1 else f'[{words}]'}")
    fault.status["details"] |= {"kind": kind.kind, "causes": [msgspec.to_builtins(cause) for cause in causes]}
    return fault


def about(code: int, kind: ObjectKind, name: str, words: str, reason: str = "") -> ApiFault:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    what = (kind.kind if code == 422 else kind.plural) + (f".{kind.group}" if kind.group else "")
    return ApiFault(code, f'{what} "{name}" {words}', reason, {key: value for key, value in details.items() if value})


def expired(message: str) -> ApiFault:
    return ApiFault(410, message)


LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
TRACKING: Final = "batch.kubernetes.io/job-tracking"
CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
NOT_READY: Final = "node.kubernetes.io/not-ready"
LONGEST_PREFIX: Final = 58
CONTAINER: Final = {"imagePullPolicy": "IfNotPresent", "resources": {}, "terminationMessagePolicy": "File"}
POD_SPEC: Final = {
    "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
    "securityContext": {}, "terminationGracePeriodSeconds": 30,
}  # fmt: skip
JOB_SPEC: Final = {"parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
                   "suspend": False, "manualSelector": False}  # fmt: skip
TOLERATIONS: Final = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for what in ("not-ready", "unreachable")
]


def made(kind: ObjectKind, given: Json, namespace: str, at: str) -> Json:
    """The object as it is stored: fields of the server are set by the server, missing fields get defaults."""
    meta = given.get("metadata") or {}
    kept = {key: meta[key] for key in meta if key not in {"resourceVersion", "selfLink", "managedFields", "uid"}}
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "generateName"):
        kept.pop(key, None)
    if prefix := meta.get("generateName"):
        kept |= {"generateName": prefix, "name": meta.get("name") or prefix[:LONGEST_PREFIX] + suffix()}
    kept |= {"uid": str(uuid.uuid4()), "creationTimestamp": at} | ({"namespace": namespace} if namespace else {})
    body = {key: value for key, value in given.items() if key not in {"kind", "apiVersion", "metadata"}}
    whole = {"metadata": kept, **body}
    return COMPLETE[kind](whole) if kind in COMPLETE else whole


def suffix() -> str:
    return "".join(secrets.choice(LETTERS) for _ in range(5))


def complete_job(job: Json) -> Json:
    meta, spec = job["metadata"], {**JOB_SPEC, **(job.get("spec") or {})}
    owner = {CONTROLLER_UID: meta["uid"], "controller-uid": meta["uid"]}
    labels = {**owner, "batch.kubernetes.io/job-name": meta["name"], "job-name": meta["name"]}
    template = spec.get("template") or {}
    template_meta = template.get("metadata") or {}
    template_meta = {**template_meta, "labels": {**(template_meta.get("labels") or {}), **labels}}
    given = template.get("spec") or {}
    pod_spec = {**complete_pod_spec(given), "restartPolicy": given.get("restartPolicy")}  # it has no default in a Job
    spec["template"] = {**template, "metadata": template_meta, "spec": pod_spec}
    spec["selector"] = {"matchLabels": {CONTROLLER_UID: meta["uid"]}}
    if "podReplacementPolicy" not in spec:
        spec["podReplacementPolicy"] = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    return {
        "metadata": {**meta, "labels": meta.get("labels") or labels | (template_meta["labels"])},
        "spec": spec,
        "status": {},
    }


def complete_pod(pod: Json) -> Json:
    spec = complete_pod_spec(pod.get("spec") or {})
    spec = {**spec, "tolerations": [*(spec.get("tolerations") or []), *TOLERATIONS]}
    for key in ("containers", "initContainers"):
        if spec.get(key):
            spec[key] = [with_requests(container) for container in spec[key]]
    return {"metadata": pod["metadata"], "spec": spec, "status": {"phase": "Pending"}}


def complete_pod_spec(spec: Json) -> Json:
    """The spec with defaults. A template in a Job gets the same ones, except requests."""
    lists = {
        key: [{**CONTAINER, **one} for one in spec[key]] for key in ("containers", "initContainers") if spec.get(key)
    }
    return {**POD_SPEC, **spec, **lists}


def with_requests(container: Json) -> Json:
    """The container with its requests. A limit without a request is the request, too."""
    resources = container["resources"]
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": asked}} if asked else container


def complete_node(node: Json) -> Json:
    spec = dict(node.get("spec") or {})
    taint = {"key": NOT_READY, "effect": "NoSchedule"}
    spec["taints"] = [*(spec.get("taints") or []), taint]
    status = node.get("status") or {}
    return {**node, "spec": spec, "status": {"allocatable": status.get("capacity") or {}, **status}}


def complete_secret(secret: Json) -> Json:
    texts: Mapping[str, str] = secret.get("stringData") or {}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    kept = {key: value for key, value in secret.items() if key != "stringData"}
    found = {**(secret.get("data") or {}), **encoded}
    return {"type": "Opaque", **kept} | ({"data": found} if found else {})


def complete_namespace(namespace: Json) -> Json:
    meta = namespace["metadata"]
    labels = {"kubernetes.io/metadata.name": meta["name"], **(meta.get("labels") or {})}
    return {"metadata": {**meta, "labels": labels}, "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"}}  # fmt: skip


COMPLETE: Final[dict[ObjectKind, Callable[[Json], Json]]] = {
    JOB: complete_job, POD: complete_pod, NODE: complete_node, SECRET: complete_secret, NAMESPACE: complete_namespace,
}  # fmt: skip
