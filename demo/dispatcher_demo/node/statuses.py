"""The status that a kubelet writes for a Pod, and the process of a container. Pure.

`build_status`: phase, conditions and container statuses, in the words of the real kubelet. It was compared with the
reports of real nodes for the same cases. `docs/process-kubelet.md` lists the differences.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from dispatcher.model.stored_json import Json


class ProcessOrder(Struct, frozen=True):
    """The process to start for a container."""

    argv: list[str]
    env: dict[str, str]
    cwd: str


class ProcessState(Struct, frozen=True):
    """The state of a container. Times are seconds since 1970.

    started_at: when its process started.
    ended_at: when it ended.
    exit_code: its exit status; 128 + n after signal n.
    fault: why it could not be started.
    tail: the end of its log.
    is_gone: it has ended, and nobody knows how.
    """

    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    fault: str = ""
    tail: str = ""
    is_gone: bool = False

    @property
    def is_ordered(self) -> bool:
        """Whether the container should run, and has neither started nor ended yet."""
        return self.started_at is None and not self.is_over

    @property
    def is_over(self) -> bool:
        return self.ended_at is not None or self.is_gone


BEGINNING: Final = "1970-01-01T00:00:00Z"
DEADLINE: Final = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
TERMINAL: Final = frozenset({"Succeeded", "Failed"})
OURS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
"""Conditions that a kubelet sets. Other components set PodScheduled and DisruptionTarget."""


class ContainerReasons(Struct, frozen=True):
    """Reasons that the states of the containers do not give, each with a message.

    waiting: why the containers do not run yet.
    ended: why the node ended the Pod.
    """

    waiting: tuple[str, str] = ("", "")
    ended: tuple[str, str] = ("", "")


def written(seconds: float) -> str:
    """The time as the API writes it. `seconds`: since 1970."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def build_status(pod: Json, seen: Mapping[str, ProcessState | None], reasons: ContainerReasons, now: float) -> Json:
    """The whole status of a Pod that the node has accepted."""
    names = [container["name"] for container in pod["spec"]["containers"]]
    phase = plan_phase([seen.get(name) for name in names], reasons)
    before = pod.get("status", {})
    status = {key: value for key, value in before.items() if key not in {"reason", "message"}}
    status |= {
        "phase": phase,
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
        "startTime": before.get("startTime") or written(now),
    }
    if reasons.ended[0]:
        status |= {"reason": reasons.ended[0], "message": reasons.ended[1]}
    is_up = phase == "Running" and all(one is not None and not one.is_over for one in seen.values())
    status["conditions"] = merge_conditions(before.get("conditions", ()), build_conditions(phase, names, is_up), now)
    status["containerStatuses"] = [
        build_container(container, pod["metadata"]["uid"], seen.get(container["name"]), reasons)
        for container in pod["spec"]["containers"]
    ]
    return status


def build_refusal(pod: Json, reason: str, message: str, now: float) -> Json:
    """The status of a Pod that the node refuses: no containers, no conditions of a kubelet."""
    kept = {key: value for key, value in pod.get("status", {}).items() if key in {"conditions", "qosClass"}}
    return {**kept, "phase": "Failed", "reason": reason, "message": message, "startTime": written(now)}


def build_unstarted(pod: Json, now: float) -> Json:
    """The status of a Pod that was deleted before it ran: its finalizers are removed only once it has ended."""
    ended = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None, "finishedAt": None}}
    containers = [
        build_container(one, "", None, ContainerReasons()) | {"state": ended} for one in pod["spec"]["containers"]
    ]
    return {**build_refusal(pod, "", "", now), "containerStatuses": containers}


def plan_phase(seen: Sequence[ProcessState | None], reasons: ContainerReasons) -> str:
    """The Pod's phase. Failed only when all containers have ended: until then one may still work."""
    if all(one is not None and one.is_over for one in seen):
        fine = all(one is not None and one.exit_code == 0 for one in seen)
        return "Succeeded" if fine and not reasons.ended[0] else "Failed"
    return "Running" if any(one is not None and one.started_at is not None for one in seen) else "Pending"


def build_conditions(phase: str, names: Sequence[str], is_up: bool) -> list[Json]:
    """Type, status and reason of each condition in OURS."""
    if phase == "Succeeded":
        done = {"reason": "PodCompleted"}
        return [
            {"type": "PodReadyToStartContainers", "status": "False"},
            {"type": "Initialized", "status": "True", **done},
            {"type": "Ready", "status": "False", **done},
            {"type": "ContainersReady", "status": "False", **done},
        ]
    why: Json = {} if is_up else {"reason": "PodFailed"}
    if not is_up and phase != "Failed":
        why = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{' '.join(names)}]"}
    ready = "True" if is_up else "False"
    return [
        {"type": "PodReadyToStartContainers", "status": "False" if phase == "Failed" else "True"},
        {"type": "Initialized", "status": "True"},
        {"type": "Ready", "status": ready, **why},
        {"type": "ContainersReady", "status": ready, **why},
    ]


def merge_conditions(before: Sequence[Json], ours: Sequence[Json], now: float) -> list[Json]:
    """Our conditions with the time of their last change, then the unchanged conditions of other components."""
    known = {condition["type"]: condition for condition in before}
    merged = []
    for condition in ours:
        old = known.get(condition["type"], {})
        since = old.get("lastTransitionTime") if old.get("status") == condition["status"] else None
        merged.append({**condition, "lastProbeTime": None, "lastTransitionTime": since or written(now)})
    return merged + [condition for condition in before if condition["type"] not in OURS]


def build_container(container: Json, uid: str, seen: ProcessState | None, reasons: ContainerReasons) -> Json:
    is_up = seen is not None and seen.started_at is not None and not seen.is_over
    id_ = {"containerID": f"process://{uid}/{container['name']}"} if seen is not None else {}
    ended = {"terminated": build_end(container, seen) | id_} if seen and seen.is_over else None
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "restartCount": 0,
        "ready": is_up,
        "started": is_up,
        "lastState": {},
        "state": ended or build_state(seen, reasons),
        **id_,
    }


def build_state(seen: ProcessState | None, reasons: ContainerReasons) -> Json:
    """The state `waiting` or `running`."""
    if seen is not None and seen.started_at is not None:
        return {"running": {"startedAt": written(seen.started_at)}}
    reason, message = reasons.waiting
    return {"waiting": {"reason": reason or "ContainerCreating"} | ({"message": message} if message else {})}


def build_end(container: Json, seen: ProcessState) -> Json:
    """The state `terminated`, with what is known of the end."""
    began, ended = written(seen.started_at or 0), written(seen.ended_at or seen.started_at or 0)
    if seen.is_gone:
        return {"exitCode": 255, "reason": "Unknown", "startedAt": began, "finishedAt": ended}
    if seen.fault:
        words = {"reason": "StartError", "message": seen.fault}
        return {"exitCode": 128, **words, "startedAt": BEGINNING, "finishedAt": ended}
    from_log = seen.exit_code and seen.tail and container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
    message = {"message": seen.tail} if from_log else {}
    reason = "Error" if seen.exit_code else "Completed"
    return {"exitCode": seen.exit_code, "reason": reason, **message, "startedAt": began, "finishedAt": ended}
