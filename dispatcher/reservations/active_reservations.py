"""The active reservations: on which nodes they are, and whose they are."""

from collections.abc import Collection

from dispatcher.model.reservations import Reservation
from dispatcher.reservations.lifecycle import ReservationLifecycle
from dispatcher.reservations.pod_request import PodRequest


class ActiveReservations:
    """Answers about active reservations. An answer with a time first ends the reservations that are over."""

    def __init__(self, lifecycle: ReservationLifecycle) -> None:
        self._lifecycle = lifecycle
        self._index = lifecycle.index

    def nodes(self, now: float) -> Collection[str]:
        """Nodes with an active reservation."""
        self._lifecycle.pass_time(now)
        return self._index.nodes()

    def nodes_of_others(self, request: PodRequest | None, now: float) -> Collection[str]:
        """Nodes where something is reserved for another target. `request` None: the Pod is unknown, so all of them."""
        nodes = self.nodes(now)
        if request is None:
            return nodes
        own, index = self._lifecycle.own_nodes(request.keys), self._index
        return [
            node for node in nodes
            if node not in own or index.unreserved(node, index.reserved_for(request.keys, node))
        ]  # fmt: skip

    def of_others(self, request: PodRequest, node: str) -> list[Reservation]:
        """Reservations of the node for other targets, by name."""
        found = [one for one in self._index.reservations_on(node).values() if one.target not in request.keys]
        return sorted(found, key=lambda one: one.name)
