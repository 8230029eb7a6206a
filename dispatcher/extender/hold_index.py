"""The index of active reservations, the check of Pods by it, and the log of changes. Pure.

`HoldIndex`: unreserved means free on the node, minus reserved there. Bisection finds the nodes with too little of it.

`FitCheck`: between filter and bind the node of a Pod is unknown. So assumed Pods count against every reserved node: a
burst cannot take what is reserved. A target always passes where all reservations are its own. Where others have
reservations too, Pods that may go there count against the target beyond what is reserved for them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from dispatcher.admission.room_view import SortedAmounts
from dispatcher.extender.assumed_pods import AssumedPods, PodRequest
from dispatcher.model.cluster import NodeCapacities
from dispatcher.model.reservations import Reservation
from dispatcher.model.resources import NOTHING, Amounts, added, less, without

NONE: Final[Mapping[str, Reservation]] = MappingProxyType({})


class HoldIndex:
    """Active reservations by node, their sums, and the unreserved amounts.

    Answers cost the same for one or a thousand reservations on a node.
    """

    def __init__(self, capacities: NodeCapacities) -> None:
        self._capacities = capacities
        self._by_node: dict[str, dict[str, Reservation]] = {}
        self._reserved: dict[str, Amounts] = {}
        self._reserved_for: dict[tuple[str, str], Amounts] = {}
        """Sum by node and target."""
        self._unreserved: dict[str, SortedAmounts] = {}
        """By resource: the nodes where it is reserved, with their unreserved amounts."""
        self._shared: set[str] = set()
        """Nodes with several reservations."""

    def __contains__(self, node: str) -> bool:
        return node in self._by_node

    @property
    def has_shared_node(self) -> bool:
        """Whether any node has several reservations."""
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
        """Sorts the node anew, because its free capacity or its reservations have changed."""
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
        """Yields nodes and resources of which less than `needed` is unreserved; of each resource the least first."""
        for resource, amounts in self._unreserved.items():
            if resource in needed:
                for node in amounts.names_below(needed[resource]):
                    yield node, resource


IS_RESERVED: Final = "is reserved for another Pod"
REFUSED: Final = f"{{}} {IS_RESERVED}"
"""The reason, without the name of a node or Pod: kube-scheduler counts equal messages, and a new one wakes the Pod."""


class FitCheck:
    """Compares the requests of Pods with unreserved amounts. kube-scheduler compares resources that nobody reserves."""

    def __init__(self, index: HoldIndex, assumed: AssumedPods) -> None:
        self._index = index
        self._assumed = assumed

    def would_fit(self, request: PodRequest, node: str, freed: Amounts = NOTHING) -> bool:
        """Whether the Pod may have the node once `freed` is free there, too."""
        own = self._index.reserved_for(request.keys, node)
        unreserved = self._index.unreserved(node, own)
        if not unreserved:
            return True
        others = self._competing(request, node) if own else self._assumed.total_without(request.name)
        return not any(
            request.asks.get(resource, 0) > 0
            and request.asks[resource] + others.get(resource, 0) > amount + freed.get(resource, 0)
            for resource, amount in unreserved.items()
        )

    def refused_nodes(self, request: PodRequest, names: Collection[str], own: set[str]) -> dict[str, str]:
        """The refused nodes with the reason. The Pod must not be assumed yet.

        Order: other nodes by decreasing shortage, then nodes where the Pod itself has a reservation. A node that lacks
        several resources has the place and the reason of the last one.

        `own`: nodes where something is reserved for the Pod.
        """
        refused: dict[str, str] = {}
        for node, resource in self._short_nodes(request):
            if node in names and (node not in own or not self.would_fit(request, node)):
                refused.pop(node, None)
                refused[node] = REFUSED.format(resource)
        for node in own.intersection(refused):
            refused[node] = refused.pop(node)
        return refused

    def _short_nodes(self, request: PodRequest) -> Iterator[tuple[str, str]]:
        """Yields nodes and resources with too little for the Pod and all assumed Pods together."""
        assumed = self._assumed.total
        return self._index.nodes_short_of(
            {name: amount + assumed.get(name, 0) for name, amount in request.asks.items() if amount > 0}
        )

    def _competing(self, request: PodRequest, node: str) -> Amounts:
        """The amounts that other assumed Pods may take there beyond their reservations.

        A reservation serves one Pod: if several assumed Pods have the same target, only the first one gets it.
        """
        found, claimed = NOTHING, set(request.keys)
        for other in self._assumed.requests_for_node(node, request.name):
            unclaimed = [key for key in other.keys if key not in claimed]
            claimed.update(unclaimed)
            beyond = less(other.asks, self._index.reserved_for(unclaimed, node))
            found = added(found, {name: amount for name, amount in beyond.items() if amount > 0})
        return found


class ChangeLog:
    """Changes of reservations and nodes, until waiting Pods and statuses are checked. Each name is there once.

    `count`: grows whenever some Pod may get a node that it could not get before.
    `nodes`: nodes whose reservations may need a new status.
    `reservations`: reservations that may need a new status.
    """

    def __init__(self) -> None:
        self.count = 0
        self.nodes: dict[str, None] = {}
        self.reservations: dict[str, None] = {}
        self._gained: dict[str, None] = {}

    def note_gain(self, node: str) -> None:
        """Notes that some Pod may get more of this node than before."""
        self.count += 1
        self._gained[node] = self.nodes[node] = None

    def note_reservations(self, names: Iterable[str]) -> None:
        self.reservations |= dict.fromkeys(names)

    def take_gained(self) -> Collection[str]:
        """Nodes where some Pod may get more than at the last call. They have a reservation, or had one."""
        gained, self._gained = self._gained, {}
        return gained
