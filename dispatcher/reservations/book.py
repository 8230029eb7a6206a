"""Room that is held on a node for a Pod still to come: what others see of the node, and when the hold ends.

    NodeReservations ─▶ Holds ◀─ nodes, bound Pods        refusals(asker, names) ─▶ the nodes it must not have, and why

Others see the node smaller by what is held; the target never pays for its own hold. A hold ends when its target is seen
bound, on whatever node, and for good; when its time is over, judged whenever it is looked at; or with its object. Only
amounts that are held are compared: kube-scheduler has seen to the rest.

Between filter and bind nobody says where a Pod goes. So each Pod that may go to a node with a hold is charged to all of
them (charges.py): a burst cannot take what is held. Where a target shares a node with others' holds, it pays for those
who may come there, as far as nothing is held for them; where all that is held is its own, it is never refused.

Pure: time is an argument, in seconds of the API server's clock, which is the one that set the ends.

Not guaranteed: that a node has what is held on it (its status says so); anything about Pods that another scheduler
binds, before they are seen bound; Pods that take longer from filter to bind than they are charged.
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
from dispatcher.reservations.status import Around, ReservationStatus, is_echo, is_news, status_of

LOOKED_AT: Final = 20
MOST_TWINS: Final = 10
KEPT_AWAY: Final = "is reserved for another Pod"
REFUSED: Final = f"{{}} {KEPT_AWAY}"
"""Without the name of a node or a Pod: kube-scheduler counts equal words, and new ones wake the Pod (measured)."""
UNCERTAIN: Final = "what is reserved is not known for certain"


class ReservationBook:
    """Hears of reservations, nodes and bound Pods, in any order."""

    def __init__(self, rooms: NodeCapacities) -> None:
        self._rooms = rooms
        self._index = HoldIndex(rooms)
        self._assumed = AssumedPods()
        self._reservations: dict[str, Reservation] = {}
        self._by_target: dict[str, list[str]] = defaultdict(list)
        self._bound: Counter[str] = Counter()
        self._landed: set[str] = set()
        self._landed_on: dict[str, str] = {}
        self._ends: list[tuple[float, str]] = []
        self._touched: dict[str, None] = {}
        self._moved: dict[str, None] = {}
        self._gained: dict[str, None] = {}
        self.changes = 0
        """Counts up whenever somebody may have more than before."""
        self.phases: Counter[str] = Counter()
        """How many reservations are in which, as their status says."""

    # What is heard

    def hear_reservation(self, before: Reservation | None, after: Reservation | None) -> None:
        for one, sign in ((before, -1), (after, 1)):
            if one is not None:
                self.phases[one.phase or "Active"] += sign
        if before is not None and after is not None and is_echo(before, after):
            self._reservations[after.name] = after
            self._touch(after)
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
        self._rooms.hear_node(before, after)
        for node in (before, after):
            if node is not None:
                self._measure(node.name)

    def hear_pod(self, before: BoundPod | None, after: BoundPod | None) -> None:
        self._rooms.hear_pod(before, after)
        if before is not None:
            for key in before.keys:
                self._bound[key] -= 1
                if not self._bound[key]:
                    del self._bound[key]
            self._measure(before.node)
        if after is not None:
            self._bound.update(after.keys)
            for key in after.keys:
                self._land(key, after.node)
            self.changes += self._assumed.forget(after.name)
            self._measure(after.node)

    def pass_time(self, now: float) -> None:
        """Ends what is over by now."""
        while self._ends and self._ends[0][0] <= now:
            ends_at, name = heappop(self._ends)
            found = self._reservations.get(name)
            if found is not None and found.ends_at == ends_at:
                self._end(found)

    def tick(self) -> None:
        """A second has gone in which whatever came was heard."""
        self.changes += len(self._assumed.tick())

    # What is asked

    def refusals(self, request: PodRequest, names: Collection[str], now: float) -> dict[str, str]:
        """Nodes that this Pod must not have, with the words that say why; last its own, before them those that lack
        least. Those it may have are charged with it.
        """
        self.pass_time(now)
        self.changes += self._assumed.forget(request.name)
        refused: dict[str, str] = {}
        own = self.own_nodes(request)
        for name, why in self._refused(request, names, own) if not request.is_exempt else ():
            refused.pop(name, None)  # it stands where it lacks the last of what it lacks
            refused[name] = why
        for name in own.intersection(refused):
            refused[name] = refused.pop(name)
        self._charge(request, names, refused)
        return refused

    def closed(self, request: PodRequest | None, names: Collection[str], now: float) -> dict[str, str]:
        """In doubt: all nodes with a hold for others. None: nobody knows who asks."""
        refused = {name: UNCERTAIN for name in self.nodes_of_others(request, now) if name in names}
        if request is not None:
            self.changes += self._assumed.forget(request.name)
            self._charge(request, names, refused)
        return refused

    def nodes(self, now: float) -> Collection[str]:
        """Those with a hold."""
        self.pass_time(now)
        return self._index.nodes()

    def nodes_of_others(self, request: PodRequest | None, now: float) -> Collection[str]:
        """Those with a hold that is not this Pod's. None: nobody knows whose."""
        self.pass_time(now)
        own = self.own_nodes(request) if request is not None else set()
        return [
            node for node in self._index.nodes()
            if request is None or node not in own or self._index.left(node, self._index.held_for(request.keys, node))
        ]  # fmt: skip

    def own_nodes(self, request: PodRequest) -> set[str]:
        """Where something is held for it."""
        names = (name for key in request.keys for name in self._by_target.get(key, ()))
        return {one.node for name in names if self._is_active(one := self._reservations[name])}

    @property
    def knows_who_is_coming(self) -> bool:
        """Whether all who are between filter and bind are charged, those that an earlier process let through too."""
        return self._assumed.are_whole

    def is_bound(self, request: PodRequest) -> bool:
        return key_of("uid", request.name.partition("/")[0], request.uid) in self._bound

    def holding(self, request: PodRequest, node: str) -> list[Reservation]:
        """Those that keep this Pod off the node, for people."""
        found = [one for one in self._index.on(node).values() if one.target not in request.keys]
        return sorted(found, key=lambda one: one.name)

    def would_fit(self, request: PodRequest, node: str, freed: Amounts = NOTHING) -> bool:
        """Whether the Pod may have the node once so much more of it is free."""
        own = self._index.held_for(request.keys, node)
        left = self._index.left(node, own)
        if not left:
            return True
        charged = self._coming(request, node) if own else self._assumed.beside(request.name)
        return not any(
            request.asks.get(resource, 0) > 0
            and request.asks[resource] + charged.get(resource, 0) > amount + freed.get(resource, 0)
            for resource, amount in left.items()
        )

    def take_gained(self) -> Collection[str]:
        """Nodes where others may have more room than when this was asked last; of those with a hold, or once with."""
        gained, self._gained = self._gained, {}
        return gained

    def _refused(self, request: PodRequest, names: Collection[str], own: Collection[str]) -> Iterator[tuple[str, str]]:
        """Of each resource those with the least of it first."""
        charged = self._assumed.total
        needed = {name: amount + charged.get(name, 0) for name, amount in request.asks.items() if amount > 0}
        for node, resource in self._index.below(needed):
            if node in names and (node not in own or not self.would_fit(request, node)):
                yield node, REFUSED.format(resource)

    def _charge(self, request: PodRequest, names: Collection[str], refused: Collection[str]) -> None:
        if len(refused) < len(names):
            may_have_one = any(node in names and node not in refused for node in self._index.nodes())
            way = PossibleNodes(names, refused) if self._index.is_crowded else ANYWHERE  # elsewhere nobody asks for it
            self._assumed.put(request, way, counts=may_have_one)

    def _coming(self, request: PodRequest, node: str) -> Amounts:
        """What those who may be on their way to this node ask for, beyond what is held there for them: for one of them,
        where several come for the same hold.
        """
        found, claimed = NOTHING, set(request.keys)
        for other in self._assumed.towards(node, request.name):
            unclaimed = [key for key in other.keys if key not in claimed]
            claimed.update(unclaimed)
            beyond = less(other.asks, self._index.held_for(unclaimed, node))
            found = added(found, {name: amount for name, amount in beyond.items() if amount > 0})
        return found

    # What follows

    def statuses(self, now: float) -> Iterator[tuple[Reservation, ReservationStatus]]:
        """What has to be told of reservations whose status says something else; of some, in turn."""
        self.pass_time(now)
        for node in list(islice(self._moved, LOOKED_AT)):
            del self._moved[node]
            self._touched |= dict.fromkeys(self._index.on(node))
        for name in list(islice(self._touched, LOOKED_AT)):
            del self._touched[name]
            one = self._reservations.get(name)
            if one is not None:
                told = status_of(one, self._around(one))
                if is_news(one, told, now):
                    yield one, told

    def again(self, one: Reservation) -> None:
        """It could not be told."""
        self._touched[one.name] = None

    def _around(self, one: Reservation) -> Around:
        return Around(
            holds=self._is_active(one),
            has_node=one.node in self._rooms.of,
            has_landed=one.uid in self._landed,
            landed_on=self._landed_on.get(one.uid, ""),
            left=self._index.left(one.node),
            twins=[name for name in self._by_target[one.target][: MOST_TWINS + 1] if name != one.name][:MOST_TWINS],
        )

    # How a hold begins and ends

    def _begin(self, one: Reservation) -> None:
        self._touch(one)
        if one.has_landed or one.target in self._bound:
            self._landed.add(one.uid)
        if one.uid not in self._landed:
            self._index.put(one)
            self._assumed.count_all()
            self._note_gain(one.node)  # for its target
            heappush(self._ends, (one.ends_at, one.name))
            if len(self._ends) > 2 * len(self._reservations) + LOOKED_AT:  # of ends that were changed
                self._ends = [(each.ends_at, each.name) for each in self._reservations.values()]
                heapify(self._ends)

    def _end(self, one: Reservation) -> None:
        self._touch(one)
        if self._index.drop(one):
            self._note_gain(one.node)

    def _is_active(self, one: Reservation) -> bool:
        return one.name in self._index.on(one.node)

    def _land(self, key: str, node: str) -> None:
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

    def _touch(self, one: Reservation) -> None:
        """What is said of it, and of its twins, may have to be said anew."""
        self._touched |= dict.fromkeys((one.name, *islice(self._by_target.get(one.target, ()), MOST_TWINS)))

    def _measure(self, node: str) -> None:
        """The node's room has changed."""
        if node in self._index:
            self._index.measure(node)
            self._note_gain(node)

    def _note_gain(self, node: str) -> None:
        self.changes += 1
        self._gained[node] = self._moved[node] = None
