"""The clock for ages and terms. It runs on while the machine is suspended or migrated, and cannot be set.

`time.monotonic` stands still during a suspend on Linux. A replica that wakes up after an hour would trust its lease and
its caches.
"""

import time
from collections.abc import Callable

Clock = Callable[[], float]
WITH_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds since a fixed moment in the past."""
    return time.clock_gettime(WITH_SLEEP)


def worked() -> float:
    """Seconds for which this thread has worked. They stand still while another program has the processor."""
    return time.thread_time()
