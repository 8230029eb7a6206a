"""Bugs in a row end the program, unless the rounds only tell people something."""

import asyncio
import time

import pytest
from prometheus_client import REGISTRY

from dispatcher.runtime.rounds import BUGS_IN_A_ROW, Rounds, Wake


class Broken:
    """Rounds that end in a bug. Every pause ends at once."""

    def __init__(self, *, is_vital: bool) -> None:
        self.calls, self.stop, self._wake = 0, asyncio.Event(), Wake()
        self.rounds = Rounds("broken", self._run_once, self._wake, is_vital=is_vital)

    async def _run_once(self) -> float:
        self.calls += 1
        self._wake()
        if self.calls == 2 * BUGS_IN_A_ROW:
            self.stop.set()
        raise ZeroDivisionError("a bug")


async def test_bugs_in_a_row_end_the_program() -> None:
    broken = Broken(is_vital=True)
    with pytest.raises(ZeroDivisionError):
        await broken.rounds.run(broken.stop)
    assert broken.calls == BUGS_IN_A_ROW


async def test_series_of_rounds_begin_at_zero_and_only_success_moves_their_time() -> None:
    """Prometheus sees no increase in a counter that begins at 1."""
    broken = Broken(is_vital=False)
    await broken.rounds.run(broken.stop)
    assert REGISTRY.get_sample_value("dispatcher_last_round_timestamp_seconds", {"component": "broken"}) == 0
    stop = asyncio.Event()

    async def run_once() -> float:
        assert REGISTRY.get_sample_value("dispatcher_faults_total", {"component": "well"}) == 0
        stop.set()
        return 0

    began = time.time()
    await Rounds("well", run_once, Wake()).run(stop)
    ended = REGISTRY.get_sample_value("dispatcher_last_round_timestamp_seconds", {"component": "well"})
    assert ended is not None
    assert began <= ended <= time.time()


async def test_bugs_of_rounds_that_only_tell_end_nothing() -> None:
    broken = Broken(is_vital=False)
    await broken.rounds.run(broken.stop)
    assert (broken.calls, broken.rounds.fault) == (2 * BUGS_IN_A_ROW, "a bug")


async def test_round_sees_the_news_that_came_before_it() -> None:
    """They start no further round after it. Later ones may come sooner than those would have."""
    wake = Wake()
    wake.soon(60)
    wake()
    assert await wake.wait(60)
    assert not await wake.wait(0.1)
    wake.soon(60)
    wake.soon(0)
    assert await wake.wait(60), "the earlier one counts"
