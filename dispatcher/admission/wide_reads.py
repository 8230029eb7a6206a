"""How often held rows are read again, beyond the first rows of their submitter in a queue.

A held row that is read costs about 7 microseconds, and says again what it said before. So the held rows of one
submitter are read at a limited rate, those of all submitters at another, and one cycle reads few of them. What the rate
allows in four seconds may be read at once: a good row behind ten thousand bad rows is found in the next cycles. The
submitter whose last such read is the oldest comes first: ten thousand held rows of one team delay no other team.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from dispatcher.admission.heads import QueueSubmitter
from dispatcher.model.cluster import LONG_AGO
from dispatcher.model.verdicts import HoldReason

HELD_ROWS_A_SECOND: Final = 5_000
"""Of one submitter, over all queues."""
HELD_ROWS_OF_ALL_A_SECOND: Final = 10_000
BURST_SECONDS: Final = 4
"""As much as the rate allows in this time may be read at once."""

OF_USE: Final = frozenset({HoldReason.SUBMITTER_CAP, HoldReason.NEXT_CYCLE})


class WideRead(NamedTuple):
    """The last read beyond a submitter's first rows.

    at: time of the read, by the database's clock.
    read_count: number of rows that were read.
    held: number of held rows by reason.
    """

    at: datetime
    read_count: int
    held: Mapping[HoldReason, int]

    @property
    def bad(self) -> int:
        """Number of rows that are read in vain.

        Rows that wait for their submitter's cap do not count: the next row to launch comes after them. Nor do rows of
        new kinds, which the next cycle judges. Rows with a Job under way are not in `held`.
        """
        return sum(count for reason, count in self.held.items() if reason not in OF_USE)

    @property
    def is_of_use(self) -> bool:
        """Whether most of the rows were not read in vain, as in a burst with a few bad rows."""
        return 2 * self.bad <= self.read_count


class Debt(NamedTuple):
    """Reads that the rate has not paid yet. `at`: time of the last read. `paid_at`: when the rate has paid for all."""

    at: datetime
    paid_at: datetime

    def seconds(self, now: datetime) -> float:
        """How much is left. Nothing is left before `at`: the database's clock was set back."""
        return max(0.0, (self.paid_at - now).total_seconds()) if self.at <= now else 0.0


class Pace:
    """Tells whose held rows may be read again in a cycle, and in which order."""

    def __init__(self) -> None:
        self._of_all: Debt | None = None
        self._of: dict[str, Debt] = {}

    def in_turn(
        self, keys: Iterable[QueueSubmitter], last: Mapping[QueueSubmitter, WideRead], now: datetime
    ) -> list[QueueSubmitter]:
        """The keys that may be read now. The submitter that was not read for longest is first.

        last: the last wide reads.
        """
        if left(self._of_all, now) > BURST_SECONDS:
            return []
        latest: dict[str, datetime] = {}
        for (_, submitter), read in last.items():
            latest[submitter] = max(read.at, latest.get(submitter, read.at))
        may = [key for key in keys if left(self._of.get(key[1]), now) <= BURST_SECONDS]
        at = {key: last[key].at if key in last else LONG_AGO for key in may}
        return sorted(at, key=lambda key: (latest.get(key[1], LONG_AGO), at[key], key))

    def charge(self, reads: Mapping[QueueSubmitter, WideRead], now: datetime) -> None:
        """Adds the wide reads of this cycle to the debts."""
        bad: dict[str, int] = defaultdict(int)
        for (_, submitter), read in reads.items():
            bad[submitter] += read.bad
        self._of = {who: debt for who, debt in self._of.items() if left(debt, now)}
        for submitter, rows in bad.items():
            self._of[submitter] = longer(self._of.get(submitter), now, rows / HELD_ROWS_A_SECOND)
        self._of_all = longer(self._of_all, now, sum(bad.values()) / HELD_ROWS_OF_ALL_A_SECOND)


def left(debt: Debt | None, now: datetime) -> float:
    return debt.seconds(now) if debt is not None else 0


def longer(debt: Debt | None, now: datetime, seconds: float) -> Debt:
    """The debt with so many seconds more."""
    return Debt(now, now + timedelta(seconds=left(debt, now) + seconds))
