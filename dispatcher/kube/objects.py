"""Reads Jobs, Pods and nodes of the API server as decisions see them, and what others have done to them.

`kept_by`, `suspender_of`, `changed_labels`: finalizers, labels and managed fields show who keeps, suspends or changes
an object.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import lru_cache
from sys import intern
from typing import Any, Final

import msgspec

from dispatcher.container.contract import read_statuses
from dispatcher.kube.pods import (
    GATED,
    NEVER,
    asked_of,
    end_of,
    exit_of,
    failed_untold,
    is_disruption,
    needs_of,
    scheduled_at,
    taken,
    unschedulable_since,
    waiting_message,
    waiting_reason,
)
from dispatcher.kube.wire import (
    UNREADABLE,
    ApiStatus,
    Condition,
    Container,
    ContainerStates,
    ContainerStatus,
    JobMeta,
    Meta,
    NamedPod,
    NodeSpec,
    TextJob,
    WholePod,
    Wire,
    WireJob,
    WireNode,
    WirePod,
    WirePriorityClass,
    full_name,
    read_json,
)
from dispatcher.model import launches as ids
from dispatcher.model.cluster import ENDED, LONG_AGO, NO_LABELS, BoundPod, Node, Pod, PriorityClass
from dispatcher.model.jobs import Job, LaunchCache, Phase
from dispatcher.model.launches import IDENTITY, identity_in
from dispatcher.model.needs import CORDON, KUBE_SCHEDULERS, PodNeeds, Taint
from dispatcher.model.reservations import QUEUE_OF_KUEUE, keys_of
from dispatcher.model.resources import NOTHING, amounts
from dispatcher.model.tasks import LARGEST_ID

OF_KUBERNETES: Final = frozenset({"batch.kubernetes.io/job-tracking", "foregroundDeletion", "orphan"})
"""Finalizers that Kubernetes itself removes."""
OURS: Final = "pg-job-dispatcher"
LONGEST_NAME: Final = 100
"""Characters of a program's name that are kept, at most."""


class ManagedFields(Wire, frozen=True):
    """The fields that one program has set. `manager`: the name that the program gives itself."""

    manager: str = ""
    fields_v1: dict[str, Any] | None = msgspec.field(default=None, name="fieldsV1")


def kept_by(meta: Meta) -> tuple[str, ...]:
    """Finalizers of others that keep an object that is being deleted."""
    if meta.deletion_timestamp is None:
        return ()
    return tuple(one for one in meta.finalizers or () if one not in OF_KUBERNETES)


def is_suspended(wire: WireJob) -> bool:
    return bool(wire.spec.suspend) or wire.spec.parallelism == 0


def suspender_of(wire: WireJob) -> str:
    """The program that suspends a Job. Empty: nothing names one.

    Kueue's webhook suspends a Job while it is created, so its label names it, and not the managed fields.
    """
    meta, holding = wire.metadata, "f:suspend" if wire.spec.suspend else "f:parallelism"
    if queue := (meta.labels or {}).get(QUEUE_OF_KUEUE):
        return f"Kueue, by the Job's label {QUEUE_OF_KUEUE}={queue[:LONGEST_NAME]}"
    owner = field_owner(meta, "f:spec", holding)
    if owner.startswith(OURS):
        return "a policy or webhook, when it was made"
    return f"{owner}, by the Job's managed fields" if owner else ""


def changed_labels(meta: JobMeta, ours: Mapping[str, str]) -> str:
    """Labels of ours that somebody has changed or removed, and who. Nothing shows who has removed one.

    ours: the labels that a Job of this name had. The identity is an annotation.
    """
    told, labels = list[str](), meta.labels or {}
    noted = (meta.annotations or {}).get(IDENTITY, "")
    if not noted.startswith(identity_in(meta.name)):
        told.append(f"{IDENTITY} is {'another' if noted else 'gone'}")
    for key, value in ours.items():
        if key not in labels:
            told.append(f"{key} is gone")
        elif labels[key] != value:
            owner = field_owner(meta, "f:metadata", "f:labels", f"f:{key}")
            by = f", by {owner}" if owner and not owner.startswith(OURS) else ""
            told.append(f"{key} is {labels[key]!r}{by}")
    return "; ".join(told)


def field_owner(meta: JobMeta, *path: str) -> str:
    """The program that has set a field, by the managed fields. Empty: they name none."""
    try:
        entries: Sequence[ManagedFields] = msgspec.json.decode(meta.managed_fields, type=list[ManagedFields])
    except UNREADABLE:
        return ""
    for one in entries:
        inner: Any = one.fields_v1
        for part in path:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if inner is not None:
            return one.manager[:LONGEST_NAME]
    return ""


UNREACHABLE: Final = "node.kubernetes.io/unreachable"
NUMBERS: Final = (ids.LABEL_TASK_ID, ids.LABEL_ATTEMPT, ids.LABEL_LAUNCH)
WHOLE_SECONDS: Final = 60
"""Seconds between two complete decodes of Pods of one shape. A complete decode doubles the cost."""
MUCH_TEXT: Final = 8 * 1024
"""Bytes of env, command and args from which on they are counted."""
MOST_SHAPES: Final = 10_000
"""Shapes whose last complete decode is remembered, at most."""
LARGEST_LEARNT: Final = 256 * 1024
"""Bytes of a Pod that is decoded completely, at most. A larger one takes long, and says nothing of its shape."""


def read_job(raw: bytes | msgspec.Raw) -> Job | None:
    """Reads a Job of ours. Returns None without our identity: such a Job is never touched, whatever its labels say.

    Nor is a Job under a name that we give to none: it is a copy that somebody else has made, with all annotations.
    """
    wire = read_json(raw, WireJob)  # a Job that cannot be read would hold its row for ever, or end a cycle
    named = ids.numbers_in(wire.metadata.name)
    if named is None or not 0 < named[1] <= LARGEST_ID:  # no row has another id, and a query with it would fail
        return None
    identity = identity_of(wire.metadata, named[0])
    return job_of(wire, named, identity, text_of(raw)) if identity else None


def job_of(wire: WireJob, named: tuple[str, int, int, int], identity: str, size: int) -> Job:
    """The Job. `named`: installation, id of its task, attempt and launch, by its name."""
    labels, notes = wire.metadata.labels or {}, wire.metadata.annotations or {}
    of_pod, (phase, condition) = wire.spec.template.metadata.annotations or {}, read_phase(wire.status.conditions)
    return Job(
        name=wire.metadata.name,
        uid=wire.metadata.uid,
        resource_version=wire.metadata.resource_version,
        task_id=named[1],
        attempt=named[2],
        launch=named[3],
        queue=labels.get(ids.LABEL_QUEUE, ""),
        template=labels.get(ids.LABEL_TEMPLATE, ""),
        image=notes.get(ids.IMAGE) or image_of(wire.spec.template.spec.containers),
        container=of_pod.get(ids.CONTAINER, ""),
        identity=identity,
        database_id=notes.get(ids.DATABASE_ID, ""),
        submitted_by=notes.get(ids.SUBMITTED_BY, ""),
        created_at=wire.metadata.creation_timestamp or LONG_AGO,
        phase=phase,
        reason=condition.reason,
        ended_at=condition.last_transition_time,
        deleting_since=wire.metadata.deletion_timestamp,
        suspended=is_suspended(wire),
        suspended_by=suspender_of(wire) if is_suspended(wire) else "",
        kept_by=kept_by(wire.metadata),
        unstarted=count(notes.get(ids.UNSTARTED)),
        disrupted=count(notes.get(ids.DISRUPTED)),
        disrupted_at=ids.read_times(notes.get(ids.DISRUPTED_AT, "")),
        unplaced_before=count(notes.get(ids.UNPLACED_BEFORE)),
        is_unplaced=ids.UNPLACED in notes,
        ended_by=notes.get(ids.ENDED_BY, ""),
        limit_seconds=wire.spec.template.spec.active_deadline_seconds or 0,
        report=notes.get(ids.REPORT, "sql"),
        final_codes=statuses(notes.get(ids.FINAL_CODES)),
        shape=of_pod.get(ids.SHAPE, ""),
        needs=needs_of(wire.spec.template.spec),
        cache=cache_of(of_pod),
        lacks=changed_labels(wire.metadata, ours_of(named)),
        size=size,
    )


def statuses(written: str | None) -> frozenset[int]:
    """The statuses in a text of ours; none if somebody has made it unreadable: the row is then tried again."""
    try:
        return read_statuses(written) if written else frozenset()
    except ValueError:
        return frozenset()


def text_of(raw: bytes | msgspec.Raw) -> int:
    """Bytes of the texts that rows can set, if they are many; else 0. A watch gives the object another length."""
    if len(memoryview(raw)) < MUCH_TEXT:
        return 0
    containers = read_json(raw, TextJob).spec.template.spec.containers
    size = sum(len(memoryview(part)) for one in containers for part in (one.env, one.command, one.args))
    return size if size >= MUCH_TEXT else 0


def identity_of(meta: Meta, installation: str) -> str:
    """The identity of its row, by the annotation; or its beginning in the name, if somebody has changed the annotation.

    The name counts only with our label: a Job that has neither is somebody else's.
    """
    noted = (meta.annotations or {}).get(ids.IDENTITY, "")
    is_labelled = (meta.labels or {}).get(ids.LABEL_INSTALLATION) == installation
    return ids.identity_in(meta.name) if is_labelled and not ids.WHOLE.fullmatch(noted) else noted


def ours_of(named: tuple[str, int, int, int]) -> dict[str, str]:
    """The labels that a Job of this name had when we made it, and by which it is found."""
    installation, *numbers = named
    found = dict(zip(NUMBERS, map(str, numbers), strict=True))
    return {ids.MANAGED_BY: ids.MANAGER, ids.LABEL_INSTALLATION: installation} | found


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
    return own_pod_of(msgspec.json.decode(raw, type=WirePod), raw)


class ReadLately:
    """Shapes whose Pods were decoded completely lately. Webhooks and quotas change all Pods of a shape alike."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: in seconds."""
        self._clock = clock
        self._at: dict[str, float] = {}

    def is_due(self, shape: str) -> bool:
        now = self._clock()
        if not shape or now - self._at.get(shape, float("-inf")) < WHOLE_SECONDS:
            return False
        self._at.pop(shape, None)
        if len(self._at) >= MOST_SHAPES:
            del self._at[next(iter(self._at))]  # the one that was read longest ago
        self._at[shape] = now
        return True


def is_own(wire: WirePod, installation: str) -> bool:
    """Whether the Pod has our label, or its Job has a name of ours: a policy may take labels from Pods."""
    jobs = (one.name for one in wire.metadata.owner_references or () if one.controller and one.kind == "Job")
    by_name = (named[0] for one in jobs if (named := ids.numbers_in(one)) is not None)
    return (wire.metadata.labels or {}).get(ids.LABEL_INSTALLATION) == installation or installation in by_name


def own_pod_reader(
    installation: str, clock: Callable[[], float] | None = None
) -> Callable[[bytes | msgspec.Raw], Pod | None]:
    """A reader of Pods of this installation. With a `clock`, the needs of each shape are read, too."""
    lately = ReadLately(clock) if clock is not None else None

    def read(raw: bytes | msgspec.Raw) -> Pod | None:
        wire = msgspec.json.decode(raw, type=WirePod)
        pod = own_pod_of(wire, raw) if is_own(wire, installation) else None
        return with_needs(pod, raw, lately) if pod is not None and lately is not None else pod

    return read


def with_needs(pod: Pod, raw: bytes | msgspec.Raw, lately: ReadLately) -> Pod:
    """The Pod, with its needs if no Pod of its shape was read lately. Ended Pods, huge ones and those without a Job get
    none.
    """
    if pod.has_ended or not pod.job_uid or len(memoryview(raw)) > LARGEST_LEARNT or not lately.is_due(pod.shape):
        return pod
    return msgspec.structs.replace(pod, needs=made_needs(raw))


def made_needs(raw: bytes | msgspec.Raw) -> PodNeeds:
    """What a Pod needs of a node. Node name and gates are left out; they belong to this Pod alone."""
    spec = msgspec.json.decode(raw, type=WholePod).spec
    return needs_of(msgspec.structs.replace(spec, node_name="", scheduling_gates=None))


def own_pod_of(wire: WirePod, raw: bytes | msgspec.Raw) -> Pod:
    """A Pod of this installation."""
    meta, status = wire.metadata, wire.status
    task = task_container_of(wire, raw)
    own = [one for one in status.container_statuses or () if one.name == task]
    sidecars = {one.name for one in wire.spec.init_containers or () if one.restart_policy == "Always"}
    owner = next((owner.uid for owner in meta.owner_references or () if owner.controller), "")
    return Pod(
        name=meta.name,
        uid=meta.uid,
        job_uid=owner,
        shape=(meta.annotations or {}).get(ids.SHAPE, ""),
        created_at=meta.creation_timestamp or LONG_AGO,
        phase=status.phase,
        node_name=wire.spec.node_name,
        nominated_node=status.nominated_node_name,
        scheduled_at=scheduled_at(status.conditions),
        unschedulable_since=unschedulable_since(status.conditions),
        waiting_reason=waiting_reason(wire, task),
        waiting_message=waiting_message(wire, task),
        had_run=any(map(has_run, own)) or failed_untold(wire),
        had_begun=any(map(has_run, status.every_container)),
        had_prepared=any(has_run(one) for one in status.init_container_statuses or () if one.name not in sidecars),
        end=end_of(wire, task),
        exit=exit_of(wire, task),
        kept_by=kept_by(meta),
        deleting=meta.deletion_timestamp is not None,
        is_disrupted=any(map(is_disruption, status.conditions)),
        scheduler=wire.spec.scheduler_name,
        is_gated=any(c.type == "PodScheduled" and c.reason == GATED for c in status.conditions),
        limit_seconds=wire.spec.active_deadline_seconds or 0,
    )


def task_container_of(wire: WirePod, raw: bytes | msgspec.Raw) -> str:
    """Name of the template's container, by the annotation.

    A policy may take annotations from Pods, or give their containers other names, and a webhook may put its container
    first. Then the container with the variables of the contract is ours.
    """
    names = [one.name for one in wire.spec.containers]
    noted = (wire.metadata.annotations or {}).get(ids.CONTAINER)
    if noted and (noted in names or not names):
        return noted
    ours = with_contract(raw) if len(names) > 1 else []
    return ours[0] if ours else "task" if "task" in names or not names else names[0]


def with_contract(raw: bytes | msgspec.Raw) -> list[str]:
    """Names of the containers that have the variables of the contract."""
    try:
        containers = msgspec.json.decode(raw, type=NamedPod).spec.containers
    except UNREADABLE:
        return []
    return [one.name for one in containers if any(variable.name == "TASK_ID" for variable in one.env)]


def has_run(status: ContainerStatus) -> bool:
    """Whether the container's process existed."""
    return existed(status.state) or existed(status.last_state)


def existed(states: ContainerStates) -> bool:
    """Whether the container had a process. One that failed with StartError never had one."""
    if states.running is not None:
        return True
    ended = states.terminated
    return ended is not None and ended.started_at is not None and ended.started_at > LONG_AGO


def read_bound_pod(raw: bytes | msgspec.Raw) -> BoundPod | None:
    """Reads a Pod that uses room of a node. Returns None for a Pod without a node."""
    wire = msgspec.json.decode(raw, type=WirePod)
    return bound_pod_of(wire) if wire.spec.node_name else None


def pod_reader(
    namespace: str,
    installation: str,
    schedulers: Set[str] = KUBE_SCHEDULERS,
    clock: Callable[[], float] | None = None,
) -> Callable[[bytes | msgspec.Raw], BoundPod | None]:
    """A reader of Pods of all namespaces: those that use room, and those of the installation, whatever their phase.

    A Pod that preempts others uses room of its nominated node, but only for Pods of the same scheduler, one of
    `schedulers`. With a `clock`, the needs of each shape of ours are read, too.
    """
    lately = ReadLately(clock) if clock is not None else None

    def read(raw: bytes | msgspec.Raw) -> BoundPod | None:
        wire = msgspec.json.decode(raw, type=WirePod)
        is_ours = wire.metadata.namespace == namespace and is_own(wire, installation)
        is_nominated = wire.status.nominated_node_name and wire.spec.scheduler_name in schedulers
        uses_room = (wire.spec.node_name or is_nominated) and wire.status.phase not in ENDED
        if not is_ours:
            return bound_pod_of(wire) if uses_room else None
        own = own_pod_of(wire, raw) if lately is None else with_needs(own_pod_of(wire, raw), raw, lately)
        return bound_pod_of(wire, own) if uses_room else BoundPod(full_name(wire.metadata), "", NOTHING, own=own)

    return read


RESIZE_REFUSED: Final = ("PodResizePending", "Infeasible")
"""The node will never give the Pod this request in place."""


def bound_pod_of(wire: WirePod, own: Pod | None = None) -> BoundPod:
    meta, status = wire.metadata, wire.status
    given = {one.name: one for one in status.every_container}
    is_refused = any((one.type, one.reason) == RESIZE_REFUSED for one in status.conditions)
    asks = asked_of(wire.spec, lambda one: taken(one, given.get(one.name), is_refused=is_refused))
    nominated = "" if wire.spec.node_name else status.nominated_node_name
    node = intern(wire.spec.node_name)  # one text for all Pods of a node: 3 MB less for 50,000 Pods
    return BoundPod(full_name(meta), node, asks, pod_keys(meta), own, wire.spec.priority or 0, nominated)


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
        unreachable=ready != "True" or any(taint.key == UNREACHABLE for taint in wire.spec.taints or ()),
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
