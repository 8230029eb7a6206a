"""When a row will start, by the starts of the last hour."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.views.estimate import FEWEST_STARTS, Estimate, estimate_start
from tests.rig.builders import NOW, ago


def every(seconds: float, number: int = 60) -> list[datetime]:
    """Starts at equal distances, the last one now."""
    return [ago(seconds * n) for n in range(number)]


def spans(found: Estimate | None) -> tuple[float, float]:
    assert found is not None
    return (found.earliest - NOW).total_seconds(), (found.latest - NOW).total_seconds()


@pytest.mark.parametrize("number", [0, 1, FEWEST_STARTS - 1])
def test_few_starts_give_no_estimate(number: int) -> None:
    assert estimate_start(1, every(10, number), NOW) is None


def test_a_row_without_a_place_has_no_estimate() -> None:
    assert estimate_start(0, every(10), NOW) is None


@pytest.mark.parametrize(("place", "seconds"), [(1, 10), (10, 100), (30, 300), (60, 600), (3000, 30_000)])
def test_a_place_takes_so_many_starts(place: int, seconds: float) -> None:
    """A start every ten seconds; a place beyond half of the starts is told by its multiple."""
    shortest, longest = spans(estimate_start(place, every(10), NOW))
    assert shortest <= seconds <= longest * 1.5
    assert longest == pytest.approx(seconds, rel=0.5)


def test_starts_in_bursts_give_a_wide_range() -> None:
    """Ten starts at once every ten minutes: whoever comes in between waits for the next burst."""
    starts = [ago(600 * burst + n / 10) for burst in range(6) for n in range(10)]
    shortest, longest = spans(estimate_start(1, starts, NOW))
    assert 60 < shortest < 240
    assert 360 < longest < 600


def test_a_queue_that_stands_still_has_no_estimate() -> None:
    """Nothing has started for longer than ever in the last hour."""
    assert estimate_start(1, [ago(60 + 10 * n) for n in range(60)], NOW) is None
    assert estimate_start(1, [NOW] * FEWEST_STARTS, NOW) is None


def test_the_number_of_starts_is_told() -> None:
    found = estimate_start(1, every(10, 25), NOW)
    assert found is not None
    assert found.starts == 25


@given(st.lists(st.integers(0, 3600), min_size=FEWEST_STARTS, max_size=200), st.integers(1, 10_000))
def test_a_range_lies_in_the_future(seconds: list[int], place: int) -> None:
    starts = [ago(one) for one in seconds]
    found = estimate_start(place, starts, NOW)
    assert found is None or NOW <= found.earliest <= found.latest
