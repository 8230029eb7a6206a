"""How many requests are let in, by the work that their answers take."""

import asyncio
from collections.abc import Sequence

import pytest

from dispatcher.views.server import BURST, LEAST, LONGEST_WAIT, PART, Pacing, Timed

AT_ONCE = round(BURST / LEAST)


def let_in(waits: Sequence[float | None]) -> list[float]:
    return [wait for wait in waits if wait is not None]


def test_burst_is_let_in_at_once_and_then_each_waits_for_its_turn() -> None:
    pacing = Pacing()
    waits = let_in([pacing.wait(0) for _ in range(AT_ONCE + 3)])
    assert waits[:AT_ONCE] == [0] * AT_ONCE
    assert [round(wait, 3) for wait in waits[AT_ONCE:]] == [0, 0.02, 0.04]


def test_request_that_would_wait_too_long_is_refused_and_costs_no_turn() -> None:
    pacing = Pacing()
    waits = let_in([pacing.wait(0) for _ in range(1000)])
    assert max(waits) <= LONGEST_WAIT + 1e-9
    assert len(waits) in {200, 201}  # waits are sums of hundredths, which are not exact
    assert pacing.wait(10) == 0


def test_long_answer_is_paid_for_by_those_who_come_after_it() -> None:
    pacing = Pacing()
    for _ in range(AT_ONCE):
        pacing.wait(0)
    pacing.charge(0.052)
    wait = pacing.wait(0)
    assert wait is not None
    assert round(wait, 3) == 0.5


def test_short_answer_costs_no_less_than_any_request() -> None:
    pacing, other = Pacing(), Pacing()
    for one in (pacing, other):
        one.wait(0)
    pacing.charge(0)
    assert [pacing.wait(0) for _ in range(300)] == [other.wait(0) for _ in range(300)]


@pytest.mark.parametrize("work", [0.0005, 0.002, 0.02, 0.1])
def test_work_of_a_flood_is_a_tenth_of_the_time(work: float) -> None:
    pacing, done, busy_until = Pacing(), 0.0, 0.0
    for tick in range(20_000):  # 1,000 requests a second
        now = max(tick / 1000, busy_until)
        if pacing.wait(now) is not None:
            pacing.charge(work)
            done, busy_until = done + work, now + work
    assert done <= PART * (busy_until + LONGEST_WAIT) + BURST + work


async def test_time_in_which_a_coroutine_waits_is_not_counted() -> None:
    now, event = 0.0, asyncio.Event()

    async def work() -> str:
        nonlocal now
        now += 1
        await event.wait()
        now += 2
        return "done"

    timed = Timed(work(), lambda: now)
    running = asyncio.ensure_future(timed_of(timed))
    await asyncio.sleep(0)
    assert timed.seconds == 1
    now += 100
    event.set()
    assert await running == "done"
    assert timed.seconds == 3


def frozen() -> float:
    """A clock that stands."""
    return 0.0


async def timed_of(timed: Timed[str]) -> str:
    return await timed


async def test_coroutine_that_is_cancelled_ends_as_it_wants() -> None:
    ended = list[str]()

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")
        return ""

    running = asyncio.ensure_future(timed_of(Timed(work(), frozen)))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == ["cleaned up"]


async def test_fault_of_a_coroutine_is_passed_on() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await Timed(work(), frozen)


async def test_coroutine_may_catch_what_it_waited_for() -> None:
    failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            await failing
        except ValueError:
            await asyncio.sleep(0)
            return "caught"
        return ""

    running = asyncio.ensure_future(timed_of(Timed(work(), frozen)))
    await asyncio.sleep(0)
    failing.set_exception(ValueError())
    assert await running == "caught"
