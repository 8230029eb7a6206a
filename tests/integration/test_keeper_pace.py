"""The pace of the cache keeper: small parts in a thread, with pauses, and no part is left running."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from dispatcher.keeper.folder import STEPS_AT_ONCE, KeeperPace


async def test_all_steps_are_taken_and_the_last_one_is_returned() -> None:
    pace = KeeperPace(steps_a_second=1e9)
    assert await pace.last_of(iter(range(3 * STEPS_AT_ONCE + 7)), -1) == (3 * STEPS_AT_ONCE + 6, True)
    assert await pace.last_of(iter(range(2 * STEPS_AT_ONCE)), -1) == (2 * STEPS_AT_ONCE - 1, True)
    assert await pace.last_of(iter(()), -1) == (-1, True)


async def test_endless_work_ends_with_its_time_and_leaves_every_second_part_to_other_work() -> None:
    """Somebody can make each of them endless. So neither waits for the end of the other."""
    pace, parts = KeeperPace(steps_a_second=1e9), list[str]()

    def endless(name: str) -> Iterator[str]:
        while True:
            for _ in range(STEPS_AT_ONCE):
                yield name
            parts.append(name)

    found = await asyncio.gather(*(pace.last_of(endless(name), "", 0.5) for name in "ab"))
    assert found == [("a", False), ("b", False)]
    assert abs(parts.count("a") - parts.count("b")) <= 2


@pytest.mark.parametrize(("steps", "seconds", "pause"), [(500, 0.005, 0.02), (500, 0.1, 0.1), (500, 0.0, 0.025)])
def test_pause_keeps_the_number_of_steps_and_half_of_the_time(steps: int, seconds: float, pause: float) -> None:
    assert KeeperPace(20_000).pause_after(steps, seconds) == pytest.approx(pause)


async def test_cancelled_work_has_ended_when_the_cancellation_arrives() -> None:
    """Otherwise the keeper would close the folder under a thread that removes files in it."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def steps() -> Iterator[int]:
        begun.set()
        may_end.wait(20)
        ended.set()
        yield 1

    work = asyncio.create_task(KeeperPace().last_of(steps(), 0))
    await asyncio.to_thread(begun.wait, 20)
    work.cancel()
    asyncio.get_running_loop().call_later(0.05, may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await work
    assert ended.is_set()
