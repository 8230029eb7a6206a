"""A pytest plugin of `CI=true make test`: what would be skipped fails. A machine that is asked for all leaves out none.

What is expected to fail (`xfail`) is no skip.
"""

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"nothing is skipped here: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.outcome == "skipped":
        report.outcome = "failed"
        report.longrepr = f"nothing is skipped here: {report.longrepr}"
    return report
