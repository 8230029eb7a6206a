"""The index of room, kept up to date by changes of nodes, Pods and PriorityClasses."""

import pytest
from msgspec.structs import replace

from dispatcher.admission.room import MOST_THRESHOLDS, Room, RoomIndex
from dispatcher.admission.room_view import KnownSizes
from dispatcher.model.cluster import BoundPod, PriorityClass
from dispatcher.model.needs import PodNeeds, Taint
from tests.unit.rooms import ANY_NODE, NO_NODE, a_bound_pod, a_node, needs, node_for

NODES = [a_node(f"n{number:02}") for number in range(20)]


def an_index() -> RoomIndex:
    """20 nodes, of which all but `n00` are full. Its level was asked for, so changes update it."""
    index = RoomIndex(())
    for node in NODES:
        index.hear_node(None, node)
    for node in NODES[1:]:
        index.hear_pod(None, a_bound_pod(node.name, name=node.name, cpu="4", priority=100))
    assert node_in(index) == "n00"
    return index


FOUR_CORES = needs("4")


def node_in(index: RoomIndex, wanted: PodNeeds = FOUR_CORES) -> str:
    return node_for(Room(index.view()), wanted)


def test_pod_that_comes_takes_room_and_gives_it_back() -> None:
    index, pod = an_index(), a_bound_pod("n00")
    index.hear_pod(None, pod)
    assert node_in(index) == NO_NODE
    index.hear_pod(pod, None)
    assert node_in(index) == "n00"


def test_pod_that_moves_frees_its_old_node() -> None:
    """A nominated Pod is bound to another node after all."""
    index = an_index()
    index.hear_pod(None, nominated := a_bound_pod("", nominated="n00"))
    assert node_in(index) == NO_NODE
    index.hear_pod(nominated, a_bound_pod("n01"))
    assert node_in(index) == "n00"


def test_pod_without_any_node_changes_nothing() -> None:
    index = an_index()
    before = index.view()
    index.hear_pod(None, a_bound_pod(""))
    index.hear_pod(a_bound_pod(""), None)
    assert index.view() is before


def test_node_that_goes_takes_its_room_along_and_returns_with_its_pods() -> None:
    index = an_index()
    index.hear_node(NODES[0], None)
    assert node_in(index) == NO_NODE
    index.hear_pod(None, a_bound_pod("n00", cpu="3"))
    index.hear_node(None, NODES[0])
    assert (node_in(index), node_in(index, needs("1"))) == (NO_NODE, "n00")


def test_sizes_are_looked_at_again_only_if_a_node_changes_for_good() -> None:
    index, flapping = an_index(), a_node("n00", ready=False, taints=(Taint("node.kubernetes.io/not-ready"),))
    assert index.view().why_not(needs("5"))[0] is False
    known = index.view().sizes
    index.hear_node(NODES[0], flapping)
    assert index.view().sizes is known
    assert index.view().why_not(needs("5"))[0] is False
    index.hear_node(flapping, a_node("n00", cpu="5"))
    assert index.view().why_not(needs("5"))[0] is True


def test_resource_that_a_node_loses_is_not_there_any_more() -> None:
    index, gpu = an_index(), {"example.com/gpu": "1"}
    wanted, equipped = needs(more=gpu), a_node("n00", size=gpu)
    index.hear_node(NODES[0], equipped)
    assert node_in(index, wanted) == "n00"
    index.hear_node(equipped, NODES[0])
    assert node_in(index, wanted) == NO_NODE


def test_change_of_a_priority_class_counts_at_once() -> None:
    index, wanted = an_index(), needs("4", priority_class="high")
    index.hear_pod(None, a_bound_pod("n00", priority=5))
    index.hear_priority_class(None, before := PriorityClass("high", 3))
    assert node_in(index, wanted) == NO_NODE
    index.hear_priority_class(before, PriorityClass("high", 9))
    assert node_in(index, wanted) != NO_NODE
    index.hear_priority_class(PriorityClass("high", 9), None)
    assert node_in(index, wanted) == ANY_NODE, "a Pod of an unknown class is not judged"


@pytest.mark.parametrize("count", [1, MOST_THRESHOLDS + 5])
def test_few_levels_are_kept_however_many_priorities_are_asked_for(count: int) -> None:
    index = an_index()
    for number in range(count):
        index.hear_priority_class(None, PriorityClass(f"p{number}", number))
    for number in range(count):
        index.hear_pod(None, a_bound_pod("nowhere", name=f"p{number}"))
        assert node_in(index, needs("4", priority_class=f"p{number}")) == "n00"
    assert len(index.view().levels) <= MOST_THRESHOLDS + 1


def test_size_of_the_cluster_is_that_of_all_its_nodes() -> None:
    index = an_index()
    assert index.view().size == {name: 20 * amount for name, amount in NODES[0].size.items()}
    assert index.view().size == index.view().size
    index.hear_node(NODES[0], None)
    assert index.view().size == {name: 19 * amount for name, amount in NODES[0].size.items()}
    assert RoomIndex(()).view().size == {}


def test_sizes_are_remembered_for_a_bounded_number_of_needs() -> None:
    view = replace(an_index().view(), sizes=KnownSizes(most=3))
    for cores in range(5, 15):
        assert view.why_not(needs(str(cores)))[0] is False
        assert len(view.sizes.of) <= 3


def test_pods_of_several_priorities_come_and_go_on_their_own() -> None:
    index = RoomIndex(())
    index.hear_node(None, a_node())
    low, high, other = (a_bound_pod("n1", name=name, priority=at) for name, at in (("a", 0), ("b", 5), ("c", 5)))
    for pod in (low, high, other):
        index.hear_pod(None, pod)
    index.hear_pod(high, None)
    assert {at: asks["cpu"] for at, asks in index.view().asked["n1"].items()} == {0: 1000, 5: 1000}
    index.hear_pod(other, None)
    assert list(index.view().asked["n1"]) == [0]
    index.hear_pod(low, None)
    assert index.view().asked == {}


def test_resources_that_a_node_lacks_are_counted_when_it_gets_them() -> None:
    index = RoomIndex(())
    pod = BoundPod("x/big", "n1", {"cpu": 1000, "a.b/c": 3000})
    index.hear_pod(None, pod)
    index.hear_node(None, node := a_node())
    assert index.view().asked["n1"] == {0: {"cpu": 1000}}
    index.hear_node(node, a_node(size={"a.b/c": "4"}))
    assert index.view().asked["n1"] == {0: {"cpu": 1000, "a.b/c": 3000}}
