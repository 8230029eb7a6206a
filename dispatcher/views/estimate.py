"""When a row will start, as a range, by the starts of the last hour. Pure.

The times between the starts of a queue hold everything that slows it: caps, room, other queues. A range is the 25th to
the 75th percentile of how long a row at this place would have waited, had it come at any moment of the last hour.
"""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from msgspec import Struct

FEWEST_STARTS: Final = 20


SAMPLES: Final = 100


FIRST_QUARTER, LAST_QUARTER = 0.25, 0.75


class Estimate(Struct, frozen=True):
    """A range in which a row will probably start; one in two rows starts in it.

    starts: number of starts that it is made from.
    """

    earliest: datetime
    latest: datetime
    starts: int


def estimate_start(place: int, starts: Sequence[datetime], now: datetime) -> Estimate | None:
    """When the row at this place of a line will start; None: there were too few starts to tell.

    place: from 1 on.
    starts: starts of rows of this line in the last hour, in any order.
    """
    return estimate_by(place, telling_starts(starts, now), now)


def telling_starts(starts: Sequence[datetime], now: datetime) -> Sequence[datetime]:
    """The starts in their order; empty: they tell nothing of the next ones."""
    ordered = sorted(starts)
    return () if len(ordered) < FEWEST_STARTS or stands_still(ordered, now) else ordered


def estimate_by(place: int, ordered: Sequence[datetime], now: datetime) -> Estimate | None:
    """The same, by `telling_starts`, which serve all rows of a line."""
    if place < 1 or not ordered:
        return None
    waits = sorted(waits_for(min(place, len(ordered) // 2), ordered))
    scale = max(1.0, place / (len(ordered) // 2))
    shortest, longest = (waits[round(part * (len(waits) - 1))] for part in (FIRST_QUARTER, LAST_QUARTER))
    return Estimate(now + shortest * scale, now + longest * scale, len(ordered))


def stands_still(starts: Sequence[datetime], now: datetime) -> bool:
    """Whether nothing has started for longer than ever in the last hour. Then the last hour tells nothing."""
    return now - starts[-1] > max(later - earlier for earlier, later in pairwise(starts)) or starts[0] == starts[-1]


def waits_for(count: int, starts: Sequence[datetime]) -> list[timedelta]:
    """How long so many starts took, from moments at equal distances between the first and the last one."""
    first, last = starts[0], starts[-count]
    moments = (first + (last - first) * sample / SAMPLES for sample in range(SAMPLES))
    return [starts[bisect_right(starts, moment) + count - 1] - moment for moment in moments]
