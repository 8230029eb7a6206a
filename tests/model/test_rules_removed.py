"""Every rule is needed: without it a law breaks (docs/protocol.md, section 10), and the shortest trace is short."""

import pytest

from tests.model.explore import explore
from tests.model.removed import COVERED, REMOVED, Removed
from tests.model.world import Configuration

MOST_STEPS = 24
"""A trace that a reader can follow."""
RUNS = list(dict.fromkeys(removed.run for removed in (*REMOVED, *COVERED)))


@pytest.mark.parametrize("removed", REMOVED, ids=lambda removed: removed.rule)
def test_without_this_rule_something_breaks(removed: Removed) -> None:
    found = explore(removed.run, removed.rules)
    print(f"{removed.section}, {removed.rule}: {found}")  # noqa: T201  what a reader runs it for
    assert found.broken.startswith(removed.breaks), found
    assert 0 < len(found.trace) <= MOST_STEPS


@pytest.mark.parametrize("removed", COVERED, ids=lambda removed: removed.rule)
def test_another_rule_covers_this_one(removed: Removed) -> None:
    found = explore(removed.run, removed.rules)
    assert not found.broken, found


@pytest.mark.parametrize("run", RUNS, ids=range(len(RUNS)))
def test_with_all_rules_the_same_run_holds(run: Configuration) -> None:
    """Or what the removed rule seems to break would be broken anyway."""
    found = explore(run)
    assert not found.broken, found
