"""Defaults that the API server adds to a new object."""

import base64
import secrets
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from dispatcher.local.cluster.kinds import JOB, NAMESPACE, NODE, POD, SECRET, Kind

Json = dict[str, Any]
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


def made(kind: Kind, given: Json, namespace: str, at: str) -> Json:
    """The object as it is stored: fields of the server are set by the server, absent fields get defaults."""
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


COMPLETE: Final[dict[Kind, Callable[[Json], Json]]] = {
    JOB: complete_job, POD: complete_pod, NODE: complete_node, SECRET: complete_secret, NAMESPACE: complete_namespace,
}  # fmt: skip
