"""Reads a queue by submitter, where its first rows are all held: nobody's rows hide anybody else's, however many.

Every submitter's first rows are read in each look. A submitter's window is widened where its own rows are held, and
its size is remembered, so that the next look asks for as much straight away. No position is remembered: ids commit out
of order. What all wide windows of a look may read together is bounded; those that get nothing come first in the next
look. A wide window is read again only after a while, the wider the later: ten thousand bad rows of one submitter must
not make the cycles of the others slow.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from dispatcher.admission.gates import over_submitter_cap
from dispatcher.admission.heads import (
    FIRST_WINDOW,
    ROUNDS,
    WIDEST_WINDOW,
    Head,
    Index,
    Judge,
    QueueSubmitter,
    grouped,
    is_hiding,
    queue_submitter,
    turn,
)
from dispatcher.model.verdicts import HoldReason

LEAST_WINDOW: Final = 20
WIDE_ROWS_A_SECOND: Final = 5000
"""Of one submitter: after a wide look only its first rows are read, the longer the more rows were held."""
WIDE_ROWS_A_LOOK: Final = 100_000


class WideLook(NamedTuple):
    """The last look beyond a submitter's first rows.

    at: when, by the database's clock.
    held: how many rows wait for each reason.
    """

    at: datetime
    held: Mapping[HoldReason, int]

    @property
    def until(self) -> datetime:
        """When the next one may be. Only rows that are held for their own sake count: rows with a Job under way, and
        rows that wait for a cap, are read again at once, because the next row to launch stands behind them.
        """
        bad = sum(count for reason, count in self.held.items() if reason is not HoldReason.SUBMITTER_CAP)
        return self.at + timedelta(seconds=bad / WIDE_ROWS_A_SECOND)


class SubmitterScan:
    """Remembers how far each submitter's rows have to be looked at, and when that was done last."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._windows: dict[QueueSubmitter, int] = {}
        self._denied: dict[QueueSubmitter, int] = {}
        self._looked: dict[QueueSubmitter, WideLook] = {}

    async def heads(self, index: Index, judge: Judge, queues: Sequence[str]) -> dict[str, tuple[Head, bool]]:
        """The head of each queue, and whether held rows still hide others there."""
        first = first_windows(await index.submitters(queues))
        wide = {line for line in first if self._may_widen(line, judge)}
        budget = Budget(WIDE_ROWS_A_LOOK, self._denied)
        windows = first | budget.grant({line: self._windows[line] for line in wide if line in self._windows})
        read: dict[QueueSubmitter, Head] = {}
        farthest = dict(first)
        for _ in range(ROUNDS):
            read |= await self._read(index, judge, windows)
            farthest |= windows
            windows = budget.grant(self._wider({line: windows[line] for line in windows.keys() & wide}, read, judge))
            if not windows:
                break
        self._remember(read, first, farthest, judge)
        self._denied = budget.denied
        self._windows |= self._denied
        told = read | {
            line: self._as_last_told(line, read[line], first[line]) for line in read if farthest[line] == first[line]
        }
        return {queue: merged(queue, told, first) for queue in queues}

    def _as_last_told(self, line: QueueSubmitter, head: Head, first: int) -> Head:
        """The counts of the last wide look, until the rows behind the first ones are read again."""
        last = self._looked.get(line)
        return msgspec.structs.replace(head, held=last.held) if last is not None and len_held(head) >= first else head

    def _may_widen(self, line: QueueSubmitter, judge: Judge) -> bool:
        """A submitter at its cap has nothing to find, and after a wide look some time passes."""
        last = self._looked.get(line)
        rests = last is not None and last.at <= judge.snapshot.now < last.until
        return not rests and over_submitter_cap(*line, judge.snapshot) is None

    async def _read(
        self, index: Index, judge: Judge, windows: Mapping[QueueSubmitter, int]
    ) -> dict[QueueSubmitter, Head]:
        rows = grouped(await index.indexed_rows_of(windows), queue_submitter) if windows else {}
        await judge.learn(index, rows.values())
        return {line: judge.head(rows.get(line, ())) for line in windows}

    def _wider(
        self, windows: Mapping[QueueSubmitter, int], read: Mapping[QueueSubmitter, Head], judge: Judge
    ) -> dict[QueueSubmitter, int]:
        """Submitters whose own rows are held, to be looked at further."""
        return {
            line: min(window * 8, WIDEST_WINDOW) for line, window in windows.items()
            if window < WIDEST_WINDOW and is_hiding(read[line], window, self._wanted)
            and over_submitter_cap(*line, judge.snapshot, len(read[line].able)) is None
        }  # fmt: skip

    def _remember(
        self,
        read: Mapping[QueueSubmitter, Head],
        first: Mapping[QueueSubmitter, int],
        farthest: Mapping[QueueSubmitter, int],
        judge: Judge,
    ) -> None:
        """What each line needed. A line that was not looked at beyond its first rows keeps what was known of it."""
        known, looked = self._windows, self._looked
        self._windows, self._looked = {}, {}
        for line, head in read.items():
            if farthest[line] > first[line]:
                self._windows |= window_for(line, head, first[line])
                if is_done(head, farthest[line]):
                    self._looked[line] = WideLook(judge.snapshot.now, head.held)
                continue
            if line in known:
                self._windows[line] = known[line]
            if line in looked and over_submitter_cap(*line, judge.snapshot) is None:
                self._looked[line] = looked[line]


def is_done(head: Head, window: int) -> bool:
    """True: a row to launch was found, or there is none among all that may be looked at; none waits to be judged."""
    is_all = head.there < window or window >= WIDEST_WINDOW
    return (is_all or bool(head.able)) and HoldReason.NEXT_CYCLE not in head.held


def window_for(line: QueueSubmitter, head: Head, first: int) -> dict[QueueSubmitter, int]:
    """What to ask for straight away in the next look; nothing where the first rows will do."""
    needed = min(len_held(head) + first, WIDEST_WINDOW)
    return {line: needed} if needed > 2 * first else {}


class Budget:
    """What the wide windows of one look may read together."""

    def __init__(self, rows: int, urgent: Container[QueueSubmitter]) -> None:
        """`urgent`: those that were denied in the look before; they come first."""
        self.denied: dict[QueueSubmitter, int] = {}
        self._left = rows
        self._urgent = urgent

    def grant(self, windows: Mapping[QueueSubmitter, int]) -> dict[QueueSubmitter, int]:
        """As many of the windows as there are rows left to read."""
        granted: dict[QueueSubmitter, int] = {}
        for line in sorted(windows, key=lambda line: (line not in self._urgent, line)):
            if windows[line] <= self._left:
                granted[line] = windows[line]
                self._left -= windows[line]
            else:
                self.denied[line] = windows[line]
        return granted


def merged(queue: str, read: Mapping[QueueSubmitter, Head], first: Mapping[QueueSubmitter, int]) -> tuple[Head, bool]:
    """The head of a queue from those of its submitters; True: of one of them, a first window would still be full."""
    own = {line: head for line, head in read.items() if line[0] == queue}
    able = sorted((row for head in own.values() for row in head.able), key=turn)
    held: Counter[HoldReason] = Counter()
    for head in own.values():
        held.update(head.held)
    is_hidden = any(len_held(head) >= first[line] for line, head in own.items())
    return Head(sum(head.there for head in own.values()), able, held), is_hidden


def len_held(head: Head) -> int:
    """Rows that were passed over."""
    return head.there - len(head.able)


def first_windows(lines: Sequence[QueueSubmitter]) -> dict[QueueSubmitter, int]:
    """As many rows of a queue as without its submitters, in equal parts, and a few of each at least."""
    of_queue = Counter(queue for queue, _ in lines)
    return {line: max(LEAST_WINDOW, FIRST_WINDOW // of_queue[line[0]]) for line in lines}
