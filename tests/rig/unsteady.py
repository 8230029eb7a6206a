"""A pytest plugin of the gate: a test that failed runs once more, alone, after all others.

A test that passes then is unsteady. The run names it at the end, with its first failure, and stays green.

The run stays red if more than three tests failed, if a test fails again, if it has the mark `promise`, or if what
failed is no test (a file that cannot be collected, an internal error).
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

import pytest

MOST = 3
ALONE = (sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "tests.house.no_skips", "-m", "not promise")


@dataclass(slots=True)
class Unsteady:
    """first: the first failure of each failed test, by node id. passed: the failed tests that passed alone."""

    first: dict[str, str] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.first.setdefault(report.nodeid, report.longreprtext)

    @pytest.hookimpl(trylast=True)  # when the workers have ended, and their servers with them
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus != pytest.ExitCode.TESTS_FAILED or not 0 < len(self.first) <= MOST:
            return
        self.passed = [test for test in self.first if passes_alone(test, session.config)]
        if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
            count_as_unsteady(reporter, self.passed)
        if len(self.passed) == len(self.first):
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test in self.passed:
            terminalreporter.section(f"UNSTEADY {test}", yellow=True)
            terminalreporter.line(self.first[test])
        for test in self.passed:
            terminalreporter.line(f"UNSTEADY {test}: failed beside others, and passed alone", yellow=True)


def passes_alone(test: str, config: pytest.Config) -> bool:
    command = [*ALONE, "-c", str(config.inipath), f"--rootdir={config.rootpath}", test]
    return subprocess.run(command, cwd=config.rootpath, stdout=subprocess.DEVNULL, check=False).returncode == 0


def count_as_unsteady(reporter: pytest.TerminalReporter, tests: list[str]) -> None:
    """The last line of the run counts these tests as unsteady, not as failed."""
    for outcome in ("failed", "error"):
        reports = reporter.stats.pop(outcome, [])
        moved = [report for report in reports if report.nodeid in tests]
        for name, chosen in (("unsteady", moved), (outcome, [report for report in reports if report not in moved])):
            if chosen:
                reporter.stats.setdefault(name, []).extend(chosen)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Unsteady(), "unsteady")
