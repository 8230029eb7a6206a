"""Whose turn it is: priority (lower first), then id."""

from collections.abc import Iterable

from dispatcher.admission.gates import Contender


def plan_order(contenders: Iterable[Contender]) -> list[Contender]:
    return sorted(contenders, key=lambda contender: (contender.task.priority, contender.task.id))
