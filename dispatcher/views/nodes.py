"""Why nodes have no room for a Pod, when a full node has room again, and how many Pods of a size fit. Pure.

`limits_by_node`: the run limits of our Jobs. A Pod of somebody else has no limit that is known here, so it counts as if
it stayed for ever. So does a Pod of another PriorityClass: the row may preempt it, and then its room counts as free
already.

`fitting_of`: judges by the room of the gates, but remembers nothing in it: people can ask for any size, and a room may
last for hours.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import nsmallest
from typing import Final

from msgspec import Struct

from dispatcher.admission.last_cycle import SeenPods
from dispatcher.admission.room import NOBODY, Room, pods_left
from dispatcher.admission.room_view import EVERY_POD, free_for
from dispatcher.model.cluster import Node
from dispatcher.model.jobs import Job
from dispatcher.model.launches import PodOrigin
from dispatcher.model.needs import CORDON_KEY, OF_THE_MOMENT, PodNeeds, Taint, is_selected, untolerated
from dispatcher.model.resources import NOTHING, Amounts, added, less, milli_of, written


class PodLimit(Struct, frozen=True):
    """A running Pod of ours: when it ends at the latest, and what it gives back."""

    ends_at: datetime
    asks: Amounts


def limits_by_node(
    jobs: Iterable[Job], cluster: SeenPods, priority_class: str, now: datetime
) -> Mapping[str, Sequence[PodLimit]]:
    """The running Pods of this PriorityClass by node, the first to end first."""
    found: dict[str, list[PodLimit]] = defaultdict(list)
    for job in jobs:
        needs = cluster.needs_of(job)
        if job.limit_seconds and needs is not None and needs.priority_class == priority_class and not job.is_finished:
            asks, limit = dict(needs.asks), timedelta(seconds=job.limit_seconds)
            for pod in cluster.pods.get(job.uid, ()):
                if pod.node_name and not pod.has_ended:
                    began = pod.scheduled_at or pod.created_at
                    found[pod.node_name].append(PodLimit(max(now, began + limit), asks))
    return {node: sorted(limits, key=lambda one: one.ends_at) for node, limits in found.items()}


def fits_at(needs: PodNeeds, free: Amounts, limits: Iterable[PodLimit]) -> datetime | None:
    """When the Pod fits, if no other Pod comes; None: not even after all of these Pods have ended."""
    for one in limits:
        free = added(free, one.asks)
        if all(free.get(resource, 0) >= asked for resource, asked in needs.asks):
            return one.ends_at
    return None


MOST_EXAMPLES: Final = 3
"""Names of nodes in a group, at most."""
MOST_GROUPS: Final = 10
"""Groups of nodes, at most."""
HAS_ROOM: Final = "has room"
FULL: Final = "full"
KEPT: Final = "kept for a row that has waited longer"
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
    """Why one node has no room. `resource`: the resource that it has too little of; empty: that is not the reason."""

    why: str
    resource: str = ""


def group_nodes(
    needs: PodNeeds, room: Room, task_id: int, limits: Limits = NO_LIMITS, origin: PodOrigin = NOBODY
) -> list[NodeGroup]:
    """The nodes by their answer to a Pod, the largest group first. Empty: the Pod cannot be judged.

    limits: our running Pods, by node.
    """
    threshold = room.view.threshold(needs)
    if threshold is None:
        return []
    groups = NodeGroups(needs)
    for name, node in room.view.nodes.items():
        free, closed = free_of(node, room, threshold), why_closed(room, name, task_id, origin)
        found, amount = answer(needs, node, free, closed)
        is_limited = found.why == FULL and name in limits
        groups.add(name, found, amount, fits_at(needs, free, limits[name]) if is_limited else None)
    return groups.listed()


class Members(Struct):
    """Nodes with one answer, while they are collected. `most`, `until`: the best values of them."""

    names: list[str]
    most: int = 0
    until: datetime | None = None


class NodeGroups:
    """Nodes, collected by their answer to a Pod."""

    def __init__(self, needs: PodNeeds) -> None:
        self._needs = needs
        self._found: dict[Answer, Members] = {}

    def add(self, name: str, found: Answer, amount: int, until: datetime | None = None) -> None:
        """Adds a node. `amount`: of the resource that it has too little of. `until`: when it has room again."""
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
    """The free amounts for a Pod of this threshold, computed. A level of the view would stay for every cycle."""
    free = free_for(node, room.view.asked.get(node.name, {}), threshold)
    return less(free, room.taken.get(node.name, NOTHING))


def why_closed(room: Room, node: str, task_id: int | None = None, origin: PodOrigin = NOBODY) -> str:
    """Why a node takes no Pod of this row, however much room it has; empty: it takes the Pod."""
    if word := room.rejecting.avoided_by(origin).get(node):
        return f"its kubelet rejects such Pods: {word}"
    return KEPT if room.closed.get(node, task_id) != task_id else ""


def answer(needs: PodNeeds, node: Node, free: Amounts, closed: str) -> tuple[Answer, int]:
    """The answer of one node, and how much it has of the resource that it has too little of.

    closed: why it takes no Pod of the row; empty: it takes the Pod.
    """
    if not is_selected(needs, node.name, node.labels):
        return Answer("not allowed by node selector or node affinity"), 0
    if (taint := untolerated(node.taints, needs.tolerations)) is not None:
        return Answer(of_taint(taint.key)), 0
    return room_answer(needs, node, free, closed)


def room_answer(needs: PodNeeds, node: Node, free: Amounts, closed: str) -> tuple[Answer, int]:
    """As `answer`, for a node that the Pod may have."""
    if lacks := lacking(needs, node.size):
        return Answer("too small", lacks), node.size.get(lacks, 0)
    if closed:
        return Answer(closed), 0
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
    """The other groups as one group."""
    if groups:
        yield NodeGroup(sum(group.count for group in groups), "other answers", groups[0].examples)


def free_nodes(room: Room) -> list[tuple[Node, Amounts]]:
    """All nodes by name, each with its free amounts."""
    return [(node, free_of(node, room, EVERY_POD)) for _, node in sorted(room.view.nodes.items())]


MOST_SHOWN: Final = 20
"""Nodes with the most room that are named, at most."""
MOST: Final = milli_of("9E")
"""The largest amount: Kubernetes keeps amounts in 64 bits."""


class NodeFit(Struct, frozen=True):
    """How many of the Pods fit on one node."""

    name: str
    pods: int


class FitSummary(Struct, frozen=True, kw_only=True):
    """How many Pods of one size fit now: Pods without tolerations, node selector, affinity and PriorityClass.

    cpu, memory: the wanted size.
    pods: how many fit in all.
    nodes: number of nodes with room for one.
    most: the nodes with room for the most.
    answers: all nodes by their answer to one such Pod.
    """

    cpu: str | None
    memory: str | None
    pods: int
    nodes: int
    most: Sequence[NodeFit]
    answers: Sequence[NodeGroup]


class PodFits(Struct, frozen=True):
    """How many Pods fit: the page's part, and the number for each node with room."""

    told: FitSummary
    by_node: Mapping[str, int]


def fitting_of(needs: PodNeeds, room: Room, cpu: str | None, memory: str | None) -> PodFits:
    """How many Pods with these needs fit. `cpu`, `memory`: the size in words."""
    threshold = room.view.threshold(needs)
    assert threshold is not None  # of a Pod without a PriorityClass and a scheduler there always is one
    level = room.view.level(threshold)  # the one of most templates, so the gates have asked for it already
    by_node, groups, allowed = dict[str, int](), NodeGroups(needs), NodeEligibility(needs)
    for name, node in room.view.nodes.items():
        free, taken, closed = level.free[name], room.taken.get(name, NOTHING), why_closed(room, name)
        if not allowed.on(node):
            groups.add(name, *answer(needs, node, free, closed))
        elif not closed and (left := pods_left(needs.asks, free, taken)) > 0:
            by_node[name] = left
        else:
            groups.add(name, *room_answer(needs, node, less(free, taken) if taken else free, closed))
    groups.add_all(list(by_node), Answer(HAS_ROOM))
    most = nsmallest(MOST_SHOWN, by_node.items(), key=lambda one: (-one[1], one[0]))
    told = FitSummary(
        cpu=cpu, memory=memory, pods=sum(by_node.values()), nodes=len(by_node),
        most=[NodeFit(*one) for one in most], answers=groups.listed(),
    )  # fmt: skip
    return PodFits(told, by_node)


class NodeEligibility:
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
