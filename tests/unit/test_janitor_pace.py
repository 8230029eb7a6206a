"""How often the janitor looks."""

import pytest

from dispatcher.programs.janitor import pause_after


@pytest.mark.parametrize(("listing", "pause"), [(0.0, 10), (0.5, 10), (1.0, 20), (15.0, 300), (60.0, 300)])
def test_lists_take_a_small_part_of_the_time_and_slow_ones_still_do_not_put_a_round_off_for_ever(
    listing: float, pause: float
) -> None:
    assert pause_after(listing) == pause
