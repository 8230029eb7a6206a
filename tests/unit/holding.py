"""Nodes with holds, and Pods that ask for them, in the fewest words."""

from collections.abc import Mapping
from types import MappingProxyType

from dispatcher.model.capacity import Bound, NodeSize, Rooms
from dispatcher.model.reservations import Reservation, key_of
from dispatcher.reservations.book import REFUSED, Holds
from dispatcher.reservations.pod_request import Asker
from tests.builders import NOW

SIZE = {"cpu": 3900, "memory": 8000, "pods": 110_000}
END = 1000.0
CPU, MEMORY = REFUSED.format("cpu"), REFUSED.format("memory")
OURS, THEIRS = key_of("jobName", "team", "ours"), key_of("taskId", "team", 7)


def a_reservation(name: str = "team/r", *, node: str = "a", **more: object) -> Reservation:
    fields: dict[str, object] = {"amounts": {"cpu": 2000}, "target": OURS, "ends_at": END, "uid": name} | more
    return Reservation(name=name, node=node, **fields)  # type: ignore[arg-type]  # each test names what it is about


def an_asker(
    cpu: int = 3000, *keys: str, name: str = "team/p", also: Mapping[str, int] = MappingProxyType({})
) -> Asker:
    return Asker(name, keys, {"cpu": cpu, "pods": 1000, **also})


def bound(asker: Asker, node: str) -> Bound:
    return Bound(asker.name, node, asker.asks, tuple(asker.keys))


class Stage:
    """Nodes of 3900m, and what is held on them."""

    def __init__(self, *reservations: Reservation, nodes: str = "abc", size: Mapping[str, int] = SIZE) -> None:
        self.holds = Holds(Rooms())
        self.nodes = tuple(nodes)
        for name in nodes:
            self.holds.hear_node(None, NodeSize(name, NOW, size))
        for one in reservations:
            self.holds.hear_reservation(None, one)

    def refused(self, asker: Asker, now: float = 0) -> dict[str, str]:
        return self.holds.refusals(asker, self.nodes, now)

    def bind(self, asker: Asker, node: str) -> None:
        self.holds.hear_pod(None, bound(asker, node))

    def tick(self, times: int) -> None:
        for _ in range(times):
            self.holds.tick()
