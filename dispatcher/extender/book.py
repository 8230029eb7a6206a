"""Reservations: which nodes a Pod must not have because of them.

    NodeReservations, nodes, bound Pods ─▶ ReservationBook ─▶ filter_nodes(request, names): the refused nodes, and why
                                                          ├─▶ active: reserved nodes, and for whom
                                                          ├─▶ changes, take_gained: for waiting Pods
                                                          └─▶ reports: statuses to write

For every Pod except the target, a node is smaller by what is reserved there. `ReservationBook` joins these parts:

    ReservationLifecycle     when a reservation begins and ends (lifecycle.py)
    AssumedPods              Pods between filter and bind (assumed_pods.py)
    FitCheck                 whether a Pod fits (hold_index.py)
    ActiveReservations       which nodes are reserved, and for whom
    StatusReports            statuses to write

Pure: time is an argument, in seconds of the API server's clock, which also set the end times.

Not guaranteed: that a node has what is reserved there (the status tells). Pods that another scheduler binds count only
once they are seen bound. Pods that take longer than ASSUMED_TICKS from filter to bind do not count in between.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final

from dispatcher.extender.assumed_pods import ANYWHERE, AssumedPods, PodRequest, PossibleNodes
from dispatcher.extender.hold_index import ChangeLog, FitCheck
from dispatcher.extender.lifecycle import ReservationLifecycle, ReservationStatus, must_be_written, status_of
from dispatcher.model.cluster import BoundPod, Node, NodeCapacities
from dispatcher.model.reservations import Reservation, key_of
from dispatcher.model.resources import NOTHING, Amounts


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


CHECKED_AT_ONCE: Final = 20
"""Nodes and reservations that one call checks, at most."""


class StatusReports:
    """Compares the written statuses with what the extender sees. `phases`: the number of written statuses by phase."""

    def __init__(self, lifecycle: ReservationLifecycle, log: ChangeLog) -> None:
        self._lifecycle = lifecycle
        self._log = log
        self.phases: Counter[str] = Counter()

    def hear_reservation(self, before: Reservation | None, after: Reservation | None) -> None:
        for one, sign in ((before, -1), (after, 1)):
            if one is not None:
                self.phases[one.phase or "Active"] += sign

    def due(self, now: float) -> Iterator[tuple[Reservation, ReservationStatus]]:
        """Statuses to write. One call checks CHECKED_AT_ONCE nodes and reservations, and the next call goes on."""
        self._lifecycle.pass_time(now)
        for node in list(islice(self._log.nodes, CHECKED_AT_ONCE)):
            del self._log.nodes[node]
            self._log.note_reservations(self._lifecycle.index.reservations_on(node))
        for name in list(islice(self._log.reservations, CHECKED_AT_ONCE)):
            del self._log.reservations[name]
            one = self._lifecycle.get(name)
            if one is not None:
                status = status_of(one, self._lifecycle.observe(one))
                if must_be_written(one, status, now):
                    yield one, status

    def retry(self, one: Reservation) -> None:
        """Checks the reservation again: its status could not be written."""
        self._log.note_reservations([one.name])


UNCERTAIN: Final = "what is reserved is not known for certain"


class ReservationBook:
    """All reservations. Events may come in any order. Every answer first ends the reservations that are over."""

    def __init__(self, capacities: NodeCapacities) -> None:
        self._capacities = capacities
        self._log = ChangeLog()
        self._lifecycle = ReservationLifecycle(capacities, self._log)
        self._index = self._lifecycle.index
        self._assumed = AssumedPods()
        self._fit = FitCheck(self._index, self._assumed)
        self.active = ActiveReservations(self._lifecycle)
        self.reports = StatusReports(self._lifecycle, self._log)

    # Events

    def hear_reservation(self, before: Reservation | None, after: Reservation | None) -> None:
        self.reports.hear_reservation(before, after)
        if self._lifecycle.hear_reservation(before, after):
            self._assumed.count_every_pod()

    def hear_node(self, before: Node | None, after: Node | None) -> None:
        self._capacities.hear_node(before, after)
        for node in (before, after):
            if node is not None:
                self._lifecycle.hear_capacity(node.name)

    def hear_pod(self, before: BoundPod | None, after: BoundPod | None) -> None:
        self._capacities.hear_pod(before, after)
        if before is not None:
            self._lifecycle.hear_gone(before)
            self._lifecycle.hear_capacity(before.node)
        if after is not None:
            self._lifecycle.hear_bound(after)
            self._forget(after.name)
            self._lifecycle.hear_capacity(after.node)

    def tick(self) -> None:
        """Counts a second in which every binding was heard."""
        self._log.count += len(self._assumed.tick())

    def pass_time(self, now: float) -> None:
        """Ends the reservations whose end time has come."""
        self._lifecycle.pass_time(now)

    # Answers

    def filter_nodes(self, request: PodRequest, names: Collection[str], now: float) -> dict[str, str]:
        """Returns the refused nodes with the reason, in the order of `FitCheck`. Assumes the Pod on the others."""
        self.pass_time(now)
        self._forget(request.name)
        own = self._lifecycle.own_nodes(request.keys)
        refused = self._fit.refused_nodes(request, names, own) if not request.is_exempt else {}
        self._assume(request, names, refused)
        return refused

    def filter_nodes_in_doubt(self, request: PodRequest | None, names: Collection[str], now: float) -> dict[str, str]:
        """Refuses every node with a reservation for others. `request` None: the Pod is unknown."""
        refused = {name: UNCERTAIN for name in self.active.nodes_of_others(request, now) if name in names}
        if request is not None:
            self._forget(request.name)
            self._assume(request, names, refused)
        return refused

    def would_fit(self, request: PodRequest, node: str, freed: Amounts = NOTHING) -> bool:
        """Whether the Pod may have the node once `freed` is free there, too."""
        return self._fit.would_fit(request, node, freed)

    def is_bound(self, request: PodRequest) -> bool:
        return self._lifecycle.is_bound(key_of("uid", request.name.partition("/")[0], request.uid))

    @property
    def knows_assumed_pods(self) -> bool:
        """Whether all Pods between filter and bind are assumed, those of an earlier process included."""
        return self._assumed.are_complete

    # Changes

    @property
    def changes(self) -> int:
        """Grows whenever some Pod may get a node that it could not get before."""
        return self._log.count

    def take_gained(self) -> Collection[str]:
        """Nodes where some Pod may get more than at the last call."""
        return self._log.take_gained()

    def _assume(self, request: PodRequest, names: Collection[str], refused: Collection[str]) -> None:
        if len(refused) < len(names):
            is_counted = any(node in names and node not in refused for node in self._index.nodes())
            nodes = PossibleNodes(names, refused) if self._index.has_shared_node else ANYWHERE  # read there only
            self._assumed.assume(request, nodes, is_counted=is_counted)

    def _forget(self, name: str) -> None:
        """Forgets a Pod that is bound, or is filtered again."""
        self._log.count += self._assumed.forget(name)
