"""Judges clocks: those of the database and of the API server against this machine's."""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from dispatcher.doctor.check import Part
from dispatcher.doctor.finding import Finding, fault, good

MOST_SECONDS: Final = 5
"""The API server tells whole seconds, and an answer takes a moment."""
THIS_MACHINE: Final = "this machine"


class Clocks(Struct, frozen=True):
    """Seconds by which each clock is ahead of this machine's; None: not known."""

    database: float | None = None
    api_server: float | None = None


def judge_clocks(clocks: Clocks) -> Iterator[Finding]:
    """If both others agree with each other and not with this machine, then this machine's clock is wrong."""
    known = {"database": clocks.database, "API server": clocks.api_server}
    ahead = {name: seconds for name, seconds in known.items() if seconds is not None}
    wrong = {name: seconds for name, seconds in ahead.items() if abs(seconds) > MOST_SECONDS}
    if len(wrong) == len(known) and max(wrong.values()) - min(wrong.values()) <= MOST_SECONDS:
        wrong = {THIS_MACHINE: -wrong["database"]}
    for name, seconds in wrong.items():
        side = "ahead" if seconds > 0 else "behind"
        found = fault("ClockOff", f"clock of {name}", f"{abs(seconds):.0f} s {side}", machine=name)
        yield in_its_part(found, name)
    for name in ahead if THIS_MACHINE not in wrong else ():
        if name not in wrong:
            yield in_its_part(good("ClockOff", f"clock of {name}"), name)


def in_its_part(found: Finding, name: str) -> Finding:
    return msgspec.structs.replace(found, part=Part.CLUSTER) if name == "API server" else found
