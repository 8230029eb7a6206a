"""Gives the dashboard at most a tenth of the event loop, so that people who look never slow the cycles down.

Each request pays for the time in which its answer was computed. Waiting for the database costs nothing, nor does
waiting for the processor: on a busy machine cycles wait as long. The next request waits until the time is paid for.
Time is an argument.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
PART: Final = 0.1
LEAST: Final = 0.002
"""Seconds that any request costs: reading and writing it takes time, too."""
BURST: Final = 0.2
"""Seconds of work that are done at once after a time without requests."""
LONGEST_WAIT: Final = 2.0


class Pacing:
    """Gives each request its turn."""

    def __init__(self) -> None:
        self._next = float("-inf")

    def wait(self, now: float) -> float | None:
        """Seconds until the turn of a new request, which pays for LEAST at once; None: too many wait already."""
        turn = max(self._next, now - BURST / PART)
        if turn - now > LONGEST_WAIT:
            return None
        self._next = turn + LEAST / PART
        return max(0.0, turn - now)

    def charge(self, seconds: float) -> None:
        """The request took so many seconds of work."""
        self._next += max(0.0, seconds - LEAST) / PART


class Timed(Generic[T]):
    """Awaits some work, and adds up the `seconds` in which it ran: not those in which it waited."""

    def __init__(self, work: Awaitable[T], clock: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._work = work
        self._clock = clock

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        step: Callable[[Any], Any] = steps.send
        given: Any = None
        while True:
            began = self._clock()
            try:
                waits_for = step(given)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                self.seconds += self._clock() - began
            try:
                step, given = steps.send, (yield waits_for)
            except BaseException as fault:  # noqa: BLE001  # the work itself decides about a cancellation or a fault
                step, given = steps.throw, fault
