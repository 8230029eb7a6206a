"""Hypothesis settings of the unit tests: the same examples on every machine. Without a deadline slow machines pass."""

from hypothesis import settings

settings.register_profile("unit", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("unit")
