"""Free capacity of nodes: allocatable minus the requests of bound Pods, updated with every change.

Only bound Pods that have not ended count, as in kube-scheduler. A Pod is not known here while kube-scheduler has chosen
its node but not bound it. Amounts are in thousandths.
"""

from collections import defaultdict
from datetime import datetime

from msgspec import Struct

from dispatcher.model.amounts import Amounts, added, less, without
from dispatcher.model.cluster import Node, Pod


class BoundPod(Struct, frozen=True, gc=False):
    """A Pod of any namespace that uses room of a node.

    name: `namespace/name`.
    node: name of the node; empty if the Pod is one of ours and uses no room, because it has no node or has ended.
    asks: the Pod's requests; Pods with equal requests share one object.
    keys: names by which a reservation may call the Pod.
    own: the same Pod as the dispatcher's decisions see it; None for a Pod of somebody else.
    priority: its priority.
    nominated: the node that kube-scheduler makes free for it by preemption; empty if it has a node.
    """

    name: str
    node: str
    asks: Amounts
    keys: tuple[str, ...] = ()
    own: Pod | None = None
    priority: int = 0
    nominated: str = ""


class FreeCapacity(Struct, frozen=True, gc=False):
    """The free amounts of a node. They are below 0 where its Pods request more than it has."""

    cpu: int
    memory: int
    created_at: datetime


class NodeCapacities:
    """Free capacity of every known node (`of`), from changes of nodes and Pods in any order."""

    def __init__(self) -> None:
        self.of: dict[str, FreeCapacity] = {}
        self._nodes: dict[str, Node] = {}
        self._asked: dict[str, Amounts] = defaultdict(dict)

    def hear_node(self, before: Node | None, after: Node | None) -> None:
        if after is not None:
            self._nodes[after.name] = after
            self._measure(after.name)
        elif before is not None:
            self._nodes.pop(before.name, None)
            self.of.pop(before.name, None)

    def hear_pod(self, before: BoundPod | None, after: BoundPod | None) -> None:
        if before is not None:
            self._asked[before.node] = without(self._asked[before.node], before.asks)
            self._measure(before.node)
        if after is not None:
            self._asked[after.node] = added(self._asked[after.node], after.asks)
            self._measure(after.node)

    def free_of(self, name: str) -> Amounts:
        """Free amount of each resource of a node; empty for an unknown node."""
        node = self._nodes.get(name)
        return less(node.size, self._asked.get(name, {})) if node is not None else {}

    def compact(self) -> None:
        """Moves all names and free capacities next to each other in memory.

        After a list they lie between the Pods that were read. A walk over 5,000 of them then takes three times as long.
        """
        side_by_side = {
            name.encode().decode(): FreeCapacity(room.cpu + 0, room.memory + 0, room.created_at)
            for name, room in self.of.items()
        }
        self.of.clear()
        self.of.update(side_by_side)

    def _measure(self, name: str) -> None:
        asked = self._asked[name]
        if not asked:
            del self._asked[name]
        if (node := self._nodes.get(name)) is not None:
            free = less({"cpu": 0, "memory": 0, **node.size}, asked)
            self.of[name] = FreeCapacity(free["cpu"], free["memory"], node.created_at)
