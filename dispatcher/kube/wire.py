"""Objects of the Kubernetes API in JSON, with only the fields that decisions read.

Every field has a default, so a missing key is never a fault. The parser skips fields that are not declared. A list
is the exception. A list must have its version, so that the `{}` of a proxy is not read as a cluster without Jobs.
Go programs write null for a map or list without entries, so those fields may be None.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from dispatcher.model.cluster import LONG_AGO

T = TypeVar("T")
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""Exceptions for a body that is not the expected JSON, or has a value by which nothing can be computed."""
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with a time zone. Without a zone it would be read as this machine's local time."""
DEEPEST: Final = 100
"""Levels of an object that are read. Only managedFields have more: the API server keeps 10,000, Python reads 1,000."""
TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
"""Texts and brackets of JSON."""
BEYOND: Final = re.compile(rb'"(-\d+|0000|[1-9]\d{4,})-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"')
"""Times that Go writes and Python does not have: before the year 1, and after 9999."""


def mended(text: bytes) -> bytes:
    """An object that cannot be read, with null in place of what is nested too deeply, and times that Python has.

    Whoever may write one object chooses such values. A list that cannot be read because of it would stop everybody.
    """
    return BEYOND.sub(lambda one: FIRST_TIME if one[1][:1] in b"-0" else LAST_TIME, b"".join(shallow_parts(text)))


FIRST_TIME, LAST_TIME = b'"0001-01-01T00:00:00Z"', b'"9999-12-31T00:00:00Z"'


def shallow_parts(text: bytes) -> Iterator[bytes]:
    depth = begin = cut = 0
    for token in TOKENS.finditer(text):
        if token[0] in b"{[":
            depth += 1
            cut = token.start() if depth == DEEPEST else cut
        elif token[0] in b"}]":
            if depth == DEEPEST:
                yield text[begin:cut]
                yield b"null"
                begin = token.end()
            depth -= 1
    yield text[begin:]


def read_json(text: bytes | msgspec.Raw, what: type[T]) -> T:
    """The object of the API server, as far as it can be read. Raises UNREADABLE."""
    try:
        return msgspec.json.decode(text, type=what)
    except UNREADABLE:
        return msgspec.json.decode(mended(bytes(text)), type=what)


def in_namespace(api: str, namespace: str, *names: str) -> str:
    """Path of a collection or an object: `in_namespace("/api/v1", "jobs", "secrets", "one")`."""
    return "/".join([api, "namespaces", *(quote(name, safe="") for name in (namespace, *names))])


class Wire(Struct, rename="camel", frozen=True):
    """Base of all API objects. Field names are camelCase in JSON."""


class OwnerReference(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: Moment | None = None
    deletion_timestamp: Moment | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] | None = None


class JobMeta(Meta, frozen=True):
    """`managed_fields`: undecoded. They are read only for the few Jobs that somebody suspends or changes."""

    managed_fields: msgspec.Raw = msgspec.Raw(b"[]")


class Bare(Wire, frozen=True):
    """Any object, read only for its metadata."""

    metadata: Meta = Meta()


def full_name(meta: Meta) -> str:
    """`namespace/name`, which is unique over all namespaces."""
    return f"{meta.namespace}/{meta.name}"


class Condition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Moment | None = None


class Resources(Wire, frozen=True):
    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None


class Container(Wire, frozen=True):
    name: str = ""
    image: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""


class EnvName(Wire, frozen=True):
    name: str = ""


class ContainerNames(Wire, frozen=True):
    """A container with the names of its variables."""

    name: str = ""
    env: list[EnvName] = []


class NamedPodSpec(Wire, frozen=True):
    containers: list[ContainerNames] = []


class NamedPod(Wire, frozen=True):
    """A Pod with the names of variables, which are decoded only if its container is not known otherwise."""

    spec: NamedPodSpec = NamedPodSpec()


class PodSpec(Wire, frozen=True):
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    overhead: dict[str, str] | None = None
    resources: Resources | None = None
    priority: int | None = None
    node_name: str = ""
    scheduler_name: str = ""
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None


class WireRequirement(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeTerm(Wire, frozen=True):
    match_expressions: list[WireRequirement] | None = None
    match_fields: list[WireRequirement] | None = None


class NodeTerms(Wire, frozen=True):
    node_selector_terms: list[NodeTerm] | None = None


class NodeAffinity(Wire, frozen=True):
    required: NodeTerms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None


class WireToleration(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class PlacedPodSpec(PodSpec, frozen=True):
    """A Pod's spec with everything by which kube-scheduler chooses nodes. Read for our own Jobs and templates."""

    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[WireToleration] | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    scheduling_gates: list[Any] | None = None


class PodTemplate(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: PlacedPodSpec = PlacedPodSpec()


class JobSpec(Wire, frozen=True):
    suspend: bool | None = None
    parallelism: int | None = None
    template: PodTemplate = PodTemplate()


class JobStatus(Wire, frozen=True):
    conditions: list[Condition] = []


class WireJob(Wire, frozen=True):
    metadata: JobMeta = JobMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class ContainerTexts(Wire, frozen=True):
    """The parts of a container that may be large, undecoded."""

    env: msgspec.Raw = msgspec.Raw()
    command: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()


class TextPod(Wire, frozen=True):
    containers: list[ContainerTexts] = []


class TextTemplate(Wire, frozen=True):
    spec: TextPod = TextPod()


class TextSpec(Wire, frozen=True):
    template: TextTemplate = TextTemplate()


class TextJob(Wire, frozen=True):
    """A Job, read only for the size of its texts."""

    spec: TextSpec = TextSpec()


class ContainerState(Wire, frozen=True):
    """State of a container. `message`, `exit_code` and `finished_at` belong to a container that has ended."""

    reason: str = ""
    message: str = ""
    started_at: Moment | None = None
    finished_at: Moment | None = None
    exit_code: int = 0


class ContainerStates(Wire, frozen=True):
    waiting: ContainerState | None = None
    running: ContainerState | None = None
    terminated: ContainerState | None = None


class ContainerStatus(Wire, frozen=True):
    """Status of a container. `allocated_resources`, `resources`: from the node; above the requests during a resize
    down.
    """

    name: str = ""
    state: ContainerStates = ContainerStates()
    last_state: ContainerStates = ContainerStates()
    allocated_resources: dict[str, str] | None = None
    resources: Resources | None = None


class PodStatus(Wire, frozen=True):
    """Status of a Pod. `start_time`: when the node took the Pod, by the node's clock."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    conditions: list[Condition] = []
    nominated_node_name: str = ""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None

    @property
    def every_container(self) -> tuple[ContainerStatus, ...]:
        return (*(self.init_container_statuses or ()), *(self.container_statuses or ()))


class WirePod(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class WholePod(Wire, frozen=True):
    """A Pod of ours, with everything by which kube-scheduler chooses its node."""

    spec: PlacedPodSpec = PlacedPodSpec()


class WireTaint(Wire, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Wire, frozen=True):
    taints: list[WireTaint] | None = None
    unschedulable: bool | None = None


class NodeStatus(Wire, frozen=True):
    conditions: list[Condition] = []
    allocatable: dict[str, str] | None = None


class WireNode(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class WirePriorityClass(Wire, frozen=True):
    metadata: Meta = Meta()
    value: int = 0
    global_default: bool | None = None
    preemption_policy: str | None = None


class ListMeta(Wire, frozen=True):
    resource_version: Annotated[str, msgspec.Meta(min_length=1)]
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(Wire, frozen=True):
    metadata: ListMeta
    items: list[msgspec.Raw] = []


class Event(Wire, frozen=True):
    """One line of a watch. `object` stays raw until the event's type is known."""

    type: str = ""
    object: msgspec.Raw = msgspec.Raw()


class EventSource(Wire, frozen=True):
    component: str = ""


class EventSeries(Wire, frozen=True):
    last_observed_time: Moment | None = None


class WireEvent(Wire, frozen=True):
    """An Event about an object.

    Newer clients write `reporting_component`, `event_time` and `series` in place of `source` and timestamps.
    """

    metadata: Meta = Meta()
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    reporting_component: str | None = None
    first_timestamp: Moment | None = None
    last_timestamp: Moment | None = None
    event_time: Moment | None = None
    series: EventSeries | None = None

    @property
    def writer(self) -> str:
        return self.source.component or self.reporting_component or ""

    @property
    def began_at(self) -> datetime:
        return self.first_timestamp or self.event_time or self.metadata.creation_timestamp or LONG_AGO

    @property
    def ended_at(self) -> datetime:
        repeated_at = self.series.last_observed_time if self.series else None
        return self.last_timestamp or repeated_at or self.began_at


class RawItems(Wire, frozen=True):
    """A list of objects. Anybody may have written one of them."""

    items: Sequence[msgspec.Raw] = ()

    def readable(self, what: type[T]) -> list[T]:
        """The objects that can be read. One with a time that cannot be read hides no other."""
        found = list[T]()
        for one in self.items:
            with contextlib.suppress(*UNREADABLE):
                found.append(msgspec.json.decode(one, type=what))
        return found


class StatusCause(Wire, frozen=True):
    reason: str = ""
    message: str = ""


class Details(Wire, frozen=True):
    causes: list[StatusCause] = []
    retry_after_seconds: int = 0


class ApiStatus(Wire, frozen=True):
    """metav1.Status; `details` may be null."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: Details | None = None
