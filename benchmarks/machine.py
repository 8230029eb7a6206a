"""How slow this machine is now, so that a limit in milliseconds means the same elsewhere and in another hour.

Two virtual cores of a shared machine may be twice as slow an hour later. The reference work is what our programs spend
their time on: look-ups in dictionaries that are larger than the caches.
"""

import random
import time
from statistics import median
from typing import Final

NAMES: Final = 50_000
ROUNDS: Final = 9
REFERENCE_MS: Final = 90.0
"""CPU time of the reference work on the machine on which the limits were set, in its best hour."""


def slowness() -> float:
    """CPU time of the reference work now, as a multiple of REFERENCE_MS.

    It is at least 1: where the machine is quicker, a limit stays what was promised. Disks and other processes need not
    be quicker, too.
    """
    return max(1.0, median(reference_ms() for _ in range(ROUNDS)) / REFERENCE_MS)


def reference_ms() -> float:
    names = [f"node-{number}" for number in range(NAMES)]
    table = {name: (number, 2 * number) for number, name in enumerate(names)}
    random.Random(1).shuffle(names)
    began, total = time.process_time(), 0
    for _ in range(4):
        for name in names:
            first, second = table[name]
            total += first if second % 3 else second
    assert total
    return (time.process_time() - began) * 1000
