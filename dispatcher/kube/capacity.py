"""Follows nodes, bound Pods and reservations of the whole cluster, to compute the free room of nodes."""

from collections.abc import Iterable
from typing import Final, Protocol

from dispatcher.kube.listing import Resource
from dispatcher.kube.mirror import NODES
from dispatcher.kube.objects import DEFAULT_SCHEDULER, pod_reader, read_bound_pod, read_priority_class
from dispatcher.kube.reflectors import Reflectors, fault_of, faults_of
from dispatcher.kube.reservations import RESERVATIONS
from dispatcher.kube.wire import full_name
from dispatcher.model.capacity import BoundPod
from dispatcher.model.cluster import Node, PriorityClass
from dispatcher.model.reservations import Reservation

BOUND: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
"""Pods that use room: not ended, and bound to a node."""
BOUND_PODS: Final = Resource("pods", "/api/v1/pods", read_bound_pod, fields=BOUND, key=full_name)


def pods_of_all(namespace: str, installation: str, scheduler: str | None = None) -> Resource[BoundPod]:
    """Pods of all namespaces: those that use room, and those of the installation in `namespace`, whatever their phase.

    `scheduler`: the scheduler of our Pods; None: the cluster's default.
    """
    read = pod_reader(namespace, installation, scheduler or DEFAULT_SCHEDULER)
    return Resource("pods", "/api/v1/pods", read, key=full_name)


PRIORITY_CLASSES: Final = Resource(
    "priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses", read_priority_class, is_optional=True
)


class RoomListener(Protocol):
    """Hears each change. `before` is None for a new object, `after` is None for a deleted one."""

    def hear_node(self, before: Node | None, after: Node | None) -> None: ...
    def hear_pod(self, before: BoundPod | None, after: BoundPod | None) -> None: ...
    def hear_priority_class(self, before: PriorityClass | None, after: PriorityClass | None) -> None: ...
    def hear_reservation(self, before: Reservation | None, after: Reservation | None) -> None: ...


class RoomMirror:
    """Tells a listener each change of nodes, of Pods that use room, and of PriorityClasses.

    `with_reservations`: also of NodeReservations. The kind or the right to read it may be missing: then there are none.
    """

    def __init__(
        self, reflectors: Reflectors, listener: RoomListener, pods: Resource[BoundPod], *, with_reservations: bool
    ) -> None:
        self._classes = reflectors.of(PRIORITY_CLASSES)
        self._all = (reflectors.of(NODES), reflectors.of(pods), self._classes)
        reflectors.of(NODES).store.on_each(listener.hear_node)
        reflectors.of(pods).store.on_each(listener.hear_pod)
        self._classes.store.on_each(listener.hear_priority_class)
        if with_reservations:
            reflectors.of(RESERVATIONS).store.on_each(listener.hear_reservation)

    def stale(self) -> str:
        """The stores that are not listed yet or too old to decide by, with reasons; empty if all are fresh."""
        return faults_of(*self._all)


class Listener(Protocol):
    """Hears each change. `before` is None for a new object, `after` is None for a deleted one."""

    def hear_node(self, before: Node | None, after: Node | None) -> None: ...
    def hear_pod(self, before: BoundPod | None, after: BoundPod | None) -> None: ...
    def hear_reservation(self, before: Reservation | None, after: Reservation | None) -> None: ...


class CapacityMirror:
    """Tells a listener each change of nodes, bound Pods and reservations.

    `pods`: the resource to follow. Its Pods without a node are left out.
    """

    def __init__(self, reflectors: Reflectors, listener: Listener, pods: Resource[BoundPod] = BOUND_PODS) -> None:
        self._listener = listener
        self._nodes, self._pods = reflectors.of(NODES), reflectors.of(pods)
        self._reservations = reflectors.of(RESERVATIONS)
        self._all = (self._nodes, self._pods, self._reservations)
        self._nodes.store.on_each(listener.hear_node)
        self._pods.store.on_each(self._hear_pod)
        self._reservations.store.on_each(listener.hear_reservation)

    def _hear_pod(self, before: BoundPod | None, after: BoundPod | None) -> None:
        self._listener.hear_pod(bound_only(before), bound_only(after))

    def is_synced(self) -> bool:
        """Whether all three resources were listed once."""
        return all(one.store.is_synced for one in self._all)

    def hears(self) -> bool:
        """Whether news of a Pod that is bound now would arrive at once. During a relist it would not."""
        return self._pods.is_following

    def knows_reservations(self) -> bool:
        """Whether the reservations are fresh, even if nodes or Pods are not."""
        return not fault_of(self._reservations)

    def bound(self) -> Iterable[BoundPod]:
        return filter(bound_only, self._pods.store.values())

    def stale(self) -> str:
        """The stores that are not listed yet or too old to decide by, with reasons; empty if all are fresh."""
        return faults_of(*self._all)


def bound_only(pod: BoundPod | None) -> BoundPod | None:
    return pod if pod is not None and pod.node else None
