"""Whose turn it is: priority (lower first), then id."""

from collections.abc import Iterable

from dispatcher.admission.gates import Contender


def plan_order(contenders: Iterable[Contender], *, is_probing: bool = False) -> list[Contender]:
    """While one create at a time is let through, whoever failed last comes last: not the same row for ever."""
    return sorted(
        contenders,
        key=lambda contender: (contender.tried_at if is_probing else 0, contender.task.priority, contender.task.id),
    )
