"""Files refer only to pages of this repository: no comment, docstring or page names a paper that a reader cannot open.

In Python only comments and strings are checked, because these words may be names in code.
"""

import io
import re
import tokenize

import pytest

from tests.house.tree import files, shown

PAPERS = ("protocol", "design", "interface", "style")
SUFFIXES = {".md", ".py", ".sh", ".sql", ".toml", ".yaml", ".yml"}
PAPER = re.compile(rf"(?<![\w$-])(?:{'|'.join(PAPERS).upper()})(?![\w-])(?!\s*=)")
TEXT = {
    number
    for number, name in tokenize.tok_name.items()
    if name in {"COMMENT", "STRING", "FSTRING_MIDDLE", "TSTRING_MIDDLE"}
}


def papers(text: str, suffix: str) -> list[str]:
    """The lines that name a paper, each with its number."""
    if suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        parts = [(token.start[0], token.string) for token in tokens if token.type in TEXT]
    else:
        parts = [(1, text)]
    lines = [line for first, part in parts for line in enumerate(part.splitlines(), first)]
    return [f"{number}: {line.strip()}" for number, line in lines if PAPER.search(line)]


def test_no_file_refers_to_a_paper_outside_the_repository() -> None:
    found = {}
    for path in files():
        if path.suffix in SUFFIXES and (lines := papers(path.read_text(encoding="utf-8"), path.suffix)):
            found[shown(path)] = lines
    assert found == {}, "name a section of docs/protocol.md, or another page of this repository"


@pytest.mark.parametrize("paper", [paper.upper() for paper in PAPERS])
@pytest.mark.parametrize(
    ("before", "after", "suffix"),
    [
        ('"""The rules of ', ' 5."""', ".py"),
        ("x = 1  # as ", " has it", ".py"),
        ("See ", ".md, 2.", ".md"),
        ("-- The roles (", ": SQL).", ".sql"),
        ("key: 1  # ", " 4 and 5", ".yaml"),
    ],
)
def test_a_reference_to_a_paper_is_found(paper: str, before: str, after: str, suffix: str) -> None:
    assert papers(f"{before}{paper}{after}", suffix)


@pytest.mark.parametrize("paper", [paper.upper() for paper in PAPERS])
@pytest.mark.parametrize(
    ("before", "after", "suffix"),
    [
        ("", " = 196608", ".py"),
        ("send(", " + words)", ".py"),
        ("Set `X_", "_VERSION`.", ".md"),
        ("", "=plain", ".sh"),
        ("echo $", "", ".sh"),
    ],
)
def test_a_name_in_capitals_is_no_reference(paper: str, before: str, after: str, suffix: str) -> None:
    assert papers(f"{before}{paper}{after}", suffix) == []
