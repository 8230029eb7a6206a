"""The pause between two rounds of the janitor: a small part of the time is spent on lists."""

import pytest

from dispatcher.programs.janitor import pause_after


@pytest.mark.parametrize(("listing", "pause"), [(0.0, 10), (0.5, 10), (1.0, 20), (15.0, 300), (60.0, 300)])
def test_pause_grows_with_the_time_of_a_list_up_to_300_seconds(listing: float, pause: float) -> None:
    assert pause_after(listing) == pause
