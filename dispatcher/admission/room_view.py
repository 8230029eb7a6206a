"""The nodes and their free amounts at one moment, and the search for nodes with room.

`free_for`: free is what a node has, less the requests of every Pod that is bound to it, or nominated for it, and that
our Pod may not preempt. A threshold is the lowest priority whose Pods count.

`RoomView.fitting`: the search is the one of kube-scheduler (`numFeasibleNodesToFind`). It begins at another node each
time, and stops when it has found enough nodes. Each resource has its nodes in the order of the free amount, so only
nodes with enough of the scarcest one are looked at.

`SortedAmounts`: node names in the order of an amount. All names below a limit are found without a look at the others.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, islice
from typing import Final

from msgspec import Struct

from dispatcher.model.cluster import Node, PriorityClass
from dispatcher.model.needs import (
    KUBE_SCHEDULERS,
    OF_THE_MOMENT,
    PodNeeds,
    Taint,
    is_of_the_start,
    is_selected,
    keeps_away_for_good,
    untolerated,
)
from dispatcher.model.reservations import Reservation
from dispatcher.model.resources import Amounts, less, written

EVERY_POD: Final = -(2**31)
"""The threshold of a Pod that preempts none: priorities are 32-bit numbers."""
LEAST_NODES: Final = 100
"""Nodes with room that a search finds, at least (kube-scheduler's minFeasibleNodesToFind)."""
LEAST_PERCENTAGE: Final = 5
"""Percent of all nodes that a search finds, at least (kube-scheduler's minFeasibleNodesPercentageToFind)."""
MOST_NEEDS: Final = 10_000
"""Needs whose sizes are remembered, at most. Rows can ask for any amount, so there is no end of needs."""
NO_CLASS: Final = PriorityClass("", 0)


def nodes_to_find(nodes: int, percentage: int = 0) -> int:
    """Number of nodes with room after which a search stops (`numFeasibleNodesToFind` of kube-scheduler)."""
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


class Sizes(Struct, frozen=True):
    """The sizes of the nodes that a Pod may have.

    is_enough: whether one of them is large enough when it is empty.
    largest: the one that comes closest; None: the Pod may have no node.
    """

    is_enough: bool
    largest: Node | None


class KnownSizes:
    """Answers about the sizes of nodes, while no node's size, labels or lasting taints change."""

    def __init__(self, most: int = MOST_NEEDS) -> None:
        """`most`: needs that are remembered."""
        self.most = most
        self.of: dict[PodNeeds, Sizes] = {}
        self._groups: list[tuple[Amounts, list[Node]]] = []
        self._total: dict[str, int] = {}

    def groups(self, nodes: Mapping[str, Node]) -> list[tuple[Amounts, list[Node]]]:
        """The nodes of each size."""
        if not self._groups:
            found: dict[tuple[tuple[str, int], ...], list[Node]] = {}
            for node in nodes.values():
                found.setdefault(tuple(sorted(node.size.items())), []).append(node)
            self._groups = [(group[0].size, group) for group in found.values()]
        return self._groups

    def total(self, nodes: Mapping[str, Node]) -> Amounts:
        """The sum of the sizes of all nodes."""
        if not self._total:
            for size, group in self.groups(nodes):
                for name, amount in size.items():
                    self._total[name] = self._total.get(name, 0) + amount * len(group)
        return self._total


class RoomView(Struct, frozen=True):
    """Nodes and their free amounts at one moment. Answers are remembered, because the moment never changes.

    nodes: nodes by name.
    asked: requested amounts by node and priority.
    classes: PriorityClasses by name.
    schedulers: further schedulers that work as kube-scheduler does.
    most: nodes with room that one search finds.
    start: the node at which a search begins, as an index.
    sizes: what is known of the nodes' sizes. It outlives the moment, because sizes seldom change.
    targets: tasks for which something is reserved. Room does not hold them.
    reservations: NodeReservations whose amounts are in `asked`; None: they are not watched.
    young: nodes that have come lately.
    starting: young nodes that have not started.
    levels: by threshold.
    come: answers of `coming`.
    found: nodes with room, by needs.
    reasons: answers of `why_not`.
    """

    nodes: Mapping[str, Node]
    asked: Mapping[str, Mapping[int, Amounts]]
    classes: Mapping[str, PriorityClass]
    schedulers: frozenset[str]
    most: int
    start: int
    sizes: KnownSizes
    targets: Set[int]
    reservations: Sequence[Reservation] | None
    young: tuple[str, ...]
    starting: tuple[str, ...]
    levels: dict[int, LevelOfRoom]
    come: dict[PodNeeds, tuple[str, ...]] = {}
    found: dict[PodNeeds, "NodeMatches"] = {}
    reasons: dict[PodNeeds, tuple[bool, str]] = {}

    @property
    def size(self) -> Amounts:
        """The sum of the sizes of all nodes."""
        return self.sizes.total(self.nodes)

    def threshold(self, needs: PodNeeds) -> int | None:
        """The lowest priority of Pods that our Pod may not preempt. Returns None for a Pod that is not judged."""
        if needs.is_gated or needs.scheduler not in KUBE_SCHEDULERS | self.schedulers:
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

    def nodes_with_room(self, needs: PodNeeds, level: LevelOfRoom) -> "NodeMatches":
        """Nodes with room in the order in which Pods take turns on them."""
        if needs not in self.found:
            self.found[needs] = NodeMatches(self._search(needs, level))
        return self.found[needs]

    def _search(self, needs: PodNeeds, level: LevelOfRoom) -> Iterator[list[str]]:
        """Groups of as many nodes as one search finds; in each group the best first."""
        names = self.fitting(needs, level)
        while group := list(islice(names, self.most)):
            yield sorted(group, key=lambda name: (score(level.free[name], self.nodes[name].size), name), reverse=True)

    def fitting(self, needs: PodNeeds, level: LevelOfRoom) -> Iterator[str]:
        """Nodes with room, found one by one. Each view begins the search at another node."""
        names = names_with_most_of_it(needs, level)
        begin = self.start % len(names) if names else 0
        taints: dict[tuple[Taint, ...], bool] = {}
        for at in chain(range(begin, len(names)), range(begin)):
            name = names[at][1]
            if fits(needs.asks, level.free[name]) and self._may_have(needs, name, taints):
                yield name

    def _may_have(self, needs: PodNeeds, name: str, known: dict[tuple[Taint, ...], bool]) -> bool:
        """Whether taints, selector and affinity let the Pod have the node."""
        node = self.nodes[name]
        if node.taints not in known:
            known[node.taints] = untolerated(node.taints, needs.tolerations) is None
        return known[node.taints] and is_selected(needs, name, node.labels)

    def young_nodes(self) -> Iterator[Node]:
        """The nodes that have come lately."""
        return (self.nodes[name] for name in self.young)

    def coming(self, needs: PodNeeds) -> Sequence[str]:
        """The young nodes that the Pod may have as soon as they have started."""
        if not self.starting:
            return ()
        if needs not in self.come:
            self.come[needs] = tuple(name for name in self.starting if is_coming(needs, self.nodes[name]))
        return self.come[needs]

    def why_not(self, needs: PodNeeds) -> tuple[bool, str]:
        """Whether a node could ever have room for the Pod, and why no node has room now."""
        if needs not in self.reasons:
            self.reasons[needs] = self._why_not(needs)
        return self.reasons[needs]

    def _why_not(self, needs: PodNeeds) -> tuple[bool, str]:
        sizes, asked = self.sizes_for(needs), told(needs.asks)
        if sizes.is_enough:
            return True, f"no node has room for {asked} now"
        if not self.nodes:
            return False, "the cluster has no node"
        if sizes.largest is None:
            return False, f"none of {len(self.nodes)} nodes may have it: taints, node selector or node affinity"
        size = told((name, sizes.largest.size.get(name, 0)) for name, _ in needs.asks)
        largest = f"the largest, {sizes.largest.name}, has {size}"
        return False, f"no node is large enough for {asked}, even when empty; {largest}"

    def sizes_for(self, needs: PodNeeds) -> "Sizes":
        """Whether a node would have room if no Pod, no cordon and no taint of the moment were on it."""
        if needs not in self.sizes.of:
            if len(self.sizes.of) >= self.sizes.most:
                self.sizes.of.clear()
            self.sizes.of[needs] = self._sizes_for(needs)
        return self.sizes.of[needs]

    def _sizes_for(self, needs: PodNeeds) -> "Sizes":
        """Looks at the sizes that come closest first. Many nodes have the same size, so few nodes are looked at."""
        groups = sorted(self.sizes.groups(self.nodes), key=lambda group: covered(needs.asks, group[0]), reverse=True)
        for size, nodes in groups:
            allowed = next((node for node in nodes if may_have_one_day(needs, node)), None)
            if allowed is not None:
                return Sizes(fits(needs.asks, size), allowed)
        return Sizes(False, None)


class NodeMatches:
    """Nodes with room for one kind of Pod. The search goes on when further nodes are needed."""

    def __init__(self, groups: Iterator[list[str]]) -> None:
        self.names: list[str] = []
        self._groups = groups

    def places(self, begin: int) -> Iterator[int]:
        """Indexes in `names`: from `begin` on, then those before it, then those of further nodes that are found."""
        known = len(self.names)
        yield from range(begin, known)
        yield from range(min(begin, known))
        while group := next(self._groups, None):
            self.names += group
            yield from range(known, known := len(self.names))


def names_with_most_of_it(needs: PodNeeds, level: LevelOfRoom) -> Sequence[tuple[int, str]]:
    """Nodes with enough of the scarcest requested resource, with their amounts."""
    orders = [(level.order.get(resource, ()), amount) for resource, amount in needs.asks]
    if not orders:
        return [(0, name) for name in level.free]
    enough = [(order, bisect_left(order, (amount, ""))) for order, amount in orders]
    order, begin = min(enough, key=lambda one: len(one[0]) - one[1])
    return order[begin:]


def fits(asks: Iterable[tuple[str, int]], free: Amounts) -> bool:
    return all(free.get(resource, 0) >= amount for resource, amount in asks)


def score(free: Amounts, size: Amounts) -> float:
    """Mean share of cpu and memory that is free (LeastAllocated of kube-scheduler)."""
    shares = [free[name] / size[name] for name in ("cpu", "memory") if size.get(name)]
    return sum(shares) / len(shares) if shares else 0


def may_have_one_day(needs: PodNeeds, node: Node) -> bool:
    lasting = filter(is_lasting, node.taints)
    return untolerated(lasting, needs.tolerations) is None and is_selected(needs, node.name, node.labels)


def may_come(needs: PodNeeds, node: Node) -> bool:
    """Whether the Pod may have the node when it has started, and the node is large enough."""
    if keeps_away_for_good(node.taints, needs.tolerations) or not is_selected(needs, node.name, node.labels):
        return False
    return all(node.size.get(resource, 0) >= amount for resource, amount in needs.asks)


def is_coming(needs: PodNeeds, node: Node) -> bool:
    """Whether the Pod may have the node when it has started, but not yet."""
    is_kept_away = untolerated(node.taints, needs.tolerations) is not None
    return is_kept_away and may_come(needs, node)


def is_lasting(taint: Taint) -> bool:
    """Whether the taint lasts. Cordons, and taints of the moment or of the start, go after a while."""
    return not (taint.key.startswith(OF_THE_MOMENT) or is_of_the_start(taint))


def covered(asks: Iterable[tuple[str, int]], size: Amounts) -> float:
    """How much of the requests the node has: the smallest part over all resources."""
    return min((size.get(resource, 0) / amount for resource, amount in asks), default=1)


def told(amounts: Iterable[tuple[str, int]]) -> str:
    """Amounts in thousandths as text: `cpu 2, memory 4Gi`."""
    return ", ".join(f"{name} {written(name, amount)}" for name, amount in amounts if name != "pods")


class SortedAmounts:
    """Names in ascending order of their amount. Each name is there once."""

    def __init__(self, amounts: Mapping[str, int] = {}) -> None:
        self._amounts = dict(amounts)
        self._order = sorted((amount, name) for name, amount in amounts.items())

    def __len__(self) -> int:
        return len(self._order)

    def put(self, name: str, amount: int) -> None:
        if self._amounts.get(name) != amount:
            self.drop(name)
            self._amounts[name] = amount
            insort(self._order, (amount, name))

    def drop(self, name: str) -> None:
        amount = self._amounts.pop(name, None)
        if amount is not None:
            del self._order[bisect_left(self._order, (amount, name))]

    def names_below(self, limit: int) -> list[str]:
        """Names whose amount is less than `limit`, the smallest amount first."""
        return [name for _, name in self._order[: bisect_left(self._order, (limit, ""))]]

    def order(self) -> Sequence[tuple[int, str]]:
        """A copy of (amount, name), the smallest amount first."""
        return self._order.copy()
