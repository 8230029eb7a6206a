"""The order of launches: fair between queues, then by priority (lower first), then by id.

The queue with the least share of the cluster for its weight comes first (`shares`). In a queue with `fair_submitters`,
so does the submitter with the least share. Each admission changes the shares, so the order is decided anew after it (as
in kueue's fair sharing).
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from dispatcher.admission.gates import Candidate
from dispatcher.admission.shares import GrowingShares, Shares
from dispatcher.admission.snapshot import ClusterSnapshot
from dispatcher.model.launches import PodKind
from dispatcher.model.tasks import Queue

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Rank = tuple[int, int]
"""(priority, id)."""


class Line(Protocol[T_co]):
    """Rows of which only the first may move."""

    def first(self, shares: Shares) -> T_co | None: ...
    def pop(self, shares: Shares) -> T_co: ...


class Sorted(Generic[T]):
    """Rows in a fixed order."""

    def __init__(self, rows: Iterable[T]) -> None:
        self._rows = deque(rows)

    def first(self, _: Shares) -> T | None:
        return self._rows[0] if self._rows else None

    def pop(self, _: Shares) -> T:
        return self._rows.popleft()


class Fair(Generic[T]):
    """Several lines. The line with the least share is first; of equal shares, the line whose first row ranks best."""

    def __init__(
        self, lines: Mapping[str, Line[T]], share: Callable[[str, Shares], float], rank: Callable[[T], Rank]
    ) -> None:
        self._lines = lines
        self._share = share
        self._rank = rank
        self._heap: list[tuple[float, Rank, str]] = []
        self._moved = list(lines)
        """Lines that are not in the heap. The share of the line that moved last may have changed."""

    def first(self, shares: Shares) -> T | None:
        self._settle(shares)
        return self._lines[self._heap[0][2]].first(shares) if self._heap else None

    def pop(self, shares: Shares) -> T:
        self._settle(shares)
        *_, name = heapq.heappop(self._heap)
        self._moved.append(name)
        return self._lines[name].pop(shares)

    def _settle(self, shares: Shares) -> None:
        for name in self._moved:
            if (first := self._lines[name].first(shares)) is not None:
                heapq.heappush(self._heap, (self._share(name, shares), self._rank(first), name))
        self._moved.clear()


class LaunchOrder:
    """Candidates in their order. `pop` gives the next one, after the decision about the one before."""

    def __init__(self, candidates: Iterable[Candidate], snapshot: ClusterSnapshot) -> None:
        """While one create at a time is sent, the row with the latest failed create comes last."""
        rows = list(candidates)
        self._line: Line[Candidate]
        if snapshot.is_probing:
            self._line = Sorted(sorted(rows, key=retried_last))
        else:
            queues = split(sorted(rows, key=rank_of), lambda row: row.task.queue)
            lines = {name: line_of(name, own, snapshot.queue(name)) for name, own in queues.items()}
            self._line = between_queues(lines, snapshot.queue, rank_of)

    def pop(self, snapshot: ClusterSnapshot) -> Candidate | None:
        """The next candidate; None: no candidate is left."""
        return self._line.pop(snapshot.shares) if self._line.first(snapshot.shares) is not None else None


def between_queues(lines: Mapping[str, Line[T]], queue: Callable[[str], Queue], rank: Callable[[T], Rank]) -> Fair[T]:
    """Fair between queues by their weights. `lines`: the rows of each queue."""
    return Fair(lines, lambda name, shares: shares.of_queue(name) / queue(name).weight, rank)


def between_submitters(
    queue: str, ordered: Iterable[T], pod_of: Callable[[T], PodKind], rank: Callable[[T], Rank]
) -> Fair[T]:
    """Fair between the submitters of one queue. `pod_of`: the Pod that a row's launch would have."""
    lines = {who: Sorted(own) for who, own in split(ordered, lambda row: pod_of(row).submitted_by).items()}
    return Fair(lines, lambda who, shares: shares.of_submitter(queue, who), rank)


def split(rows: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def first_of(line: Line[T], pod_of: Callable[[T], PodKind], shares: Shares, most: int) -> list[T]:
    """The rows that come first if every one of them is launched."""
    growing, found = GrowingShares(shares), list[T]()
    while len(found) < most and line.first(growing.shares) is not None:
        found.append(line.pop(growing.shares))
        growing.add(pod_of(found[-1]))
    return found


def line_of(name: str, ordered: Sequence[Candidate], queue: Queue) -> Line[Candidate]:
    return between_submitters(name, ordered, pod_of, rank_of) if queue.fair_submitters else Sorted(ordered)


def pod_of(candidate: Candidate) -> PodKind:
    return candidate.pod


def rank_of(candidate: Candidate) -> Rank:
    return candidate.task.priority, candidate.task.id


def retried_last(candidate: Candidate) -> tuple[float, int, int]:
    return candidate.tried_at, candidate.task.priority, candidate.task.id
