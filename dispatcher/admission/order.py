"""Whose turn it is: priority (lower first), then id."""

from collections.abc import Iterable

from dispatcher.admission.gates import Candidate


def plan_order(candidates: Iterable[Candidate], *, is_probing: bool = False) -> list[Candidate]:
    """While one create at a time is let through, whoever failed last comes last: not the same row for ever."""
    return sorted(
        candidates,
        key=lambda candidate: (candidate.tried_at if is_probing else 0, candidate.task.priority, candidate.task.id),
    )
