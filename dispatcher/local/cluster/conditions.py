"""Phases, conditions and times in the statuses of objects."""

from datetime import datetime
from typing import Any, Final

Json = dict[str, Any]
ENDED: Final = frozenset({"Succeeded", "Failed"})
"""Phases of a Pod whose containers have ended."""


def with_condition(conditions: list[Json], new: Json) -> list[Json]:
    """Puts the condition in the place of its type, or at the end. An unchanged status keeps its time."""
    for number, one in enumerate(conditions):
        if one["type"] == new["type"]:
            since = one.get("lastTransitionTime") if one["status"] == new["status"] else new["lastTransitionTime"]
            return [*conditions[:number], {**new, "lastTransitionTime": since}, *conditions[number + 1 :]]
    return [*conditions, new]


def stamp(at: datetime) -> str:
    """The time as a metav1.Time: whole seconds."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
