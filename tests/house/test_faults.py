"""Every fault of existing parts has a test, and every marker names a fault or a bug that exists."""

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


def test_fault_numbers_have_no_gap() -> None:
    assert list(MATRIX) == list(range(1, 63))


def test_every_marker_names_an_existing_fault_or_bug() -> None:
    assert [claim for claim in claims() if (claim.marker, claim.of) not in KNOWN] == []


def test_every_fault_of_existing_parts_and_every_bug_has_a_test() -> None:
    assert KNOWN - LATER - {(claim.marker, claim.of) for claim in claims()} == set()


def test_faults_of_later_parts_have_no_test() -> None:
    assert LATER & {(claim.marker, claim.of) for claim in claims()} == set()


def test_every_marker_belongs_to_a_collected_test() -> None:
    """No test runs for a marker on another function, in a list of marks, or in a file that pytest does not collect."""
    for path in python_files("tests/"):
        source = path.read_text(encoding="utf-8")
        is_collected = path.name.startswith("test_")
        claimed = {(claim.marker, claim.of) for claim in claims_of(source, shown(path)) if is_collected}
        written = {mark for node in ast.walk(ast.parse(source)) for mark in marks_in(node)}
        assert written - claimed == set(), shown(path)


def test_markers_are_read_from_functions_and_classes() -> None:
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


def test_faults_page_has_a_line_for_every_fault_and_bug() -> None:
    lines = [line.split(" | ") for line in faults_page().splitlines() if line.startswith("| ")]
    assert {cells[0] for cells in lines} >= {f"| F{number}" for number in MATRIX} | {f"| {bug}" for bug in MUSEUM}
    assert all(len(cells) == 4 for cells in lines if cells[0].startswith("| F"))
