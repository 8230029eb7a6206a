"""How many examples are tried: `gate` at every change, `whole` by `make everything`, `nightly` for hours.

HYPOTHESIS_PROFILE chooses. Gate and whole try the same examples everywhere, so a failure belongs to the change. A
nightly run tries other examples each time, for about an hour and a half, and prints how to repeat a failure. None keeps
a database of examples, and a slow machine makes none of them fail.
"""

import os
from random import SystemRandom
from typing import Final, TypeVar

from hypothesis import HealthCheck, settings

T = TypeVar("T")
WHOLE: Final = settings(
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
)
GATE: Final = settings(WHOLE, max_examples=20)
NIGHTLY: Final = settings(WHOLE, derandomize=False, max_examples=2_000, stateful_step_count=100)
PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "gate")
IS_NIGHTLY: Final = PROFILE == "nightly"
"""Whether suites with their own generator try other examples each time."""


def amount(*, gate: T, whole: T, nightly: T) -> T:
    """The amount of the profile."""
    return {"gate": gate, "whole": whole, "nightly": nightly}[PROFILE]


def seed_of(variable: str) -> int:
    """The seed of a suite with its own generator. The variable repeats a run that failed."""
    return int(os.environ.get(variable) or (SystemRandom().randrange(2**32) if IS_NIGHTLY else 20261122))


STORY: Final = amount(gate=GATE, whole=WHOLE, nightly=NIGHTLY)
"""Long runs with rows, cluster and dispatchers."""
WORLD: Final = settings(STORY, max_examples=STORY.max_examples * 3)
"""The state machine of `test_dispatchers.py`."""
FACT: Final = settings(STORY, max_examples=STORY.max_examples * 4)
"""Short tests of a single function."""
