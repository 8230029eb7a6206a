"""Why each node has no room for a Pod, in groups."""

from msgspec.structs import replace

from dispatcher.admission.room import Room
from dispatcher.model.cluster import Node
from dispatcher.model.needs import CORDON, PodNeeds, Taint
from dispatcher.views.nodes import free_nodes, group_nodes
from tests.unit.rooms import a_bound_pod, a_node, needs, room, unplaced


def told(wanted: PodNeeds, place: Room) -> list[tuple[int, str]]:
    return [(group.count, group.why) for group in group_nodes(wanted, place, 42)]


def test_each_node_has_one_answer() -> None:
    nodes = [
        a_node("small", cpu="2"),
        a_node("full", cpu="8"),
        a_node("free", cpu="8"),
        a_node("closed", cpu="8", taints=(CORDON,)),
        a_node("private", cpu="8", taints=(Taint("team", "b"),)),
        a_node("lost", cpu="8", taints=(Taint("node.kubernetes.io/not-ready"),)),
    ]
    place = room(nodes, [a_bound_pod("full", cpu="7")])
    assert sorted(told(needs("4"), place)) == [
        (1, "cordoned"),
        (1, "full: cpu 1 < 4"),
        (1, "has room"),
        (1, "not usable now: not-ready"),
        (1, "tainted: team"),
        (1, "too small: cpu 2 < 4"),
    ]


def test_a_node_that_is_not_selected_says_so_before_all_else() -> None:
    assert told(needs("1", selector=(("disk", "ssd"),)), room([a_node(taints=(CORDON,))])) == [
        (1, "not allowed by node selector or node affinity")
    ]


def test_nodes_with_one_answer_are_one_group_with_the_best_amount_and_three_names() -> None:
    nodes = [a_node(f"n{number}", cpu=str(number)) for number in range(1, 6)]
    (group,) = group_nodes(needs("8"), room(nodes), 42)
    assert (group.count, group.why, list(group.examples)) == (5, "too small: cpu 5 < 8", ["n1", "n2", "n3"])


def test_the_largest_group_comes_first() -> None:
    nodes = [a_node("big", cpu="8"), *(a_node(f"n{number}", cpu="1") for number in range(3))]
    assert told(needs("4"), room(nodes)) == [(3, "too small: cpu 1 < 4"), (1, "has room")]


def test_room_that_our_own_launches_take_is_not_free() -> None:
    place = room([a_node(cpu="4")]).with_launches(unplaced(needs("3")))
    assert told(needs("2"), place) == [(1, "full: cpu 1 < 2")]


def test_a_claimed_node_is_kept_for_its_row() -> None:
    place = replace(room([a_node("n1")]), closed={"n1": 7})
    assert told(needs("1"), place) == [(1, "kept for a row that has waited longer")]
    assert [group.why for group in group_nodes(needs("1"), place, 7)] == ["has room"]


def test_a_resource_that_a_node_does_not_have_is_none_of_it() -> None:
    assert told(needs("1", more={"nvidia.com/gpu": "1"}), room([a_node()])) == [(1, "too small: nvidia.com/gpu 0 < 1")]


def test_beyond_ten_groups_the_rest_is_one_group() -> None:
    nodes = [Node(f"n{number}", taints=(Taint(f"team-{number}"),)) for number in range(13)]
    found = told(needs("1"), room(nodes))
    assert (len(found), found[-1]) == (11, (3, "other answers"))


def test_pod_that_is_not_judged_has_no_groups() -> None:
    assert told(needs("1", scheduler="another"), room([a_node()])) == []


def test_nodes_are_told_by_name_with_what_is_free() -> None:
    place = room([a_node("b", cpu="4"), a_node("a", cpu="2")], [a_bound_pod("b", cpu="1")])
    assert [(node.name, free["cpu"]) for node, free in free_nodes(place)] == [("a", 2000), ("b", 3000)]
