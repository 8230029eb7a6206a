"""Requests and answers of a scheduler extender, as in `k8s.io/kube-scheduler/extender/v1`.

Keys are Go's names. Pods and nodes inside are as in the Kubernetes API. The Pod is decoded apart from the node names:
if it cannot be read, the nodes can still pass. Only the parts of it that decisions need are read.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Raw, Struct

from dispatcher.extender.assumed_pods import PodRequest
from dispatcher.kube.objects import pod_keys
from dispatcher.kube.pods import asked_of, requests
from dispatcher.kube.wire import UNREADABLE, Meta, PodSpec, Wire, full_name
from dispatcher.model.cluster import CRITICAL
from dispatcher.model.resources import Amounts

NOTHING: Final = msgspec.Raw(b"null")
NONE: Final[Mapping[str, str]] = {}
OF_NODES: Final = frozenset({("apps/v1", "DaemonSet"), ("v1", "Node")})
"""Controllers of Pods that belong to their node: daemons, and mirrors of static Pods."""


class ExtenderPod(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()


class Name(Struct, frozen=True):
    name: str


class ExtenderNode(Struct, frozen=True):
    """A node, of which only the name is read, so that faults of its other fields do no harm."""

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
        """Each readable name once, in the order of the body. Raises one of UNREADABLE if there is none."""
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
    return msgspec.json.decode(raw, type=ExtenderNode).metadata.name


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


def asks(pod: ExtenderPod, unset: Mapping[str, str] = NONE) -> Amounts:
    """The requests of the Pod. `unset`: the requests of a container that sets none."""
    return asked_of(pod.spec, lambda container: requests({**unset, **(container.resources.requests or {})}))


def read_pod_request(pod: ExtenderPod) -> PodRequest:
    meta = pod.metadata
    controllers = {(owner.api_version, owner.kind) for owner in meta.owner_references or () if owner.controller}
    is_exempt = (pod.spec.priority or 0) >= CRITICAL or not controllers.isdisjoint(OF_NODES)
    return PodRequest(full_name(meta), pod_keys(meta), asks(pod), is_exempt, meta.uid)
