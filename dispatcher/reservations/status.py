"""The status of a reservation: phase and message. And the Events about reservations and refused Pods."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from dispatcher.model.amounts import Amounts
from dispatcher.model.notices import Notice
from dispatcher.model.reservations import LANDED, Reservation

PHASES: Final = ("Active", LANDED, "Expired", "NodeMissing")


MESSAGE_LENGTH: Final = 1024
"""Characters of a message at most, as in the chart."""
CLOCK_DIFFERENCE_SECONDS: Final = 2.0
"""The most by which two extenders differ about the API server's time."""
KIND: Final = "NodeReservation"
REFUSED: Final = "Refused"


class ReservationStatus(Struct, frozen=True):
    phase: str
    message: str


class Observation(Struct, frozen=True):
    """The state of one reservation, as the extender sees it.

    `is_active`: the reservation keeps other Pods from the node.
    `node_exists`: the node of the reservation is there.
    `has_landed`: a Pod of the target was bound.
    `landed_on`: the node of that Pod. Empty: this process did not see the binding.
    `unreserved`: what is free on the node, minus all that is reserved there.
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
        kept = one.message if one.has_landed else "its Pod was on a node already"
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
    """True if only the status differs. A change to Landed is excluded: it ends the reservation."""
    return not after.has_landed and (before.uid, before.node, before.amounts, before.target, before.ends_at) == (
        after.uid, after.node, after.amounts, after.target, after.ends_at,
    )  # fmt: skip


def must_be_written(one: Reservation, status: ReservationStatus, now: float) -> bool:
    """True if the status of the object has to change.

    Another extender may have written something else. Its word stays for the node of a landing, and for an end that its
    clock saw earlier.
    """
    has_ended = one.phase == "Expired" and status.phase != LANDED and one.ends_at < now + CLOCK_DIFFERENCE_SECONDS
    is_said = one.phase == status.phase == LANDED or (has_ended and status.phase != "Expired")
    return (status.phase, status.message) != (one.phase, one.message) and not is_said


def phase_notices(one: Reservation, status: ReservationStatus) -> Iterator[Notice]:
    """One notice if the phase is new. There is none for the first phase if it is Active."""
    if status.phase != one.phase and (one.phase or status.phase != "Active"):
        words = status.message or f"room is held on node {one.node}"
        yield Notice(KIND, one.name, one.uid, status.phase, words, is_warning=status.phase == "NodeMissing")


def refusal_notices(pod: str, uid: str, blocking: Sequence[Reservation], why: str, nodes: int) -> Iterator[Notice]:
    """One notice for the Pod and one for each reservation.

    `blocking`: reservations of one node that refuse the Pod.
    `nodes`: how many nodes the Pod was refused.
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
