"""The decisions of the Job controller and of the scheduler. Pure.

`plan_step`: one Pod per Job, its deadline, its end, as batch/v1 reports them since 1.31. A Job ends in steps, each a
write of its own: first the target (`SuccessCriteriaMet` or `FailureTarget`), then the counts of its Pods, which lose
their finalizer, then the final condition. Under a podFailurePolicy a Pod that is being deleted has failed only once its
phase says so.

`why_not`, `choose`: the best node of those where a Pod fits. Of kube-scheduler's plugins they have those that a
template can use: resources, cordons, taints, node selector, node affinity. The message for a Pod that fits nowhere is
kube-scheduler's.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from dispatcher.model.needs import REFUSING, Taint, Toleration, is_met, tolerates
from dispatcher.model.resources import Amounts, Written, added, amounts, asked_by, less
from dispatcher.model.stored_json import Json
from dispatcher_demo.cluster.kinds import ENDED, TRACKING, stamp, with_condition

FINAL: Final = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}
WORDS: Final = {
    "CompletionsReached": "Reached expected number of succeeded pods",
    "BackoffLimitExceeded": "Job has reached the specified backoff limit",
    "DeadlineExceeded": "Job was active longer than specified deadline",
}


class JobRound(Struct, frozen=True):
    """Acts of one round.

    status: the status to write, or None.
    is_short: create the Pod of the Job.
    delete: names of Pods to delete.
    release: names of Pods that lose the tracking finalizer.
    again_at: when to look again even if nothing has changed.
    """

    status: Json | None = None
    is_short: bool = False
    delete: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    again_at: datetime | None = None


def plan_step(job: Json, pods: Sequence[Json], now: datetime) -> JobRound:
    """The next acts. `pods`: the Job's own. It is called again until nothing is left to do."""
    if is_finished(job):
        return JobRound(release=names(tracked(pods)))
    if not pods and may_have_pod(job, now):
        return JobRound(is_short=True)
    status = build_status(job, pods, now)
    if status != job["status"]:
        return JobRound(status)
    return plan_pods(job, pods, now)


def plan_pods(job: Json, pods: Sequence[Json], now: datetime) -> JobRound:
    """The acts for the Pods, once the status shows everything that is known of them."""
    if "deletionTimestamp" in job["metadata"]:
        return JobRound(release=names(tracked(pods)))
    target = target_of(job)
    if not target and not job["spec"].get("suspend"):
        return JobRound(again_at=deadline_of(job))
    active = [pod for pod in pods if is_active(pod)]
    left = [pod for pod in tracked(pods) if not is_active(pod)]
    if target and not active and not left:
        return plan_end(job, pods, target, now)
    return JobRound(delete=names(active), release=names(left))


def plan_end(job: Json, pods: Sequence[Json], target: Json, now: datetime) -> JobRound:
    """The acts once all Pods are released: count them, and finish the Job when no Pod works any more."""
    status = counted(job["status"])
    if all(is_ended(pod) for pod in pods):
        status = finished(status, target, now)
    return JobRound(status if status != job["status"] else None)


def may_have_pod(job: Json, now: datetime) -> bool:
    if "deletionTimestamp" in job["metadata"] or job["spec"].get("suspend") or target_of(job):
        return False
    return not is_late(job, now)


def build_status(job: Json, pods: Sequence[Json], now: datetime) -> Json:
    """The status: the present counts of the Pods, and the target if one is known."""
    counts = {
        "active": sum(is_active(pod) for pod in pods),
        "terminating": sum("deletionTimestamp" in pod["metadata"] and not is_ended(pod) for pod in pods),
        "ready": sum(is_active(pod) and is_ready(pod) for pod in pods),
    }
    status = {"uncountedTerminatedPods": {}, **job["status"], **counts}
    if not counts["active"]:
        del status["active"]
    if "deletionTimestamp" in job["metadata"] or target_of(job) or job["spec"].get("suspend"):
        return status
    return with_target({"startTime": stamp(now), **status}, job, pods, now)


def with_target(status: Json, job: Json, pods: Sequence[Json], now: datetime) -> Json:
    """The status with the target, if one is known. `uncountedTerminatedPods` names Pods until they are counted."""
    found = find_target(job, pods, now)
    if found is None:
        return status
    conditions = with_condition(status.get("conditions") or [], condition(*found, now))
    succeeded = [pod["metadata"]["uid"] for pod in pods if pod["status"].get("phase") == "Succeeded"]
    failed = [pod["metadata"]["uid"] for pod in pods if pod["metadata"]["uid"] not in succeeded]
    uncounted = {key: uids for key, uids in (("succeeded", succeeded), ("failed", failed)) if uids}
    return {**status, "conditions": conditions, "uncountedTerminatedPods": uncounted}


def find_target(job: Json, pods: Sequence[Json], now: datetime) -> tuple[str, str, str] | None:
    """Type, reason and message of the target. Returns None while the Job goes on."""
    for pod in pods:
        if pod["status"].get("phase") == "Succeeded":
            return "SuccessCriteriaMet", "CompletionsReached", WORDS["CompletionsReached"]
        if has_failed(job, pod):
            return ("FailureTarget", *why_failed(job, pod))
    if is_late(job, now):
        return "FailureTarget", "DeadlineExceeded", WORDS["DeadlineExceeded"]
    return None


def has_failed(job: Json, pod: Json) -> bool:
    is_lost = "deletionTimestamp" in pod["metadata"] and job["spec"]["podReplacementPolicy"] != "Failed"
    return pod["status"].get("phase") == "Failed" or is_lost


def why_failed(job: Json, pod: Json) -> tuple[str, str]:
    """Reason and message, by the first matching rule of the podFailurePolicy. Only rules on Pod conditions count."""
    true = {one["type"] for one in pod["status"].get("conditions") or () if one["status"] == "True"}
    for number, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules") or ()):
        matched = [one["type"] for one in rule.get("onPodConditions") or () if one["type"] in true]
        if matched and rule["action"] == "FailJob":
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            return "PodFailurePolicy", f"Pod {name} has condition {matched[0]} matching FailJob rule at index {number}"
    return "BackoffLimitExceeded", WORDS["BackoffLimitExceeded"]


def counted(status: Json) -> Json:
    uncounted = status.get("uncountedTerminatedPods") or {}
    counts = {key: status.get(key, 0) + len(uncounted[key]) for key in ("succeeded", "failed") if uncounted.get(key)}
    return {**status, **counts, "uncountedTerminatedPods": {}}


def finished(status: Json, target: Json, now: datetime) -> Json:
    kind = FINAL[target["type"]]
    final = condition(kind, target["reason"], target["message"], now)
    at = {"completionTime": stamp(now)} if kind == "Complete" else {}
    return {**status, **at, "conditions": [*status["conditions"], final]}


def condition(kind: str, reason: str, message: str, now: datetime) -> Json:
    at = {"lastProbeTime": stamp(now), "lastTransitionTime": stamp(now)}
    return {"type": kind, "status": "True", **at, "reason": reason, "message": message}


def deadline_of(job: Json) -> datetime | None:
    seconds, started = job["spec"].get("activeDeadlineSeconds"), job["status"].get("startTime")
    return datetime.fromisoformat(started) + timedelta(seconds=seconds) if seconds and started else None


def is_late(job: Json, now: datetime) -> bool:
    deadline = deadline_of(job)
    return deadline is not None and now >= deadline


def target_of(job: Json) -> Json | None:
    return next((one for one in job["status"].get("conditions") or () if one["type"] in FINAL), None)


def is_finished(job: Json) -> bool:
    return any(one["type"] in FINAL.values() for one in job["status"].get("conditions") or ())


def is_ended(pod: Json) -> bool:
    return pod["status"].get("phase") in ENDED


def is_active(pod: Json) -> bool:
    return not is_ended(pod) and "deletionTimestamp" not in pod["metadata"]


def is_ready(pod: Json) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())


def tracked(pods: Sequence[Json]) -> list[Json]:
    """Pods with the tracking finalizer, which keeps them until they are counted."""
    return [pod for pod in pods if TRACKING in (pod["metadata"].get("finalizers") or ())]


def names(pods: Sequence[Json]) -> tuple[str, ...]:
    return tuple(pod["metadata"]["name"] for pod in pods)


def build_pod(job: Json) -> Json:
    """The one Pod of the Job, as it is created."""
    meta, template = job["metadata"], job["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
    kept = {key: value for key, value in template["metadata"].items() if key in {"labels", "annotations"}}
    finalizers = [*(template["metadata"].get("finalizers") or ()), TRACKING]
    pod_meta = {**kept, "generateName": f"{meta['name']}-", "finalizers": finalizers}
    pod_meta["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
    return {"metadata": pod_meta, "spec": template["spec"]}


AFFINITY_WEIGHT: Final = 2
BEST: Final = 100


class NodeUse(Struct, frozen=True):
    """A node, and the sum of the requests of its Pods (`used`)."""

    node: Json
    used: Amounts

    @property
    def name(self) -> str:
        return str(self.node["metadata"]["name"])

    @property
    def size(self) -> Amounts:
        return amounts(written(self.node["status"].get("allocatable") or {}))

    @property
    def free(self) -> Amounts:
        return less(self.size, self.used)


def rooms_of(nodes: Iterable[Json], pods: Iterable[Json]) -> dict[str, NodeUse]:
    """Every node by name, with the requests of its Pods that have not ended."""
    used: dict[str, Amounts] = {}
    for pod in pods:
        if (name := pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ENDED:
            used[name] = added(used.get(name, {}), asks(pod["spec"]))
    return {name: NodeUse(node, used.get(name, {})) for node in nodes for name in [node["metadata"]["name"]]}


def with_pod(room: NodeUse, spec: Json) -> NodeUse:
    """The use of the node with that Pod on it, too."""
    return NodeUse(room.node, added(room.used, asks(spec)))


def asks(spec: Json) -> Amounts:
    containers = tuple(requests(one) for one in spec.get("containers") or ())
    first = tuple((requests(one), one.get("restartPolicy") == "Always") for one in spec.get("initContainers") or ())
    return asked_by((containers, first, written(spec.get("overhead") or {}), requests(spec)))


def requests(container: Json) -> Written:
    return written((container.get("resources") or {}).get("requests") or {})


def written(amounts: Mapping[str, object]) -> Written:
    return tuple((name, str(amount)) for name, amount in amounts.items())


def why_not(spec: Json, room: NodeUse) -> list[str]:
    """Why the Pod does not fit on the node, in the words of kube-scheduler's plugins. Empty: it fits."""
    if room.node["spec"].get("unschedulable"):
        return ["node(s) were unschedulable"]
    if taint := untolerated(spec, room.node):
        return [f"node(s) had untolerated taint(s) {{{taint['key']}: {taint.get('value', '')}}}"]
    if not is_selected(spec, room.node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    free = room.free
    short = [name for name, amount in asks(spec).items() if amount and amount > free.get(name, 0)]
    return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in short]


def untolerated(spec: Json, node: Json) -> Json | None:
    tolerations = [toleration_of(one) for one in spec.get("tolerations") or ()]
    taints = [taint for taint in node["spec"].get("taints") or () if taint.get("effect") in REFUSING]
    return next((taint for taint in taints if not any(tolerates(one, taint_of(taint)) for one in tolerations)), None)


def toleration_of(one: Json) -> Toleration:
    return Toleration(one.get("key") or "", one.get("operator") or "", one.get("value") or "", one.get("effect") or "")


def taint_of(one: Json) -> Taint:
    return Taint(one["key"], one.get("value") or "", one["effect"])


def is_selected(spec: Json, node: Json) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = node_affinity(spec).get("requiredDuringSchedulingIgnoredDuringExecution")
    return not required or any(matches(term, node) for term in required["nodeSelectorTerms"])


def node_affinity(spec: Json) -> Json:
    found: Json = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return found


def matches(term: Json, node: Json) -> bool:
    labels, name = node["metadata"].get("labels") or {}, {"metadata.name": node["metadata"]["name"]}
    asked = [(labels, one) for one in term.get("matchExpressions") or ()]
    asked += [(name, one) for one in term.get("matchFields") or ()]
    return bool(asked) and all(
        is_met(one["operator"], where.get(one["key"]), tuple(one.get("values") or ())) for where, one in asked
    )


def score(spec: Json, room: NodeUse, most: int) -> float:
    """Points as kube-scheduler's NodeAffinity and LeastAllocated give them. `most`: the highest preference of all."""
    free, size = with_pod(room, spec).free, room.size
    shares = [free[name] / size[name] for name in ("cpu", "memory") if size.get(name)]
    left = BEST * sum(shares) / len(shares) if shares else 0
    return left + AFFINITY_WEIGHT * BEST * preference(spec, room) / max(most, 1)


def preference(spec: Json, room: NodeUse) -> int:
    preferred = node_affinity(spec).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return sum(one["weight"] for one in preferred if matches(one["preference"], room.node))


def choose(spec: Json, rooms: Sequence[NodeUse]) -> str:
    """The name of the best node among those that fit."""
    most = max(preference(spec, room) for room in rooms)
    return max(rooms, key=lambda room: (score(spec, room, most), room.name)).name


def tell_unschedulable(reasons: Sequence[Sequence[str]]) -> str:
    """A text like `0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable.`"""
    counted = Counter(reason for node in reasons for reason in node)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    return f"0/{len(reasons)} nodes are available: {listed}." if reasons else "no nodes available to schedule pods"
