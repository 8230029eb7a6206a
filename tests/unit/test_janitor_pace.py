"""The pause between two rounds of the janitor: a small part of the time is spent on lists."""

import pytest

from dispatcher.janitor.janitor import pause_after


@pytest.mark.parametrize(("listing", "pause"), [(0.0, 10), (0.5, 10), (1.0, 20), (15.0, 300), (60.0, 300)])
def test_pause_grows_with_the_time_of_a_list_up_to_300_seconds(listing: float, pause: float) -> None:
    assert pause_after(listing, 300) == pause


def test_one_slow_list_at_most_doubles_the_pause() -> None:
    pauses = [0.0]
    for listing in (0.1, 60, 60, 60, 0.1, 60):
        pauses.append(pause_after(listing, pauses[-1]))
    assert pauses[1:] == [10, 20, 40, 80, 10, 20]
