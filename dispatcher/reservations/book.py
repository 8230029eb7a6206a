"""Reservations: which nodes a Pod must not have, when a reservation ends, and what its status says.

    NodeReservations ─▶ ReservationBook ◀─ nodes, bound Pods
                              └─▶ filter_nodes(request, names): the refused nodes, and why

For every Pod but the target, a node is smaller by what is reserved there. Only reserved resources are compared:
kube-scheduler compares all others. A reservation ends for good when a Pod of its target is seen bound, on any node. It
also ends at its end time, and with its object. The end time is checked before every answer.

Between filter and bind the node of a Pod is unknown. So a Pod that may go to a reserved node counts against all of them
(assumed_pods.py): a burst cannot take what is reserved. A target always passes where all reservations are its own.
Where others have reservations too, Pods that may go there count against the target beyond what is reserved for them.

Pure: time is an argument, in seconds of the API server's clock, which also set the end times.

Not guaranteed: that a node has what is reserved there (the status tells). Pods that another scheduler binds count only
once they are seen bound. Pods that take longer than ASSUMED_TICKS from filter to bind do not count in between.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from dispatcher.model.amounts import NOTHING, Amounts, added, less
from dispatcher.model.capacity import BoundPod, NodeCapacities, NodeSize
from dispatcher.model.reservations import Reservation, key_of
from dispatcher.reservations.assumed_pods import ANYWHERE, AssumedPods, PossibleNodes
from dispatcher.reservations.hold_index import HoldIndex
from dispatcher.reservations.pod_request import PodRequest
from dispatcher.reservations.status import Observation, ReservationStatus, is_status_change, must_be_written, status_of

LOOKED_AT: Final = 20
MOST_SAME_TARGET: Final = 10
IS_RESERVED: Final = "is reserved for another Pod"
REFUSED: Final = f"{{}} {IS_RESERVED}"
"""Without the name of a node or Pod: kube-scheduler counts equal messages, and a new one wakes the Pod (measured)."""
UNCERTAIN: Final = "what is reserved is not known for certain"


class ReservationBook:
    """All reservations. Events may come in any order."""

    def __init__(self, capacities: NodeCapacities) -> None:
        self._capacities = capacities
        self._index = HoldIndex(capacities)
        self._assumed = AssumedPods()
        self._reservations: dict[str, Reservation] = {}
        self._by_target: dict[str, list[str]] = defaultdict(list)
        self._bound: Counter[str] = Counter()
        self._landed: set[str] = set()
        self._landed_on: dict[str, str] = {}
        self._ends: list[tuple[float, str]] = []
        self._to_report: dict[str, None] = {}
        self._changed_nodes: dict[str, None] = {}
        self._gained: dict[str, None] = {}
        self.changes = 0
        """Grows whenever some Pod may get a node that it could not get before."""
        self.phases: Counter[str] = Counter()
        """The number of reservations by phase, as their statuses say."""

    # Events

    def hear_reservation(self, before: Reservation | None, after: Reservation | None) -> None:
        for one, sign in ((before, -1), (after, 1)):
            if one is not None:
                self.phases[one.phase or "Active"] += sign
        if before is not None and after is not None and is_status_change(before, after):
            self._reservations[after.name] = after
            self._report(after)
            return
        if before is not None:
            del self._reservations[before.name]
            self._forget_target(before)
            self._end(before)
        if after is not None:
            self._reservations[after.name] = after
            insort(self._by_target[after.target], after.name)
            self._begin(after)
        if before is not None and (after is None or after.uid != before.uid):
            self._landed.discard(before.uid)
            self._landed_on.pop(before.uid, None)

    def hear_node(self, before: NodeSize | None, after: NodeSize | None) -> None:
        self._capacities.hear_node(before, after)
        for node in (before, after):
            if node is not None:
                self._update_unreserved(node.name)

    def hear_pod(self, before: BoundPod | None, after: BoundPod | None) -> None:
        self._capacities.hear_pod(before, after)
        if before is not None:
            for key in before.keys:
                self._bound[key] -= 1
                if not self._bound[key]:
                    del self._bound[key]
            self._update_unreserved(before.node)
        if after is not None:
            self._bound.update(after.keys)
            for key in after.keys:
                self._land(key, after.node)
            self.changes += self._assumed.forget(after.name)
            self._update_unreserved(after.node)

    def pass_time(self, now: float) -> None:
        """Ends the reservations whose end time has come."""
        while self._ends and self._ends[0][0] <= now:
            ends_at, name = heappop(self._ends)
            found = self._reservations.get(name)
            if found is not None and found.ends_at == ends_at:
                self._end(found)

    def tick(self) -> None:
        """Counts a second in which every binding was heard."""
        self.changes += len(self._assumed.tick())

    # Answers

    def filter_nodes(self, request: PodRequest, names: Collection[str], now: float) -> dict[str, str]:
        """Returns the refused nodes with the reason. Assumes the Pod on the others.

        Order: other nodes, those that lack least last; then nodes where something is reserved for the Pod itself.
        """
        self.pass_time(now)
        self.changes += self._assumed.forget(request.name)
        refused: dict[str, str] = {}
        own = self.own_nodes(request)
        for name, why in self._refused(request, names, own) if not request.is_exempt else ():
            refused.pop(name, None)  # the place of the last resource that it lacks counts
            refused[name] = why
        for name in own.intersection(refused):
            refused[name] = refused.pop(name)
        self._assume(request, names, refused)
        return refused

    def filter_nodes_in_doubt(self, request: PodRequest | None, names: Collection[str], now: float) -> dict[str, str]:
        """Refuses every node with a reservation for others. `request` None: the Pod is unknown."""
        refused = {name: UNCERTAIN for name in self.nodes_reserved_for_others(request, now) if name in names}
        if request is not None:
            self.changes += self._assumed.forget(request.name)
            self._assume(request, names, refused)
        return refused

    def reserved_nodes(self, now: float) -> Collection[str]:
        self.pass_time(now)
        return self._index.nodes()

    def nodes_reserved_for_others(self, request: PodRequest | None, now: float) -> Collection[str]:
        """Nodes where something is reserved for another target. `request` None: the Pod is unknown, so all of them."""
        self.pass_time(now)
        own = self.own_nodes(request) if request is not None else set()
        index = self._index
        return [
            node for node in index.nodes()
            if request is None or node not in own or index.unreserved(node, index.reserved_for(request.keys, node))
        ]  # fmt: skip

    def own_nodes(self, request: PodRequest) -> set[str]:
        """Nodes where something is reserved for the Pod."""
        names = (name for key in request.keys for name in self._by_target.get(key, ()))
        return {one.node for name in names if self._is_active(one := self._reservations[name])}

    @property
    def knows_assumed_pods(self) -> bool:
        """True once all Pods between filter and bind are assumed, those of an earlier process included."""
        return self._assumed.are_complete

    def is_bound(self, request: PodRequest) -> bool:
        return key_of("uid", request.name.partition("/")[0], request.uid) in self._bound

    def reservations_for_others(self, request: PodRequest, node: str) -> list[Reservation]:
        """Active reservations of the node for other targets, by name."""
        found = [one for one in self._index.reservations_on(node).values() if one.target not in request.keys]
        return sorted(found, key=lambda one: one.name)

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

    def take_gained(self) -> Collection[str]:
        """Nodes where some Pod may get more than at the last call. They have a reservation, or had one."""
        gained, self._gained = self._gained, {}
        return gained

    def _refused(self, request: PodRequest, names: Collection[str], own: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yields refused nodes and the reason: for each resource the node with the least of it first."""
        assumed = self._assumed.total
        needed = {name: amount + assumed.get(name, 0) for name, amount in request.asks.items() if amount > 0}
        for node, resource in self._index.nodes_short_of(needed):
            if node in names and (node not in own or not self.would_fit(request, node)):
                yield node, REFUSED.format(resource)

    def _assume(self, request: PodRequest, names: Collection[str], refused: Collection[str]) -> None:
        if len(refused) < len(names):
            is_counted = any(node in names and node not in refused for node in self._index.nodes())
            nodes = PossibleNodes(names, refused) if self._index.has_shared_node else ANYWHERE  # read there only
            self._assumed.assume(request, nodes, is_counted=is_counted)

    def _competing(self, request: PodRequest, node: str) -> Amounts:
        """Amounts that other assumed Pods may take there beyond their reservations. A reservation serves one Pod."""
        found, claimed = NOTHING, set(request.keys)
        for other in self._assumed.requests_for_node(node, request.name):
            unclaimed = [key for key in other.keys if key not in claimed]
            claimed.update(unclaimed)
            beyond = less(other.asks, self._index.reserved_for(unclaimed, node))
            found = added(found, {name: amount for name, amount in beyond.items() if amount > 0})
        return found

    # Statuses

    def statuses(self, now: float) -> Iterator[tuple[Reservation, ReservationStatus]]:
        """Statuses that have to be written. One call looks at LOOKED_AT of the due ones, the next call goes on."""
        self.pass_time(now)
        for node in list(islice(self._changed_nodes, LOOKED_AT)):
            del self._changed_nodes[node]
            self._to_report |= dict.fromkeys(self._index.reservations_on(node))
        for name in list(islice(self._to_report, LOOKED_AT)):
            del self._to_report[name]
            one = self._reservations.get(name)
            if one is not None:
                status = status_of(one, self._observe(one))
                if must_be_written(one, status, now):
                    yield one, status

    def retry_status(self, one: Reservation) -> None:
        """Looks at the reservation again: its status could not be written."""
        self._to_report[one.name] = None

    def _observe(self, one: Reservation) -> Observation:
        same_target = [name for name in self._by_target[one.target][: MOST_SAME_TARGET + 1] if name != one.name]
        return Observation(
            is_active=self._is_active(one),
            node_exists=one.node in self._capacities.of,
            has_landed=one.uid in self._landed,
            landed_on=self._landed_on.get(one.uid, ""),
            unreserved=self._index.unreserved(one.node),
            same_target=same_target[:MOST_SAME_TARGET],
        )

    # How a reservation begins and ends

    def _begin(self, one: Reservation) -> None:
        self._report(one)
        if one.has_landed or one.target in self._bound:
            self._landed.add(one.uid)
        if one.uid not in self._landed:
            self._index.put(one)
            self._assumed.count_every_pod()
            self._note_gain(one.node)  # for its target
            heappush(self._ends, (one.ends_at, one.name))
            if len(self._ends) > 2 * len(self._reservations) + LOOKED_AT:  # most are end times that were changed
                self._ends = [(each.ends_at, each.name) for each in self._reservations.values()]
                heapify(self._ends)

    def _end(self, one: Reservation) -> None:
        self._report(one)
        if self._index.drop(one):
            self._note_gain(one.node)

    def _is_active(self, one: Reservation) -> bool:
        return one.name in self._index.reservations_on(one.node)

    def _land(self, key: str, node: str) -> None:
        """Ends all reservations for this target: its Pod is bound."""
        for name in self._by_target.get(key, ()):
            found = self._reservations[name]
            self._landed.add(found.uid)
            self._landed_on.setdefault(found.uid, node)
            self._end(found)

    def _forget_target(self, one: Reservation) -> None:
        names = self._by_target[one.target]
        del names[bisect_left(names, one.name)]
        if not names:
            del self._by_target[one.target]

    def _report(self, one: Reservation) -> None:
        """The statuses of this reservation and of others for its target may have to be written."""
        same_target = islice(self._by_target.get(one.target, ()), MOST_SAME_TARGET)
        self._to_report |= dict.fromkeys((one.name, *same_target))

    def _update_unreserved(self, node: str) -> None:
        if node in self._index:
            self._index.update_unreserved(node)
            self._note_gain(node)

    def _note_gain(self, node: str) -> None:
        self.changes += 1
        self._gained[node] = self._changed_nodes[node] = None
