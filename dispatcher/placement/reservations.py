"""Room that is held on a node for a Pod still to come: what others see of the node, and when the hold ends.

    NodeReservations ─▶ Holds ◀─ nodes, bound Pods        refusals(asker, names) ─▶ the nodes it must not have, and why

Others see the node smaller by what is held; the target never pays for its own hold. A hold ends when its target is seen
bound, on whatever node, and for good; when its time is over, judged whenever it is looked at; or with its object. Only
amounts that are held are compared: kube-scheduler has seen to the rest.

Between filter and bind nobody says where a Pod goes. So each Pod that may go to a node with a hold is charged to all of
them until it is seen bound, is asked about again, or CHARGE_SECONDS are over: a burst cannot take what is held.

Pure: time is an argument, in seconds of the API server's clock, which is the one that set the ends.

Not guaranteed: that a node has what is held on it (its status says so); anything about Pods that another
scheduler binds, before they are seen bound; Pods that take longer than CHARGE_SECONDS from filter to bind.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Final

from msgspec import Struct

from dispatcher.amounts import Amounts, added, less
from dispatcher.placement.ranks import Ranks
from dispatcher.placement.standing import Around, Standing, standing
from dispatcher.room import Bound, NodeSize, Reservation, Rooms

CHARGE_SECONDS: Final = 10
LOOKED_AT: Final = 20
NOTHING: Final[Amounts] = {}
REFUSED: Final = "{} is reserved for another Pod"
"""Without the name of a node or a Pod: kube-scheduler counts equal words, and new ones wake the Pod (measured)."""


class Asker(Struct, frozen=True, gc=False):
    """A Pod that is asked about. `keys`: what a reservation may call it; `is_exempt`: what a node cannot do without."""

    name: str
    keys: Collection[str]
    asks: Amounts
    is_exempt: bool = False


class Charge(Struct, frozen=True, gc=False):
    asks: Amounts
    until: float


class Holds:
    """Hears of reservations, nodes and bound Pods, in any order."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._reservations: dict[str, Reservation] = {}
        self._by_target: dict[str, set[str]] = defaultdict(set)
        self._bound: Counter[str] = Counter()
        self._landed: set[str] = set()
        self._active: dict[str, dict[str, Reservation]] = defaultdict(dict)
        self._ends: list[tuple[float, str]] = []
        self._visible: dict[str, Ranks] = defaultdict(Ranks)
        self._charges: dict[str, Charge] = {}
        self._charged: Amounts = {}
        self._touched: dict[str, None] = {}
        self.changes = 0
        """Counts up whenever somebody may have more than before."""
        self._landed_on: dict[str, str] = {}
        self.phases: Counter[str] = Counter()
        """How many reservations are in which, as their status says."""

    # What is heard

    def hear_reservation(self, before: Reservation | None, after: Reservation | None) -> None:
        if before is not None:
            del self._reservations[before.name]
            self.phases[before.phase or "Active"] -= 1
            self._forget_target(before)
            self._end(before)
        if after is not None:
            self._by_target[after.target].add(after.name)
            self._reservations[after.name] = after
            self.phases[after.phase or "Active"] += 1
            if after.has_landed or after.target in self._bound:
                self._landed.add(after.uid)
            self._begin(after)
            self._touched[after.name] = None
        if before is not None and (after is None or after.uid != before.uid):
            self._landed.discard(before.uid)
            self._landed_on.pop(before.uid, None)

    def hear_node(self, before: NodeSize | None, after: NodeSize | None) -> None:
        self._rooms.hear_node(before, after)
        for node in (before, after):
            if node is not None:
                self._measure(node.name)

    def hear_pod(self, before: Bound | None, after: Bound | None) -> None:
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
            self._settle(after.name)
            self._measure(after.node)

    def pass_time(self, now: float) -> None:
        """Ends what is over by now."""
        while self._ends and self._ends[0][0] <= now:
            ends_at, name = heappop(self._ends)
            found = self._reservations.get(name)
            if found is not None and found.ends_at == ends_at:
                self._end(found)
        for name in [name for name, charge in self._charges.items() if charge.until <= now]:
            self._settle(name)

    # What is asked

    def refusals(self, asker: Asker, names: Collection[str], now: float) -> dict[str, str]:
        """Nodes that this Pod must not have, with the words that say why. Those it may have are charged with it."""
        self.pass_time(now)
        self._settle(asker.name)
        if not self._active:
            return {}
        refused = {} if asker.is_exempt else {name: why for name, why in self._refused(asker) if name in names}
        if any(node in names and node not in refused for node in self._active):
            self._charges[asker.name] = Charge(asker.asks, now + CHARGE_SECONDS)
            self._charged = added(self._charged, asker.asks)
        return refused

    def nodes(self, now: float) -> list[str]:
        """Those with a hold."""
        self.pass_time(now)
        return list(self._active)

    def is_bound(self, asker: Asker) -> bool:
        return not self._bound.keys().isdisjoint(key for key in asker.keys if key.startswith("podName "))

    def holding(self, asker: Asker, node: str) -> list[str]:
        """Reservations that keep this Pod off the node, for people."""
        return sorted(one.name for one in self._active.get(node, {}).values() if one.target not in asker.keys)

    def would_fit(self, asker: Asker, node: str, freed: Amounts = NOTHING) -> bool:
        """Whether the Pod may have the node once so much more of it is free."""
        own = self._charges.get(asker.name)
        charged = less(self._charged, own.asks) if own else self._charged
        return not any(
            asker.asks.get(resource, 0) > 0
            and asker.asks[resource] + charged.get(resource, 0) > amount + freed.get(resource, 0)
            for resource, amount in self._room(node, self._own(asker).get(node, ())).items()
        )

    def _refused(self, asker: Asker) -> Iterator[tuple[str, str]]:
        own = self._own(asker)
        for resource, ranks in self._visible.items():
            asked = asker.asks.get(resource, 0)
            if asked > 0:
                needed = asked + self._charged.get(resource, 0)
                why = REFUSED.format(resource)
                for name in ranks.below(needed):
                    if name not in own or needed > self._room(name, own[name]).get(resource, needed):
                        yield name, why

    def _own(self, asker: Asker) -> dict[str, list[Reservation]]:
        """What is held for the Pod itself, by node."""
        found: dict[str, list[Reservation]] = defaultdict(list)
        for key in asker.keys:
            for name in self._by_target.get(key, ()):
                reservation = self._reservations[name]
                if reservation.name in self._active.get(reservation.node, ()):
                    found[reservation.node].append(reservation)
        return found

    def _room(self, node: str, but: Collection[Reservation] = ()) -> Amounts:
        """What is left of a node's room beside what is held on it, by what is held; `but`: holds that do not count."""
        free, left_out = self._rooms.free_of(node), {one.name for one in but}
        held: Amounts = {}
        for one in self._active.get(node, {}).values():
            held = added(held, one.amounts if one.name not in left_out else dict.fromkeys(one.amounts, 0))
        return less({name: free.get(name, 0) for name in held}, held)

    # What follows

    def standings(self, now: float) -> Iterator[tuple[Reservation, Standing]]:
        """What has to be told of reservations whose status says something else; of some, in turn."""
        self.pass_time(now)
        for name in list(islice(self._touched, LOOKED_AT)):
            del self._touched[name]
            one = self._reservations.get(name)
            if one is not None:
                told = standing(one, self._around(one), now)
                if (told.phase, told.message) != (one.phase, one.message):
                    yield one, told

    def again(self, one: Reservation) -> None:
        """It could not be told."""
        self._touched[one.name] = None

    def _around(self, one: Reservation) -> Around:
        return Around(
            has_node=bool(self._rooms.free_of(one.node)),
            has_landed=one.uid in self._landed,
            landed_on=self._landed_on.get(one.uid, ""),
            room=self._room(one.node),
            twins=sorted(self._by_target[one.target] - {one.name}),
        )

    # How a hold begins and ends

    def _begin(self, reservation: Reservation) -> None:
        if reservation.uid not in self._landed:
            self._active[reservation.node][reservation.name] = reservation
            heappush(self._ends, (reservation.ends_at, reservation.name))
            self._measure(reservation.node)

    def _end(self, reservation: Reservation) -> None:
        self._touched[reservation.name] = None
        held = self._active.get(reservation.node)
        if held is not None and held.pop(reservation.name, None) is not None:
            self._measure(reservation.node)
            for resource in reservation.amounts:
                if not any(resource in one.amounts for one in held.values()):
                    self._visible[resource].drop(reservation.node)
            if not held:
                del self._active[reservation.node]

    def _land(self, key: str, node: str) -> None:
        for name in self._by_target.get(key, ()):
            found = self._reservations[name]
            self._landed.add(found.uid)
            self._landed_on.setdefault(found.uid, node)
            self._end(found)

    def _forget_target(self, reservation: Reservation) -> None:
        names = self._by_target[reservation.target]
        names.discard(reservation.name)
        if not names:
            del self._by_target[reservation.target]

    def _measure(self, node: str) -> None:
        """Its room for others has changed."""
        if node in self._active:
            self.changes += 1
            self._touched |= dict.fromkeys(self._active[node])
            for resource, amount in self._room(node).items():
                self._visible[resource].put(node, amount)

    def _settle(self, name: str) -> None:
        """The Pod is no longer on its way."""
        charge = self._charges.pop(name, None)
        if charge is not None:
            self.changes += 1
            self._charged = less(self._charged, charge.asks) if self._charges else {}
