"""Each block of a page for a shell or for psql runs in a test, or says that it needs a cluster."""

import os
import re
import shlex
import subprocess

import pytest

from dispatcher.cli import commands
from tests.house.tree import ROOT, python_files
from tests.node.with_scheduler.test_page_commands import BY_FIXTURE, COMMANDS, in_its_place
from tests.pages import (
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
    assert wrong == [], "name a test in tests/pages.py, or begin the block with `# needs a cluster`"


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
    indented = re.compile(r"\n\n(?: {4}|\t)(?![ *|-]).*")
    assert {page: found for page in PAGES if (found := indented.findall(read_page(page)))} == {}


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


def dry_run(command: list[str]) -> str:
    """The commands that `make` would run. Variables of an outer `make` would give it the jobs of that `make`."""
    env = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}}
    make, *words = command
    done = subprocess.run([make, "-n", *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("line", TARGETS)
def test_make_knows_every_target_of_a_block(line: str) -> None:
    command = shlex.split(line, comments=True)
    assert command[0] == "make"
    assert dry_run(command).strip()


def test_make_demo_passes_options_that_the_demo_has() -> None:
    written = re.findall(r"make demo OPTIONS=(?:\"([^\"]+)\"|(--\w+))", "\n".join(map(read_page, PAGES)))
    options = {name for parameter in commands.commands["demo"].params for name in parameter.opts}
    assert written
    for quoted, plain in written:
        words = shlex.split(quoted or plain)
        assert words[0] in options
        assert dry_run(["make", "demo", f"OPTIONS={shlex.join(words)}"]).rstrip().endswith(f"demo {shlex.join(words)}")
