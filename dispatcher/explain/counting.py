"""Counts every waiting row once, under one reason. Pure.

A cycle judges the first rows of each queue. The rows behind them wait for what their whole queue waits for, or for
their turn.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from dispatcher.admission.gates import holds_of_queue
from dispatcher.admission.last_cycle import LastCycle, QueueReason
from dispatcher.admission.snapshot import ClusterSnapshot
from dispatcher.model.tasks import QueueCount
from dispatcher.model.verdicts import Hold, HoldReason


def count_reasons(counts: Iterable[QueueCount], cycle: LastCycle) -> Mapping[QueueReason, int]:
    """Number of waiting rows by queue and reason. Their sum is the number of waiting rows, if no row moved since."""
    judged: dict[str, dict[HoldReason, int]] = defaultdict(dict)
    for (queue, reason), number in cycle.held.items():
        judged[queue][reason] = number
    told = ((count.queue, of_queue(count, judged[count.queue], cycle)) for count in counts)
    return {(queue, reason): number for queue, reasons in told for reason, number in reasons if number > 0}


def of_queue(count: QueueCount, held: Mapping[HoldReason, int], cycle: LastCycle) -> Iterator[tuple[HoldReason, int]]:
    """The reasons of one queue.

    A count may be older than the cycle. So it adds nothing to a queue of which the cycle has judged every due row. Rows
    that are not due are counted in the database alone.
    """
    judged = Counter[HoldReason](held)
    del judged[HoldReason.NOT_DUE]
    if count.queue not in cycle.whole:
        judged[reason_of_rest(count.queue, cycle.snapshot)] += max(0, count.due - judged.total())
    yield from judged.items()
    yield HoldReason.NOT_DUE, max(0, count.not_due - max(0, judged.total() - count.due))


def reason_of_rest(queue: str, snapshot: ClusterSnapshot) -> HoldReason:
    """Why the due rows that the cycle did not judge wait."""
    rest = rest_hold(queue, snapshot)
    return rest.reason if rest else HoldReason.IN_LINE


def rest_hold(queue: str, snapshot: ClusterSnapshot) -> Hold | None:
    """The hold of the rows that the cycle did not judge. None: they wait for their turn.

    A cycle reads no rows of a paused queue or of one at its cap.
    """
    return next(holds_of_queue(queue, snapshot), None)
