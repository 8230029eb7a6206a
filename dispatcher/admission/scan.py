"""Finds the waiting rows worth reading: the head of each queue, and, where that is held, what stands behind it.

A queue is read in its order. Where its first rows are all held, it is read by submitter (`lines`), in the same look and
in those that follow, until they are held no more.
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
    is_hiding,
    queue_of,
    take_turns,
)
from dispatcher.model.snapshot import ClusterSnapshot
from dispatcher.model.tasks import IndexedRow
from dispatcher.model.verdicts import HoldReason


class Found(Struct, frozen=True):
    """Rows worth reading in this cycle, and how many others were passed over, by (queue, reason)."""

    ids: Sequence[int]
    held: Counter[tuple[str, HoldReason]]


class Scan:
    """Remembers which queues are read by submitter."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._by_submitter = SubmitterScan(wanted)
        self._hidden: frozenset[str] = frozenset()

    async def run(self, index: Index, offers: Offers, snapshot: ClusterSnapshot, known: Mapping[int, int]) -> Found:
        """`known`: attempts of the rows that are judged in any case, or need not be judged."""
        judge = Judge(offers, snapshot, known)
        queues = open_queues(snapshot)
        heads = await self._in_order(index, judge, [queue for queue in queues if queue not in self._hidden])
        hidden = [queue for queue in queues if queue in self._hidden or self._is_hidden(heads[queue])]
        by_submitter = await self._by_submitter.heads(index, judge, hidden) if hidden else {}
        self._hidden = frozenset(queue for queue, (_, is_hidden) in by_submitter.items() if is_hidden)
        heads |= {queue: head for queue, (head, _) in by_submitter.items()}
        chosen = take_turns([self._fitting(queue, head.able, snapshot) for queue, head in heads.items()])
        held = {(queue, reason): n for queue, head in heads.items() for reason, n in head.held.items()}
        return Found([row.id for row in chosen[: 2 * self._wanted]], Counter(held))

    async def _in_order(self, index: Index, judge: Judge, queues: Sequence[str]) -> dict[str, Head]:
        windows = dict.fromkeys(queues, FIRST_WINDOW)
        rows = grouped(await index.indexed_rows(windows), queue_of) if windows else {}
        await judge.learn(index, rows.values())
        return {queue: judge.head(rows.get(queue, ())) for queue in queues}

    def _is_hidden(self, head: Head) -> bool:
        return is_hiding(head, FIRST_WINDOW, self._wanted)

    def _fitting(self, name: str, able: Sequence[IndexedRow], snapshot: ClusterSnapshot) -> Sequence[IndexedRow]:
        """No more than the queue's cap leaves, or its rows would keep those of others from being read."""
        queue = snapshot.queue(name)
        left = self._wanted if queue.max_jobs is None else queue.max_jobs - snapshot.load.by_queue.get(name, 0)
        return able[: min(self._wanted, left)]


def open_queues(snapshot: ClusterSnapshot) -> list[str]:
    """Queues that could launch something now."""
    return [
        queue.name
        for queue in snapshot.queues.values()
        if not is_paused(queue.paused_until, snapshot.now) and not over_queue_cap(queue.name, snapshot)
    ]
