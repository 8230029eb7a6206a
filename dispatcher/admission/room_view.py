"""The nodes and their free amounts at one moment, and the search for nodes with room.

Free is what a node has, less the requests of every Pod that is bound to it, or nominated for it, and that our Pod may
not preempt. A threshold is the lowest priority whose Pods count.

The search is the one of kube-scheduler (`numFeasibleNodesToFind`): it begins at another node each time, and stops when
it has found enough nodes. Each resource has its nodes in the order of the free amount, so only nodes with enough of the
scarcest one are looked at.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from dispatcher.model.amounts import Amounts, less
from dispatcher.model.cluster import Node, PriorityClass
from dispatcher.model.needs import OF_THE_MOMENT, PodNeeds, Taint, is_selected, untolerated

KUBE_SCHEDULER: Final = frozenset({"", "default-scheduler"})
EVERY_POD: Final = -(2**31)
"""The threshold of a Pod that preempts none: priorities are 32-bit numbers."""
LEAST_NODES: Final = 100
LEAST_PERCENTAGE: Final = 5
NO_CLASS: Final = PriorityClass("", 0)


def nodes_to_find(nodes: int, percentage: int = 0) -> int:
    """How many nodes with room are enough (`numFeasibleNodesToFind` of kube-scheduler)."""
    if nodes < LEAST_NODES:
        return nodes
    share = percentage or max(50 - nodes // 125, LEAST_PERCENTAGE)
    return max(nodes * share // 100, LEAST_NODES)


def free_for(node: Node, asked: Mapping[int, Amounts], threshold: int) -> Amounts:
    """Free amounts for a Pod that may preempt Pods of a priority below the threshold. `asked`: by priority."""
    left: Amounts = node.size
    for priority, amounts in asked.items():
        if priority >= threshold:
            left = less(left, amounts)
    return left


class LevelOfRoom(Struct, frozen=True):
    """Free amounts for one threshold.

    free: by node.
    order: (amount, node) for each resource, the smallest amount first.
    """

    free: Mapping[str, Amounts]
    order: Mapping[str, Sequence[tuple[int, str]]]


class RoomView(Struct, frozen=True):
    """Nodes and their free amounts at one moment. Answers are remembered, because the moment never changes.

    nodes: nodes by name.
    asked: requested amounts by node and priority.
    classes: PriorityClasses by name.
    schedulers: further schedulers that work as kube-scheduler does.
    most: how many nodes with room one search finds.
    start: where a search begins.
    large_enough: for Pods that had no room: a node that is large enough for them when it is empty.
    levels: by threshold.
    found: nodes with room that were found, by needs.
    """

    nodes: Mapping[str, Node]
    asked: Mapping[str, Mapping[int, Amounts]]
    classes: Mapping[str, PriorityClass]
    schedulers: frozenset[str] = frozenset()
    most: int = LEAST_NODES
    start: int = 0
    large_enough: dict[PodNeeds, str] = {}
    levels: dict[int, LevelOfRoom] = {}
    found: dict[PodNeeds, "Found"] = {}

    def threshold(self, needs: PodNeeds) -> int | None:
        """The lowest priority of Pods that our Pod may not preempt. None: nothing can be said about the Pod."""
        if needs.is_gated or needs.scheduler not in KUBE_SCHEDULER | self.schedulers:
            return None
        if not needs.priority_class:
            one = next((one for one in self.classes.values() if one.is_default), NO_CLASS)
        elif (found := self.classes.get(needs.priority_class)) is None:
            return None
        else:
            one = found
        return EVERY_POD if needs.never_preempts or one.never_preempts else one.value

    def level(self, threshold: int) -> LevelOfRoom:
        if threshold not in self.levels:
            free = {name: free_for(node, self.asked.get(name, {}), threshold) for name, node in self.nodes.items()}
            order: dict[str, list[tuple[int, str]]] = {}
            for name, amounts in free.items():
                for resource, amount in amounts.items():
                    order.setdefault(resource, []).append((amount, name))
            self.levels[threshold] = LevelOfRoom(free, {name: sorted(amounts) for name, amounts in order.items()})
        return self.levels[threshold]

    def groups(self, needs: PodNeeds, level: LevelOfRoom) -> Iterator[Sequence[tuple[float, str]]]:
        """Nodes with room for the Pod as (score, name), the best first, in groups of as many as one search finds."""
        if needs not in self.found:
            self.found[needs] = Found(self._search(needs, level))
        return iter(self.found[needs])

    def _search(self, needs: PodNeeds, level: LevelOfRoom) -> Iterator[Sequence[tuple[float, str]]]:
        names, group = names_with_most_of_it(needs, level), list[tuple[float, str]]()
        begin = self.start % len(names) if names else 0
        taints: dict[tuple[Taint, ...], bool] = {}
        for at in range(len(names)):
            name = names[(begin + at) % len(names)][1]
            if fits(needs.asks, level.free[name]) and self._may_have(needs, name, taints):
                group.append((score(level.free[name], self.nodes[name].size), name))
                if len(group) == self.most:
                    yield sorted(group, reverse=True)
                    group = []
        if group:
            yield sorted(group, reverse=True)

    def _may_have(self, needs: PodNeeds, name: str, known: dict[tuple[Taint, ...], bool]) -> bool:
        """Whether taints, selector and affinity let the Pod have the node."""
        node = self.nodes[name]
        if node.taints not in known:
            known[node.taints] = untolerated(node.taints, needs.tolerations) is None
        return known[node.taints] and is_selected(needs, name, node.labels)

    def is_large_enough_somewhere(self, needs: PodNeeds) -> bool:
        """Whether a node would have room if no Pod and no taint of the moment were on it."""
        known = self.nodes.get(self.large_enough.get(needs, ""))
        if known is None or not could_take(needs, known):
            found = next((node for node in self.nodes.values() if could_take(needs, node)), None)
            if found is None:
                return False
            self.large_enough[needs] = found.name
        return True

    def largest(self, needs: PodNeeds) -> Node | None:
        """The node that comes closest to being large enough, of those that the Pod may have."""
        allowed = [node for node in self.nodes.values() if may_have_one_day(needs, node)]
        return max(allowed, key=lambda node: (covered(needs.asks, node.size), node.name), default=None)


class Found:
    """Groups of nodes that one search finds, each looked for when it is first needed."""

    def __init__(self, groups: Iterator[Sequence[tuple[float, str]]]) -> None:
        self._groups = groups
        self._known: list[Sequence[tuple[float, str]]] = []

    def __iter__(self) -> Iterator[Sequence[tuple[float, str]]]:
        yield from self._known
        for group in self._groups:
            self._known.append(group)
            yield group


def names_with_most_of_it(needs: PodNeeds, level: LevelOfRoom) -> Sequence[tuple[int, str]]:
    """The nodes with enough of one resource: of the one that the fewest nodes have enough of."""
    found: Sequence[tuple[int, str]] | None = None
    for resource, amount in needs.asks:
        order = level.order.get(resource, ())
        begin = bisect_left(order, (amount, ""))
        if found is None or len(order) - begin < len(found):
            found = order[begin:]
    return [(0, name) for name in level.free] if found is None else found


def fits(asks: Iterable[tuple[str, int]], free: Amounts) -> bool:
    return all(free.get(resource, 0) >= amount for resource, amount in asks)


def score(free: Amounts, size: Amounts) -> float:
    """Mean share of cpu and memory that is free (LeastAllocated of kube-scheduler)."""
    shares = [free[name] / size[name] for name in ("cpu", "memory") if size.get(name)]
    return sum(shares) / len(shares) if shares else 0


def could_take(needs: PodNeeds, node: Node) -> bool:
    """Whether the node would have room when it is empty. Taints of the moment and cordons go by themselves."""
    return fits(needs.asks, node.size) and may_have_one_day(needs, node)


def may_have_one_day(needs: PodNeeds, node: Node) -> bool:
    lasting = (taint for taint in node.taints if not taint.key.startswith(OF_THE_MOMENT))
    return untolerated(lasting, needs.tolerations) is None and is_selected(needs, node.name, node.labels)


def covered(asks: Iterable[tuple[str, int]], size: Amounts) -> float:
    """The smallest part of what is asked that the node has."""
    return min((size.get(resource, 0) / amount for resource, amount in asks), default=1)
