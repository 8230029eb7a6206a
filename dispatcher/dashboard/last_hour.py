"""Starts, ends and the longest wait of each queue, minute by minute, for one hour. Kept in memory, at most 1 MiB."""

from array import array
from collections.abc import Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Final

from msgspec import Struct

from dispatcher.model.tasks import COUNTED_MINUTES, QueueCount

MINUTES: Final = 60
MOST_QUEUES: Final = 1000
"""Three numbers of 4 bytes for each minute of so many queues are 0.7 MB. Further queues have no last hour."""
ENOUGH_MINUTES: Final = 15
"""Of fewer minutes it is not known what is usual."""
UNKNOWN: Final = -1.0


class QueueHour(Struct, frozen=True):
    """One queue, a number for each minute, the oldest first; None: nobody counted in that minute.

    starts, ends: a minute, on average of five minutes.
    waits: for how many seconds its oldest due row had waited; 0: no row waited.
    usual_wait: median of `waits`; None: too few are known.
    """

    starts: Sequence[float | None]
    ends: Sequence[float | None]
    waits: Sequence[float | None]
    usual_wait: float | None


class LastHour:
    """The last hour of all queues. Time is an argument."""

    def __init__(self) -> None:
        self.since: datetime | None = None
        self._minute = 0
        self._queues: dict[str, array[float]] = {}

    def note(self, at: datetime, counts: Sequence[QueueCount]) -> None:
        """Adds the counts of one moment. The last ones of a minute stay."""
        self._turn_to(at)
        known = {count.queue for count in counts}
        self._queues = {name: kept for name, kept in self._queues.items() if name in known}
        for count in counts:
            if count.queue not in self._queues and len(self._queues) < MOST_QUEUES:
                self._queues[count.queue] = array("f", [UNKNOWN]) * (3 * MINUTES)
            if kept := self._queues.get(count.queue):
                waits = max(0.0, (at - count.oldest).total_seconds()) if count.oldest else 0.0
                numbers = count.starts / COUNTED_MINUTES, count.ends / COUNTED_MINUTES, waits
                kept[3 * (self._minute % MINUTES) : 3 * (self._minute % MINUTES) + 3] = array("f", numbers)

    def _turn_to(self, at: datetime) -> None:
        """Forgets the minutes between the last count and this one."""
        minute = int(at.timestamp() // 60)
        if self.since is None or minute < self._minute:  # a clock that was set back begins anew
            self.since, self._minute, self._queues = at, minute, {}
        for passed in range(max(self._minute + 1, minute - MINUTES + 1), minute + 1):
            for kept in self._queues.values():
                kept[3 * (passed % MINUTES) : 3 * (passed % MINUTES) + 3] = array("f", [UNKNOWN] * 3)
        self._minute = minute
        self.since = max(self.since, at - timedelta(minutes=MINUTES))

    def hour(self, queue: str) -> QueueHour | None:
        """The last hour of one queue; None: it was not counted."""
        kept = self._queues.get(queue)
        return None if kept is None else hour_of(kept, self._minute)


def hour_of(kept: Sequence[float], minute: int) -> QueueHour:
    places = [3 * (passed % MINUTES) for passed in range(minute - MINUTES + 1, minute + 1)]
    starts, ends, waits = (
        [None if kept[place + which] == UNKNOWN else round(kept[place + which], 1) for place in places]
        for which in range(3)
    )
    known = [wait for wait in waits if wait is not None]
    return QueueHour(starts, ends, waits, median(known) if len(known) >= ENOUGH_MINUTES else None)
