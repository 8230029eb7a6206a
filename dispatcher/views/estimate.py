"""When a row will start, as a range, by the starts of the last hour. Pure.

The times between the starts of a queue contain everything that slows it: caps, room, other queues. A range is the 25th
to the 75th percentile of how long a row at this place would have waited, had it come at any moment of the last hour.
"""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from msgspec import Struct

FEWEST_STARTS: Final = 20
"""Starts that an estimate needs, at least."""


SAMPLES: Final = 100
"""Moments of the last hour from which a wait is measured."""


FIRST_QUARTER, LAST_QUARTER = 0.25, 0.75


class Estimate(Struct, frozen=True):
    """A range in which a row will probably start; one in two rows starts in it.

    starts: number of starts behind it.
    """

    earliest: datetime
    latest: datetime
    starts: int


def estimate_start(place: int, starts: Sequence[datetime], now: datetime) -> Estimate | None:
    """When the row at this place of a line will start; None: there were too few starts.

    place: from 1 on.
    starts: starts of rows of this line in the last hour, in any order.
    """
    return estimate_by(place, telling_starts(starts, now), now)


def telling_starts(starts: Sequence[datetime], now: datetime) -> Sequence[datetime]:
    """The starts in their order; empty: the next starts do not follow from them."""
    ordered = sorted(starts)
    return () if len(ordered) < FEWEST_STARTS or stands_still(ordered, now) else ordered


def estimate_by(place: int, ordered: Sequence[datetime], now: datetime) -> Estimate | None:
    """As `estimate_start`, with starts already checked and sorted by `telling_starts`."""
    if place < 1 or not ordered:
        return None
    waits = sorted(waits_for(min(place, len(ordered) // 2), ordered))
    scale = max(1.0, place / (len(ordered) // 2))
    shortest, longest = (waits[round(part * (len(waits) - 1))] for part in (FIRST_QUARTER, LAST_QUARTER))
    return Estimate(now + shortest * scale, now + longest * scale, len(ordered))


def stands_still(starts: Sequence[datetime], now: datetime) -> bool:
    """Whether nothing has started for longer than any pause of the last hour. Then that hour is no measure."""
    return now - starts[-1] > max(later - earlier for earlier, later in pairwise(starts)) or starts[0] == starts[-1]


def waits_for(count: int, starts: Sequence[datetime]) -> list[timedelta]:
    """How long `count` starts took, from moments at equal distances between the first and the last start."""
    first, last = starts[0], starts[-count]
    moments = (first + (last - first) * sample / SAMPLES for sample in range(SAMPLES))
    return [starts[bisect_right(starts, moment) + count - 1] - moment for moment in moments]
