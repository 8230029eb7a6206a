"""How slow this machine is now, so that a limit in milliseconds means the same elsewhere and in another hour.

Two virtual cores of a shared machine may be twice as slow an hour later. The reference work is what our programs spend
their time on: look-ups in dictionaries that are larger than the caches.
"""

import random
import time
from pathlib import Path
from statistics import median
from typing import Final

NAMES: Final = 50_000
ROUNDS: Final = 9
REFERENCE_MS: Final = 90.0
"""CPU time of the reference work on the machine on which the limits were set, in its best hour."""


PRESSURE: Final = Path("/proc/pressure")
"""What Linux says of processes that wait: a line `some avg10=PERCENT …` for each resource."""
QUIET_PERCENT: Final = 2.0
LONGEST_WAIT: Final = 180.0


def wait_until_quiet() -> None:
    """Waits until no process had to wait for a processor or a disk in the last ten seconds, at most LONGEST_WAIT.

    A benchmark leaves work behind when it ends: pages to write, files to remove. A cycle that is measured beside it
    takes half as long again. A system without these files, such as macOS, does not wait.
    """
    end = time.monotonic() + LONGEST_WAIT
    while time.monotonic() < end and any(pressure(name) > QUIET_PERCENT for name in ("cpu", "io")):
        time.sleep(1)


def pressure(resource: str) -> float:
    """Percent of the last ten seconds in which some process waited for `resource`. 0 where the system does not say."""
    try:
        words = (PRESSURE / resource).read_text().split()
    except OSError:
        return 0.0
    return float(words[1].removeprefix("avg10="))


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
