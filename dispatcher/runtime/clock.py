"""Clocks for ages and terms, and the token bucket of writes.

`elapsed`: runs on while the machine is suspended or migrated, and cannot be set. `time.monotonic` stands still during a
suspend on Linux: a replica that wakes up after an hour would trust its lease and its caches.
"""

import math
import time
from collections.abc import Callable

Clock = Callable[[], float]
WITH_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds since a fixed moment in the past."""
    return time.clock_gettime(WITH_SLEEP)


def worked() -> float:
    """Seconds for which this thread has worked. The clock stands still while another program has the processor."""
    return time.thread_time()


class Bucket:
    """The write rate: `rate` tokens a second, and a burst of twice the rate. A sweep uses only the upper half.

    Creates come first, so they may use all tokens. Where finished Jobs pile up, a sweep takes its half without looking
    at what is left, and creates pay for it.
    """

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._level = self.burst
        self._at = now

    @property
    def burst(self) -> float:
        return self._rate * 2

    def left(self, now: float) -> int:
        """Number of whole tokens that can be taken now."""
        self._level = min(self.burst, self._level + (now - self._at) * self._rate)
        self._at = now
        return int(self._level)

    def spare(self, now: float) -> int:
        """Number of tokens above the half that is kept for creates."""
        return max(0, self.left(now) - int(self.burst / 2))

    def half(self, seconds: float) -> int:
        """Half of the tokens of so many seconds, at most of two."""
        return math.ceil(self._rate * min(seconds, 2) / 2)

    def take(self, count: int) -> None:
        self._level -= count
