"""The active reservations of each node, their sums, and the unreserved amounts.

Unreserved means: free on the node, minus reserved there. Nodes with too little of it are found by bisection.
"""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from dispatcher.model.amounts import NOTHING, Amounts, added, less, without
from dispatcher.model.capacity import NodeCapacities
from dispatcher.model.reservations import Reservation
from dispatcher.model.sorted_amounts import SortedAmounts

NONE: Final[Mapping[str, Reservation]] = MappingProxyType({})


class HoldIndex:
    """Active reservations by node. A node with a thousand of them costs a question as much as a node with one."""

    def __init__(self, capacities: NodeCapacities) -> None:
        self._capacities = capacities
        self._by_node: dict[str, dict[str, Reservation]] = {}
        self._reserved: dict[str, Amounts] = {}
        self._reserved_for: dict[tuple[str, str], Amounts] = {}
        """By node and target."""
        self._unreserved: dict[str, SortedAmounts] = {}
        """By resource, of the nodes where it is reserved."""
        self._shared: set[str] = set()
        """Nodes with several reservations."""

    def __contains__(self, node: str) -> bool:
        return node in self._by_node

    @property
    def has_shared_node(self) -> bool:
        """True if any node has several reservations."""
        return bool(self._shared)

    def nodes(self) -> Collection[str]:
        return self._by_node.keys()

    def reservations_on(self, node: str) -> Mapping[str, Reservation]:
        """The active reservations of the node, by name."""
        return self._by_node.get(node, NONE)

    def put(self, one: Reservation) -> None:
        """Makes the reservation active. It replaces one of the same name on this node."""
        self.drop(one)
        self._by_node.setdefault(one.node, {})[one.name] = one
        self._reserved[one.node] = added(self._reserved.get(one.node, {}), one.amounts)
        self._reserved_for[one.node, one.target] = added(self.reserved_for((one.target,), one.node), one.amounts)
        if len(self._by_node[one.node]) > 1:
            self._shared.add(one.node)
        self.update_unreserved(one.node)

    def drop(self, one: Reservation) -> bool:
        """Ends the reservation. Returns True if it was active."""
        was = self._by_node.get(one.node, {}).pop(one.name, None)
        if was is None:
            return False
        if len(self._by_node[one.node]) == 1:
            self._shared.discard(one.node)
        if rest := without(self._reserved_for.pop((was.node, was.target), NOTHING), was.amounts):
            self._reserved_for[was.node, was.target] = rest
        before = self._reserved.pop(one.node)
        after = without(before, was.amounts)
        if self._by_node[one.node]:
            self._reserved[one.node] = after
        else:
            del self._by_node[one.node]
        for resource in before.keys() - after.keys():
            self._unreserved[resource].drop(one.node)
            if not len(self._unreserved[resource]):
                del self._unreserved[resource]
        self.update_unreserved(one.node)
        return True

    def update_unreserved(self, node: str) -> None:
        """Sorts the node in anew: its free capacity or its reservations have changed."""
        if node in self._by_node:
            for resource, amount in self.unreserved(node).items():
                self._unreserved.setdefault(resource, SortedAmounts()).put(node, amount)

    def reserved_for(self, targets: Collection[str], node: str) -> Amounts:
        """The sum of what is reserved on the node for these targets."""
        found: Amounts = NOTHING
        for target in targets:
            if (node, target) in self._reserved_for:
                found = added(found, self._reserved_for[node, target])
        return found

    def unreserved(self, node: str, own: Amounts = NOTHING) -> Amounts:
        """The unreserved amount of each reserved resource; negative if more is reserved than free.

        `own` counts as not reserved. A resource that is reserved by `own` alone is left out.
        """
        free, reserved = self._capacities.free_of(node), without(self._reserved.get(node, NOTHING), own)
        return less({name: free.get(name, 0) for name in reserved}, reserved)

    def nodes_short_of(self, needed: Amounts) -> Iterator[tuple[str, str]]:
        """Yields node and resource where less than `needed` is unreserved; for each resource the least first."""
        for resource, amounts in self._unreserved.items():
            if resource in needed:
                for node in amounts.names_below(needed[resource]):
                    yield node, resource
