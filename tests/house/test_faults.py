"""Every fault that concerns what exists is shown by a test, and every marker says something that is so."""

import ast

from docs.make_faults import Claim, claims, claims_of, faults_page, marks_in, shown
from tests.faults.matrix import MATRIX, MUSEUM
from tests.house.tree import python_files

KNOWN = {("fault", number) for number in MATRIX} | {("museum", bug) for bug in MUSEUM}
LATER = {("fault", number) for number, fault in MATRIX.items() if fault.later}
SOURCE = """
import pytest
@pytest.mark.parametrize("a", [1])
@pytest.mark.fault(3, 4)
async def test_one(a): ...
@pytest.mark.museum("a bug")
class TestMany:
    def test_two(self): ...
    @pytest.mark.fault(5)
    def test_three(self): ...
@pytest.mark.fault(6)
def no_test(): ...
"""


def test_the_numbers_have_no_gap() -> None:
    assert list(MATRIX) == list(range(1, 63))


def test_every_marker_names_a_fault_or_a_bug_that_there_is() -> None:
    assert [claim for claim in claims() if (claim.marker, claim.of) not in KNOWN] == []


def test_every_fault_of_what_exists_and_every_bug_is_shown_by_a_test() -> None:
    assert KNOWN - LATER - {(claim.marker, claim.of) for claim in claims()} == set()


def test_what_is_to_come_is_claimed_by_no_test() -> None:
    assert LATER & {(claim.marker, claim.of) for claim in claims()} == set()


def test_no_marker_stands_where_no_test_has_it() -> None:
    """On a function that is none, in a list of marks, in a file that is not collected: nobody would run it."""
    for path in python_files("tests/"):
        source = path.read_text(encoding="utf-8")
        is_collected = path.name.startswith("test_")
        heard = {(claim.marker, claim.of) for claim in claims_of(source, shown(path)) if is_collected}
        written = {mark for node in ast.walk(ast.parse(source)) for mark in marks_in(node)}
        assert written - heard == set(), shown(path)


def test_markers_are_read_where_they_stand() -> None:
    read = [(claim.test, claim.marker, claim.of) for claim in claims_of(SOURCE, "tests/faults/test_a.py")]
    assert read == [
        ("test_one", "fault", 3),
        ("test_one", "fault", 4),
        ("test_two", "museum", "a bug"),
        ("test_three", "museum", "a bug"),
        ("test_three", "fault", 5),
    ]


def test_a_claim_reads_as_a_sentence() -> None:
    claim = Claim("tests/faults/test_late_creates.py", "test_a_late_create_runs_nothing", "fault", 13)
    assert claim.sentence == "`faults/late_creates` a late create runs nothing"


def test_every_fault_and_every_bug_has_its_line() -> None:
    lines = [line.split(" | ") for line in faults_page().splitlines() if line.startswith("| ")]
    assert {cells[0] for cells in lines} >= {f"| F{number}" for number in MATRIX} | {f"| {bug}" for bug in MUSEUM}
    assert all(len(cells) == 4 for cells in lines if cells[0].startswith("| F"))
