"""Finds the waiting rows to read in this cycle: the launchable rows near the head of each queue.

A queue is read in its order. If its first rows are all held, the queue is read by submitter (`by_submitter`), in the
same cycle and in the next ones, until held rows no longer hide other rows. A queue with `fair_submitters` is always
read by submitter.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from dispatcher.admission.by_submitter import SubmitterScan
from dispatcher.admission.gates import is_paused, over_queue_cap
from dispatcher.admission.heads import (
    FIRST_WINDOW,
    Head,
    Index,
    Judge,
    Offers,
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
    roomless: the first row of each queue that waits for room, with its Pod.
    """

    ids: Sequence[int]
    held: Counter[tuple[str, HoldReason]]
    roomless: Mapping[int, PodKind] = {}


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
        heads = await self._in_order(index, judge, [queue for queue in queues if queue not in apart])
        hidden = [queue for queue in queues if queue in apart or self._is_hidden(heads[queue])]
        by_submitter = await self._by_submitter.heads(index, judge, hidden) if hidden else {}
        self._hidden = frozenset(queue for queue, (_, is_hidden) in by_submitter.items() if is_hidden)
        heads |= {queue: head for queue, (head, _) in by_submitter.items()}
        held = {(queue, reason): n for queue, head in heads.items() for reason, n in head.held.items()}
        fitting = {queue: self._fitting(queue, head.launchable, judge) for queue, head in heads.items()}
        roomless = {row.id: judge.pod_of(row) for head in heads.values() if (row := head.roomless) is not None}
        return Found(self._choose(fitting, judge), Counter(held), roomless)

    def _choose(self, fitting: Mapping[str, Sequence[IndexedRow]], judge: Judge) -> list[int]:
        """Half of the rows by fair shares, the other half in turns: rows that cannot be launched hide no queue."""
        lines = {queue: Sorted(rows) for queue, rows in fitting.items()}
        line = between_queues(lines, judge.snapshot.queue, sort_key)
        fair = first_of(line, judge.pod_of, judge.snapshot.shares, self._wanted)
        return list(dict.fromkeys(row.id for row in (*fair, *take_turns(fitting.values()))))[: 2 * self._wanted]

    async def _in_order(self, index: Index, judge: Judge, queues: Sequence[str]) -> dict[str, Head]:
        windows = dict.fromkeys(queues, FIRST_WINDOW)
        rows = grouped(await index.indexed_rows(windows), queue_of) if windows else {}
        await judge.learn(index, rows.values())
        return {queue: judge.head(rows.get(queue, ())) for queue in queues}

    def _is_hidden(self, head: Head) -> bool:
        return may_hide_rows(head, FIRST_WINDOW, self._wanted)

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


def open_queues(snapshot: ClusterSnapshot) -> list[str]:
    """Names of queues that are not paused and not at their cap."""
    return [
        queue.name
        for queue in snapshot.queues.values()
        if not is_paused(queue.paused_until, snapshot.now) and not over_queue_cap(queue.name, snapshot)
    ]
