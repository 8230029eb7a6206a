"""Rules for files: they name no machine, the locks fit the project, and the Makefile runs every suite."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.places import configured_hosts, hosts_of, own_paths, traces
from tests.house.rules import MOST_README_LINES
from tests.house.tree import ROOT, acting_files, files, project, pure_files, shown

LOCKS = ["requirements.lock", "requirements-demo.lock", "requirements-go.lock", "requirements-uv.lock"]
SKIPS = """
import pytest
@pytest.mark.skip(reason="no database here")
def test_a(): ...
@pytest.mark.xfail(strict=True)
def test_b(): assert False
"""


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_README_LINES


def test_files_name_no_machine() -> None:
    hosts, paths, named = configured_hosts(), own_paths(ROOT), {}
    for path in files():
        if found := traces(path.read_text(encoding="utf-8", errors="replace"), hosts, paths):
            named[shown(path)] = found
    assert named == {}


@pytest.mark.parametrize(
    "text",
    [
        f"cd /{'home'}/anna/src",
        f"open(/{'Users'}/anna/x)",
        "see /srv/build/dispatcher.",
        "--index-url https://mirror.test/simple",
    ],
)
def test_a_trace_of_a_machine_is_found(text: str) -> None:
    assert traces(text, hosts_of("global.index-url='https://user:secret@mirror.test/simple'"), ["/srv/build"])


@pytest.mark.parametrize(
    "text", ["~/.kube/config", "$HOME/root/x", "GET /home/", "/srv/builds", "https://example.org/p/x"]
)
def test_common_path_or_address_is_no_trace(text: str) -> None:
    assert traces(text, hosts_of("GOPROXY=http://localhost:3000,direct"), ["/srv/build"]) == []


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_pins_with_hashes_and_nothing_else(name: str) -> None:
    assert wrong_lines((ROOT / name).read_text(encoding="utf-8")) == []


def test_other_lines_in_a_lock_are_found() -> None:
    assert wrong_lines("--index-url https://mirror.test\nx==1\ny==2 \\\n    --hash=sha256:0\n    # via z\n") == [
        "--index-url https://mirror.test",
        "x==1",
        "    # via z",
    ]


def test_the_lock_fits_the_project() -> None:
    pins = pinned((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    named, built = project()["project"], project()["build-system"]
    assert isinstance(named, dict)
    assert isinstance(built, dict)
    wanted = [Requirement(one) for one in (*named["dependencies"], *named["optional-dependencies"]["dev"])]
    wanted += [Requirement(one) for one in built["requires"]]
    unfit = [str(one) for one in wanted if not one.specifier.contains(pins.get(canonicalize_name(one.name), "0"))]
    assert unfit == [], "run `make lock`"


def test_makefile_runs_every_suite() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    suites = {path.relative_to(ROOT / "tests").parts[0] for path in files() if path.match("tests/**/test_*.py")}
    assert [suite for suite in sorted(suites) if f"\n{suite}: " not in recipe] == []


def test_the_pure_files_exist() -> None:
    assert pure_files()
    assert [name for name in pure_files() + acting_files() if not (ROOT / name).is_file()] == []


def test_no_pure_file_imports_a_file_that_acts() -> None:
    acting = {name.removesuffix(".py").replace("/", ".") for name in acting_files()}
    assert acting
    found = {name: acting & set(imported(ROOT / name)) for name in pure_files()}
    assert {name: modules for name, modules in found.items() if modules} == {}


def test_imports_of_a_file_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import a.b\nfrom a import c\n\ndef f():\n    from a.d import e\n")
    assert set(imported(tmp_path / "a.py")) == {"a", "a.b", "a.c", "a.d", "a.d.e"}


def test_skipped_test_fails_in_ci(tmp_path: Path) -> None:
    (tmp_path / "test_skips.py").write_text(SKIPS)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "-p", "tests.house.no_skips", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "1 xfailed, 1 error" in done.stdout
    assert "no database here" in done.stdout


def imported(file: Path) -> Iterator[str]:
    """The names of modules that the file imports, and of all that it imports from them."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)


def wrong_lines(lock: str) -> list[str]:
    lines = lock.splitlines()
    following = [*lines[1:], ""]
    return [
        line
        for line, after in zip(lines, following, strict=True)
        if not line.startswith("    --hash=sha256:")
        and not ("==" in line and not line.startswith((" ", "-", "#")) and after.startswith("    --hash"))
    ]


def pinned(lock: str) -> dict[str, str]:
    pins = [Requirement(line.removesuffix("\\")) for line in lock.splitlines() if "==" in line and line[0] != " "]
    return {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in pins}
