"""What is held on each node, in sum, and what is left beside it: whoever has too little is found by rank."""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from dispatcher.model.amounts import NOTHING, Amounts, added, less, without
from dispatcher.model.capacity import NodeCapacities
from dispatcher.model.reservations import Reservation
from dispatcher.reservations.sorted_amounts import SortedAmounts

NONE: Final[Mapping[str, Reservation]] = MappingProxyType({})


class HoldIndex:
    """Reservations that hold, by node; a thousand on one node cost each question as much as one."""

    def __init__(self, rooms: NodeCapacities) -> None:
        self._rooms = rooms
        self._on: dict[str, dict[str, Reservation]] = {}
        self._sums: dict[str, Amounts] = {}
        self._left: dict[str, SortedAmounts] = {}
        self._for: dict[tuple[str, str], Amounts] = {}
        self._crowded: set[str] = set()

    def __contains__(self, node: str) -> bool:
        return node in self._on

    @property
    def is_crowded(self) -> bool:
        """Whether some node has several."""
        return bool(self._crowded)

    def nodes(self) -> Collection[str]:
        return self._on.keys()

    def on(self, node: str) -> Mapping[str, Reservation]:
        """By name."""
        return self._on.get(node, NONE)

    def put(self, one: Reservation) -> None:
        """It holds from now on; one of the same name there does not any more."""
        self.drop(one)
        self._on.setdefault(one.node, {})[one.name] = one
        self._sums[one.node] = added(self._sums.get(one.node, {}), one.amounts)
        self._for[one.node, one.target] = added(self.held_for((one.target,), one.node), one.amounts)
        if len(self._on[one.node]) > 1:
            self._crowded.add(one.node)
        self.measure(one.node)

    def drop(self, one: Reservation) -> bool:
        """True: it held."""
        was = self._on.get(one.node, {}).pop(one.name, None)
        if was is None:
            return False
        if len(self._on[one.node]) == 1:
            self._crowded.discard(one.node)
        if rest := without(self._for.pop((was.node, was.target), NOTHING), was.amounts):
            self._for[was.node, was.target] = rest
        before = self._sums.pop(one.node)
        after = without(before, was.amounts)
        if self._on[one.node]:
            self._sums[one.node] = after
        else:
            del self._on[one.node]
        for resource in before.keys() - after.keys():
            self._left[resource].drop(one.node)
            if not len(self._left[resource]):
                del self._left[resource]
        self.measure(one.node)
        return True

    def measure(self, node: str) -> None:
        """The node's room has changed, or what is held there."""
        if node in self._on:
            for resource, amount in self.left(node).items():
                self._left.setdefault(resource, SortedAmounts()).put(node, amount)

    def held_for(self, targets: Collection[str], node: str) -> Amounts:
        """In sum."""
        found: Amounts = NOTHING
        for target in targets:
            if (node, target) in self._for:
                found = added(found, self._for[node, target])
        return found

    def left(self, node: str, but: Amounts = NOTHING) -> Amounts:
        """Of a node beside what is held on it, by what is held; below 0 where less is free. `but`: so much of it does
        not count.
        """
        free, held = self._rooms.free_of(node), without(self._sums.get(node, NOTHING), but)
        return less({name: free.get(name, 0) for name in held}, held)

    def below(self, needed: Amounts) -> Iterator[tuple[str, str]]:
        """Nodes with less left than that, those with the least first, and of what."""
        for resource, ranks in self._left.items():
            if resource in needed:
                for node in ranks.below(needed[resource]):
                    yield node, resource
