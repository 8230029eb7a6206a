"""Reads and follows nodes, bound Pods and reservations of the whole cluster, to compute the free room of nodes."""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from dispatcher.kube.client import KubeClient
from dispatcher.kube.listing import Resource
from dispatcher.kube.objects import Meta, full_name
from dispatcher.kube.reflector import Pace, Reflector
from dispatcher.kube.reservations import RESERVATIONS
from dispatcher.model.amounts import Asked, Written, amounts, asked_by, milli_of
from dispatcher.model.capacity import BoundPod, NodeSize
from dispatcher.model.reservations import Reservation, keys_of
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.metrics import STORE_AGE

BOUND: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
"""Pods that use room: not ended, and bound to a node."""
MOST_SECONDS: Final = 100


class Resources(Struct, frozen=True, rename="camel"):
    requests: dict[str, str] | None = None


class Container(Struct, frozen=True, rename="camel"):
    name: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""


class ContainerStatus(Struct, frozen=True, rename="camel"):
    """Resources that the node has given the container: more than its requests while the container is made smaller."""

    name: str = ""
    allocated_resources: dict[str, str] | None = None
    resources: Resources | None = None


class BoundPodStatus(Struct, frozen=True, rename="camel"):
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class BoundPodSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    overhead: dict[str, str] | None = None
    resources: Resources | None = None


class WireBoundPod(Struct, frozen=True, rename="camel"):
    metadata: Meta = Meta()
    spec: BoundPodSpec = BoundPodSpec()
    status: BoundPodStatus = BoundPodStatus()


class NodeSizeStatus(Struct, frozen=True, rename="camel"):
    allocatable: dict[str, str] = {}


class WireNodeSize(Struct, frozen=True, rename="camel"):
    metadata: Meta = Meta()
    status: NodeSizeStatus = NodeSizeStatus()


def read_node_size(raw: bytes | msgspec.Raw) -> NodeSize:
    wire = msgspec.json.decode(raw, type=WireNodeSize)
    return NodeSize(wire.metadata.name, wire.metadata.creation_timestamp, amounts(wire.status.allocatable.items()))


def read_bound_pod(raw: bytes | msgspec.Raw) -> BoundPod | None:
    """Reads a bound Pod. Returns None for a Pod without a node."""
    wire = msgspec.json.decode(raw, type=WireBoundPod)
    spec, status = wire.spec, wire.status
    if not spec.node_name:
        return None
    given = {one.name: one for one in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))}
    first = tuple(
        (taken(one, given.get(one.name)), one.restart_policy == "Always") for one in spec.init_containers or ()
    )
    containers = tuple(taken(one, given.get(one.name)) for one in spec.containers)
    whole = requests(spec.resources.requests if spec.resources else None)
    asked: Asked = (containers, first, requests(spec.overhead), whole)
    meta = wire.metadata
    keys = keys_of(meta.namespace, meta.name, meta.uid, meta.labels, (one.uid for one in meta.owner_references))
    return BoundPod(full_name(meta), spec.node_name, asked_by(asked), keys)


def taken(container: Container, status: ContainerStatus | None) -> Written:
    """For each resource the larger of request and given amount, as kube-scheduler counts a resized Pod (KEP-1287)."""
    asked = container.resources.requests or {}
    if status is None:
        return requests(asked)
    largest = dict(asked)
    for given in (status.allocated_resources, status.resources.requests if status.resources else None):
        for name, amount in (given or {}).items():
            if name not in largest or is_more(amount, largest[name]):
                largest[name] = amount
    return requests(largest)


def is_more(amount: str, other: str) -> bool:
    try:
        return amount != other and milli_of(amount) > milli_of(other)
    except ValueError:  # an unreadable quantity counts as nothing
        return False


def requests(written: dict[str, str] | None) -> Written:
    return tuple((written or {}).items())


class Listener(Protocol):
    """Hears each change. `before` is None for a new object, `after` is None for a deleted one."""

    def hear_node(self, before: NodeSize | None, after: NodeSize | None) -> None: ...
    def hear_pod(self, before: BoundPod | None, after: BoundPod | None) -> None: ...
    def hear_reservation(self, before: Reservation | None, after: Reservation | None) -> None: ...


class CapacityMirror:
    """Tells a listener each change of nodes, bound Pods and reservations."""

    def __init__(self, client: KubeClient, listener: Listener, pace: Pace = Pace()) -> None:
        nodes = Resource("nodes", "/api/v1/nodes", read_node_size)
        pods = Resource("pods", "/api/v1/pods", read_bound_pod, fields=BOUND, key=full_name)
        self._nodes = Reflector[NodeSize](client, nodes, no_wake, pace)
        self._pods = Reflector[BoundPod](client, pods, no_wake, pace)
        self._reservations = Reflector[Reservation](client, RESERVATIONS, no_wake, pace)
        self._nodes.store.on_each(listener.hear_node)
        self._pods.store.on_each(listener.hear_pod)
        self._reservations.store.on_each(listener.hear_reservation)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in (self._nodes, self._pods, self._reservations):
                group.create_task(reflector.run())

    def is_synced(self) -> bool:
        """Whether all three resources were listed once."""
        return self._nodes.store.is_synced and self._pods.store.is_synced and self._reservations.store.is_synced

    def hears(self) -> bool:
        """Whether news of a Pod that is bound now would arrive at once. During a relist it would not."""
        return self._pods.is_following

    def knows_reservations(self) -> bool:
        """Whether the reservations are fresh, even if nodes or Pods are not."""
        return not fault_of(self._reservations)

    def bound(self) -> Iterable[BoundPod]:
        return self._pods.store.view().values()

    def stale(self) -> str:
        """The stores that are not listed yet or too old to decide by, with reasons; empty if all are fresh."""
        known = (self._nodes, self._pods, self._reservations)
        return "; ".join(fault for one in known if (fault := fault_of(one)))


def fault_of(reflector: Reflector[NodeSize] | Reflector[BoundPod] | Reflector[Reservation]) -> str:
    age = reflector.store.age(elapsed())
    STORE_AGE.labels(reflector.resource.name).set(min(age, 1e9))
    if reflector.fault or age > MOST_SECONDS:
        return f"{reflector.resource.name}: {reflector.fault or f'no sign of life for {age:.0f} s'}"
    return ""


def no_wake() -> None:
    """No component waits for a change: each answer of the extender reads the room as it is then."""
