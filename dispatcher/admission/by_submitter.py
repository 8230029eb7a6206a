"""Reads a queue by submitter, if its first rows are all held. So the held rows of one submitter never hide the rows of
another submitter, whatever their number.

* Each cycle reads the first rows of every submitter.
* If a submitter's first rows are held, its window becomes wider. The size is remembered, so that the next cycle reads
  as many rows at once. No position is remembered, because ids commit out of order.
* All wide windows of a cycle share a budget of rows. Submitters that get nothing come first in the next cycle.
* Windows that are full of held rows have a smaller budget, and rests in between (`wide_reads`). Otherwise ten thousand
  held rows of one submitter would slow down the cycles of all.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from dispatcher.admission.gates import over_submitter_cap
from dispatcher.admission.heads import (
    LEAST_WINDOW,
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
from dispatcher.admission.wide_reads import Pace, WideRead
from dispatcher.model.verdicts import HoldReason

WIDE_ROWS_A_LOOK: Final = 100_000
HELD_ROWS_A_LOOK: Final = 10_000
"""In windows that are full of held rows, or were not read yet. One of them may be wider."""
TOLD_OF_A_QUEUE: Final = 100
"""Held rows of a queue whose holds are kept, in equal parts for its submitters."""


class SubmitterScan:
    """Remembers the window of each submitter and its last wide read."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._pace = Pace()
        self._windows: dict[QueueSubmitter, int] = {}
        self._denied: dict[QueueSubmitter, int] = {}
        self._wide_reads: dict[QueueSubmitter, WideRead] = {}

    async def heads(
        self, index: Index, judge: Judge, queues: Sequence[str], window: int
    ) -> dict[str, tuple[Head, bool]]:
        """The head of each queue, and whether held rows may still hide other rows of the queue.

        window: how many first rows of a queue are read.
        """
        first = first_windows(await index.submitters(queues), window)
        below_cap = [key for key in first if over_submitter_cap(*key, judge.snapshot) is None]
        useful = [key for key in below_cap if key in self._wide_reads and self._wide_reads[key].is_of_use]
        paced = self._pace.in_turn(set(below_cap).difference(useful), self._wide_reads, judge.snapshot.now)
        budget, wide = Budget(useful, paced, self._denied), {*useful, *paced}
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
        """Stores each wide read and its window. Keys without a wide read keep their old values."""
        known, wide_reads, now = self._windows, self._wide_reads, judge.snapshot.now
        self._windows, self._wide_reads = {}, {}
        new = dict[QueueSubmitter, WideRead]()
        for key, head in read.items():
            if farthest[key] > first[key]:
                self._windows |= window_for(key, head, first[key])
                new[key] = WideRead(now, head.read_count, head.held)
                continue
            if key in known:
                self._windows[key] = known[key]
            if key in wide_reads and over_submitter_cap(*key, judge.snapshot) is None:
                self._wide_reads[key] = wide_reads[key]
        self._wide_reads |= new
        self._pace.charge(new, now)


def window_for(key: QueueSubmitter, head: Head, first: int) -> dict[QueueSubmitter, int]:
    """The window for the next cycle; empty: the first rows are enough.

    Rows at their submitter's cap hide no row that could be launched, because all rows after them are at the cap, too.
    """
    hiding = held_count(head) - head.held.get(HoldReason.SUBMITTER_CAP, 0)
    needed = min(hiding + first, WIDEST_WINDOW)
    return {key: needed} if needed > 2 * first else {}


class Budget:
    """The number of rows that all wide windows of one cycle may read together."""

    def __init__(
        self, useful: Iterable[QueueSubmitter], paced: Sequence[QueueSubmitter], urgent: Container[QueueSubmitter]
    ) -> None:
        """Keys whose windows are worth a read, and the other keys in their order.

        urgent: keys that the last cycle denied. They come first among the useful ones.
        """
        self.denied: dict[QueueSubmitter, int] = {}
        self._useful = sorted(useful, key=lambda key: (key not in urgent, key))
        self._paced = paced
        self._widest: QueueSubmitter | None = None
        self._left = WIDE_ROWS_A_LOOK
        self._left_held = HELD_ROWS_A_LOOK

    def grant(self, windows: Mapping[QueueSubmitter, int]) -> dict[QueueSubmitter, int]:
        """The windows that fit into the rest of the budget. The other windows are noted in `denied`."""
        useful = [key for key in self._useful if key in windows and self._takes(windows[key])]
        paced = [key for key in self._paced if key in windows and self._takes_held(key, windows[key])]
        granted = {key: windows[key] for key in (*useful, *paced)}
        self.denied |= {key: width for key, width in windows.items() if key not in granted}
        return granted

    def _takes(self, width: int) -> bool:
        if width > self._left:
            return False
        self._left -= width
        return True

    def _takes_held(self, key: QueueSubmitter, width: int) -> bool:
        """The first key of all may be as wide as it likes. The keys after the first one that does not fit wait."""
        if self._widest is None:
            self._widest = key
        if key != self._widest and width > self._left_held:
            self._left_held = 0
            return False
        self._left_held -= width
        return True


def merged(queue: str, read: Mapping[QueueSubmitter, Head], first: Mapping[QueueSubmitter, int]) -> tuple[Head, bool]:
    """The head of a queue from the heads of its submitters, and whether held rows fill the first window of one."""
    own = {key: head for key, head in read.items() if key[0] == queue}
    launchable = sorted((row for head in own.values() for row in head.launchable), key=sort_key)
    held: Counter[HoldReason] = Counter()
    for head in own.values():
        held.update(head.held)
    is_hidden = any(held_count(head) >= first[key] for key, head in own.items())
    told = [one for head in own.values() for one in head.told[: max(1, TOLD_OF_A_QUEUE // len(own))]]
    roomless = min((head.roomless for head in own.values() if head.roomless is not None), key=sort_key, default=None)
    return Head(sum(head.read_count for head in own.values()), launchable, held, told, roomless), is_hidden


def held_count(head: Head) -> int:
    """Number of rows that were read and are not launchable."""
    return head.read_count - len(head.launchable)


def first_windows(keys: Sequence[QueueSubmitter], window: int) -> dict[QueueSubmitter, int]:
    """The first window of each key: an equal part of the queue's window, at least LEAST_WINDOW rows."""
    of_queue = Counter(queue for queue, _ in keys)
    return {key: max(LEAST_WINDOW, window // of_queue[key[0]]) for key in keys}
