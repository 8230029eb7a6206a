"""Each check has a test that plants its fault and hears it named."""

import pytest

from dispatcher.doctor.checks import CHECKS
from tests.rig.planted import PLANTED, named_in, planted_in


def test_every_check_has_a_test_that_plants_its_fault() -> None:
    assert set(PLANTED) == set(CHECKS)


@pytest.mark.parametrize(("check", "test"), PLANTED.items(), ids=list(PLANTED))
def test_planting_test_expects_the_check_to_be_named(check: str, test: str) -> None:
    assert check in planted_in(test)


TABLE = """
TABLE = [("SchemaOld", State.FAULT), ("SchemaChanged", State.NOT_CHECKED)]

@pytest.mark.parametrize(("what", "state"), TABLE)
def test_it(what, state): {}
"""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('def test_it():\n assert found.what == "SchemaOld"', {"SchemaOld"}),
        ('def test_it():\n assert faults == {"SchemaOld": "there"}', {"SchemaOld"}),
        ('async def test_it():\n await site.names(settings, "SchemaOld")', {"SchemaOld"}),
        (TABLE.format("assert fault_of(url) == (what, state)"), {"SchemaOld"}),
        (TABLE.format("assert fault_of(url)"), set()),
        ('def test_it():\n "SchemaOld"', set()),
        ('def test_it():\n assert "SchemaOld" in found', set()),
        ('def test_it():\n assert found.what != "SchemaOld"', set()),
        ('def test_it():\n assert {one.what for one in all if one.state is State.NOT_CHECKED} == {"SchemaOld"}', set()),
        ('def test_it():\n good = [x for x in all if x.state is State.GOOD]\n assert good == ["SchemaOld"]', set()),
        ('def test_it(): ...\ndef test_other():\n assert found.what == "SchemaOld"', set()),
    ],
)  # fmt: skip
def test_name_counts_where_a_test_expects_it_as_a_fault(text: str, named: set[str]) -> None:
    assert named_in(text, "test_it") == named


def test_missing_test_is_told() -> None:
    with pytest.raises(KeyError, match="test_gone"):
        named_in("", "test_gone")
