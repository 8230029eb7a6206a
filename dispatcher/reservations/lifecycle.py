"""The life of reservations: when they become active, and when they end.

    begin ─▶ active ─▶ landed: a Pod of the target was bound, on any node; for good
                   ├─▶ expired: the end time has come; a later end time makes it active again
                   └─▶ deleted

An active reservation keeps other Pods from the node. The reservations for one target land together.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from dispatcher.model.capacity import BoundPod, NodeCapacities
from dispatcher.model.reservations import Reservation
from dispatcher.reservations.change_log import ChangeLog
from dispatcher.reservations.hold_index import HoldIndex
from dispatcher.reservations.status import Observation, is_status_change

MOST_SAME_TARGET: Final = 10
STALE_ENDS: Final = 20
"""So many end times, in addition to two per reservation, may be out of date."""


class ReservationLifecycle:
    """All NodeReservation objects. `index` holds the active ones. Events may come in any order."""

    def __init__(self, capacities: NodeCapacities, log: ChangeLog) -> None:
        self.index = HoldIndex(capacities)
        self._capacities = capacities
        self._log = log
        self._reservations: dict[str, Reservation] = {}
        self._by_target: dict[str, list[str]] = defaultdict(list)
        self._bound: Counter[str] = Counter()
        """The number of bound Pods by key."""
        self._landed: set[str] = set()
        """UIDs of reservations."""
        self._landed_on: dict[str, str] = {}
        """The node of the target's Pod by UID of the reservation, if this process saw the binding."""
        self._ends: list[tuple[float, str]] = []
        """A heap of end times and names. Some may be out of date."""

    def hear_reservation(self, before: Reservation | None, after: Reservation | None) -> bool:
        """Returns True if a reservation became active. A change of the status alone changes nothing else."""
        if before is not None and after is not None and is_status_change(before, after):
            self._reservations[after.name] = after
            self._note_statuses(after)
            return False
        is_begun = False
        if before is not None:
            del self._reservations[before.name]
            self._forget_target(before)
            self._end(before)
        if after is not None:
            self._reservations[after.name] = after
            insort(self._by_target[after.target], after.name)
            is_begun = self._begin(after)
        if before is not None and (after is None or after.uid != before.uid):
            self._landed.discard(before.uid)
            self._landed_on.pop(before.uid, None)
        return is_begun

    def hear_bound(self, pod: BoundPod) -> None:
        """Ends all reservations for the Pod: they have landed."""
        self._bound.update(pod.keys)
        for key in pod.keys:
            for name in self._by_target.get(key, ()):
                found = self._reservations[name]
                self._landed.add(found.uid)
                self._landed_on.setdefault(found.uid, pod.node)
                self._end(found)

    def hear_gone(self, pod: BoundPod) -> None:
        """A bound Pod has ended, is deleted, or has changed."""
        for key in pod.keys:
            self._bound[key] -= 1
            if not self._bound[key]:
                del self._bound[key]

    def hear_capacity(self, node: str) -> None:
        """The free capacity of the node has changed."""
        if node in self.index:
            self.index.update_unreserved(node)
            self._log.note_gain(node)

    def pass_time(self, now: float) -> None:
        """Ends the reservations whose end time has come."""
        while self._ends and self._ends[0][0] <= now:
            ends_at, name = heappop(self._ends)
            found = self._reservations.get(name)
            if found is not None and found.ends_at == ends_at:
                self._end(found)

    def is_bound(self, key: str) -> bool:
        """True if a Pod with this key is bound."""
        return key in self._bound

    def own_nodes(self, keys: Collection[str]) -> set[str]:
        """Nodes with an active reservation for one of these targets."""
        names = (name for key in keys for name in self._by_target.get(key, ()))
        return {one.node for name in names if self._is_active(one := self._reservations[name])}

    def get(self, name: str) -> Reservation | None:
        return self._reservations.get(name)

    def observe(self, one: Reservation) -> Observation:
        same_target = [name for name in self._by_target[one.target][: MOST_SAME_TARGET + 1] if name != one.name]
        return Observation(
            is_active=self._is_active(one),
            node_exists=one.node in self._capacities.of,
            has_landed=one.uid in self._landed,
            landed_on=self._landed_on.get(one.uid, ""),
            unreserved=self.index.unreserved(one.node),
            same_target=same_target[:MOST_SAME_TARGET],
        )

    def _begin(self, one: Reservation) -> bool:
        self._note_statuses(one)
        if one.has_landed or one.target in self._bound:
            self._landed.add(one.uid)
        if one.uid in self._landed:
            return False
        self.index.put(one)
        self._log.note_gain(one.node)  # for its target
        heappush(self._ends, (one.ends_at, one.name))
        if len(self._ends) > 2 * len(self._reservations) + STALE_ENDS:
            self._ends = [(each.ends_at, each.name) for each in self._reservations.values()]
            heapify(self._ends)
        return True

    def _end(self, one: Reservation) -> None:
        self._note_statuses(one)
        if self.index.drop(one):
            self._log.note_gain(one.node)

    def _is_active(self, one: Reservation) -> bool:
        return one.name in self.index.reservations_on(one.node)

    def _forget_target(self, one: Reservation) -> None:
        names = self._by_target[one.target]
        del names[bisect_left(names, one.name)]
        if not names:
            del self._by_target[one.target]

    def _note_statuses(self, one: Reservation) -> None:
        """The status of the reservation may change, and the statuses of others for its target, which name it."""
        same_target = islice(self._by_target.get(one.target, ()), MOST_SAME_TARGET)
        self._log.note_reservations((one.name, *same_target))
