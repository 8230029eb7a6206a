"""The order of launches: fair between queues, then by priority (lower first), then by id.

The queue with the fewest Jobs in flight for its weight comes first. In a queue with `fair_submitters`, so does the
submitter with the fewest Jobs in flight. Each admission changes these numbers, so the order is decided anew after it
(as in kueue's fair sharing).
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from dispatcher.admission.gates import Candidate
from dispatcher.admission.heads import QueueSubmitter
from dispatcher.admission.snapshot import ClusterSnapshot, Load
from dispatcher.model.tasks import Queue

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Rank = tuple[int, int]
"""(priority, id)."""


class Line(Protocol[T_co]):
    """Rows of which only the first may move."""

    def first(self, load: Load) -> T_co | None: ...
    def pop(self, load: Load) -> T_co: ...


class Sorted(Generic[T]):
    """Rows in a fixed order."""

    def __init__(self, rows: Iterable[T]) -> None:
        self._rows = deque(rows)

    def first(self, _: Load) -> T | None:
        return self._rows[0] if self._rows else None

    def pop(self, _: Load) -> T:
        return self._rows.popleft()


class Fair(Generic[T]):
    """Several lines. The line with the least share is first; of equal shares, the line whose first row ranks best."""

    def __init__(
        self, lines: Mapping[str, Line[T]], share: Callable[[str, Load], float], rank: Callable[[T], Rank]
    ) -> None:
        self._lines = lines
        self._share = share
        self._rank = rank
        self._heap: list[tuple[float, Rank, str]] = []
        self._moved = list(lines)
        """Lines that are not in the heap. The share of the line that moved last may have changed."""

    def first(self, load: Load) -> T | None:
        self._settle(load)
        return self._lines[self._heap[0][2]].first(load) if self._heap else None

    def pop(self, load: Load) -> T:
        self._settle(load)
        *_, name = heapq.heappop(self._heap)
        self._moved.append(name)
        return self._lines[name].pop(load)

    def _settle(self, load: Load) -> None:
        for name in self._moved:
            if (first := self._lines[name].first(load)) is not None:
                heapq.heappush(self._heap, (self._share(name, load), self._rank(first), name))
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
        return self._line.pop(snapshot.load) if self._line.first(snapshot.load) is not None else None


def between_queues(lines: Mapping[str, Line[T]], queue: Callable[[str], Queue], rank: Callable[[T], Rank]) -> Fair[T]:
    """Fair between queues by their weights. `lines`: the rows of each queue."""
    return Fair(lines, lambda name, load: load.by_queue.get(name, 0) / queue(name).weight, rank)


def between_submitters(
    queue: str, ordered: Iterable[T], of: Callable[[T], QueueSubmitter], rank: Callable[[T], Rank]
) -> Fair[T]:
    """Fair between the submitters of one queue. `of`: a row's queue and submitter."""
    lines = {who: Sorted(own) for who, own in split(ordered, lambda row: of(row)[1]).items()}
    return Fair(lines, lambda who, load: load.by_submitter.get((queue, who), 0), rank)


def split(rows: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def first_of(line: Line[T], of: Callable[[T], QueueSubmitter], load: Load, most: int) -> list[T]:
    """The rows that come first if every one of them is launched."""
    by_queue, by_submitter = Counter(load.by_queue), Counter(load.by_submitter)
    then = Load(load.total, by_queue, by_submitter)  # one copy that grows, because a scan takes hundreds of rows
    found: list[T] = []
    while len(found) < most and line.first(then) is not None:
        row = line.pop(then)
        by_queue[of(row)[0]] += 1
        by_submitter[of(row)] += 1
        found.append(row)
    return found


def line_of(name: str, ordered: Sequence[Candidate], queue: Queue) -> Line[Candidate]:
    return between_submitters(name, ordered, row_of, rank_of) if queue.fair_submitters else Sorted(ordered)


def row_of(candidate: Candidate) -> QueueSubmitter:
    return candidate.task.queue, candidate.task.submitted_by


def rank_of(candidate: Candidate) -> Rank:
    return candidate.task.priority, candidate.task.id


def retried_last(candidate: Candidate) -> tuple[float, int, int]:
    return candidate.tried_at, candidate.task.priority, candidate.task.id
