"""Bugs in a row end the program, unless the rounds only tell people something."""

import asyncio

import pytest

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


async def test_bugs_of_rounds_that_only_tell_end_nothing() -> None:
    broken = Broken(is_vital=False)
    await broken.rounds.run(broken.stop)
    assert (broken.calls, broken.rounds.fault) == (2 * BUGS_IN_A_ROW, "a bug")
