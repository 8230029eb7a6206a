"""Why each node has no room for a Pod, in groups. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from dispatcher.admission.room import Room
from dispatcher.admission.room_view import EVERY_POD, free_for
from dispatcher.explain.room_ends import PodLimit, fits_at
from dispatcher.model.amounts import NOTHING, Amounts, less, written
from dispatcher.model.cluster import Node
from dispatcher.model.needs import CORDON_KEY, OF_THE_MOMENT, PodNeeds, is_selected, untolerated

MOST_EXAMPLES: Final = 3
MOST_GROUPS: Final = 10
HAS_ROOM: Final = "has room"
FULL: Final = "full"
Limits = Mapping[str, Sequence[PodLimit]]
NO_LIMITS: Final[Limits] = {}


class NodeGroup(Struct, frozen=True):
    """Nodes with the same answer to a Pod.

    count: their number.
    why: why they have no room, such as `too small: cpu 4 < 8`. The amount is that of the node that comes closest.
    examples: names of three of them at most.
    until: when the run limits of our Jobs free one of these full nodes, if no other Pod comes first; None: not known.
    """

    count: int
    why: str
    examples: Sequence[str]
    until: datetime | None = None


class Answer(Struct, frozen=True):
    """Why one node has no room. `resource`: of what it has too little; empty: that is not the reason."""

    why: str
    resource: str = ""


def group_nodes(needs: PodNeeds, room: Room, task_id: int, limits: Limits = NO_LIMITS) -> list[NodeGroup]:
    """The nodes by their answer to a Pod, the largest group first. Empty: of this Pod nothing can be said.

    limits: the Pods of ours that run, by node.
    """
    threshold = room.view.threshold(needs)
    if threshold is None:
        return []
    groups = Groups(needs)
    for name, node in room.view.nodes.items():
        is_open, free = room.closed.get(name, task_id) == task_id, free_of(node, room, threshold)
        found, amount = answer(needs, node, free, is_open)
        is_limited = found.why == FULL and name in limits
        groups.add(name, found, amount, fits_at(needs, free, limits[name]) if is_limited else None)
    return groups.listed()


class Members(Struct):
    """Nodes with one answer, while they are collected. `most`, `until`: the best of them."""

    names: list[str]
    most: int = 0
    until: datetime | None = None


class Groups:
    """Nodes, collected by their answer to a Pod."""

    def __init__(self, needs: PodNeeds) -> None:
        self._needs = needs
        self._found: dict[Answer, Members] = {}

    def add(self, name: str, found: Answer, amount: int, until: datetime | None = None) -> None:
        """`amount`: what the node has of the resource that it has too little of. `until`: when it has room again."""
        members = self._found.get(found)
        if members is None:
            members = self._found[found] = Members([])
        members.names.append(name)
        members.most = max(members.most, amount)
        if until is not None:
            members.until = until if members.until is None else min(until, members.until)

    def add_all(self, names: list[str], found: Answer) -> None:
        """Adds nodes with an answer that names no resource."""
        if names:
            self._found[found] = Members(names)

    def listed(self) -> list[NodeGroup]:
        """The largest group first."""
        groups = [
            NodeGroup(len(of.names), in_words(one, of.most, self._needs), of.names[:MOST_EXAMPLES], of.until)
            for one, of in self._found.items()
        ]
        ordered = sorted(groups, key=lambda group: (-group.count, group.why))
        return [*ordered[:MOST_GROUPS], *rest(ordered[MOST_GROUPS:])]


def free_of(node: Node, room: Room, threshold: int) -> Amounts:
    """What is free for a Pod of this threshold. A level of the view is not asked: it would be kept for every cycle."""
    free = free_for(node, room.view.asked.get(node.name, {}), threshold)
    return less(free, room.taken.get(node.name, NOTHING))


def answer(needs: PodNeeds, node: Node, free: Amounts, is_open: bool) -> tuple[Answer, int]:
    """The answer of one node, and how much it has of the resource that it has too little of."""
    if not is_selected(needs, node.name, node.labels):
        return Answer("not allowed by node selector or node affinity"), 0
    if (taint := untolerated(node.taints, needs.tolerations)) is not None:
        return Answer(of_taint(taint.key)), 0
    return room_answer(needs, node, free, is_open)


def room_answer(needs: PodNeeds, node: Node, free: Amounts, is_open: bool) -> tuple[Answer, int]:
    """The same of a node that the Pod may have."""
    if lacks := lacking(needs, node.size):
        return Answer("too small", lacks), node.size.get(lacks, 0)
    if not is_open:
        return Answer("kept for a row that has waited longer"), 0
    if lacks := lacking(needs, free):
        return Answer(FULL, lacks), max(0, free.get(lacks, 0))
    return Answer(HAS_ROOM), 0


def of_taint(key: str) -> str:
    if key == CORDON_KEY:
        return "cordoned"
    return f"not usable now: {key.removeprefix(OF_THE_MOMENT)}" if key.startswith(OF_THE_MOMENT) else f"tainted: {key}"


def lacking(needs: PodNeeds, amounts: Amounts) -> str:
    """The first resource of which there is too little; empty: there is enough."""
    for resource, asked in needs.asks:
        if amounts.get(resource, 0) < asked:
            return resource
    return ""


def in_words(found: Answer, amount: int, needs: PodNeeds) -> str:
    if not found.resource:
        return found.why
    asked = dict(needs.asks)[found.resource]
    return f"{found.why}: {found.resource} {written(found.resource, amount)} < {written(found.resource, asked)}"


def rest(groups: Sequence[NodeGroup]) -> Iterator[NodeGroup]:
    """One group for all that are left."""
    if groups:
        yield NodeGroup(sum(group.count for group in groups), "other answers", groups[0].examples)


def free_nodes(room: Room) -> list[tuple[Node, Amounts]]:
    """All nodes by name, each with what is free on it."""
    return [(node, free_of(node, room, EVERY_POD)) for _, node in sorted(room.view.nodes.items())]
