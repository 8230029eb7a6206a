"""What is free of nodes, kept up with every change that is heard of, in whatever order they come."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.amounts import Amounts
from dispatcher.model.capacity import BoundPod, NodeCapacities, NodeSize, Room
from tests.builders import NOW, later

LARGE = {"cpu": 8000, "memory": 1000, "pods": 110_000}
SMALL = {"cpu": 1000, "memory": 100, "pods": 1000}


def a_size(name: str = "a", size: Amounts = LARGE, age: float = 0) -> NodeSize:
    return NodeSize(name, NOW - timedelta(seconds=age), size)


def a_bound(node: str = "a", asks: Amounts = SMALL, name: str = "default/x") -> BoundPod:
    return BoundPod(name, node, asks)


def rooms_of(*heard: NodeSize | BoundPod) -> NodeCapacities:
    rooms = NodeCapacities()
    for one in heard:
        if isinstance(one, NodeSize):
            rooms.hear_node(None, one)
        else:
            rooms.hear_pod(None, one)
    return rooms


def test_of_nothing_nothing_is_known() -> None:
    assert NodeCapacities().of == {}


def test_an_empty_node_is_free() -> None:
    assert rooms_of(a_size()).of == {"a": Room(8000, 1000, NOW)}


def test_what_pods_on_it_ask_for_is_not() -> None:
    assert rooms_of(a_size(), a_size("b"), a_bound(), a_bound(name="default/y")).of == {
        "a": Room(6000, 800, NOW),
        "b": Room(8000, 1000, NOW),
    }


def test_pods_may_be_heard_of_before_their_node() -> None:
    rooms = rooms_of(a_bound())
    assert rooms.of == {}
    rooms.hear_node(None, a_size())
    assert rooms.of["a"] == Room(7000, 900, NOW)


def test_more_may_be_asked_for_than_there_is() -> None:
    assert rooms_of(a_size(size=SMALL), *[a_bound()] * 3).of["a"] == Room(-2000, -200, NOW)


def test_a_node_that_does_not_say_what_it_has_has_nothing() -> None:
    assert rooms_of(a_size(size={}), a_size("b", {"cpu": 5}), a_bound()).of == {
        "a": Room(-1000, -100, NOW),
        "b": Room(5, 0, NOW),
    }


def test_a_pod_that_asks_for_nothing_takes_nothing() -> None:
    assert rooms_of(a_size(), a_bound(asks={"pods": 1000})).of["a"] == Room(8000, 1000, NOW)


@pytest.mark.parametrize("after", [None, a_bound(asks={"cpu": 500}), a_bound("b")])
def test_a_pod_that_goes_shrinks_or_moves_leaves_its_room_to_others(after: BoundPod | None) -> None:
    rooms = rooms_of(a_size(), a_size("b"), a_bound())
    rooms.hear_pod(a_bound(), after)
    taken = after.asks if after is not None and after.node == "a" else {}
    assert rooms.of["a"] == Room(8000 - taken.get("cpu", 0), 1000 - taken.get("memory", 0), NOW)
    assert rooms.of["b"] == (Room(7000, 900, NOW) if after == a_bound("b") else Room(8000, 1000, NOW))


def test_a_node_that_grows_or_is_another_has_the_same_pods() -> None:
    rooms = rooms_of(a_size(size=SMALL), a_bound())
    rooms.hear_node(a_size(size=SMALL), a_size(age=-60))
    assert rooms.of == {"a": Room(7000, 900, later(60))}


def test_a_node_that_is_gone_is_not_known_and_its_pods_are_when_it_is_back() -> None:
    rooms = rooms_of(a_size(), a_bound())
    rooms.hear_node(a_size(), None)
    assert rooms.of == {}
    rooms.hear_pod(None, a_bound(name="default/y"))
    assert rooms.of == {}
    rooms.hear_node(None, a_size())
    assert rooms.of["a"] == Room(6000, 800, NOW)


def test_what_was_never_there_can_go() -> None:
    rooms = rooms_of(a_size())
    rooms.hear_node(None, None)
    rooms.hear_node(a_size("b"), None)
    rooms.hear_pod(None, None)
    assert rooms.of == {"a": Room(8000, 1000, NOW)}


# In any order

SIZES: st.SearchStrategy[dict[str, int]] = st.builds(dict, cpu=st.integers(0, 9), memory=st.integers(0, 9))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from("ab"), st.none() | SIZES),
        st.tuples(st.just("pod"), st.sampled_from("xyz"), st.none() | st.tuples(st.sampled_from("ab"), SIZES)),
    ),
    max_size=30,
)


def counted(nodes: Mapping[str, NodeSize], pods: Mapping[str, BoundPod]) -> dict[str, Room]:
    """From scratch."""
    asked = {
        name: {what: sum(pod.asks[what] for pod in pods.values() if pod.node == name) for what in ("cpu", "memory")}
        for name in nodes
    }
    return {
        name: Room(node.size["cpu"] - asked[name]["cpu"], node.size["memory"] - asked[name]["memory"], node.created_at)
        for name, node in nodes.items()
    }


@given(steps)
def test_whatever_comes_and_goes_the_room_is_as_if_counted_now(steps: list[tuple[str, str, object]]) -> None:
    rooms, nodes, pods = NodeCapacities(), dict[str, NodeSize](), dict[str, BoundPod]()
    for kind, name, told in steps:
        if kind == "node":
            size = a_size(name, told, age=len(nodes)) if isinstance(told, dict) else None
            rooms.hear_node(nodes.pop(name, None), size)
            nodes |= {name: size} if size else {}
        else:
            bound = BoundPod(name, *told) if isinstance(told, tuple) else None
            rooms.hear_pod(pods.pop(name, None), bound)
            pods |= {name: bound} if bound else {}
        assert rooms.of == counted(nodes, pods)


def test_rooms_are_as_they_were_when_they_have_been_laid_side_by_side() -> None:
    rooms = NodeCapacities()
    for name in ("a", "b"):
        rooms.hear_node(None, NodeSize(name, NOW, {"cpu": 4000, "memory": 10**12}))
    rooms.hear_pod(None, BoundPod("jobs/p", "a", {"cpu": 1000}))
    before, seen = dict(rooms.of), rooms.of
    rooms.compact()
    assert rooms.of is seen
    assert rooms.of == before
    rooms.hear_pod(BoundPod("jobs/p", "a", {"cpu": 1000}), None)
    assert rooms.of["a"].cpu == 4000
