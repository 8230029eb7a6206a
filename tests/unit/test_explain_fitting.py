"""How many Pods of one size fit, as the room gate judges it."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dispatcher.admission.room import Charging, Room
from dispatcher.model.cluster import PriorityClass
from dispatcher.model.needs import CORDON, Taint
from dispatcher.views.nodes import Fits, fitting_of, needs_of
from tests.unit.rooms import a_bound_pod, a_node, needs, room, unplaced


def fits(place: Room, cpu: str | None = "1", memory: str | None = None) -> Fits:
    asked = needs_of(cpu, memory)
    assert asked is not None
    return fitting_of(asked, place, cpu, memory).told


def test_pods_that_fit_are_counted_on_each_node_and_in_all() -> None:
    found = fits(room([a_node("a", cpu="4"), a_node("b", cpu="9", pods="5"), a_node("c", cpu="1")]), "2")
    assert (found.pods, found.nodes) == (6, 2)
    assert [(one.name, one.pods) for one in found.most] == [("b", 4), ("a", 2)]
    assert [(group.count, group.why) for group in found.answers] == [(2, "has room"), (1, "too small: cpu 1 < 2")]


def test_number_of_pods_of_a_node_is_a_bound_too() -> None:
    assert fits(room([a_node(cpu="64", pods="5")])).pods == 5


def test_memory_alone_is_a_size() -> None:
    assert fits(room([a_node(memory="8Gi")]), None, "3Gi").pods == 2


def test_nodes_that_take_no_pod_tell_why() -> None:
    nodes = [a_node("a", taints=(CORDON,)), a_node("b", taints=(Taint("team"),)), a_node("kept"), a_node("full")]
    place = replace(room(nodes, [a_bound_pod("full", cpu="4")]), closed={"kept": 7})
    found = fits(place)
    assert found.pods == 0
    assert {group.why for group in found.answers} == {
        "cordoned", "tainted: team", "kept for a row that has waited longer", "full: cpu 0 < 1",
    }  # fmt: skip


def test_launches_under_way_have_taken_their_room() -> None:
    place = room([a_node(cpu="4")]).with_launches(unplaced(needs("3")))
    assert fits(place).pods == 1
    assert [group.why for group in fits(place, "2").answers] == ["full: cpu 1 < 2"]


def test_pods_of_a_lower_priority_could_be_preempted() -> None:
    place = room([a_node(cpu="4")], [a_bound_pod("n1", cpu="4", priority=-1)], [PriorityClass("default", 0, True)])
    assert fits(place).pods == 4


def test_only_the_nodes_with_the_most_room_are_named() -> None:
    found = fits(room([a_node(f"n{number:02}") for number in range(30)]))
    assert (found.nodes, len(found.most), found.most[0].name) == (30, 20, "n00")


def test_a_question_leaves_nothing_in_the_room() -> None:
    place = room([a_node()])
    fits(place)
    assert (place.witness, place.view.found, place.view.reasons) == ({}, {}, {})


def test_no_size_is_no_question() -> None:
    assert needs_of(None, None) is None


@pytest.mark.parametrize(
    ("cpu", "memory", "words"),
    [
        ("x", None, 'cpu: "x" is not a Kubernetes quantity'),
        ("0", None, 'cpu: "0" is no size of a Pod: give more than 0, and 9E at most'),
        ("1", "-1Gi", 'memory: "-1Gi" is no size'),
        ("1e99", None, 'cpu: "1e99" is no size'),
        ("<script>", None, 'cpu: "<script>" is not'),
        (None, "9" * 40, "memory: "),
    ],
)
def test_a_size_that_is_none_is_refused_with_field_value_and_rule(cpu: str | None, memory: str, words: str) -> None:
    with pytest.raises(ValueError, match="^" + words.replace("(", "\\(")):
        needs_of(cpu, memory)


SIZES = st.integers(1, 12).map(str)


@given(st.lists(st.tuples(SIZES, SIZES, st.booleans()), max_size=6), st.lists(SIZES, max_size=6), SIZES)
def test_as_many_pods_fit_as_the_gate_admits(nodes: list[tuple[str, str, bool]], taken: list[str], cpu: str) -> None:
    made = [
        a_node(f"n{at}", cpu=size, memory=f"{memory}Gi", taints=(CORDON,) if is_closed else ())
        for at, (size, memory, is_closed) in enumerate(nodes)
    ]
    place = room(made)
    for one in taken:
        place = place.with_launches(unplaced(needs(one, "1Gi")))
    asked = needs_of(cpu, "1Gi")
    assert asked is not None
    admitted = Charging(place, asked, place.view.level(0)).place(10_000)
    assert fitting_of(asked, place, cpu, "1Gi").told.pods == admitted
    assert dict(asked.asks)["cpu"] == Fraction(cpu) * 1000
