"""The number of creates at once follows the answers."""

import asyncio

from dispatcher.jobs.submit import Lanes


async def entered(lanes: Lanes, most: int = 20) -> int:
    """How many can enter now."""
    waiting = [asyncio.ensure_future(lanes.enter()) for _ in range(most)]
    for _ in range(most):
        await asyncio.sleep(0)
    found = [one for one in waiting if one.done()]
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return len(found)


async def test_lanes_halve_down_to_one_and_grow_by_one_up_to_most() -> None:
    lanes = Lanes(16)
    limits = []
    for _ in range(6):
        lanes.shrink()
        limits.append(lanes.limit)
    assert limits == [8, 4, 2, 1, 1, 1]
    for _ in range(20):
        lanes.grow()
    assert lanes.limit == 16
    assert await entered(lanes) == 16


async def test_lanes_that_are_in_use_are_taken_away_when_they_are_free() -> None:
    lanes = Lanes(4)
    assert await entered(lanes) == 4
    lanes.shrink()
    lanes.leave()
    lanes.leave()
    assert await entered(lanes) == 0
    lanes.leave()
    assert await entered(lanes) == 1
    lanes.grow()
    assert await entered(lanes) == 1
