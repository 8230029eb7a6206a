"""API objects in JSON, with only the fields that decisions read, and the functions that make facts of them.

Every field has a default, so a missing key is never a fault. The parser skips fields that are not declared. A list
is the exception. A list must have its version, so that the `{}` of a proxy is not read as a cluster without Jobs.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from dispatcher.model import identity as ids
from dispatcher.model.cluster import Node, Pod
from dispatcher.model.jobs import Job, Phase

UNREACHABLE = "node.kubernetes.io/unreachable"
LARGEST_ID = 2**63 - 1
BEGINNING = datetime.fromisoformat("1970-01-02T00:00:00+00:00")
"""kubelet reports 1970-01-01 as the start of a container that could not be started."""


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions for a body that is not the expected JSON."""


class Wire(Struct, rename="camel", frozen=True):
    """Base of all API objects. Field names are camelCase in JSON."""


class OwnerReference(Wire, frozen=True):
    uid: str = ""
    controller: bool = False


class Meta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    creation_timestamp: datetime = BEGINNING
    deletion_timestamp: datetime | None = None


def full_name(meta: Meta) -> str:
    """`namespace/name`, which is unique over all namespaces."""
    return f"{meta.namespace}/{meta.name}"


class Condition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: datetime | None = None


class Container(Wire, frozen=True):
    name: str = ""
    image: str = ""


class PodSpec(Wire, frozen=True):
    containers: list[Container] = []
    node_name: str = ""


class PodTemplate(Wire, frozen=True):
    spec: PodSpec = PodSpec()


class JobSpec(Wire, frozen=True):
    suspend: bool | None = None
    template: PodTemplate = PodTemplate()


class JobStatus(Wire, frozen=True):
    conditions: list[Condition] = []


class WireJob(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class ContainerState(Wire, frozen=True):
    reason: str = ""
    started_at: datetime | None = None


class ContainerStates(Wire, frozen=True):
    waiting: ContainerState | None = None
    running: ContainerState | None = None
    terminated: ContainerState | None = None


class ContainerStatus(Wire, frozen=True):
    name: str = ""
    state: ContainerStates = ContainerStates()
    last_state: ContainerStates = ContainerStates()


class PodStatus(Wire, frozen=True):
    phase: str = "Pending"
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []


class WirePod(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(Wire, frozen=True):
    key: str = ""


class NodeSpec(Wire, frozen=True):
    taints: list[Taint] = []


class WireNode(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: JobStatus = JobStatus()


class ListMeta(Wire, frozen=True):
    resource_version: Annotated[str, msgspec.Meta(min_length=1)]
    continue_: str = msgspec.field(default="", name="continue")


class Page(Wire, frozen=True):
    metadata: ListMeta
    items: list[msgspec.Raw] = []


class Event(Wire, frozen=True):
    """One line of a watch. `object` stays raw until the event's type is known."""

    type: str = ""
    object: msgspec.Raw = msgspec.Raw()


class Cause(Wire, frozen=True):
    reason: str = ""
    message: str = ""


class Details(Wire, frozen=True):
    causes: list[Cause] = []
    retry_after_seconds: int = 0


class ApiStatus(Wire, frozen=True):
    """metav1.Status; `details` may be null."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: Details | None = None


def read_job(raw: bytes | msgspec.Raw) -> Job | None:
    """Reads a Job of ours. Returns None without our identity: such a Job is never touched, whatever its labels say."""
    wire = msgspec.json.decode(raw, type=WireJob)
    labels, notes = wire.metadata.labels, wire.metadata.annotations
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
        created_at=wire.metadata.creation_timestamp,
        phase=phase,
        reason=condition.reason,
        ended_at=condition.last_transition_time,
        deleting=wire.metadata.deletion_timestamp is not None,
        suspended=bool(wire.spec.suspend),
        unstarted=count(notes.get(ids.UNSTARTED)),
        disrupted=count(notes.get(ids.DISRUPTED)),
        report=notes.get(ids.REPORT, "sql"),
    )


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


def read_pod(raw: bytes | msgspec.Raw) -> Pod | None:
    wire = msgspec.json.decode(raw, type=WirePod)
    meta, status = wire.metadata, wire.status
    named = [s for s in status.container_statuses if s.name == "task"] or status.container_statuses
    owner = next((owner.uid for owner in meta.owner_references if owner.controller), "")
    return Pod(
        name=meta.name,
        uid=meta.uid,
        job_uid=owner,
        queue=meta.labels.get(ids.LABEL_QUEUE, ""),
        shape=meta.annotations.get(ids.SHAPE, ""),
        created_at=meta.creation_timestamp,
        phase=status.phase,
        node_name=wire.spec.node_name,
        unschedulable_since=unschedulable_since(status.conditions),
        waiting_reason=waiting_reason([*status.init_container_statuses, *status.container_statuses]),
        had_run=any(has_run(s.state) or has_run(s.last_state) for s in named),
        deleting=meta.deletion_timestamp is not None,
    )


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
    return ended is not None and ended.started_at is not None and ended.started_at > BEGINNING


def read_node(raw: bytes | msgspec.Raw) -> Node | None:
    wire = msgspec.json.decode(raw, type=WireNode)
    ready = next((c.status for c in wire.status.conditions if c.type == "Ready"), "Unknown")
    tainted = any(taint.key == UNREACHABLE for taint in wire.spec.taints)
    return Node(name=wire.metadata.name, ready=ready == "True", unreachable=tainted or ready == "Unknown")


def read_status(body: bytes) -> ApiStatus:
    """The Status of a failed answer. The plain text of a proxy becomes the message."""
    try:
        return msgspec.json.decode(body, type=ApiStatus)
    except UNREADABLE:
        return ApiStatus(message=body[:300].decode(errors="replace"))


def encode(manifest: dict[str, Any]) -> bytes:
    return msgspec.json.encode(manifest)
