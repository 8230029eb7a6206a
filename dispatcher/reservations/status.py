"""What becomes of a reservation, in a phase and in words: the report of its status, and what is told beside it."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from dispatcher.model.amounts import Amounts
from dispatcher.model.notices import Notice
from dispatcher.model.reservations import LANDED, Reservation

PHASES: Final = ("Active", LANDED, "Expired", "NodeMissing")


LONGEST: Final = 1024
"""Of a message, as deploy/crd has it."""
CLOCKS_APART: Final = 2.0
"""Seconds, at most, between what two extenders take for the API server's time."""
KIND: Final = "NodeReservation"
REFUSED: Final = "Refused"


class ReservationStatus(Struct, frozen=True):
    phase: str
    message: str


class Around(Struct, frozen=True):
    """What is seen of one reservation. `landed_on`: the node of its target, empty: nobody saw it land. `left`: of its
    node beside all that is held there. `twins`: reservations for the same target.
    """

    holds: bool = True
    has_node: bool = True
    has_landed: bool = False
    landed_on: str = ""
    left: Amounts = {}
    twins: Sequence[str] = ()


def status_of(one: Reservation, around: Around) -> ReservationStatus:
    if around.has_landed:
        kept = one.message if one.has_landed else "its Pod was on a node already"
        return ReservationStatus(LANDED, f"its Pod is on node {around.landed_on}" if around.landed_on else kept)
    if not around.holds:
        before = " before it was made" if one.ends_at <= one.made_at else ""
        return ReservationStatus("Expired", f"its time was over{before}, at {moment(one.ends_at)}")
    if not around.has_node:
        return ReservationStatus("NodeMissing", f"there is no node {one.node}; room is held there once it comes")
    return ReservationStatus("Active", "; ".join([*shortages(one, around.left), *twins(around.twins)])[:LONGEST])


def shortages(one: Reservation, left: Amounts) -> list[str]:
    return [
        f"less is free than is held: {name} lacks {lacking(-left[name])}"
        for name in sorted(one.amounts)
        if left.get(name, 0) < 0
    ]


def twins(names: Sequence[str]) -> list[str]:
    return [f"held for the same target: {', '.join(names)}"] if names else []


def is_echo(before: Reservation, after: Reservation) -> bool:
    """Nothing but what we said of it ourselves is new."""
    return not after.has_landed and (before.uid, before.node, before.amounts, before.target, before.ends_at) == (
        after.uid, after.node, after.amounts, after.target, after.ends_at,
    )  # fmt: skip


def is_news(one: Reservation, told: ReservationStatus, now: float) -> bool:
    """Whether it has to be told. Where another extender may have said it otherwise, the first word stays: of where the
    Pod landed, and, by a clock of its own, that it is over.
    """
    has_ended = one.phase == "Expired" and told.phase != LANDED and one.ends_at < now + CLOCKS_APART
    is_said = one.phase == told.phase == LANDED or (has_ended and told.phase != "Expired")
    return (told.phase, told.message) != (one.phase, one.message) and not is_said


def turned(one: Reservation, told: ReservationStatus) -> Iterator[Notice]:
    """When it comes to another phase; that it begins as it should is no news."""
    if told.phase != one.phase and (one.phase or told.phase != "Active"):
        words = told.message or f"room is held on node {one.node}"
        yield Notice(KIND, one.name, one.uid, told.phase, words, is_warning=told.phase == "NodeMissing")


def kept_from(pod: str, uid: str, holding: Sequence[Reservation], why: str, nodes: int) -> Iterator[Notice]:
    """Told below the Pod and below each reservation. `holding`: those of one node, of `nodes` that it was refused."""
    if holding:
        names, node = ", ".join(one.name for one in holding), holding[0].node
        others = f", and on {nodes - 1} other nodes" if nodes > 1 else ""
        yield Notice("Pod", pod, uid, REFUSED, f"{why}: by NodeReservation {names} on node {node}{others}", True)
    for one in holding:
        yield Notice(KIND, one.name, one.uid, REFUSED, f"Pod {pod} was kept from node {one.node}")


def lacking(milli: int) -> str:
    """As a quantity."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
