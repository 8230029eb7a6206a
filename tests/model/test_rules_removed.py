"""Every rule is needed: without it a law of docs/protocol.md, section 10, breaks. The shortest trace to it is short."""

import pytest

from tests.model.explore import explore
from tests.model.removed import COVERED, REMOVED, Removed
from tests.model.world import Configuration

MOST_STEPS = 24
"""The longest trace that a reader can follow."""
RUNS = list(dict.fromkeys(removed.run for removed in (*REMOVED, *COVERED)))


@pytest.mark.parametrize("removed", REMOVED, ids=lambda removed: removed.rule)
def test_removed_rule_breaks_a_law(removed: Removed) -> None:
    found = explore(removed.run, removed.rules)
    print(f"{removed.section}, {removed.rule}: {found}")  # noqa: T201  # the output is for the reader of a run
    assert found.broken.startswith(removed.breaks), found
    assert 0 < len(found.trace) <= MOST_STEPS


@pytest.mark.slow
@pytest.mark.parametrize("removed", COVERED, ids=lambda removed: removed.rule)
def test_covered_rule_alone_breaks_no_law(removed: Removed) -> None:
    found = explore(removed.run, removed.rules)
    assert not found.broken, found


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS, ids=range(len(RUNS)))
def test_run_with_all_rules_breaks_no_law(run: Configuration) -> None:
    """Shows that the removed rule, and nothing else, breaks the law in the tests above."""
    found = explore(run)
    assert not found.broken, found
