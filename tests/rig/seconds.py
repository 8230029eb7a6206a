"""A pytest plugin: which tests take long. The longest tests begin first, and `--record-seconds` writes the list anew.

The list is `tests/seconds.txt`: each test of more than one second, with its seconds in a run on a quiet machine. They
include fixtures that are made for the test alone. The other fixtures of a file have a line of their own. A server of
the whole run is the cost of no test.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path

import pytest

LIST = Path(__file__).parents[1] / "seconds.txt"
LEAST = 1.0
DEAR = frozenset({"full", "prometheus", "promtool", "watched"})
"""Fixtures of the run that take more than ten seconds, or minutes to build. Their tests are slow."""
OF_RUN, OF_FILE = "seconds of fixtures of the run", "seconds of fixtures of the file"


def known_seconds(file: Path = LIST) -> dict[str, float]:
    """Seconds by node id below `tests/`."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return {test: float(seconds) for seconds, _, test in (line.partition(" ") for line in lines)}


def written(seconds: Mapping[str, float]) -> str:
    rows = [(round(taken, 1), test) for test, taken in seconds.items() if taken >= LEAST]
    rows.sort(key=lambda row: (-row[0], row[1]))
    return "".join(f"{taken:.1f} {test}\n" for taken, test in rows)


def name_of(nodeid: str) -> str:
    """The node id below `tests/`, on one line."""
    return nodeid.removeprefix("tests/").encode("unicode_escape").decode()


def fixtures_of(test: str) -> str:
    """The name of the line for the fixtures of the test's file."""
    return f"{test.split('::', maxsplit=1)[0]}::fixtures"


def longest_first(items: Iterable[pytest.Item], seconds: Mapping[str, float]) -> list[pytest.Item]:
    """Files with a longer test come first. Tests of a file stay together: they share fixtures."""
    longest: dict[Path, float] = defaultdict(float)
    items = list(items)
    for item in items:
        longest[item.path] = max(longest[item.path], seconds.get(name_of(item.nodeid), 0.0))
    return sorted(items, key=lambda item: -longest[item.path])


class Recording:
    """Adds up the seconds of each test, and writes the list at the end. Tests that did not run keep their line."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[name_of(report.nodeid)] += report.duration
        if report.when == "setup":
            for scope, seconds in report.user_properties:
                self._set_aside(scope, name_of(report.nodeid), float(str(seconds)))

    def _set_aside(self, scope: str, test: str, seconds: float) -> None:
        self.seconds[test] = max(0.0, self.seconds[test] - seconds)
        if scope == OF_FILE:
            name = fixtures_of(test)
            self.seconds[name] = max(self.seconds[name], seconds)

    def pytest_sessionfinish(self) -> None:
        LIST.write_text(written({**known_seconds(), **self.seconds}), encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    started = time.perf_counter()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function" and (item := getattr(request, "_pyfuncitem", None)):
            scope = OF_RUN if fixturedef.scope == "session" else OF_FILE
            item.user_properties.append((scope, time.perf_counter() - started))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-seconds", action="store_true", help=f"write {LIST.name} anew")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.record_seconds and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recording(), "recording of seconds")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if DEAR.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    items[:] = longest_first(items, known_seconds())
