"""How much is tried: `gate` at every change, `nightly` for hours. HYPOTHESIS_PROFILE chooses.

The gate tries the same examples everywhere, so a red one is a fault of the change and not of the day; a nightly run
tries others each time, for about an hour and a half, and prints how to repeat what it found. Neither keeps a database
of examples, and neither fails because a machine is slow.
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
"""Whether suites with a generator of their own try ten times as much, and others each time."""
STORY: Final = {"gate": GATE, "nightly": NIGHTLY}[os.environ.get("HYPOTHESIS_PROFILE", "gate")]
"""Long runs of a whole world."""
WORLD: Final = settings(STORY, max_examples=STORY.max_examples * 3)
"""The machine with everything in it."""
FACT: Final = settings(STORY, max_examples=STORY.max_examples * 4)
"""Single questions to a pure function."""
