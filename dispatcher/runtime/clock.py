"""The clock of ages and terms: it goes on while the machine is suspended or moved, and nobody sets it.

`time.monotonic` stands still meanwhile on Linux: a replica that wakes up would trust its lease and its caches although
an hour has passed.
"""

import time
from collections.abc import Callable

Clock = Callable[[], float]
WITH_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds since some moment in the past."""
    return time.clock_gettime(WITH_SLEEP)
