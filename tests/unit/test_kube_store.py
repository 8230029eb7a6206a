"""The store of a reflector: objects by name, and the age of the last proof."""

import math

import pytest

from dispatcher.kube.reflector import Store
from dispatcher.model.cluster import Node
from tests.rig.builders import a_node


def a_store(*nodes: Node, version: str = "100", now: float = 50) -> Store[Node]:
    store: Store[Node] = Store()
    store.replace(nodes, version, now)
    return store


def test_a_store_without_a_list_is_empty_and_infinitely_old() -> None:
    store: Store[Node] = Store()
    assert (store.is_synced, store.resource_version, store.view()) == (False, "", {})
    assert store.age(now=1e9) == math.inf


def test_a_list_replaces_all_objects() -> None:
    store = a_store(a_node("a"), a_node("b"))
    assert store.replace([a_node("b"), a_node("c")], "200", now=60)
    assert store.view() == {"b": a_node("b"), "c": a_node("c")}
    assert (store.is_synced, store.resource_version, store.age(now=61)) == (True, "200", 1)


def test_a_first_list_and_an_equal_list_are_no_drift() -> None:
    store: Store[Node] = Store()
    assert not store.replace([a_node("a")], "100", now=0)
    assert not store.replace([a_node("a")], "200", now=10)
    assert store.replace([a_node("a", ready=False)], "300", now=20)
    assert store.replace([], "400", now=30)


def test_a_view_does_not_change() -> None:
    store = a_store(a_node("a"))
    before = store.view()
    store.put(a_node("b"))
    store.drop("a")
    assert before == {"a": a_node("a")}
    assert store.view() == {"b": a_node("b")}


def test_only_a_changed_object_counts_as_a_change() -> None:
    store, told = a_store(a_node("a")), list[tuple[Node | None, Node | None]]()
    store.on_each(lambda before, after: told.append((before, after)))
    store.put(a_node("a"))  # a heartbeat
    store.put(a_node("a", ready=False))
    store.put(a_node("b"))
    store.drop("b")
    store.drop("b")
    assert told == [
        (a_node("a"), a_node("a", ready=False)), (None, a_node("b")), (a_node("b"), None)
    ]  # fmt: skip


def test_a_sign_of_life_renews_the_proof_and_may_move_the_version() -> None:
    store = a_store(now=50)
    store.prove(now=70)
    assert (store.age(now=75), store.resource_version) == (5, "100")
    store.prove(now=80, resource_version="170")
    assert (store.age(now=80), store.resource_version) == (0, "170")


@pytest.mark.parametrize(
    ("ours", "theirs", "passed"),
    [("100", "99", True), ("100", "100", False), ("99", "100", False), ("1000", "999", True), ("", "1", False),
     ("1", "", False), ("x", "1", False), ("2", "1a", False)],
)  # fmt: skip
def test_versions_are_compared_only_as_numbers(ours: str, theirs: str, passed: bool) -> None:
    assert a_store(version=ours).has_passed(theirs) is passed


def test_a_store_holds_the_names_of_its_objects() -> None:
    store = a_store(a_node("a"))
    assert "a" in store
    assert "b" not in store
    store.drop("a")
    assert "a" not in store
