"""Traces of tasks with cache keys, made from a seed: the same seed gives the same trace.

Few keys have most tasks (Zipf), and tasks of a key come together, as the files of one dataset do. On a node without its
cache a task takes longer, by the time in which the cache is filled.
"""

import random
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

KEYS: Final = 200
EXPONENT: Final = 1.1
"""Of Zipf's law: the first key has 15 % of the tasks."""
MEAN_BURST: Final = 6
LARGE_BURST: Final = 60
"""One burst of twenty has so many tasks."""
MEAN_SECONDS: Final = 60.0
FILL_SECONDS: Final = 120.0


class Arrival(Struct, frozen=True):
    """A task. `seconds`: how long it runs where its cache is; `fill`: how much longer where it is not."""

    at: float
    key: str
    seconds: float
    fill: float


def trace(seed: int, tasks: int, tasks_a_second: float) -> Iterator[Arrival]:
    """So many tasks, at this rate on average."""
    chance = random.Random(seed)
    weights = [1 / (rank + 1) ** EXPONENT for rank in range(KEYS)]
    mean = 0.95 * MEAN_BURST + 0.05 * LARGE_BURST
    at, made = 0.0, 0
    while made < tasks:
        at += chance.expovariate(tasks_a_second / mean)
        (rank,) = chance.choices(range(KEYS), weights)
        burst = LARGE_BURST if chance.random() < 0.05 else 1 + int(chance.expovariate(1 / (MEAN_BURST - 0.5)))
        for _ in range(min(burst, tasks - made)):
            made += 1
            yield Arrival(at, f"key-{rank}", chance.lognormvariate(3.6, 1.0), FILL_SECONDS * chance.uniform(0.5, 1.5))
