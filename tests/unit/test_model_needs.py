"""Taints, tolerations, node selectors and node affinity, by the rules of kube-scheduler's filters."""

import pytest

from dispatcher.model.needs import (
    CORDON,
    PodNeeds,
    Requirement,
    SelectorTerm,
    Taint,
    Toleration,
    is_met,
    is_selected,
    untolerated,
)

TAINT = Taint("k", "v", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        (Toleration("k", "Equal", "v", "NoSchedule"), True),
        (Toleration("k", "", "v"), True),
        (Toleration("k", "Equal", "other"), False),
        (Toleration("other", "Equal", "v"), False),
        (Toleration("k", "Equal", "v", "NoExecute"), False),
        (Toleration("k", "Exists"), True),
        (Toleration("k", "Exists", "", "NoExecute"), False),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", "", "NoSchedule"), True),
        (Toleration("k", "Gt", "5"), False),
        (Toleration("k", "of a later version", "5"), True),
    ],
)
def test_toleration_matches_a_taint(toleration: Toleration, is_tolerated: bool) -> None:
    assert (untolerated([TAINT], [toleration]) is None) is is_tolerated


@pytest.mark.parametrize(
    ("operator", "value", "is_tolerated"),
    [("Gt", "4", True), ("Gt", "5", False), ("Lt", "6", True), ("Lt", "x", False)],
)
def test_toleration_compares_numbers(operator: str, value: str, is_tolerated: bool) -> None:
    """KEP-5471: the taint's value is greater, or less, than the toleration's."""
    assert (untolerated([Taint("k", "5")], [Toleration("k", operator, value)]) is None) is is_tolerated


def test_every_taint_must_be_tolerated() -> None:
    other = Taint("other", "", "NoExecute")
    assert untolerated([TAINT, other], [Toleration("k", "Exists")]) == other
    assert untolerated([TAINT, other], [Toleration("k", "Exists"), Toleration("other", "Exists")]) is None
    assert untolerated([Taint("k", "v", "PreferNoSchedule")], []) is None
    assert untolerated([CORDON], []) == CORDON


@pytest.mark.parametrize(
    ("operator", "value", "values", "met"),
    [
        ("In", "a", ("a", "b"), True), ("In", "c", ("a",), False), ("In", None, ("a",), False),
        ("NotIn", "a", ("a",), False), ("NotIn", "c", ("a",), True), ("NotIn", None, ("a",), True),
        ("Exists", "a", (), True), ("Exists", "", (), True), ("Exists", None, (), False),
        ("DoesNotExist", "a", (), False), ("DoesNotExist", None, (), True),
        ("Gt", "5", ("4",), True), ("Gt", "4", ("4",), False), ("Gt", "07", ("6",), True), ("Gt", "-3", ("-4",), True),
        ("Gt", "x", ("4",), False), ("Gt", None, ("4",), False), ("Gt", "5", ("x",), False), ("Gt", "5", (), False),
        ("Lt", "3", ("4",), True), ("Lt", "4", ("4",), False), ("Lt", "+3", ("4",), True),
        ("Lt", "1_0", ("99",), False),
        ("of a later version", "a", (), True),
    ],
)  # fmt: skip
def test_operator_meets_a_label(operator: str, value: str | None, values: tuple[str, ...], met: bool) -> None:
    assert is_met(operator, value, values) is met


A, B = Requirement("a", "Exists"), Requirement("b", "Exists")
NAMED = Requirement("metadata.name", "In", ("n1",))


@pytest.mark.parametrize(
    ("needs", "is_taken"),
    [
        (PodNeeds(), True),
        (PodNeeds(selector=(("a", "1"),)), True),
        (PodNeeds(selector=(("a", "2"),)), False),
        (PodNeeds(selector=(("a", "1"), ("b", "1"))), False),
        (PodNeeds(terms=(SelectorTerm((A,)),)), True),
        (PodNeeds(terms=(SelectorTerm((A, B)),)), False),
        (PodNeeds(terms=(SelectorTerm((B,)), SelectorTerm((A,)))), True),
        (PodNeeds(terms=(SelectorTerm((A,), (NAMED,)),)), True),
        (PodNeeds(terms=(SelectorTerm((), (Requirement("metadata.name", "NotIn", ("n1",)),)),)), False),
        (PodNeeds(terms=(SelectorTerm((A,), (Requirement("metadata.name", "In", ("n2",)),)),)), False),
        (PodNeeds(terms=(SelectorTerm(),)), False),
        (PodNeeds(terms=()), False),
        (PodNeeds(selector=(("a", "2"),), terms=(SelectorTerm((A,)),)), False),
    ],
)
def test_selector_and_one_term_of_the_affinity_must_match(needs: PodNeeds, is_taken: bool) -> None:
    assert is_selected(needs, "n1", {"a": "1"}) is is_taken
