"""Free capacity of nodes, after changes of nodes and Pods in any order."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.cluster import BoundPod, FreeCapacity, Node, NodeCapacities
from dispatcher.model.resources import Amounts
from tests.rig.builders import NOW, later

LARGE = {"cpu": 8000, "memory": 1000, "pods": 110_000}
SMALL = {"cpu": 1000, "memory": 100, "pods": 1000}


def a_size(name: str = "a", size: Amounts = LARGE, age: float = 0) -> Node:
    return Node(name, NOW - timedelta(seconds=age), size)


def a_bound(node: str = "a", asks: Amounts = SMALL, name: str = "default/x") -> BoundPod:
    return BoundPod(name, node, asks)


def rooms_of(*heard: Node | BoundPod) -> NodeCapacities:
    rooms = NodeCapacities()
    for one in heard:
        if isinstance(one, Node):
            rooms.hear_node(None, one)
        else:
            rooms.hear_pod(None, one)
    return rooms


def test_capacities_are_empty_at_first() -> None:
    assert NodeCapacities().of == {}


def test_an_empty_node_is_free() -> None:
    assert rooms_of(a_size()).of == {"a": FreeCapacity(8000, 1000, NOW)}


def test_requests_of_bound_pods_are_not_free() -> None:
    assert rooms_of(a_size(), a_size("b"), a_bound(), a_bound(name="default/y")).of == {
        "a": FreeCapacity(6000, 800, NOW),
        "b": FreeCapacity(8000, 1000, NOW),
    }


def test_pods_may_be_heard_before_their_node() -> None:
    rooms = rooms_of(a_bound())
    assert rooms.of == {}
    rooms.hear_node(None, a_size())
    assert rooms.of["a"] == FreeCapacity(7000, 900, NOW)


def test_free_capacity_is_negative_if_pods_request_too_much() -> None:
    assert rooms_of(a_size(size=SMALL), *[a_bound()] * 3).of["a"] == FreeCapacity(-2000, -200, NOW)


def test_a_node_without_allocatable_amounts_has_no_capacity() -> None:
    assert rooms_of(a_size(size={}), a_size("b", {"cpu": 5}), a_bound()).of == {
        "a": FreeCapacity(-1000, -100, NOW),
        "b": FreeCapacity(5, 0, NOW),
    }


def test_a_pod_without_requests_takes_no_capacity() -> None:
    assert rooms_of(a_size(), a_bound(asks={"pods": 1000})).of["a"] == FreeCapacity(8000, 1000, NOW)


@pytest.mark.parametrize("after", [None, a_bound(asks={"cpu": 500}), a_bound("b")])
def test_a_pod_that_goes_shrinks_or_moves_frees_its_capacity(after: BoundPod | None) -> None:
    rooms = rooms_of(a_size(), a_size("b"), a_bound())
    rooms.hear_pod(a_bound(), after)
    taken = after.asks if after is not None and after.node == "a" else {}
    assert rooms.of["a"] == FreeCapacity(8000 - taken.get("cpu", 0), 1000 - taken.get("memory", 0), NOW)
    assert rooms.of["b"] == (FreeCapacity(7000, 900, NOW) if after == a_bound("b") else FreeCapacity(8000, 1000, NOW))


def test_a_changed_or_recreated_node_keeps_its_pods() -> None:
    rooms = rooms_of(a_size(size=SMALL), a_bound())
    rooms.hear_node(a_size(size=SMALL), a_size(age=-60))
    assert rooms.of == {"a": FreeCapacity(7000, 900, later(60))}


def test_a_node_that_comes_back_has_its_pods_again() -> None:
    rooms = rooms_of(a_size(), a_bound())
    rooms.hear_node(a_size(), None)
    assert rooms.of == {}
    rooms.hear_pod(None, a_bound(name="default/y"))
    assert rooms.of == {}
    rooms.hear_node(None, a_size())
    assert rooms.of["a"] == FreeCapacity(6000, 800, NOW)


def test_a_removal_of_unknown_nodes_and_pods_changes_nothing() -> None:
    rooms = rooms_of(a_size())
    rooms.hear_node(None, None)
    rooms.hear_node(a_size("b"), None)
    rooms.hear_pod(None, None)
    assert rooms.of == {"a": FreeCapacity(8000, 1000, NOW)}


# Changes in any order

SIZES: st.SearchStrategy[dict[str, int]] = st.builds(dict, cpu=st.integers(0, 9), memory=st.integers(0, 9))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from("ab"), st.none() | SIZES),
        st.tuples(st.just("pod"), st.sampled_from("xyz"), st.none() | st.tuples(st.sampled_from("ab"), SIZES)),
    ),
    max_size=30,
)


def counted(nodes: Mapping[str, Node], pods: Mapping[str, BoundPod]) -> dict[str, FreeCapacity]:
    """From scratch."""
    asked = {
        name: {what: sum(pod.asks[what] for pod in pods.values() if pod.node == name) for what in ("cpu", "memory")}
        for name in nodes
    }
    return {
        name: FreeCapacity(
            node.size["cpu"] - asked[name]["cpu"], node.size["memory"] - asked[name]["memory"], node.created_at
        )
        for name, node in nodes.items()
    }


@given(steps)
def test_free_capacity_after_any_changes_equals_a_fresh_count(steps: list[tuple[str, str, object]]) -> None:
    rooms, nodes, pods = NodeCapacities(), dict[str, Node](), dict[str, BoundPod]()
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


def test_compacting_does_not_change_free_capacity() -> None:
    rooms = NodeCapacities()
    for name in ("a", "b"):
        rooms.hear_node(None, Node(name, NOW, {"cpu": 4000, "memory": 10**12}))
    rooms.hear_pod(None, BoundPod("jobs/p", "a", {"cpu": 1000}))
    before, seen = dict(rooms.of), rooms.of
    rooms.compact()
    assert rooms.of is seen
    assert rooms.of == before
    rooms.hear_pod(BoundPod("jobs/p", "a", {"cpu": 1000}), None)
    assert rooms.of["a"].cpu == 4000
