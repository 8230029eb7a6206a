"""The pause after failures in a row."""

import pytest

from dispatcher.model.errors import doubled


@pytest.mark.parametrize(("times", "pause"), [(0, 0.5), (1, 1), (4, 8), (5, 15), (10**6, 15)])
def test_pause_doubles_up_to_its_limit(times: int, pause: float) -> None:
    assert doubled(0.5, times, 15) == pause
