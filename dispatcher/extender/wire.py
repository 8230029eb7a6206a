"""Requests and answers of a scheduler extender, as in `k8s.io/kube-scheduler/extender/v1`.

Keys are Go's names. Pods and nodes inside are as in the Kubernetes API. The Pod is decoded apart from the node names:
if it cannot be read, the nodes can still pass. Only the parts of it that decisions need are read.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Raw, Struct

from dispatcher.model.amounts import Amounts, Asked, asked_by
from dispatcher.model.reservations import keys_of
from dispatcher.reservations.pod_request import PodRequest

NOTHING: Final = msgspec.Raw(b"null")
NONE: Final[Mapping[str, str]] = {}
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with a time zone. Without one it would be read as this machine's local time."""
CRITICAL: Final = 2_000_000_000
"""The priority of system-cluster-critical. system-node-critical is above it."""
OF_NODES: Final = frozenset({("apps/v1", "DaemonSet"), ("v1", "Node")})
"""Controllers of Pods that belong to their node: daemons, and mirrors of static Pods."""


class Owner(Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    uid: str = ""
    controller: bool = False


class Meta(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    creation_timestamp: Moment | None = None


class Resources(Struct, frozen=True):
    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None


class Container(Struct, frozen=True, rename="camel"):
    resources: Resources = Resources()
    restart_policy: str = ""


class Spec(Struct, frozen=True, rename="camel"):
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    overhead: dict[str, str] | None = None
    resources: Resources | None = None
    priority: int | None = None


class Pod(Struct, frozen=True):
    metadata: Meta = Meta()
    spec: Spec = Spec()


class Name(Struct, frozen=True):
    name: str


class Node(Struct, frozen=True):
    """Only the name of a node is read, so faults of its other fields do no harm."""

    metadata: Name


class Identity(Struct, frozen=True):
    uid: str = ""


class Victim(Struct, frozen=True):
    metadata: Identity = Identity()


class Nodes(Struct, frozen=True):
    """A NodeList. Its items are returned unchanged."""

    items: list[Raw] | None = None


class Arguments(Struct, frozen=True, rename="pascal"):
    """ExtenderArgs. The nodes are in `node_names` if the caller is nodeCacheCapable, else in `nodes`."""

    pod: Raw = NOTHING
    nodes: Raw = NOTHING
    node_names: Raw = NOTHING

    @property
    def is_cached(self) -> bool:
        return self.node_names != NOTHING

    def names(self) -> dict[str, None]:
        """Each readable name once, in the order of the body. UNREADABLE: there is no list, or no readable name."""
        if self.is_cached:
            with suppress(*UNREADABLE):
                return dict.fromkeys(msgspec.json.decode(self.node_names, type=list[str]))
        return dict.fromkeys(self.by_name())

    def by_name(self) -> dict[str, Raw]:
        """As `names`, each with its item of the body."""
        if self.is_cached:
            came, read_name = msgspec.json.decode(self.node_names, type=list[Raw]), name_itself
        else:
            came, read_name = msgspec.json.decode(self.nodes, type=Nodes).items or [], name_of_node
        found: dict[str, Raw] = {}
        for one in came:
            with suppress(*UNREADABLE):
                found.setdefault(read_name(one), one)
        if came and not found:
            raise msgspec.ValidationError("not one has a name that can be read")
        return found


def name_itself(raw: Raw) -> str:
    return msgspec.json.decode(raw, type=str)


def name_of_node(raw: Raw) -> str:
    return msgspec.json.decode(raw, type=Node).metadata.name


class Priority(Struct, frozen=True, gc=False, rename="pascal"):
    """HostPriority. The score must be a whole number, or kube-scheduler drops the whole answer."""

    host: str
    score: int


class FilterResult(Struct, frozen=True, rename="pascal"):
    """ExtenderFilterResult. Without `nodes` and `node_names` no node passes."""

    nodes: Nodes | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class MetaPod(Struct, frozen=True):
    uid: str = msgspec.field(name="UID")


class MetaVictims(Struct, frozen=True):
    pods: list[MetaPod] | None = msgspec.field(name="Pods", default=None)
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class Victims(Struct, frozen=True):
    pods: list[Victim] | None = msgspec.field(name="Pods", default=None)
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptionArguments(Struct, frozen=True, rename="pascal"):
    """ExtenderPreemptionArgs: victims by node, as whole Pods if the caller is not nodeCacheCapable."""

    pod: Raw = NOTHING
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None

    def victims(self) -> dict[str, MetaVictims]:
        """The victims by their UIDs, in the form of the answer."""
        whole = self.node_name_to_victims or {}
        return self.node_name_to_meta_victims or {node: meta_of(victims) for node, victims in whole.items()}


class PreemptionResult(Struct, frozen=True, rename="pascal"):
    node_name_to_meta_victims: dict[str, MetaVictims]


def meta_of(victims: Victims) -> MetaVictims:
    return MetaVictims([MetaPod(pod.metadata.uid) for pod in victims.pods or ()], victims.num_pdb_violations)


def asks(pod: Pod, unset: Mapping[str, str] = NONE) -> Amounts:
    """The requests of the Pod. `unset`: the requests of a container that sets none."""
    spec = pod.spec
    first = tuple(
        (written(one.resources.requests, unset), one.restart_policy == "Always") for one in spec.init_containers or ()
    )
    containers = tuple(written(one.resources.requests, unset) for one in spec.containers)
    whole = written(spec.resources.requests if spec.resources else None, NONE)
    asked: Asked = (containers, first, written(spec.overhead, NONE), whole)
    return asked_by(asked)


def written(amounts: dict[str, str] | None, unset: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple({**unset, **(amounts or {})}.items())


def read_pod_request(pod: Pod) -> PodRequest:
    meta, owners = pod.metadata, pod.metadata.owner_references or []
    keys = keys_of(meta.namespace, meta.name, meta.uid, meta.labels or {}, (owner.uid for owner in owners))
    controllers = {(owner.api_version, owner.kind) for owner in owners if owner.controller}
    is_exempt = (pod.spec.priority or 0) >= CRITICAL or not controllers.isdisjoint(OF_NODES)
    return PodRequest(f"{meta.namespace}/{meta.name}", keys, asks(pod), is_exempt, meta.uid)
