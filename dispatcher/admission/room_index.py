"""Free amounts of all nodes for Pods of each priority, updated with every change. A cycle gets an unchanging copy."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from dispatcher.admission.reserved_room import CRITICAL, ReservedRoom
from dispatcher.admission.room_view import KnownSizes, LevelOfRoom, RoomView, free_for, is_lasting, nodes_to_find
from dispatcher.model.amounts import Amounts, added, without
from dispatcher.model.capacity import BoundPod
from dispatcher.model.cluster import Node, PriorityClass
from dispatcher.model.reservations import Reservation
from dispatcher.model.sorted_amounts import SortedAmounts

MOST_THRESHOLDS: Final = 20
Asked = Mapping[int, Amounts]
"""Requested amounts on one node, by priority."""


class RoomIndex:
    """Nodes, requests and PriorityClasses, from their changes in any order."""

    def __init__(
        self, schedulers: Iterable[str], percentage: int = 0, reserved: ReservedRoom | None = None
    ) -> None:  # fmt: skip
        """`schedulers`: names of further kube-schedulers. `percentage`: their percentageOfNodesToScore; 0: default.

        `reserved`: NodeReservations; None: nobody enforces them.
        """
        self._schedulers = frozenset(schedulers)
        self._percentage = percentage
        self._nodes: dict[str, Node] = {}
        self._asked: dict[str, Asked] = {}
        self._classes: dict[str, PriorityClass] = {}
        self._levels: dict[int, LevelIndex] = {}
        self._changed: set[str] = set()
        self._reserved = reserved or ReservedRoom("", "")
        self._is_reserving = reserved is not None
        self._sizes = KnownSizes()
        self._last: RoomView | None = None

    def hear_node(self, before: Node | None, after: Node | None) -> None:
        if before is not None:
            self._nodes.pop(before.name, None)
            self._changed.add(before.name)
        if after is not None:
            self._nodes[after.name] = after
            self._changed.add(after.name)
        if lasting(before) != lasting(after):
            self._sizes = KnownSizes()

    def hear_pod(self, before: BoundPod | None, after: BoundPod | None) -> None:
        """A Pod that preempts others uses the room of its nominated node already."""
        if before is not None and (node := before.node or before.nominated):
            asked = self._asked.get(node, {})
            self._count(node, {**asked, before.priority: without(asked.get(before.priority, {}), before.asks)})
        if after is not None and (node := after.node or after.nominated):
            asked = self._asked.get(node, {})
            self._count(node, {**asked, after.priority: added(asked.get(after.priority, {}), after.asks)})
            self._changed |= self._reserved.hear_bound(after) if after.node else set()

    def hear_reservation(self, before: Reservation | None, after: Reservation | None) -> None:
        self._changed |= self._reserved.hear_reservation(before, after)

    def hear_priority_class(self, before: PriorityClass | None, after: PriorityClass | None) -> None:
        if before is not None:
            self._classes.pop(before.name, None)
        if after is not None:
            self._classes[after.name] = after
        self._last = None

    def view(self, now: float = 0) -> RoomView:
        """The room at this moment. It is the same object as before if nothing has changed.

        `now`: seconds of the API server's clock, by which reservations end.
        """
        self._changed |= self._reserved.pass_time(now)
        if self._last is None or self._changed:
            self._last = self._look(self._last)
            self._changed.clear()
        return self._last

    def _look(self, last: RoomView | None) -> RoomView:
        asked = self._asked_with_reserved()
        thresholds = [*(last.levels if last else ())][-MOST_THRESHOLDS:]
        is_much = len(self._changed) > len(self._nodes) // 4
        for threshold in thresholds:
            if is_much or threshold not in self._levels:
                self._levels[threshold] = LevelIndex(self._free(asked, threshold, self._nodes))
            else:
                self._levels[threshold].update(self._free(asked, threshold, self._changed))
        self._levels = {threshold: self._levels[threshold] for threshold in thresholds}
        most = nodes_to_find(len(self._nodes), self._percentage)
        return RoomView(
            nodes=self._nodes.copy(),
            asked=asked,
            classes=self._classes.copy(),
            schedulers=self._schedulers,
            most=most,
            start=last.start + most if last else 0,
            sizes=self._sizes,
            targets=self._reserved.tasks(),
            reservations=self._reserved.active() if self._is_reserving else None,
            levels={threshold: level.copy() for threshold, level in self._levels.items()},
        )

    def _asked_with_reserved(self) -> dict[str, Asked]:
        """A copy of the requests by node. Reserved amounts count as requests of a high priority."""
        every = self._asked.copy()
        for node, amounts in self._reserved.by_node().items():
            asked = every.get(node, {})
            every[node] = {**asked, CRITICAL: added(asked.get(CRITICAL, {}), amounts)}
        return every

    def _free(self, asked: Mapping[str, Asked], threshold: int, names: Iterable[str]) -> dict[str, Amounts | None]:
        """Free amounts by node; None for a node that is gone."""
        return {
            name: free_for(node, asked.get(name, {}), threshold) if (node := self._nodes.get(name)) else None
            for name in names
        }

    def _count(self, node: str, asked: Asked) -> None:
        self._asked[node] = {priority: amounts for priority, amounts in asked.items() if amounts}
        if not self._asked[node]:
            del self._asked[node]
        self._changed.add(node)


def lasting(node: Node | None) -> object:
    """The part of a node that decides whether it is ever large enough. A node that flaps changes only the rest."""
    return node and (node.size, node.labels, [taint for taint in node.taints if is_lasting(taint)])


class LevelIndex:
    """Free amounts for one threshold: by node, and sorted for each resource."""

    def __init__(self, free: Mapping[str, Amounts | None]) -> None:
        self._free = {name: amounts for name, amounts in free.items() if amounts is not None}
        by_resource: dict[str, dict[str, int]] = defaultdict(dict)
        for name, amounts in self._free.items():
            for resource, amount in amounts.items():
                by_resource[resource][name] = amount
        self._sorted = {resource: SortedAmounts(amounts) for resource, amounts in by_resource.items()}

    def update(self, changed: Mapping[str, Amounts | None]) -> None:
        for name, amounts in changed.items():
            now = amounts or {}
            for resource in self._free.get(name, {}).keys() - now.keys():
                self._sorted[resource].drop(name)
            for resource, amount in now.items():
                self._sorted.setdefault(resource, SortedAmounts()).put(name, amount)
            if amounts is None:
                self._free.pop(name, None)
            else:
                self._free[name] = amounts

    def copy(self) -> LevelOfRoom:
        return LevelOfRoom(self._free.copy(), {resource: one.order() for resource, one in self._sorted.items()})
