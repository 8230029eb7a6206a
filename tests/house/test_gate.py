"""The gate: which tests are slow, and what becomes of a test that fails once."""

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.house.tree import ROOT, python_files
from tests.rig.seconds import fixtures_of, known_seconds, written
from tests.rig.touched import TESTS_OF, main_branch, paths_for, table
from tests.rig.unsteady import MOST

MOST_SECONDS, MOST_OF_FILE = 3.0, 10.0
LONG = frozenset({"slow", "promise"})
ONCE = """
import pathlib, pytest
def fails_once(name):
    file = pathlib.Path(__file__).with_name(name)
    first = not file.exists()
    file.touch()
    assert not first, "the port was taken"
"""
LOGS = """
import structlog
from structlog.testing import capture_logs
from dispatcher.runtime.logs import configure_logs
log = structlog.get_logger()
def test_a():
    configure_logs("error")
    log.error("a")
def test_b():
    with capture_logs() as told:
        log.warning("b")
    assert len(told) == 1
"""


def test_test_of_more_than_three_seconds_is_marked() -> None:
    """Seconds of `tests/seconds.txt`. Parameters of a test share its marks."""
    marks = all_marks()
    long = {test.split("[")[0] for test, seconds in known_seconds().items() if seconds > MOST_SECONDS}
    assert [name for name in sorted(long) if name in marks and not marks[name] & LONG] == []


def test_tests_with_fixtures_of_more_than_ten_seconds_are_marked() -> None:
    marks = all_marks()
    dear = {test for test, seconds in known_seconds().items() if test.endswith("::fixtures") and seconds > MOST_OF_FILE}
    assert [name for name in sorted(marks) if fixtures_of(name) in dear and not marks[name] & LONG] == []


def test_list_of_seconds_is_sorted_and_names_tests_that_exist() -> None:
    known = known_seconds()
    assert written(known) == (ROOT / "tests" / "seconds.txt").read_text(encoding="utf-8"), "run with --record-seconds"
    tests = all_marks().keys() | {fixtures_of(test) for test in all_marks()}
    named = [test for test in known if not test.endswith("::runTest")]  # a state machine of hypothesis
    assert [test for test in named if test.split("[")[0] not in tests] == [], "run with --record-seconds"


def test_marks_of_functions_classes_and_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "import pytest\npytestmark = pytest.mark.slow\n@pytest.mark.promise\nclass TestIt:\n"
        "    @pytest.mark.fault(1)\n    async def test_b(self): ...\ndef test_c(): ...\n"
    )
    found = marks_of(tmp_path / "test_a.py", tmp_path)
    assert found == {"test_a.py::TestIt::test_b": {"slow", "promise", "fault"}, "test_a.py::test_c": {"slow"}}


def test_test_that_passes_alone_is_named_and_the_run_is_green(tmp_path: Path) -> None:
    done = run(tmp_path, "def test_a(): fails_once('a')\ndef test_b(): pass\n", "-p", "xdist", "-n", "2")
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 unsteady" in done.stdout
    assert "the port was taken" in done.stdout
    assert "UNSTEADY test_once.py::test_a: failed beside others, and passed alone" in done.stdout


@pytest.mark.parametrize(
    "tests",
    [
        "def test_a(): fails_once('a')\ndef test_b(): assert False\n",
        "@pytest.mark.promise\ndef test_a(): fails_once('a')\n",
        "@pytest.mark.parametrize('name', 'abcd')\ndef test_a(name): fails_once(name)\n",
    ],
    ids=["fails again", "a promise", "too many"],
)
def test_run_stays_red(tmp_path: Path, tests: str) -> None:
    assert len("abcd") > MOST
    done = run(tmp_path, tests)
    assert done.returncode == 1, done.stdout
    assert "failed" in done.stdout.splitlines()[-1]


def test_configuration_of_logs_ends_with_its_test(tmp_path: Path) -> None:
    assert "2 passed" in run(tmp_path, LOGS, "-p", "tests.rig.logs").stdout


def run(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = promise: x\n")
    (folder / "test_once.py").write_text(ONCE + tests)
    words = ["-c", str(folder / "pytest.ini"), "-p", "tests.rig.unsteady", "-p", "no:cacheprovider", str(folder)]
    command = [sys.executable, "-m", "pytest", *options, *words]
    environ = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # a start takes a fifth of the time
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)


@cache
def all_marks() -> dict[str, set[str]]:
    """Marks by test of the whole checkout."""
    return {name: found for path in python_files("tests/") for name, found in marks_of(path).items()}


def marks_of(path: Path, root: Path = ROOT / "tests") -> dict[str, set[str]]:
    """Marks by test of a file: of its decorators, its classes and the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    whole = {mark for node in tree.body if isinstance(node, ast.Assign) for mark in names_of(node.value, node.targets)}
    return {"::".join([str(path.relative_to(root)), *name]): marks for name, marks in found_in(tree.body, whole)}


def names_of(value: ast.expr, targets: list[ast.expr]) -> set[str]:
    if [ast.unparse(target) for target in targets] != ["pytestmark"]:
        return set()
    return marks_in(value.elts if isinstance(value, ast.List) else [value])


def found_in(body: list[ast.stmt], outer: set[str]) -> list[tuple[list[str], set[str]]]:
    found: list[tuple[list[str], set[str]]] = []
    for node in body:
        if isinstance(node, ast.ClassDef):
            inner = found_in(node.body, outer | marks_in(node.decorator_list))
            found += [([node.name, *name], marks) for name, marks in inner]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            found.append(([node.name], outer | marks_in(node.decorator_list)))
    return found


def marks_in(values: list[ast.expr]) -> set[str]:
    texts = [ast.unparse(value.func if isinstance(value, ast.Call) else value) for value in values]
    return {text.removeprefix("pytest.mark.") for text in texts if text.startswith("pytest.mark.")}


def test_page_tells_which_tests_a_folder_needs() -> None:
    assert table() in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "python -m tests.rig.touched --table"


def test_each_folder_of_the_product_has_tests_and_each_pattern_finds_some() -> None:
    folders = {f"dispatcher/{path.name}" for path in (ROOT / "dispatcher").iterdir() if list(path.glob("*.py"))}
    assert folders - TESTS_OF.keys() == set()
    missing = [path for tests in TESTS_OF.values() for path in tests if not list((ROOT / "tests").glob(path))]
    assert missing == []


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("dispatcher/prometheus.py", ("house", *TESTS_OF["dispatcher/prometheus.py"])),
        ("dispatcher/app.py", ("house", *TESTS_OF["dispatcher"])),
        ("tests/unit/test_rate.py", ("house", "unit/test_rate.py")),
        ("tests/contract/wire.py", ("house", "contract")),
        ("README.md", ("house",)),
    ],
)
def test_changed_file_leads_to_its_tests(changed: str, tests: tuple[str, ...]) -> None:
    assert paths_for([changed]) == tests


def test_change_is_compared_with_main_or_with_that_of_the_origin(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        names = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=work")
        subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    with pytest.raises(SystemExit, match="no branch main or origin/main: git branch main COMMIT"):
        main_branch(tmp_path)
    git("commit", "--allow-empty", "--message", "first")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert main_branch(tmp_path) == "origin/main"
    git("branch", "main")
    assert main_branch(tmp_path) == "main"


def test_list_of_targets_fits_a_terminal_of_80_columns() -> None:
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(told) > 20
    assert [line for line in told if len(line) > 80] == []
