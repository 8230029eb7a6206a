"""How many Pods of one size fit now, by the room that the gates judge by. Pure.

Nothing is remembered in the room: people can ask for any size, and a room may last for hours.
"""

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import Final

from msgspec import Struct

from dispatcher.admission.room import Room, pods_left
from dispatcher.explain.nodes import HAS_ROOM, Answer, Groups, NodeGroup, answer, room_answer
from dispatcher.model.amounts import NOTHING, less, milli_of
from dispatcher.model.cluster import Node
from dispatcher.model.needs import PodNeeds, Taint, untolerated

MOST_SHOWN: Final = 20
MOST: Final = milli_of("9E")
"""Kubernetes keeps amounts in 64 bits."""


class NodeFit(Struct, frozen=True):
    """How many of the Pods fit on one node."""

    name: str
    pods: int


class Fits(Struct, frozen=True, kw_only=True):
    """How many Pods of one size fit now: Pods without tolerations, node selector, affinity and PriorityClass.

    cpu, memory: the size, as it was asked for.
    pods: how many fit in all.
    nodes: number of nodes with room for one.
    most: the nodes with room for the most.
    answers: all nodes by what they say to one such Pod.
    """

    cpu: str | None
    memory: str | None
    pods: int
    nodes: int
    most: Sequence[NodeFit]
    answers: Sequence[NodeGroup]


class Fitting(Struct, frozen=True):
    """The same, with the number of each node that has room."""

    told: Fits
    by_node: Mapping[str, int]


def fitting_of(needs: PodNeeds, room: Room, cpu: str | None, memory: str | None) -> Fitting:
    """How many Pods with these needs fit. `cpu`, `memory`: the size in words."""
    threshold = room.view.threshold(needs)
    assert threshold is not None  # of a Pod without a PriorityClass and a scheduler there always is one
    level = room.view.level(threshold)  # the one of most templates, so the gates have asked for it already
    by_node, groups, allowed = dict[str, int](), Groups(needs), Allowed(needs)
    for name, node in room.view.nodes.items():
        free, taken, is_open = level.free[name], room.taken.get(name, NOTHING), name not in room.closed
        if not allowed.on(node):
            groups.add(name, *answer(needs, node, free, is_open))
        elif is_open and (left := pods_left(needs.asks, free, taken)) > 0:
            by_node[name] = left
        else:
            groups.add(name, *room_answer(needs, node, less(free, taken) if taken else free, is_open))
    groups.add_all(list(by_node), Answer(HAS_ROOM))
    most = nsmallest(MOST_SHOWN, by_node.items(), key=lambda one: (-one[1], one[0]))
    told = Fits(
        cpu=cpu, memory=memory, pods=sum(by_node.values()), nodes=len(by_node),
        most=[NodeFit(*one) for one in most], answers=groups.listed(),
    )  # fmt: skip
    return Fitting(told, by_node)


class Allowed:
    """Whether a Pod may have a node. Many nodes have the same taints, so few are looked at."""

    def __init__(self, needs: PodNeeds) -> None:
        self._needs = needs
        self._known: dict[tuple[Taint, ...], bool] = {(): True}

    def on(self, node: Node) -> bool:
        if node.taints not in self._known:
            self._known[node.taints] = untolerated(node.taints, self._needs.tolerations) is None
        return self._known[node.taints]


def needs_of(cpu: str | None, memory: str | None) -> PodNeeds | None:
    """A Pod of this size; None: no size is given. Raises ValueError with the field, its value and the rule."""
    asks = [(name, amount_of(name, text)) for name, text in (("cpu", cpu), ("memory", memory)) if text is not None]
    return PodNeeds((*asks, ("pods", 1000))) if asks else None


def amount_of(name: str, text: str) -> int:
    try:
        amount = milli_of(text.strip())
    except ValueError as fault:
        raise ValueError(f"{name}: {fault}") from fault
    if not 0 < amount <= MOST:
        raise ValueError(f'{name}: "{text[:40]}" is no size of a Pod: give more than 0, and 9E at most')
    return amount
