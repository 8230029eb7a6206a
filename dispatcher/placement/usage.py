"""Real use: what earlier runs of a key used, as it stands on the Pod and as the extender reads it.

As BlueKing CI has it: of the newest ten runs, cpu and memory are each sorted by themselves and the highest five kept;
so an entry is no run, and the first is the most that was ever needed of either. Memory is in true MiB here.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from dispatcher.model.amounts import milli_of
from dispatcher.model.cache_history import Use
from dispatcher.model.identity import REAL_RESOURCES

NEWEST_RUNS: Final = 10
MOST_USES: Final = 5
MIB: Final = 2**20


class Written(Struct, frozen=True):
    """One entry of the annotation; a side that is missing or empty is not known."""

    cpu: str = ""
    memory: str = ""


class Needs(Struct, frozen=True):
    """The annotation as numbers, in thousandths, highest first; None: that side of an entry is not known."""

    cpu: tuple[int | None, ...] = ()
    memory: tuple[int | None, ...] = ()


def write_uses(uses: Sequence[Use]) -> str:
    """`uses`: the newest runs, the newest first."""
    cpus = sorted((use.cpu for use in uses[:NEWEST_RUNS]), reverse=True)
    memories = sorted((use.memory for use in uses[:NEWEST_RUNS]), reverse=True)
    ranked = list(zip(cpus, memories, strict=True))[:MOST_USES]
    return msgspec.json.encode(
        [Written(f"{cpu * 1000:.0f}m", f"{memory / MIB:.0f}Mi") for cpu, memory in ranked]
    ).decode()


def read_needs(annotations: Mapping[str, str]) -> Needs:
    """ValueError: the annotation is not an array of uses."""
    written = annotations.get(REAL_RESOURCES)
    if written is None:
        return Needs()
    uses = msgspec.json.decode(written, type=list[Written])[:MOST_USES]
    return Needs(tuple(amount(use.cpu) for use in uses), tuple(amount(use.memory) for use in uses))


def amount(written: str) -> int | None:
    """None: not a quantity, or not one that anything could use."""
    try:
        found = milli_of(written)
    except ValueError:
        return None
    return found if found >= 0 else None
