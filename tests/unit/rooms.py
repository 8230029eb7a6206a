"""Nodes, Pods and needs for tests of room, in cores and GiB."""

from collections.abc import Iterable, Mapping
from typing import Any

from dispatcher.admission.room import Room, RoomIndex
from dispatcher.admission.room_view import RoomView
from dispatcher.model.cluster import BoundPod, Node, PriorityClass
from dispatcher.model.launches import PodKind
from dispatcher.model.needs import PodNeeds
from dispatcher.model.resources import milli_of


def amounts_of(written: Mapping[str, str]) -> dict[str, int]:
    return {name: milli_of(amount) for name, amount in written.items()}


def a_node(name: str = "n1", *, cpu: str = "4", memory: str = "8Gi", pods: str = "10", **facts: Any) -> Node:
    more = facts.pop("size", {})
    size = amounts_of({"cpu": cpu, "memory": memory, "pods": pods, **more})
    return Node(name, size={name: amount for name, amount in size.items() if amount}, **facts)


def needs(cpu: str = "1", memory: str = "1Gi", more: Mapping[str, str] = {}, **facts: Any) -> PodNeeds:
    asks = amounts_of({"cpu": cpu, "memory": memory, "pods": "1", **more})
    return PodNeeds(tuple(sorted((name, amount) for name, amount in asks.items() if amount)), **facts)


def a_bound_pod(node: str, *, name: str = "p", cpu: str = "1", memory: str = "1Gi", **facts: Any) -> BoundPod:
    return BoundPod(f"others/{name}", node, amounts_of({"cpu": cpu, "memory": memory, "pods": "1"}), **facts)


def view_of(
    nodes: Iterable[Node], pods: Iterable[BoundPod] = (), classes: Iterable[PriorityClass] = (), *scheduler: str
) -> RoomView:
    index = RoomIndex(scheduler, 100 if scheduler else 0)
    for node in nodes:
        index.hear_node(None, node)
    for pod in pods:
        index.hear_pod(None, pod)
    for one in classes:
        index.hear_priority_class(None, one)
    return index.view()


def room(nodes: Iterable[Node], pods: Iterable[BoundPod] = (), classes: Iterable[PriorityClass] = ()) -> Room:
    return Room(view_of(nodes, pods, classes))


NO_NODE, ANY_NODE = "", "*"


def node_for(room: Room, wanted: PodNeeds | None) -> str:
    """The node on which the next launch is counted; NO_NODE: it waits; ANY_NODE: it is not judged."""
    after = room.with_launches(unplaced(wanted))
    changed = [name for name, amounts in after.taken.items() if room.taken.get(name) != amounts]
    is_waiting = after.waiting.total > room.waiting.total
    assert room.has_room(wanted) is not is_waiting
    return NO_NODE if is_waiting else changed[0] if changed else ANY_NODE


def unplaced(needs: PodNeeds | None, shape: str = "small", queue: str = "q", submitter: str = "team_a") -> PodKind:
    return PodKind(queue, submitter, shape, needs)
