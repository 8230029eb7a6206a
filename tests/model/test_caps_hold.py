"""S7: only late POSTs of a deposed leader exceed a cap."""

import pytest

from tests.model.caps import Rules, explore_caps

RULES = ["LIST after winning", "own unseen creates count", "Jobs being deleted count", "no write without trust"]


@pytest.mark.slow
@pytest.mark.parametrize(("cap", "changes", "fewest"), [(1, 2, 5_000), (2, 1, 5_000)])
def test_cap_is_exceeded_only_by_late_posts(cap: int, changes: int, fewest: int) -> None:
    found = explore_caps(Rules(cap, changes=changes))
    print(f"| caps: 3 rows, cap {cap}, {changes} changes | {found.states:,} | {found.edges:,} |")  # noqa: T201  # the output is for the reader of a run
    assert found.trace == []
    assert found.states >= fewest


@pytest.mark.parametrize("rule", RULES)
def test_removed_rule_lets_jobs_exceed_the_cap(rule: str) -> None:
    found = explore_caps(Rules(1, changes=1, without=frozenset({rule})))
    print(f"{rule}: {found.trace}")  # noqa: T201  # the output is for the reader of a run
    assert 0 < len(found.trace) <= 8
