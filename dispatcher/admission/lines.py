"""Reads a queue by submitter, where its first rows are all held: nobody's rows hide anybody else's, however many.

Every submitter's first rows are read in each look. A submitter's window is widened where its own rows are held, and
its size is remembered, so that the next look asks for as much straight away. No position is remembered: ids commit out
of order. What all wide windows of a look may read together is bounded; those that
get nothing come first in the next look.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Final

from dispatcher.admission.heads import (
    FIRST_WINDOW,
    ROUNDS,
    WIDEST_WINDOW,
    Head,
    Index,
    Judge,
    Line,
    grouped,
    is_at_cap,
    is_hiding,
    line_of,
    turn,
)
from dispatcher.model import HoldReason

LEAST_WINDOW: Final = 20
WIDE_ROWS_A_LOOK: Final = 100_000


class Lines:
    """Remembers how far each submitter's rows have to be looked at."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._windows: dict[Line, int] = {}
        self._denied: dict[Line, int] = {}

    async def heads(self, index: Index, judge: Judge, queues: Sequence[str]) -> dict[str, tuple[Head, bool]]:
        """The head of each queue, and whether held rows still hide others there."""
        first = first_windows(await index.submitters(queues))
        budget = Budget(WIDE_ROWS_A_LOOK, self._denied)
        windows = first | budget.grant({line: self._windows[line] for line in first if line in self._windows})
        read: dict[Line, Head] = {}
        for _ in range(ROUNDS):
            read |= await self._read(index, judge, windows)
            windows = budget.grant(self._wider(windows, read, judge))
            if not windows:
                break
        self._denied = budget.denied
        self._windows = remembered(read, first) | self._denied
        return {queue: merged(queue, read, first) for queue in queues}

    async def _read(self, index: Index, judge: Judge, windows: Mapping[Line, int]) -> dict[Line, Head]:
        rows = grouped(await index.candidates_of(windows), line_of) if windows else {}
        await judge.learn(index, rows.values())
        return {line: judge.head(rows.get(line, ())) for line in windows}

    def _wider(self, windows: Mapping[Line, int], read: Mapping[Line, Head], judge: Judge) -> dict[Line, int]:
        """Submitters whose own rows are held, to be looked at further. A submitter at its cap has nothing to find."""
        return {
            line: min(window * 8, WIDEST_WINDOW) for line, window in windows.items()
            if window < WIDEST_WINDOW and is_hiding(read[line], window, self._wanted)
            and is_at_cap(*line, judge.snapshot) is None
        }  # fmt: skip


class Budget:
    """What the wide windows of one look may read together."""

    def __init__(self, rows: int, urgent: Container[Line]) -> None:
        """`urgent`: those that were denied in the look before; they come first."""
        self.denied: dict[Line, int] = {}
        self._left = rows
        self._urgent = urgent

    def grant(self, windows: Mapping[Line, int]) -> dict[Line, int]:
        """As many of the windows as there are rows left to read."""
        granted: dict[Line, int] = {}
        for line in sorted(windows, key=lambda line: (line not in self._urgent, line)):
            if windows[line] <= self._left:
                granted[line] = windows[line]
                self._left -= windows[line]
            else:
                self.denied[line] = windows[line]
        return granted


def remembered(read: Mapping[Line, Head], first: Mapping[Line, int]) -> dict[Line, int]:
    """What to ask for straight away in the next look, of submitters whose first rows are not enough."""
    needed = {line: len_held(head) + first[line] for line, head in read.items()}
    return {line: min(rows, WIDEST_WINDOW) for line, rows in needed.items() if rows > 2 * first[line]}


def merged(queue: str, read: Mapping[Line, Head], first: Mapping[Line, int]) -> tuple[Head, bool]:
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


def first_windows(lines: Sequence[Line]) -> dict[Line, int]:
    """As many rows of a queue as without its submitters, in equal parts, and a few of each at least."""
    of_queue = Counter(queue for queue, _ in lines)
    return {line: max(LEAST_WINDOW, FIRST_WINDOW // of_queue[line[0]]) for line in lines}
