"""Works on the disk in small parts, so that tasks have most of it."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, TypeVar

from dispatcher.runtime.clock import Clock, elapsed

T = TypeVar("T")
STEPS_A_SECOND: Final = 20_000
STEPS_AT_ONCE: Final = 500
BUSY_PART: Final = 0.5
"""Part of the time that may be work. On a slow disk, this bounds the load, and not the number of steps."""


async def in_thread(work: Callable[[], T]) -> T:
    """The work in a thread. Whoever is cancelled waits for its end: a folder must not be closed while it is used."""
    under_way = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(under_way)
    except asyncio.CancelledError:
        await asyncio.wait([under_way])
        raise


class Pace:
    """The pace of all work of one keeper. A step is one directory entry: looked at, renamed or removed."""

    def __init__(self, steps_a_second: float = STEPS_A_SECOND, clock: Clock = elapsed) -> None:
        self._steps_a_second = steps_a_second
        self._clock = clock

    async def last_of(self, steps: Iterator[T], none: T) -> T:
        """Takes all steps, in a thread. Returns the last one; `none`: there are none. Raises what a step raises."""
        last = none
        while True:
            began = self._clock()
            taken = await in_thread(lambda: list(islice(steps, STEPS_AT_ONCE)))
            last = taken[-1] if taken else last
            if len(taken) < STEPS_AT_ONCE:
                return last
            await asyncio.sleep(self.pause_after(len(taken), self._clock() - began))

    def pause_after(self, steps: int, seconds: float) -> float:
        """The pause after a part of the work, in seconds."""
        return max(steps / self._steps_a_second - seconds, seconds * (1 / BUSY_PART - 1))
