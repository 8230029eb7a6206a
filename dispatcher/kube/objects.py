"""Reads Jobs, Pods and nodes, as decisions see them, from the API server's objects."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from dispatcher.kube.needs import NEVER, needs_of
from dispatcher.kube.pod_ends import end_of, waiting_message
from dispatcher.kube.pod_requests import asked_of, taken
from dispatcher.kube.wire import (
    UNREADABLE,
    ApiStatus,
    Condition,
    Container,
    ContainerStates,
    ContainerStatus,
    Meta,
    NodeSpec,
    WireJob,
    WireNode,
    WirePod,
    WirePriorityClass,
    full_name,
)  # fmt: skip
from dispatcher.model import identity as ids
from dispatcher.model.amounts import NOTHING, amounts
from dispatcher.model.capacity import BoundPod
from dispatcher.model.cluster import ENDED, LONG_AGO, NO_LABELS, Node, Pod, PriorityClass
from dispatcher.model.jobs import Job, LaunchCache, Phase
from dispatcher.model.needs import CORDON, Taint
from dispatcher.model.reservations import keys_of

UNREACHABLE: Final = "node.kubernetes.io/unreachable"
LARGEST_ID: Final = 2**63 - 1
DEFAULT_SCHEDULER: Final = "default-scheduler"


def read_job(raw: bytes | msgspec.Raw) -> Job | None:
    """Reads a Job of ours. Returns None without our identity: such a Job is never touched, whatever its labels say."""
    wire = msgspec.json.decode(raw, type=WireJob)
    labels, notes = wire.metadata.labels or {}, wire.metadata.annotations or {}
    try:
        numbers = [int(labels[key]) for key in (ids.LABEL_TASK_ID, ids.LABEL_ATTEMPT, ids.LABEL_LAUNCH)]
        identity, database_id = notes[ids.IDENTITY], notes[ids.DATABASE_ID]
    except (KeyError, ValueError):
        return None
    if not 0 < numbers[0] <= LARGEST_ID:  # no row has such an id, and a query with it would fail
        return None
    phase, condition = read_phase(wire.status.conditions)
    return Job(
        name=wire.metadata.name,
        uid=wire.metadata.uid,
        resource_version=wire.metadata.resource_version,
        task_id=numbers[0],
        attempt=numbers[1],
        launch=numbers[2],
        queue=labels.get(ids.LABEL_QUEUE, ""),
        template=labels.get(ids.LABEL_TEMPLATE, ""),
        image=image_of(wire.spec.template.spec.containers),
        identity=identity,
        database_id=database_id,
        submitted_by=notes.get(ids.SUBMITTED_BY, ""),
        created_at=wire.metadata.creation_timestamp or LONG_AGO,
        phase=phase,
        reason=condition.reason,
        ended_at=condition.last_transition_time,
        deleting=wire.metadata.deletion_timestamp is not None,
        suspended=bool(wire.spec.suspend),
        unstarted=count(notes.get(ids.UNSTARTED)),
        disrupted=count(notes.get(ids.DISRUPTED)),
        unplaced_before=count(notes.get(ids.UNPLACED_BEFORE)),
        is_unplaced=ids.UNPLACED in notes,
        limit_seconds=wire.spec.template.spec.active_deadline_seconds or 0,
        report=notes.get(ids.REPORT, "sql"),
        shape=(wire.spec.template.metadata.annotations or {}).get(ids.SHAPE, ""),
        needs=needs_of(wire.spec.template.spec),
        cache=cache_of(wire.spec.template.metadata.annotations or {}),
    )


def cache_of(notes: Mapping[str, str]) -> LaunchCache | None:
    if ids.CACHE_KEY not in notes:
        return None
    return LaunchCache(names_in(notes.get(ids.HISTORY_NODES, "")), names_in(notes.get(ids.COLD_NODES, "")))


def names_in(written: str) -> tuple[str, ...]:
    """Reads names that we wrote. Any other text has none."""
    try:
        return msgspec.json.decode(written, type=tuple[str, ...]) if written else ()
    except msgspec.MsgspecError:
        return ()


def read_phase(conditions: Sequence[Condition]) -> tuple[Phase, Condition]:
    """A Job's phase, and the condition that says so.

    Complete and Failed are final. FailureTarget means that the Job fails once its Pod is gone.
    """
    true = {condition.type: condition for condition in conditions if condition.status == "True"}
    for kind, phase in (("Complete", Phase.COMPLETE), ("Failed", Phase.FAILED), ("FailureTarget", Phase.FAILING)):
        if kind in true:
            return phase, true[kind]
    return Phase.ACTIVE, Condition()


def image_of(containers: Sequence[Container]) -> str:
    """Image of the container `task`, otherwise of the first container."""
    named = [container.image for container in containers if container.name == "task"]
    return named[0] if named else next((container.image for container in containers), "")


def count(written: str | None) -> int:
    """Reads a count that we wrote. Any other text counts as 0."""
    return int(written) if written and written.isdecimal() and len(written) < 10 else 0


def read_pod(raw: bytes | msgspec.Raw) -> Pod:
    return own_pod_of(msgspec.json.decode(raw, type=WirePod))


def own_pod_of(wire: WirePod) -> Pod:
    """A Pod of this installation."""
    meta, status = wire.metadata, wire.status
    statuses = status.container_statuses or []
    named = [s for s in statuses if s.name == "task"] or statuses
    owner = next((owner.uid for owner in meta.owner_references or () if owner.controller), "")
    return Pod(
        name=meta.name,
        uid=meta.uid,
        job_uid=owner,
        queue=(meta.labels or {}).get(ids.LABEL_QUEUE, ""),
        shape=(meta.annotations or {}).get(ids.SHAPE, ""),
        created_at=meta.creation_timestamp or LONG_AGO,
        phase=status.phase,
        node_name=wire.spec.node_name,
        nominated_node=status.nominated_node_name,
        scheduled_at=scheduled_at(status.conditions),
        unschedulable_since=unschedulable_since(status.conditions),
        waiting_reason=waiting_reason([*(status.init_container_statuses or ()), *statuses]),
        waiting_message=waiting_message(wire) if status.phase == "Pending" else "",
        had_run=any(has_run(s.state) or has_run(s.last_state) for s in named),
        end=end_of(wire),
        deleting=meta.deletion_timestamp is not None,
    )


def scheduled_at(conditions: Sequence[Condition]) -> datetime | None:
    return next((c.last_transition_time for c in conditions if c.type == "PodScheduled" and c.status == "True"), None)


def unschedulable_since(conditions: Sequence[Condition]) -> datetime | None:
    return next(
        (c.last_transition_time for c in conditions
         if c.type == "PodScheduled" and c.status == "False" and c.reason == "Unschedulable"),
        None,
    )  # fmt: skip


def waiting_reason(statuses: Sequence[ContainerStatus]) -> str:
    reasons = [s.state.waiting.reason for s in statuses if s.state.waiting is not None]
    return next((reason for reason in reasons if reason not in {"", "ContainerCreating", "PodInitializing"}), "")


def has_run(states: ContainerStates) -> bool:
    """Whether the container's process existed. A container that failed with StartError never had one."""
    if states.running is not None:
        return True
    ended = states.terminated
    return ended is not None and ended.started_at is not None and ended.started_at > LONG_AGO


def read_bound_pod(raw: bytes | msgspec.Raw) -> BoundPod | None:
    """Reads a Pod that uses room of a node. Returns None for a Pod without a node."""
    wire = msgspec.json.decode(raw, type=WirePod)
    return bound_pod_of(wire) if wire.spec.node_name else None


def pod_reader(
    namespace: str, installation: str, scheduler: str = DEFAULT_SCHEDULER
) -> Callable[[bytes | msgspec.Raw], BoundPod | None]:
    """Reads Pods of all namespaces: those that use room, and those of the installation, whatever their phase.

    A Pod that preempts others uses room of its nominated node, but only for Pods of the same `scheduler`.
    """
    ours = {ids.MANAGED_BY: ids.MANAGER, ids.LABEL_INSTALLATION: installation}

    def read(raw: bytes | msgspec.Raw) -> BoundPod | None:
        wire = msgspec.json.decode(raw, type=WirePod)
        is_own = wire.metadata.namespace == namespace and ours.items() <= (wire.metadata.labels or {}).items()
        is_nominated = wire.status.nominated_node_name and wire.spec.scheduler_name == scheduler
        uses_room = (wire.spec.node_name or is_nominated) and wire.status.phase not in ENDED
        if not is_own:
            return bound_pod_of(wire) if uses_room else None
        own = own_pod_of(wire)
        return bound_pod_of(wire, own) if uses_room else BoundPod(full_name(wire.metadata), "", NOTHING, own=own)

    return read


def bound_pod_of(wire: WirePod, own: Pod | None = None) -> BoundPod:
    meta, status = wire.metadata, wire.status
    given = {one.name: one for one in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))}
    asks = asked_of(wire.spec, lambda container: taken(container, given.get(container.name)))
    nominated = "" if wire.spec.node_name else status.nominated_node_name
    return BoundPod(full_name(meta), wire.spec.node_name, asks, pod_keys(meta), own, wire.spec.priority or 0, nominated)


def pod_keys(meta: Meta) -> tuple[str, ...]:
    """The names by which a reservation may call a Pod."""
    owners = (owner.uid for owner in meta.owner_references or ())
    return keys_of(meta.namespace, meta.name, meta.uid, meta.labels or {}, owners)


def read_node(raw: bytes | msgspec.Raw) -> Node:
    wire = msgspec.json.decode(raw, type=WireNode)
    ready = next((c.status for c in wire.status.conditions if c.type == "Ready"), "Unknown")
    return Node(
        name=wire.metadata.name,
        created_at=wire.metadata.creation_timestamp or LONG_AGO,
        ready=ready == "True",
        unreachable=ready == "Unknown" or any(taint.key == UNREACHABLE for taint in wire.spec.taints or ()),
        size=amounts((wire.status.allocatable or {}).items()),
        labels=wire.metadata.labels or NO_LABELS,
        taints=taints_of(wire.spec),
    )


def taints_of(spec: NodeSpec) -> tuple[Taint, ...]:
    """The taints of a node. The control plane adds the one of a cordon a moment after the cordon."""
    found = tuple(same_taint(Taint(one.key, one.value, one.effect)) for one in spec.taints or ())
    return (*found, CORDON) if spec.unschedulable and CORDON not in found else found


@lru_cache(maxsize=4096)
def same_taint(taint: Taint) -> Taint:
    return taint


def read_priority_class(raw: bytes | msgspec.Raw) -> PriorityClass:
    wire = msgspec.json.decode(raw, type=WirePriorityClass)
    is_default, never = bool(wire.global_default), wire.preemption_policy == NEVER
    return PriorityClass(wire.metadata.name, wire.value, is_default, never)


def read_status(body: bytes) -> ApiStatus:
    """The Status of a failed answer. The plain text of a proxy becomes the message."""
    try:
        return msgspec.json.decode(body, type=ApiStatus)
    except UNREADABLE:
        return ApiStatus(message=body[:300].decode(errors="replace"))


def encode(manifest: dict[str, Any]) -> bytes:
    return msgspec.json.encode(manifest)
