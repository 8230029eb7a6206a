"""Objects that a played kubelet writes, and functions by which a test reads objects."""

from datetime import UTC, datetime

from tests.controlplane.api import Json

DISRUPTION_ENDS_THE_JOB = {
    "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
TRACKING = "batch.kubernetes.io/job-tracking"


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def disruption(status: str = "True") -> Json:
    """A condition with its time: a real cluster takes a condition without a time for old and sets it to False."""
    return {
        "type": "DisruptionTarget",
        "status": status,
        "reason": "EvictionByEvictionAPI",
        "lastTransitionTime": now(),
    }


def job_body(name: str, pod: Json, spec: Json) -> Json:
    """A Job as the dispatcher makes it, without its labels."""
    template = {"metadata": {"labels": {"kept": "label"}, "annotations": {"kept": "annotation"}}, "spec": pod}
    asked = {"backoffLimit": 0, "podFailurePolicy": DISRUPTION_ENDS_THE_JOB, "activeDeadlineSeconds": 600}
    whole = {**asked, "template": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": whole}


def running() -> Json:
    return {"running": {"startedAt": now()}}


def ended(exit_code: int) -> Json:
    reason = "Error" if exit_code else "Completed"
    return {"terminated": {"exitCode": exit_code, "reason": reason, "startedAt": now(), "finishedAt": now()}}


def pod_status(phase: str, state: Json) -> Json:
    """The whole status of a Pod with one container, except what was said of the Pod when it was made."""
    ready = "True" if phase == "Running" else "False"
    container = {"name": "task", "image": "localhost/x:1", "imageID": "", "restartCount": 0, "ready": ready == "True"}
    conditions = [{"type": kind, "status": ready, "lastTransitionTime": now()} for kind in ("Ready", "ContainersReady")]
    said = {"containerStatuses": [container | {"state": state}], "conditions": conditions}
    return {"phase": phase, "startTime": now(), **said}


def disrupted(exit_code: int) -> Json:
    """The status of a Pod that failed after a disruption."""
    failed = pod_status("Failed", ended(exit_code))
    return failed | {"conditions": [*failed["conditions"], disruption()]}


def node_status(ready: str, size: Json | None) -> Json:
    condition = {
        "type": "Ready", "status": ready, "reason": "ByHand", "message": "by hand",
        "lastHeartbeatTime": now(), "lastTransitionTime": now(),
    }  # fmt: skip
    return {"conditions": [condition], **({"capacity": size, "allocatable": size} if size else {})}


def merged(before: Json, said: Json) -> Json:
    """The status after the report: conditions are merged by type, other fields by name."""
    conditions = {one["type"]: one for one in [*before.get("conditions", []), *said.get("conditions", [])]}
    return before | said | {"conditions": list(conditions.values())}


def condition(found: Json, kind: str) -> Json | None:
    """The condition of that type, of any object, whatever its status."""
    return next((one for one in found["status"].get("conditions", []) if one["type"] == kind), None)


def said(found: Json) -> list[tuple[str, str]]:
    """Type and reason of the conditions that are True, in the order of the object."""
    told = found["status"].get("conditions", [])
    return [(one["type"], one.get("reason", "")) for one in told if one["status"] == "True"]


def says(found: Json, kind: str) -> bool:
    return any(told == kind for told, _ in said(found))


def is_unschedulable(pod: Json) -> bool:
    told = condition(pod, "PodScheduled")
    return told is not None and (told["status"], told.get("reason")) == ("False", "Unschedulable")


def is_bound(pod: Json) -> bool:
    return "nodeName" in pod["spec"]


def taints(node: Json, key: str = NOT_READY) -> list[str]:
    """Effects of the taints with that key."""
    return [taint["effect"] for taint in node["spec"].get("taints", []) if taint["key"] == key]
