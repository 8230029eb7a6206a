"""Whose turn it is: priority (lower first), then id."""

from collections import deque
from collections.abc import Iterable

from dispatcher.admission.gates import Candidate
from dispatcher.model.snapshot import ClusterSnapshot


class LaunchOrder:
    """Candidates in their order. The next one is asked for after each decision, by the picture that it left."""

    def __init__(self, candidates: Iterable[Candidate], *, is_probing: bool = False) -> None:
        """While one create at a time is let through, a row whose create failed last comes last."""
        self._left = deque(sorted(candidates, key=retried_last if is_probing else turn))

    def pop(self, _: ClusterSnapshot) -> Candidate | None:
        """The next candidate; None: there is none."""
        return self._left.popleft() if self._left else None


def turn(candidate: Candidate) -> tuple[float, int, int]:
    return 0, candidate.task.priority, candidate.task.id


def retried_last(candidate: Candidate) -> tuple[float, int, int]:
    return candidate.tried_at, candidate.task.priority, candidate.task.id
