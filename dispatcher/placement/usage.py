"""Real use: cpu and memory that earlier runs of a cache key used. The extender reads it in an annotation of the Pod.

The rule is BlueKing CI's. cpu and memory of the newest ten runs are sorted separately, and the highest five of each are
kept. So an entry does not describe one run, and the first entry holds both maxima. Memory is in MiB of 2**20 bytes.
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
    """One entry of the annotation. An empty or missing amount is unknown."""

    cpu: str = ""
    memory: str = ""


class Needs(Struct, frozen=True):
    """The annotation as numbers, in thousandths, highest first. An unknown amount is None."""

    cpu: tuple[int | None, ...] = ()
    memory: tuple[int | None, ...] = ()


def write_uses(uses: Sequence[Use]) -> str:
    """`uses`: one for each of the newest runs, the newest first."""
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
    """The amount in thousandths, or None if it is no quantity or negative."""
    try:
        found = milli_of(written)
    except ValueError:
        return None
    return found if found >= 0 else None
