"""S7: more Jobs than a cap allows are never more than the POSTs that a deposed leader had on their way."""

import pytest

from tests.model.caps import Rules, explore_caps

RULES = ["LIST after winning", "own unseen creates count", "Jobs being deleted count", "no write without trust"]


@pytest.mark.parametrize(("cap", "changes", "fewest"), [(1, 2, 5_000), (2, 1, 5_000)])
def test_what_is_beyond_a_cap_came_late(cap: int, changes: int, fewest: int) -> None:
    found = explore_caps(Rules(cap, changes=changes))
    print(f"| caps: 3 rows, cap {cap}, {changes} changes | {found.states:,} | {found.edges:,} |")  # noqa: T201  what a reader runs it for
    assert found.trace == []
    assert found.states >= fewest


@pytest.mark.parametrize("rule", RULES)
def test_without_this_rule_a_cap_is_exceeded(rule: str) -> None:
    found = explore_caps(Rules(1, changes=1, without=frozenset({rule})))
    print(f"{rule}: {found.trace}")  # noqa: T201  what a reader runs it for
    assert 0 < len(found.trace) <= 8
