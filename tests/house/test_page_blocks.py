"""Each block of a page for a shell or for psql runs in a test, or says that it needs a cluster."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from dispatcher.cli import commands
from tests.house.tree import ROOT, python_files
from tests.node.page_commands import BY_FIXTURE, COMMANDS, in_its_place
from tests.rig.pages import (
    MAKE,
    OPERATOR,
    PAGES,
    PROGRAMS,
    RUN_BY,
    RUNBOOKS,
    SHELL,
    TOOLS,
    Block,
    all_blocks,
    blocks_of,
    commands_for_nodes,
    find_block,
    read_page,
    without_comment,
)

BLOCKS = all_blocks()
PASTED = [block for block in BLOCKS if block.is_pasted]
DRAWN = re.compile("[←-⇿─-◿]")
"""Arrows, lines and boxes."""
IN_A_CLUSTER = re.compile(r"^(kubectl|helm|kind|minikube)\b", re.MULTILINE)
TARGETS = [line for key, test in RUN_BY.items() if test == MAKE for line in find_block(*key).splitlines()]
TEXT = """
```sh
make demo
```

```SQL name=x
SELECT 1;
```

```
 a ─▶ b
```
"""


def runners_of(block: Block) -> list[str]:
    return [test for (page, words), test in RUN_BY.items() if page == block.page and block.text.startswith(words)]


def test_every_block_has_one_test_or_needs_a_cluster() -> None:
    assert PASTED
    wrong = [block for block in PASTED if len(runners_of(block)) != (0 if block.needs_cluster else 1)]
    assert wrong == [], "name a test in tests/rig/pages.py, or begin the block with `# needs a cluster`"


def test_only_a_block_that_calls_a_cluster_needs_one() -> None:
    assert [block for block in PASTED if block.needs_cluster != bool(IN_A_CLUSTER.search(block.text))] == []


@pytest.mark.parametrize(("page", "words"), RUN_BY, ids=str)
def test_every_named_block_and_its_test_exist(page: str, words: str) -> None:
    assert find_block(page, words)
    sources = [path.read_text(encoding="utf-8") for path in python_files("tests/") if path.name.startswith("test_")]
    assert sum(f"def {RUN_BY[page, words]}(" in source for source in sources) == 1


def test_no_fence_is_overlooked() -> None:
    fences = re.compile(r"^\s*(?:```|~~~)", re.MULTILINE)
    assert sum(len(fences.findall(read_page(page))) for page in PAGES) == 2 * len(BLOCKS)


def test_block_without_a_language_is_a_drawing() -> None:
    assert [block for block in BLOCKS if not block.language and not DRAWN.search(block.text)] == []


def test_commands_are_in_blocks_with_a_fence() -> None:
    """An indented block has no language, so it could hide a command from these tests."""
    fenced, indented = re.compile(r"```.*?```", re.DOTALL), re.compile(r"\n\n(?: {4}|\t)(?![ *|-]).*")
    assert {page: found for page in PAGES if (found := indented.findall(fenced.sub("", read_page(page))))} == {}


def test_blocks_are_found_with_language_and_text() -> None:
    assert list(blocks_of("a.md", TEXT)) == [
        Block("a.md", "sh", "make demo\n"),
        Block("a.md", "sql", "SELECT 1;\n"),
        Block("a.md", "", " a ─▶ b\n"),
    ]


def runs_on_nodes(command: str) -> bool:
    return in_its_place(command) in {*COMMANDS, *BY_FIXTURE}


@pytest.mark.parametrize("page", [OPERATOR, *RUNBOOKS])
def test_every_command_of_operators_and_runbooks_is_run_on_nodes(page: str) -> None:
    blocks = [block for block in BLOCKS if block.page == page and block.language in SHELL]
    lines = [line for block in blocks for line in map(without_comment, block.text.splitlines()) if line]
    assert [line for line in lines if not runs_on_nodes(line)] == []
    starts = tuple(f"`{tool} " for tool in TOOLS)
    named = {code.strip("`") for code in re.findall(r"`[^`\n]+`", prose_of(page)) if code.startswith(starts)}
    assert [command for command in named - PROGRAMS if not runs_on_nodes(command)] == []


def prose_of(page: str) -> str:
    """The text of the page without its blocks."""
    return re.sub(r"^```.*?^```$", "", read_page(page), flags=re.MULTILINE | re.DOTALL)


def test_lines_that_run_on_nodes_call_a_tool_that_is_there() -> None:
    words = {line: re.findall(r"[\w-]+", line) for line in commands_for_nodes()}
    assert [line for line, found in words.items() if TOOLS.isdisjoint(found)] == []


@pytest.mark.parametrize("page", [OPERATOR, *RUNBOOKS])
def test_no_command_breaks_over_two_lines_of_text(page: str) -> None:
    """A reader copies one line, and these tests find one."""
    broken = re.findall(rf"`(?:{'|'.join(sorted(TOOLS))}) [^`\n]*\n[^`\n]*`", prose_of(page))
    assert broken == []


def dry_run(command: list[str], folder: Path = ROOT) -> str:
    """The commands that `make` would run. Variables of an outer `make` would give it the jobs of that `make`."""
    env = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}}
    make, *words = command
    done = subprocess.run([make, "-n", *words], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("line", TARGETS)
def test_make_knows_every_target_of_a_block(line: str) -> None:
    command = shlex.split(line, comments=True)
    assert command[0] == "make"
    assert dry_run(command).strip()


FOR_MAKE = ("Makefile", "pyproject.toml", "deploy/install_packages.py", *(path.name for path in ROOT.glob("*.lock")))


def said_by_make(folder: Path) -> list[str]:
    """What `make demo` says before the demo, in a checkout whose files these are. Nothing else of it is run."""
    lines = dry_run(["make", "demo"], folder).splitlines()
    echoes = "\n".join(line for line in lines if line.startswith("echo "))
    return subprocess.run(
        ["sh", "-c", echoes], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_first_make_demo_says_what_it_installs_and_installs_only_that(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    for name in FOR_MAKE:
        shutil.copy(ROOT / name, tmp_path / name)
    number = (ROOT / "requirements-demo.lock").read_text(encoding="utf-8").count("==")
    said = said_by_make(tmp_path)
    assert "Making a virtual environment in .venv; only the first run does this" in said
    installs = [line for line in said if " packages of " in line]
    assert installs == [f"Installing {number} packages of requirements-demo.lock, Postgres among them"]


def test_make_demo_takes_the_environment_of_a_developer_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / ".venv").mkdir()
    for name in (*FOR_MAKE, ".venv/made", ".venv/locked", ".venv/ready"):  # each is newer than the one before
        (tmp_path / name).write_bytes((ROOT / name).read_bytes() if name in FOR_MAKE else b"")
    assert said_by_make(tmp_path) == []


def test_make_demo_passes_options_that_the_demo_has() -> None:
    written = re.findall(r"make demo OPTIONS=(?:\"([^\"]+)\"|(--\w+))", "\n".join(map(read_page, PAGES)))
    options = {name for parameter in commands.commands["demo"].params for name in parameter.opts}
    assert written
    for quoted, plain in written:
        words = shlex.split(quoted or plain)
        assert words[0] in options
        assert dry_run(["make", "demo", f"OPTIONS={shlex.join(words)}"]).rstrip().endswith(f"demo {shlex.join(words)}")
