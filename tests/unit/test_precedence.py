"""Work that can wait begins when no decision runs, or after a limited time."""

import asyncio

import pytest

from dispatcher.runtime.rounds import Precedence


async def began(precedence: Precedence, seconds: float = 60) -> "asyncio.Task[None]":
    """A wait that has begun."""
    waits = asyncio.create_task(precedence.wait(seconds))
    await asyncio.sleep(0)
    return waits


async def test_nothing_waits_while_no_decision_runs() -> None:
    assert (await began(Precedence())).done()


async def test_work_waits_until_every_decision_has_ended() -> None:
    precedence = Precedence()
    with precedence.running():
        with precedence.running():
            waits = await began(precedence)
        await asyncio.sleep(0)
        assert not waits.done()
    await waits
    assert (await began(precedence)).done()


async def test_decision_that_takes_long_delays_nothing_for_ever() -> None:
    precedence = Precedence()
    with precedence.running():
        await precedence.wait(0.001)


async def test_decision_that_fails_delays_nothing() -> None:
    precedence = Precedence()
    with pytest.raises(ZeroDivisionError), precedence.running():
        _ = 1 / 0
    assert (await began(precedence)).done()
