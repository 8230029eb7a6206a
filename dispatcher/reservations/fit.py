"""Compares the requests of Pods with the unreserved amounts of nodes.

Between filter and bind the node of a Pod is unknown. So assumed Pods count against every reserved node: a burst cannot
take what is reserved. A target always passes where all reservations are its own. Where others have reservations too,
Pods that may go there count against the target beyond what is reserved for them.
"""

from collections.abc import Collection, Iterator
from typing import Final

from dispatcher.model.amounts import NOTHING, Amounts, added, less
from dispatcher.reservations.assumed_pods import AssumedPods
from dispatcher.reservations.hold_index import HoldIndex
from dispatcher.reservations.pod_request import PodRequest

IS_RESERVED: Final = "is reserved for another Pod"
REFUSED: Final = f"{{}} {IS_RESERVED}"
"""Without the name of a node or Pod: kube-scheduler counts equal messages, and a new one wakes the Pod (measured)."""


class FitCheck:
    """Only reserved resources are compared: kube-scheduler compares all others."""

    def __init__(self, index: HoldIndex, assumed: AssumedPods) -> None:
        self._index = index
        self._assumed = assumed

    def would_fit(self, request: PodRequest, node: str, freed: Amounts = NOTHING) -> bool:
        """True if the Pod may have the node once `freed` is free there, too."""
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

        `own`: nodes where something is reserved for the Pod.
        Order: other nodes, those that lack least last; then own nodes. A node that lacks several resources has the
        place and the reason of the last one.
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

        A reservation serves one Pod: if several assumed Pods have the same target, only the first is given it.
        """
        found, claimed = NOTHING, set(request.keys)
        for other in self._assumed.requests_for_node(node, request.name):
            unclaimed = [key for key in other.keys if key not in claimed]
            claimed.update(unclaimed)
            beyond = less(other.asks, self._index.reserved_for(unclaimed, node))
            found = added(found, {name: amount for name, amount in beyond.items() if amount > 0})
        return found
