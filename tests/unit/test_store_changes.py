"""A store tells each change, with the object before and after it."""

from dispatcher.kube.store import Store
from dispatcher.model.cluster import Node

OLD, NEW = Node(name="a", ready=False, unreachable=False), Node(name="a", ready=True, unreachable=False)
B = Node(name="b", ready=True, unreachable=False)


def test_each_change_of_an_object_is_told_once() -> None:
    told: list[tuple[Node | None, Node | None]] = []
    store: Store[Node] = Store()
    store.on_each(lambda before, after: told.append((before, after)))
    store.put(OLD)
    store.put(OLD)
    store.put(NEW)
    store.drop("a")
    store.drop("a")
    assert told == [(None, OLD), (OLD, NEW), (NEW, None)]


def test_a_list_tells_only_the_differences() -> None:
    told: list[tuple[Node | None, Node | None]] = []
    store: Store[Node] = Store()
    store.replace([OLD, B], "1", 0)
    store.on_each(lambda before, after: told.append((before, after)))
    store.replace([NEW], "2", 0)
    assert sorted(told, key=str) == sorted([(OLD, NEW), (B, None)], key=str)
    told.clear()
    store.replace([NEW], "3", 0)
    assert told == []
