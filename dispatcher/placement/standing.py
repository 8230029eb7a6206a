"""What becomes of a reservation, in a phase and in words: the report of its status."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from dispatcher.amounts import Amounts
from dispatcher.room import LANDED, Reservation

PHASES: Final = ("Active", LANDED, "Expired", "NodeMissing")


LONGEST: Final = 1024
"""Of a message, as deploy/crd has it."""


class Standing(Struct, frozen=True):
    phase: str
    message: str


class Around(Struct, frozen=True):
    """What is seen of one reservation. `landed_on`: the node of its target, None: it has none. `room`: what is left of
    its node beside all that is held there. `twins`: reservations for the same target.
    """

    has_node: bool = True
    has_landed: bool = False
    landed_on: str = ""
    room: Amounts = {}
    twins: Sequence[str] = ()


def standing(one: Reservation, around: Around, now: float) -> Standing:
    if around.has_landed:
        kept = one.message if one.has_landed else "its Pod was bound before it was made"
        return Standing(LANDED, f"its Pod is on node {around.landed_on}" if around.landed_on else kept)
    if one.ends_at <= now:
        before = " before it was made" if one.ends_at <= one.made_at else ""
        return Standing("Expired", f"its time was over{before}, at {moment(one.ends_at)}")
    if not around.has_node:
        return Standing("NodeMissing", f"there is no node {one.node}; room is held there once it comes")
    return Standing("Active", "; ".join([*shortages(one, around.room), *twins(around.twins)])[:LONGEST])


def shortages(one: Reservation, room: Amounts) -> list[str]:
    return [
        f"less is free than is held: {name} lacks {lacking(-room[name])}"
        for name in sorted(one.amounts)
        if room.get(name, 0) < 0
    ]


def twins(names: Sequence[str]) -> list[str]:
    return [f"held for the same target: {', '.join(names)}"] if names else []


def lacking(milli: int) -> str:
    """As a quantity."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
