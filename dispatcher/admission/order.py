"""The order of launches: by priority (lower first), then by id."""

from collections import deque
from collections.abc import Iterable

from dispatcher.admission.gates import Candidate
from dispatcher.model.snapshot import ClusterSnapshot


class LaunchOrder:
    """Candidates in their order. `pop` gives the next one, after the decision about the one before."""

    def __init__(self, candidates: Iterable[Candidate], *, is_probing: bool = False) -> None:
        """`is_probing`: one create at a time is sent, so the row with the latest failed create comes last."""
        self._left = deque(sorted(candidates, key=retried_last if is_probing else sort_key))

    def pop(self, _: ClusterSnapshot) -> Candidate | None:
        """The next candidate; None: no candidate is left."""
        return self._left.popleft() if self._left else None


def sort_key(candidate: Candidate) -> tuple[float, int, int]:
    return 0, candidate.task.priority, candidate.task.id


def retried_last(candidate: Candidate) -> tuple[float, int, int]:
    return candidate.tried_at, candidate.task.priority, candidate.task.id
