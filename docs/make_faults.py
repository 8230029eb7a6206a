"""Writes `docs/faults.md` from `tests/faults/matrix.py` and the markers of the tests. See `make docs`.

This program parses the tests and does not import them. A test, or a class of tests, has a marker such as
`@pytest.mark.fault(3, 4)` or `@pytest.mark.museum("bug")`.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.faults.matrix import CHAPTERS, MUSEUM, Fault

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = Path(__file__).with_name("faults.md")
MARKERS: Final = ("fault", "museum")
HEAD: Final = """\
<!-- Made from tests/faults/matrix.py and the tests by `make docs`. Change it there. -->
# Faults

This page lists faults that happen sooner or later, the correct behaviour, and the tests that show it. The tests in
`faults`, `journey`, `contract` and `integration` use real servers: Postgres with standbys, etcd, kube-apiserver, its
controllers and scheduler.
"""
MUSEUM_HEAD: Final = """\
## Museum

Other projects had these bugs. Each test would find the same bug in this project.

| bug | effect | found by |
|---|---|---|
"""
FAULT_HEAD: Final = """\
| | fault | correct behaviour | shown by |
|---|---|---|---|
"""


class Claim(NamedTuple):
    """One argument of a marker on a test: the number of a fault, or the name of a bug."""

    path: str
    test: str
    marker: str
    of: Any

    @property
    def sentence(self) -> str:
        """File and name as words, for the page."""
        suite, _, file = self.path.removeprefix("tests/").removesuffix(".py").rpartition("/")
        words = self.test.removeprefix("test_").replace("_", " ")
        return f"`{suite}/{file.removeprefix('test_')}` {words}"


@cache
def claims() -> tuple[Claim, ...]:
    """The claims of all tests, in the order of their files."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return tuple(claim for file in files for claim in claims_of(file.read_text(encoding="utf-8"), shown(file)))


def shown(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def claims_of(source: str, path: str) -> Iterator[Claim]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            inherited = list(marks(node))
            for test in node.body:
                yield from claims_of_test(test, path, inherited)
        else:
            yield from claims_of_test(node, path, [])


def claims_of_test(node: ast.stmt, path: str, inherited: list[tuple[str, Any]]) -> Iterator[Claim]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
        for marker, of in [*inherited, *marks(node)]:
            yield Claim(path, node.name, marker, of)


def marks(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, Any]]:
    for decorator in node.decorator_list:
        yield from marks_in(decorator)


def marks_in(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """The arguments of a marker: `pytest.mark.fault(3, 4)` yields ("fault", 3) and ("fault", 4)."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in MARKERS:
        return
    if ast.unparse(node.func) == f"pytest.mark.{node.func.attr}":
        for argument in node.args:
            yield node.func.attr, ast.literal_eval(argument)


def faults_page() -> str:
    shown_by: Mapping[tuple[str, Any], list[Claim]] = defaultdict(list)
    for claim in claims():
        shown_by[claim.marker, claim.of].append(claim)
    parts = [HEAD]
    for title, faults in CHAPTERS.items():
        rows = [fault_row(number, fault, shown_by["fault", number]) for number, fault in faults.items()]
        parts.append(f"## {title}\n\n{FAULT_HEAD}{''.join(rows)}")
    bugs = [f"| {bug} | {did} | {told(shown_by['museum', bug])} |\n" for bug, did in MUSEUM.items()]
    return "\n".join([*parts, MUSEUM_HEAD + "".join(bugs)])


def fault_row(number: int, fault: Fault, tests: list[Claim]) -> str:
    by = f"later: {fault.later}" if fault.later else told(tests)
    return f"| F{number} | {fault.what} | {fault.right} | {by} |\n"


def told(tests: list[Claim]) -> str:
    return "<br>".join(test.sentence for test in tests)


if __name__ == "__main__":
    PAGE.write_text(faults_page(), encoding="utf-8")
