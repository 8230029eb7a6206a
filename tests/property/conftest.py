"""Switches logs off: these tests run thousands of cycles."""

import logging

import pytest
import structlog


@pytest.fixture(autouse=True)
def silent_logs(logs_as_before: None) -> None:
    """For each test. A fixture of the folder would last to the end of the run: a folder without `__init__` is none."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
