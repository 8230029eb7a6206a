"""The pace of the cache keeper: small parts in a thread, with pauses, and no part is left running."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from dispatcher.keeper.pace import STEPS_AT_ONCE, Pace


async def test_all_steps_are_taken_and_the_last_one_is_returned() -> None:
    pace = Pace(steps_a_second=1e9)
    assert await pace.last_of(iter(range(3 * STEPS_AT_ONCE + 7)), -1) == 3 * STEPS_AT_ONCE + 6
    assert await pace.last_of(iter(range(2 * STEPS_AT_ONCE)), -1) == 2 * STEPS_AT_ONCE - 1
    assert await pace.last_of(iter(()), -1) == -1


@pytest.mark.parametrize(("steps", "seconds", "pause"), [(500, 0.005, 0.02), (500, 0.1, 0.1), (500, 0.0, 0.025)])
def test_pause_keeps_the_number_of_steps_and_half_of_the_time(steps: int, seconds: float, pause: float) -> None:
    assert Pace(20_000).pause_after(steps, seconds) == pytest.approx(pause)


async def test_cancelled_work_has_ended_when_the_cancellation_arrives() -> None:
    """Otherwise the keeper would close the folder under a thread that removes files in it."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def steps() -> Iterator[int]:
        begun.set()
        may_end.wait(20)
        ended.set()
        yield 1

    work = asyncio.create_task(Pace().last_of(steps(), 0))
    await asyncio.to_thread(begun.wait, 20)
    work.cancel()
    asyncio.get_running_loop().call_later(0.05, may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await work
    assert ended.is_set()
