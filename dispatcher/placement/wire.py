"""The wire of a scheduler extender, as `k8s.io/kube-scheduler/extender/v1` has it.

Keys are Go's names, Pods and nodes inside are Kubernetes' own. Of a Pod only what is scored by is read, and by itself:
a Pod that cannot be read must not take the names of the nodes along, or nobody could be let pass.
"""

from datetime import datetime
from typing import Final

import msgspec
from msgspec import Raw, Struct

from dispatcher.amounts import Amounts, Asked, asked_by

NO_TIME: Final = datetime.fromisoformat("9999-01-01T00:00:00+00:00")
NOTHING: Final = msgspec.Raw(b"null")


class Meta(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None
    creation_timestamp: datetime | None = None


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


class Pod(Struct, frozen=True):
    metadata: Meta = Meta()
    spec: Spec = Spec()


class Named(Struct, frozen=True):
    metadata: Meta = Meta()


class Nodes(Struct, frozen=True):
    """A NodeList; its items are given back as they came."""

    items: list[Raw] | None = None


class Arguments(Struct, frozen=True, rename="pascal"):
    """ExtenderArgs. `node_names` where the caller is nodeCacheCapable, else `nodes`."""

    pod: Raw = NOTHING
    nodes: Nodes | None = None
    node_names: list[str] | None = None

    def names(self) -> list[str]:
        """Each node once, in the order in which they came. MsgspecError: a node that is none."""
        if self.node_names is not None:
            return list(dict.fromkeys(self.node_names))
        items = self.nodes.items if self.nodes else None
        return list(dict.fromkeys(msgspec.json.decode(item, type=Named).metadata.name for item in items or ()))


class Priority(Struct, frozen=True, gc=False, rename="pascal"):
    """HostPriority; the score is a whole number, or kube-scheduler drops the whole answer."""

    host: str
    score: int


class FilterResult(Struct, frozen=True, rename="pascal"):
    """ExtenderFilterResult. Neither list: no node passes."""

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
    pods: list[Named] | None = msgspec.field(name="Pods", default=None)
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptionArguments(Struct, frozen=True, rename="pascal"):
    """ExtenderPreemptionArgs: victims by node, whole where the caller is not nodeCacheCapable."""

    pod: Raw = NOTHING
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None

    def victims(self) -> dict[str, MetaVictims]:
        """As they are answered, whatever they came as."""
        whole = self.node_name_to_victims or {}
        return self.node_name_to_meta_victims or {node: meta_of(victims) for node, victims in whole.items()}


class PreemptionResult(Struct, frozen=True, rename="pascal"):
    node_name_to_meta_victims: dict[str, MetaVictims]


def meta_of(victims: Victims) -> MetaVictims:
    return MetaVictims([MetaPod(pod.metadata.uid) for pod in victims.pods or ()], victims.num_pdb_violations)


def asks(pod: Pod) -> Amounts:
    """What the Pod asks of a node."""
    spec = pod.spec
    first = tuple(
        (written(one.resources.requests), one.restart_policy == "Always") for one in spec.init_containers or ()
    )
    asked: Asked = (tuple(written(one.resources.requests) for one in spec.containers), first, written(spec.overhead))
    return asked_by(asked)


def written(amounts: dict[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple((amounts or {}).items())
