"""The scan: finds the waiting rows to read in this cycle, which are the launchable rows near the head of each queue.

A queue is read in its order. If its first rows are all held, the queue is read by submitter, in the same cycle and in
the next ones, until held rows no longer hide other rows. A queue with `fair_submitters` is always read by submitter.

`ReadPace`: a held row that is read costs about 7 microseconds, and gives the same hold as before. So the held rows of
one submitter are read at a limited rate, and the held rows of all submitters at another. One cycle reads few of them.
The reads of four seconds may be made at once: a good row behind ten thousand bad rows is found in the next cycles. The
submitter whose last such read is the oldest comes first: ten thousand held rows of one team delay no other team.

`SubmitterScan`: the held rows of one submitter never hide the rows of another submitter, whatever their number.

* Each cycle reads the first rows of every submitter.
* If a submitter's first rows are held, its window becomes wider. The size is remembered, so that the next cycle reads
  as many rows at once. No position is remembered, because ids commit out of order.
* All wide windows of a cycle share a budget of rows. Submitters that get nothing come first in the next cycle.
* Windows that are full of held rows have a smaller budget, and rests in between. Otherwise ten thousand held rows of
  one submitter would slow down the cycles of all.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from itertools import chain
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from dispatcher.admission.cycle import SortedLine, between_queues, between_submitters, first_of
from dispatcher.admission.gates import RowBehind, is_behind_others, over_queue_cap, over_submitter_cap
from dispatcher.admission.heads import (
    LEAST_WINDOW,
    ROUNDS,
    WIDEST_WINDOW,
    CycleOffers,
    Head,
    HeldRow,
    Index,
    Judge,
    KnownRows,
    QueueSubmitter,
    first_window,
    grouped,
    may_hide_rows,
    queue_submitter,
    sort_key,
    take_turns,
)
from dispatcher.admission.snapshot import ClusterSnapshot, InLine
from dispatcher.model.cluster import LONG_AGO
from dispatcher.model.launches import PodKind
from dispatcher.model.tasks import IndexedRow
from dispatcher.model.verdicts import HoldReason

HELD_ROWS_A_SECOND: Final = 5_000
"""Held rows of one submitter that are read again in a second, over all queues."""
HELD_ROWS_OF_ALL_A_SECOND: Final = 10_000
"""Held rows of all submitters together that are read again in a second."""
BURST_SECONDS: Final = 4
"""The reads that the rate allows in this time may be made at once."""


class WideRead(NamedTuple):
    """The last read beyond a submitter's first rows.

    at: time of the read, by the database's clock.
    read_count: number of rows that were read.
    held: number of held rows by reason.
    at_cap: number of those that are at their submitter's cap.
    """

    at: datetime
    read_count: int
    held: Mapping[HoldReason, int]
    at_cap: int = 0

    @property
    def bad(self) -> int:
        """Number of rows that were read in vain.

        Rows that wait for their submitter's cap do not count: the next row to launch comes after them. Rows of new
        kinds do not count either: the next cycle judges them. Rows with a Job under way are not in `held`.
        """
        return sum(self.held.values()) - self.at_cap - self.held.get(HoldReason.NEXT_CYCLE, 0)

    @property
    def is_of_use(self) -> bool:
        """Whether most of the rows were not read in vain, as in a burst with a few bad rows."""
        return 2 * self.bad <= self.read_count


class ReadDebt(NamedTuple):
    """A rate limiter of reads. `at`: time of the last read. `paid_at`: when the rate has paid for all reads."""

    at: datetime
    paid_at: datetime


class ReadPace:
    """Tells whose held rows may be read again in a cycle, and in which order."""

    def __init__(self) -> None:
        self._of_all: ReadDebt | None = None
        self._of: dict[str, ReadDebt] = {}

    def in_turn(
        self, keys: Iterable[QueueSubmitter], last: Mapping[QueueSubmitter, WideRead], now: datetime
    ) -> list[QueueSubmitter]:
        """The keys that may be read now. The submitter whose last wide read is the oldest comes first.

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


def left(debt: ReadDebt | None, now: datetime) -> float:
    """Seconds until the rate has paid. 0 before `at`: then the database's clock was set back."""
    return max(0.0, (debt.paid_at - now).total_seconds()) if debt is not None and debt.at <= now else 0.0


def longer(debt: ReadDebt | None, now: datetime, seconds: float) -> ReadDebt:
    """The debt with `seconds` more."""
    return ReadDebt(now, now + timedelta(seconds=left(debt, now) + seconds))


WIDE_ROWS_A_LOOK: Final = 100_000
"""Rows of all wide windows of one cycle, at most."""
HELD_ROWS_A_LOOK: Final = 10_000
"""Rows of windows that are full of held rows or were not read yet, in one cycle. One of them may be wider."""
TOLD_OF_A_QUEUE: Final = 100
"""Held rows of a queue whose holds are kept, at most. Its submitters have equal parts."""


class SubmitterScan:
    """Remembers the window of each submitter and its last wide read."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._pace = ReadPace()
        self._windows: dict[QueueSubmitter, int] = {}
        self._denied: dict[QueueSubmitter, int] = {}
        self._wide_reads: dict[QueueSubmitter, WideRead] = {}

    async def heads(
        self, index: Index, judge: Judge, queues: Sequence[str], window: int
    ) -> dict[str, tuple[Head, bool]]:
        """The head of each queue, and whether held rows may still hide other rows of the queue.

        window: number of first rows of a queue that are read.
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
        rows = grouped(await index.indexed_rows_of(judge.windows(windows)), queue_submitter) if windows else {}
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
                # Rows at their submitter's cap hide no row that could be launched: all rows after them are at it, too.
                needed = min(held_count(head) - head.at_cap + first[key], WIDEST_WINDOW)
                if needed > 2 * first[key]:
                    self._windows[key] = needed
                new[key] = WideRead(now, head.read_count, head.held, head.at_cap)
                continue
            if key in known:
                self._windows[key] = known[key]
            if key in wide_reads and over_submitter_cap(*key, judge.snapshot) is None:
                self._wide_reads[key] = wide_reads[key]
        self._wide_reads |= new
        self._pace.charge(new, now)


class Budget:
    """The number of rows that all wide windows of one cycle may read together."""

    def __init__(
        self, useful: Iterable[QueueSubmitter], paced: Sequence[QueueSubmitter], urgent: Container[QueueSubmitter]
    ) -> None:
        """`useful`: keys whose last wide read was not in vain. `paced`: the other keys, in their order.

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
        """The first key may exceed the budget. After the first key that does not fit, no other key is granted."""
        if self._widest is None:
            self._widest = key
        if key != self._widest and width > self._left_held:
            self._left_held = 0
            return False
        self._left_held -= width
        return True


def merged(queue: str, read: Mapping[QueueSubmitter, Head], first: Mapping[QueueSubmitter, int]) -> tuple[Head, bool]:
    """The head of a queue from those of its submitters, and whether held rows fill the first window of one of them."""
    own = {key: head for key, head in read.items() if key[0] == queue}
    launchable = sorted((row for head in own.values() for row in head.launchable), key=sort_key)
    held: Counter[HoldReason] = Counter()
    for head in own.values():
        held.update(head.held)
    is_hidden = any(held_count(head) >= first[key] for key, head in own.items())
    told = [one for head in own.values() for one in head.told[: max(1, TOLD_OF_A_QUEUE // len(own))]]
    roomless = min((head.roomless for head in own.values() if head.roomless is not None), key=sort_key, default=None)
    only_wait = sorted((row for head in own.values() for row in head.only_wait), key=sort_key)
    read_count = sum(head.read_count for head in own.values())
    return Head(read_count, launchable, held, told, roomless, only_wait), is_hidden


def held_count(head: Head) -> int:
    """Number of rows that were read and are held."""
    return head.read_count - len(head.launchable)


def first_windows(keys: Sequence[QueueSubmitter], window: int) -> dict[QueueSubmitter, int]:
    """The first window of each key: an equal part of the queue's window, at least LEAST_WINDOW rows."""
    of_queue = Counter(queue for queue, _ in keys)
    return {key: max(LEAST_WINDOW, window // of_queue[key[0]]) for key in keys}


class ScanResult(Struct, frozen=True):
    """The result of one scan.

    ids: rows to read, best first.
    held: number of held rows by queue and reason.
    told: the first held rows of each queue, each with its hold.
    roomless: the first row of each queue that waits for room, with its Pod.
    wanting: kinds of Pods that find no place to wait as demand.
    unread: queues that were not read, because they are paused or at their cap.
    whole: queues of which all due rows were read, and are held or in `ids`.
    behind: the first row of each submitter whose shape already has its allowed number of waiting Pods.
    """

    ids: Sequence[int]
    held: Counter[tuple[str, HoldReason]]
    told: Sequence[HeldRow] = ()
    roomless: Mapping[int, PodKind] = {}
    wanting: Sequence[PodKind] = ()
    unread: Set[str] = frozenset()
    whole: Set[str] = frozenset()
    behind: Sequence[RowBehind] = ()


class Scan:
    """Scans the indexes. Between cycles it remembers which queues are read by submitter.

    in_line: the rows that wait for room after the last scan.
    """

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._by_submitter = SubmitterScan(wanted)
        self._hidden: frozenset[str] = frozenset()
        self.in_line = InLine()

    async def run(self, index: Index, offers: CycleOffers, snapshot: ClusterSnapshot, known: KnownRows) -> ScanResult:
        judge = Judge(offers, snapshot, known)
        snapshot = judge.snapshot
        queues = open_queues(snapshot)
        apart = {queue for queue in queues if queue in self._hidden or snapshot.queue(queue).fair_submitters}
        window = first_window(len(queues))
        heads = await self._in_order(index, judge, [queue for queue in queues if queue not in apart], window)
        hidden = [queue for queue in queues if queue in apart or may_hide_rows(heads[queue], window, self._wanted)]
        by_submitter = await self._by_submitter.heads(index, judge, hidden, window) if hidden else {}
        self._hidden = frozenset(queue for queue, (_, is_hidden) in by_submitter.items() if is_hidden)
        heads |= {queue: head for queue, (head, _) in by_submitter.items()}
        held = {(queue, reason): n for queue, head in heads.items() for reason, n in head.held.items()}
        fitting = {queue: self._fitting(queue, head.launchable, judge) for queue, head in heads.items()}
        later = {queue: self._fitting(queue, head.only_wait, judge) for queue, head in heads.items() if head.only_wait}
        roomless = {row.id: judge.pod_of(row) for head in heads.values() if (row := head.roomless) is not None}
        told = tuple(one for head in heads.values() for one in head.told[: judge.told_of_a_queue])
        ids = list(dict.fromkeys((*self._choose(fitting, judge), *self._choose(later, judge))))[: 2 * self._wanted]
        chosen = set(ids)
        whole = {
            queue for queue, head in heads.items() if queue not in by_submitter and head.read_count < window
            and chosen.issuperset(row.id for row in (*head.launchable, *head.only_wait))
        }  # fmt: skip
        unread = snapshot.queues.keys() - queues
        behind = [row for own in judge.behind.values() for row in own]
        further = [pod for own in judge.further.values() for pod in own]
        self.in_line = rows_in_line(judge.in_line, further, self.in_line, snapshot)
        return ScanResult(ids, Counter(held), told, roomless, list(judge.wanting.values()), unread, whole, behind)

    def _choose(self, fitting: Mapping[str, Sequence[IndexedRow]], judge: Judge) -> list[int]:
        """Half of the rows by fair shares, the other half in turns, so that no queue hides another."""
        lines = {queue: SortedLine(rows) for queue, rows in fitting.items()}
        line = between_queues(lines, judge.snapshot.queue, sort_key)
        fair = first_of(line, judge.pod_of, judge.snapshot.shares, self._wanted)
        return list(dict.fromkeys(row.id for row in (*fair, *take_turns(fitting.values()))))[: 2 * self._wanted]

    async def _in_order(self, index: Index, judge: Judge, queues: Sequence[str], window: int) -> dict[str, Head]:
        windows = judge.windows_of_queues(queues, window)
        rows = grouped(await index.indexed_rows(windows), lambda row: row.queue) if windows else {}
        await judge.learn(index, rows.values())
        return {queue: judge.head(rows.get(queue, ())) for queue in queues}

    def _fitting(self, name: str, launchable: Sequence[IndexedRow], judge: Judge) -> Sequence[IndexedRow]:
        """As many rows as the queue's cap allows, at most. More of them would take the places of other queues' rows."""
        snapshot = judge.snapshot
        queue = snapshot.queue(name)
        left = self._wanted if queue.max_jobs is None else queue.max_jobs - snapshot.load.by_queue.get(name, 0)
        most = min(self._wanted, left)
        if not queue.fair_submitters:
            return launchable[:most]
        line = between_submitters(name, launchable, judge.pod_of, sort_key)
        return first_of(line, judge.pod_of, snapshot.shares, most)


def rows_in_line(
    found: Mapping[QueueSubmitter, Sequence[PodKind]], further: Sequence[PodKind], before: InLine,
    snapshot: ClusterSnapshot,
) -> InLine:  # fmt: skip
    """The rows in line after a scan.

    found: the first kinds of Pods without room of each submitter.
    further: kinds of Pods of which not all rows may have room.
    """
    rows = [snapshot.row_in_line(pod) for pod in (*chain.from_iterable(found.values()), *further)]
    demand, waiting = snapshot.waiting.demand, snapshot.waiting.every
    asking = defaultdict[QueueSubmitter, set[str]](set)
    for pod in waiting:
        if not demand.is_answered(pod.shape):
            asking[pod.queue, pod.submitted_by].add(pod.shape)
    begun = {key for key, shapes in asking.items() if shapes - before.asking.get(key, set())}
    rows.sort(key=lambda one: snapshot.shares.of_queue(one.pod.queue) / snapshot.queue(one.pod.queue).weight)
    line = InLine(rows, asking=asking)  # those with least first: most comparisons end with the first row
    now, room = msgspec.structs.replace(snapshot, in_line=line), snapshot.room
    behind = {key for key, own in found.items() if own and room is not None and is_behind_others(own[0], room, now)}
    since = {key: now.now if key in begun else before.since.get(key, now.now) for key in behind}
    return msgspec.structs.replace(line, since=since)


def open_queues(snapshot: ClusterSnapshot) -> list[str]:
    """Names of queues that are not paused and not at their cap."""
    return [
        queue.name
        for queue in snapshot.queues.values()
        if not queue.pause_at(snapshot.now) and not over_queue_cap(queue.name, snapshot)
    ]
