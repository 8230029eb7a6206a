"""Reads a queue by submitter, if its first rows are all held. So the held rows of one submitter never hide the rows of
another submitter, whatever their number.

* Each cycle reads the first rows of every submitter.
* If a submitter's first rows are held, its window becomes wider. The size is remembered, so that the next cycle reads
  as many rows at once. No position is remembered, because ids commit out of order.
* All wide windows of a cycle share a budget of rows. Submitters that get nothing come first in the next cycle.
* A wide window is read again only after a pause, which grows with the number of held rows. Otherwise ten thousand bad
  rows of one submitter would slow down the cycles of all.
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
    may_hide_rows,
    queue_submitter,
    sort_key,
)
from dispatcher.model.verdicts import HoldReason

LEAST_WINDOW: Final = 20
WIDE_ROWS_A_SECOND: Final = 5000
"""Held rows of one submitter for each second of pause between two of its wide reads."""
WIDE_ROWS_A_LOOK: Final = 100_000


class WideRead(NamedTuple):
    """The last read beyond a submitter's first rows.

    at: time of the read, by the database's clock.
    held: number of held rows by reason.
    """

    at: datetime
    held: Mapping[HoldReason, int]

    @property
    def until(self) -> datetime:
        """The earliest time of the next wide read.

        Rows that wait for their submitter's cap do not count: the next row to launch comes after them. Rows with a Job
        under way do not count either: they are not in `held`.
        """
        bad = sum(count for reason, count in self.held.items() if reason is not HoldReason.SUBMITTER_CAP)
        return self.at + timedelta(seconds=bad / WIDE_ROWS_A_SECOND)


class SubmitterScan:
    """Remembers the window of each submitter and the time of its last wide read."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._windows: dict[QueueSubmitter, int] = {}
        self._denied: dict[QueueSubmitter, int] = {}
        self._wide_reads: dict[QueueSubmitter, WideRead] = {}

    async def heads(self, index: Index, judge: Judge, queues: Sequence[str]) -> dict[str, tuple[Head, bool]]:
        """The head of each queue, and whether held rows may still hide other rows of the queue."""
        first = first_windows(await index.submitters(queues))
        wide = {key for key in first if self._may_widen(key, judge)}
        budget = Budget(WIDE_ROWS_A_LOOK, self._denied)
        windows = first | budget.grant({key: self._windows[key] for key in wide if key in self._windows})
        read: dict[QueueSubmitter, Head] = {}
        farthest = dict(first)
        for _ in range(ROUNDS):
            read |= await self._read(index, judge, windows)
            farthest |= windows
            windows = budget.grant(self._wider({key: windows[key] for key in windows.keys() & wide}, read, judge))
            if not windows:
                break
        self._remember(read, first, farthest, judge)
        self._denied = budget.denied
        self._windows |= self._denied
        counted = read | {
            key: self._with_last_counts(key, read[key], first[key]) for key in read if farthest[key] == first[key]
        }
        return {queue: merged(queue, counted, first) for queue in queues}

    def _with_last_counts(self, key: QueueSubmitter, head: Head, first: int) -> Head:
        """The head with the counts of the last wide read. They stay until the next wide read."""
        last = self._wide_reads.get(key)
        return msgspec.structs.replace(head, held=last.held) if last is not None and held_count(head) >= first else head

    def _may_widen(self, key: QueueSubmitter, judge: Judge) -> bool:
        """False: the submitter is at its cap, or its pause after a wide read is not over."""
        last = self._wide_reads.get(key)
        rests = last is not None and last.at <= judge.snapshot.now < last.until
        return not rests and over_submitter_cap(*key, judge.snapshot) is None

    async def _read(
        self, index: Index, judge: Judge, windows: Mapping[QueueSubmitter, int]
    ) -> dict[QueueSubmitter, Head]:
        rows = grouped(await index.indexed_rows_of(windows), queue_submitter) if windows else {}
        await judge.learn(index, rows.values())
        return {key: judge.head(rows.get(key, ())) for key in windows}

    def _wider(
        self, windows: Mapping[QueueSubmitter, int], read: Mapping[QueueSubmitter, Head], judge: Judge
    ) -> dict[QueueSubmitter, int]:
        """Wider windows of submitters whose held rows may hide rows that could be launched."""
        return {
            key: min(window * 8, WIDEST_WINDOW) for key, window in windows.items()
            if window < WIDEST_WINDOW and may_hide_rows(read[key], window, self._wanted)
            and over_submitter_cap(*key, judge.snapshot, len(read[key].launchable)) is None
        }  # fmt: skip

    def _remember(
        self,
        read: Mapping[QueueSubmitter, Head],
        first: Mapping[QueueSubmitter, int],
        farthest: Mapping[QueueSubmitter, int],
        judge: Judge,
    ) -> None:
        """Stores window and time of each wide read. Keys without a wide read keep their old values."""
        known, wide_reads = self._windows, self._wide_reads
        self._windows, self._wide_reads = {}, {}
        for key, head in read.items():
            if farthest[key] > first[key]:
                self._windows |= window_for(key, head, first[key])
                if is_done(head, farthest[key]):
                    self._wide_reads[key] = WideRead(judge.snapshot.now, head.held)
                continue
            if key in known:
                self._windows[key] = known[key]
            if key in wide_reads and over_submitter_cap(*key, judge.snapshot) is None:
                self._wide_reads[key] = wide_reads[key]


def is_done(head: Head, window: int) -> bool:
    """Whether a wide read needs no further rows: all kinds were judged, and a row was found or all rows were read."""
    is_all = head.read_count < window or window >= WIDEST_WINDOW
    return (is_all or bool(head.launchable)) and HoldReason.NEXT_CYCLE not in head.held


def window_for(key: QueueSubmitter, head: Head, first: int) -> dict[QueueSubmitter, int]:
    """The window for the next cycle; empty: the first rows are enough."""
    needed = min(held_count(head) + first, WIDEST_WINDOW)
    return {key: needed} if needed > 2 * first else {}


class Budget:
    """The number of rows that all wide windows of one cycle may read together."""

    def __init__(self, rows: int, urgent: Container[QueueSubmitter]) -> None:
        """`urgent`: keys that the last cycle denied. They come first."""
        self.denied: dict[QueueSubmitter, int] = {}
        self._left = rows
        self._urgent = urgent

    def grant(self, windows: Mapping[QueueSubmitter, int]) -> dict[QueueSubmitter, int]:
        """The windows that fit into the rest of the budget. The other windows are noted in `denied`."""
        granted: dict[QueueSubmitter, int] = {}
        for key in sorted(windows, key=lambda key: (key not in self._urgent, key)):
            if windows[key] <= self._left:
                granted[key] = windows[key]
                self._left -= windows[key]
            else:
                self.denied[key] = windows[key]
        return granted


def merged(queue: str, read: Mapping[QueueSubmitter, Head], first: Mapping[QueueSubmitter, int]) -> tuple[Head, bool]:
    """The head of a queue from the heads of its submitters, and whether held rows fill the first window of one."""
    own = {key: head for key, head in read.items() if key[0] == queue}
    launchable = sorted((row for head in own.values() for row in head.launchable), key=sort_key)
    held: Counter[HoldReason] = Counter()
    for head in own.values():
        held.update(head.held)
    is_hidden = any(held_count(head) >= first[key] for key, head in own.items())
    roomless = min((head.roomless for head in own.values() if head.roomless is not None), key=sort_key, default=None)
    return Head(sum(head.read_count for head in own.values()), launchable, held, roomless), is_hidden


def held_count(head: Head) -> int:
    """Number of rows that were read and are not launchable."""
    return head.read_count - len(head.launchable)


def first_windows(keys: Sequence[QueueSubmitter]) -> dict[QueueSubmitter, int]:
    """The first window of each key: an equal part of FIRST_WINDOW, at least LEAST_WINDOW rows."""
    of_queue = Counter(queue for queue, _ in keys)
    return {key: max(LEAST_WINDOW, FIRST_WINDOW // of_queue[key[0]]) for key in keys}
