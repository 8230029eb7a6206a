"""How many examples are tried: `gate` at every change, `nightly` for hours. HYPOTHESIS_PROFILE chooses.

The gate tries the same examples everywhere, so a failure belongs to the change. A nightly run tries other examples each
time, for about an hour and a half, and prints how to repeat a failure. Both keep no database of examples, and a slow
machine makes none of them fail.
"""

import os
from typing import Final

from hypothesis import HealthCheck, settings

GATE: Final = settings(
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
)
NIGHTLY: Final = settings(GATE, derandomize=False, max_examples=2_000, stateful_step_count=100)
IS_NIGHTLY: Final = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
"""Whether suites with their own generator try ten times as many examples, other ones each time."""
STORY: Final = {"gate": GATE, "nightly": NIGHTLY}[os.environ.get("HYPOTHESIS_PROFILE", "gate")]
"""Long runs with rows, cluster and dispatchers."""
WORLD: Final = settings(STORY, max_examples=STORY.max_examples * 3)
"""The state machine of `test_dispatchers.py`."""
FACT: Final = settings(STORY, max_examples=STORY.max_examples * 4)
"""Short tests of a single function."""
