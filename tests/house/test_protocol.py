"""docs/protocol.md has the table of outcomes of the code, and every section that a file refers to."""

import re

from dispatcher.jobs.outcome import TABLE
from tests.house.tree import ROOT, files

PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
REFERENCE = re.compile(r"docs/protocol\.md, sections? (\d+)(?: and (\d+))?")
SECTIONS = [int(number) for number in re.findall(r"^## (\d+)\. ", PAGE, re.MULTILINE)]


def test_protocol_page_has_the_table_of_outcomes_in_its_order() -> None:
    section = PAGE.split("## 6.")[1].split("## 7.")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [line.__name__ for line in TABLE]


def test_sections_are_numbered_without_a_gap() -> None:
    assert list(range(1, 12)) == SECTIONS


def test_every_section_that_a_file_names_exists() -> None:
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files()]
    named = {int(number) for text in texts for found in REFERENCE.findall(text) for number in found if number}
    assert named
    assert named <= set(SECTIONS)
