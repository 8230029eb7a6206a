"""A pytest plugin of `CI=true make test`: a skipped test fails. So CI cannot leave out a suite unnoticed.

A test that is expected to fail (`xfail`) is no skipped test.
"""

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"no test may be skipped: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.outcome == "skipped":
        report.outcome = "failed"
        report.longrepr = f"no test may be skipped: {report.longrepr}"
    return report
