"""Finds the waiting rows to read in this cycle: the launchable rows near the head of each queue.

A queue is read in its order. If its first rows are all held, the queue is read by submitter (`by_submitter`), in the
same cycle and in the next ones, until held rows no longer hide other rows. A queue with `fair_submitters` is always
read by submitter.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set

from msgspec import Struct

from dispatcher.admission.by_submitter import SubmitterScan
from dispatcher.admission.gates import is_paused, over_queue_cap
from dispatcher.admission.heads import (
    Head,
    HeldRow,
    Index,
    Judge,
    Offers,
    first_window,
    grouped,
    may_hide_rows,
    queue_of,
    sort_key,
    take_turns,
)
from dispatcher.admission.order import Sorted, between_queues, between_submitters, first_of
from dispatcher.admission.snapshot import ClusterSnapshot
from dispatcher.model.launches import PodKind
from dispatcher.model.tasks import IndexedRow
from dispatcher.model.verdicts import HoldReason


class Found(Struct, frozen=True):
    """The result of one scan.

    ids: rows to read, best first.
    held: number of held rows by queue and reason.
    told: the first held rows of each queue, each with its hold.
    roomless: the first row of each queue that waits for room, with its Pod.
    unread: queues that were not read, because they are paused or at their cap.
    whole: queues of which all due rows were read, and are held or in `ids`.
    """

    ids: Sequence[int]
    held: Counter[tuple[str, HoldReason]]
    told: Sequence[HeldRow] = ()
    roomless: Mapping[int, PodKind] = {}
    unread: Set[str] = frozenset()
    whole: Set[str] = frozenset()


class Scan:
    """Scans the indexes. Between cycles it remembers which queues are read by submitter."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._by_submitter = SubmitterScan(wanted)
        self._hidden: frozenset[str] = frozenset()

    async def run(self, index: Index, offers: Offers, snapshot: ClusterSnapshot, known: Mapping[int, int]) -> Found:
        """`known`: attempts of the rows that are judged in any case, or need not be judged."""
        judge = Judge(offers, snapshot, known)
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
        roomless = {row.id: judge.pod_of(row) for head in heads.values() if (row := head.roomless) is not None}
        told = tuple(one for head in heads.values() for one in head.told[: judge.told_of_a_queue])
        ids = self._choose(fitting, judge)
        in_order = {queue: head for queue, head in heads.items() if queue not in by_submitter}
        whole = {queue for queue, head in in_order.items() if head.read_count < window and is_chosen(head, set(ids))}
        return Found(ids, Counter(held), told, roomless, snapshot.queues.keys() - queues, whole)

    def _choose(self, fitting: Mapping[str, Sequence[IndexedRow]], judge: Judge) -> list[int]:
        """Half of the rows by fair shares, the other half in turns: rows that cannot be launched hide no queue."""
        lines = {queue: Sorted(rows) for queue, rows in fitting.items()}
        line = between_queues(lines, judge.snapshot.queue, sort_key)
        fair = first_of(line, judge.pod_of, judge.snapshot.shares, self._wanted)
        return list(dict.fromkeys(row.id for row in (*fair, *take_turns(fitting.values()))))[: 2 * self._wanted]

    async def _in_order(self, index: Index, judge: Judge, queues: Sequence[str], window: int) -> dict[str, Head]:
        windows = dict.fromkeys(queues, window)
        rows = grouped(await index.indexed_rows(windows), queue_of) if windows else {}
        await judge.learn(index, rows.values())
        return {queue: judge.head(rows.get(queue, ())) for queue in queues}

    def _fitting(self, name: str, launchable: Sequence[IndexedRow], judge: Judge) -> Sequence[IndexedRow]:
        """At most as many rows as the queue's cap allows. More would take the places of other queues' rows."""
        snapshot = judge.snapshot
        queue = snapshot.queue(name)
        left = self._wanted if queue.max_jobs is None else queue.max_jobs - snapshot.load.by_queue.get(name, 0)
        most = min(self._wanted, left)
        if not queue.fair_submitters:
            return launchable[:most]
        line = between_submitters(name, launchable, judge.pod_of, sort_key)
        return first_of(line, judge.pod_of, snapshot.shares, most)


def is_chosen(head: Head, ids: Set[int]) -> bool:
    """Whether all rows that may be launched are among those to read."""
    return all(row.id in ids for row in head.launchable)


def open_queues(snapshot: ClusterSnapshot) -> list[str]:
    """Names of queues that are not paused and not at their cap."""
    return [
        queue.name
        for queue in snapshot.queues.values()
        if not is_paused(queue.paused_until, snapshot.now) and not over_queue_cap(queue.name, snapshot)
    ]
