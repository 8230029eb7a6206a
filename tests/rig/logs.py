"""A pytest plugin: what a test does to the configuration of logs ends with the test.

Some tests run a command in their own process, which configures the logs as the program does. A later test would see no
line below that level.
"""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)
