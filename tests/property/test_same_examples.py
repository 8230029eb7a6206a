"""The examples of a test are the same in every run (tests/rig/examples.py)."""

import inspect

from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.runtime import metrics
from tests.property.profiles import FACT

NINETY_DAYS = 7_776 * 1000


def test_no_example_is_drawn_from_the_source_of_a_module() -> None:
    """A loaded module has a number in its source that nobody guesses."""
    drawn = set[int]()

    @settings(FACT, max_examples=1_000)
    @given(st.integers(7_000_001, 8_000_001))
    def draw(number: int) -> None:
        drawn.add(number)

    draw()
    assert f"{NINETY_DAYS:_}" in inspect.getsource(metrics)
    assert NINETY_DAYS not in drawn
