"""A pytest plugin: Hypothesis tries the same examples in every run, whichever modules are loaded.

It also draws numbers and texts from the source of the modules that are loaded. Which ones these are depends on the
tests that have run before in this process. A test could fail by chance then, and pass when it ran alone.
"""

import pytest
from hypothesis.internal.conjecture import providers


def pytest_configure() -> None:
    """Says that no module is local, so that none is read. It comes first: some strategies draw while tests are loaded.

    A Hypothesis without this function is told as an error.
    """
    pytest.MonkeyPatch().setattr(providers, "is_local_module_file", lambda _: False)
