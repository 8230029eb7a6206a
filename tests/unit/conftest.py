"""How hypothesis runs here: the same examples on every machine, and no clock that could make a slow one fail."""

from hypothesis import settings

settings.register_profile("unit", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("unit")
