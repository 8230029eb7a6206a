"""The life of reservations: when they become active, when they end, and what their status and Events say. Pure.

    begin ─▶ active ─▶ landed: a Pod of the target was bound, on any node; for good
                   ├─▶ expired: the end time has come; a later end time makes it active again
                   └─▶ deleted

An active reservation keeps other Pods from the node. The reservations for one target land together.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from msgspec import Struct

from dispatcher.extender.hold_index import ChangeLog, HoldIndex
from dispatcher.model.cluster import BoundPod, NodeCapacities
from dispatcher.model.jobs import Notice
from dispatcher.model.reservations import LANDED, Reservation
from dispatcher.model.resources import Amounts

PHASES: Final = ("Active", LANDED, "Expired", "NodeMissing")
MESSAGE_LENGTH: Final = 1024
"""Characters of a message, at most, as in the chart."""
CLOCK_DIFFERENCE_SECONDS: Final = 2.0
"""The largest difference between two extenders' estimates of the API server's time."""
KIND: Final = "NodeReservation"
NODE_UNKNOWN: Final = "its Pod was on a node already"
"""The message of a landing whose binding the extender did not see."""
REFUSED: Final = "Refused"


class ReservationStatus(Struct, frozen=True):
    phase: str
    message: str


class Observation(Struct, frozen=True):
    """The state of one reservation, as the extender sees it.

    `is_active`: the reservation keeps other Pods from the node.
    `node_exists`: the node of the reservation exists.
    `has_landed`: a Pod of the target was bound.
    `landed_on`: the node of that Pod. Empty: this process did not see the binding.
    `unreserved`: what is free on the node, minus everything that is reserved there.
    `same_target`: names of other reservations for the same target.
    """

    is_active: bool = True
    node_exists: bool = True
    has_landed: bool = False
    landed_on: str = ""
    unreserved: Amounts = {}
    same_target: Sequence[str] = ()


def status_of(one: Reservation, seen: Observation) -> ReservationStatus:
    if seen.has_landed:
        kept = one.message if one.has_landed else NODE_UNKNOWN
        return ReservationStatus(LANDED, f"its Pod is on node {seen.landed_on}" if seen.landed_on else kept)
    if not seen.is_active:
        before = " before it was made" if one.ends_at <= one.made_at else ""
        return ReservationStatus("Expired", f"its time was over{before}, at {timestamp(one.ends_at)}")
    if not seen.node_exists:
        return ReservationStatus("NodeMissing", f"there is no node {one.node}; room is held there once it comes")
    notes = [*shortage_notes(one, seen.unreserved), *same_target_notes(seen.same_target)]
    return ReservationStatus("Active", "; ".join(notes)[:MESSAGE_LENGTH])


def shortage_notes(one: Reservation, unreserved: Amounts) -> list[str]:
    return [
        f"less is free than is held: {name} lacks {quantity(-unreserved[name])}"
        for name in sorted(one.amounts)
        if unreserved.get(name, 0) < 0
    ]


def same_target_notes(names: Sequence[str]) -> list[str]:
    return [f"held for the same target: {', '.join(names)}"] if names else []


def is_status_change(before: Reservation, after: Reservation) -> bool:
    """Whether only the status differs. A change to Landed is excluded: it ends the reservation."""
    return not after.has_landed and (before.uid, before.node, before.amounts, before.target, before.ends_at) == (
        after.uid, after.node, after.amounts, after.target, after.ends_at,
    )  # fmt: skip


def must_be_written(one: Reservation, status: ReservationStatus, now: float) -> bool:
    """Whether the status of the object has to change.

    Another extender may have written another status. Its status stays for the node of a landing, if it knew the node,
    and for an end that its clock saw earlier.
    """
    has_ended = one.phase == "Expired" and status.phase != LANDED and one.ends_at < now + CLOCK_DIFFERENCE_SECONDS
    is_landed = one.phase == status.phase == LANDED and one.message != NODE_UNKNOWN
    is_said = is_landed or (has_ended and status.phase != "Expired")
    return (status.phase, status.message) != (one.phase, one.message) and not is_said


def phase_notices(one: Reservation, status: ReservationStatus) -> Iterator[Notice]:
    """One notice if the phase is new, but none if the first phase is Active."""
    if status.phase != one.phase and (one.phase or status.phase != "Active"):
        words = status.message or f"room is held on node {one.node}"
        yield Notice(KIND, one.name, one.uid, status.phase, words, is_warning=status.phase == "NodeMissing")


def refusal_notices(pod: str, uid: str, blocking: Sequence[Reservation], why: str, nodes: int) -> Iterator[Notice]:
    """One notice for the Pod and one for each reservation.

    `blocking`: reservations of one node that refuse the Pod.
    `nodes`: number of nodes that the Pod was refused.
    """
    if blocking:
        names, node = ", ".join(one.name for one in blocking), blocking[0].node
        others = f", and on {nodes - 1} other nodes" if nodes > 1 else ""
        yield Notice("Pod", pod, uid, REFUSED, f"{why}: by NodeReservation {names} on node {node}{others}", True)
    for one in blocking:
        yield Notice(KIND, one.name, one.uid, REFUSED, f"Pod {pod} was kept from node {one.node}")


def quantity(milli: int) -> str:
    """Thousandths, as Kubernetes writes a quantity."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


MOST_SAME_TARGET: Final = 10
"""Reservations of the same target that a message names, at most."""
STALE_ENDS: Final = 20
"""End times that may be out of date, at most, in addition to two per reservation."""


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
        """Hears that a bound Pod has ended, was deleted, or has changed."""
        for key in pod.keys:
            self._bound[key] -= 1
            if not self._bound[key]:
                del self._bound[key]

    def hear_capacity(self, node: str) -> None:
        """Hears that the free capacity of the node has changed."""
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
        """Whether a Pod with this key is bound."""
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
        """Notes that the statuses of all reservations for the target may change, because they name each other."""
        same_target = islice(self._by_target.get(one.target, ()), MOST_SAME_TARGET)
        self._log.note_reservations((one.name, *same_target))
