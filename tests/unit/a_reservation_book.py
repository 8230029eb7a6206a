"""Nodes with reservations, and requests of Pods, for short tests."""

from collections.abc import Mapping
from types import MappingProxyType

from dispatcher.extender.assumed_pods import PodRequest
from dispatcher.extender.book import ReservationBook
from dispatcher.extender.hold_index import REFUSED
from dispatcher.model.cluster import BoundPod, Node, NodeCapacities
from dispatcher.model.reservations import Reservation, key_of
from tests.rig.builders import NOW

SIZE = {"cpu": 3900, "memory": 8000, "pods": 110_000}
END = 1000.0
CPU, MEMORY = REFUSED.format("cpu"), REFUSED.format("memory")
OURS, THEIRS = key_of("jobName", "team", "ours"), key_of("taskId", "team", 7)


def a_reservation(name: str = "team/r", *, node: str = "a", **more: object) -> Reservation:
    fields: dict[str, object] = {"amounts": {"cpu": 2000}, "target": OURS, "ends_at": END, "uid": name} | more
    return Reservation(name=name, node=node, **fields)  # type: ignore[arg-type]  # each test names what it is about


def a_pod_request(
    cpu: int = 3000, *keys: str, name: str = "team/p", also: Mapping[str, int] = MappingProxyType({})
) -> PodRequest:
    return PodRequest(name, keys, {"cpu": cpu, "pods": 1000, **also})


def bound(request: PodRequest, node: str) -> BoundPod:
    return BoundPod(request.name, node, request.asks, tuple(request.keys))


class Cluster:
    """Nodes of 3900m cpu, and the reservations on them."""

    def __init__(self, *reservations: Reservation, nodes: str = "abc", size: Mapping[str, int] = SIZE) -> None:
        self.book = ReservationBook(NodeCapacities())
        self.nodes = tuple(nodes)
        for name in nodes:
            self.book.hear_node(None, Node(name, NOW, size))
        for one in reservations:
            self.book.hear_reservation(None, one)

    def refused(self, request: PodRequest, now: float = 0) -> dict[str, str]:
        return self.book.filter_nodes(request, self.nodes, now)

    def bind(self, request: PodRequest, node: str) -> None:
        self.book.hear_pod(None, bound(request, node))

    def tick(self, times: int) -> None:
        for _ in range(times):
            self.book.tick()
