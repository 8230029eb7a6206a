"""A store tells each change, with the object before and after it."""

from dispatcher.kube.reflector import Store
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


def test_view_is_the_same_object_until_something_changes_and_never_changes_itself() -> None:
    store: Store[Node] = Store()
    store.replace([OLD], "1", 0)
    view = store.view()
    store.put(OLD)
    store.replace([OLD], "2", 0)
    store.drop("unknown")
    changed: list[object] = [store.view()]
    store.put(NEW)
    changed.append(store.view())
    store.drop("a")
    changed.append(store.view())
    assert changed == [{"a": OLD}, {"a": NEW}, {}]
    assert view == {"a": OLD}
    assert store.view() is store.view()
    assert store.values() == []
