"""The only module of the tests that waits for something outside this process.

A test never sleeps for a fixed time. It names a condition, and continues as soon as the condition is true, or fails
with its name at a deadline. The time of each question counts, too.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")
Predicate = Callable[[], Awaitable[T]] | Callable[[], T]
PERIOD_SECONDS, LONGEST_PERIOD_SECONDS = 0.05, 0.25
SHARE = 20
"""The period is one part in so many of the time waited: a long wait asks less often, and ends at most 5 % late."""


async def moment(seconds: float = PERIOD_SECONDS) -> None:
    """A pause between two questions, or before a refused connection is tried again."""
    await asyncio.sleep(seconds)


@overload
async def wait_for(
    predicate: Callable[[], Awaitable[T]], what: str, seconds: float = 10, *, check: Callable[[], None] = lambda: None
) -> T: ...
@overload
async def wait_for(
    predicate: Callable[[], T], what: str, seconds: float = 10, *, check: Callable[[], None] = lambda: None
) -> T: ...
async def wait_for(
    predicate: Predicate[T], what: str, seconds: float = 10, *, check: Callable[[], None] = lambda: None
) -> T:
    """Waits for a true answer of `predicate` and returns it. TimeoutError names `what` and the last answer.

    `check` is called after each untrue answer, and raises when waiting is pointless: what a program said before it
    ended counts.
    """
    answer: T | None = None
    clock = asyncio.get_running_loop().time
    began = clock()
    try:
        async with asyncio.timeout(seconds):
            while True:
                asked = predicate()
                answer = await asked if inspect.isawaitable(asked) else asked
                if answer:
                    return answer
                check()
                await moment(min(max(PERIOD_SECONDS, (clock() - began) / SHARE), LONGEST_PERIOD_SECONDS))
    except TimeoutError as late:
        raise TimeoutError(f"not within {seconds:g} s: {what}; last answer {str(answer)[:1000]}") from late


async def one_within(seconds: float, trial: Callable[[], Awaitable[float]], trials: int = 3) -> None:
    """One of the trials takes less than so many seconds. A pause of the machine disturbs one trial, not all of them.

    trial: does it once, and returns its seconds.
    """
    took = list[float]()
    while not took or min(took) >= seconds:
        assert len(took) < trials, f"none of {trials} trials took less than {seconds} s: {took}"
        took.append(await trial())
