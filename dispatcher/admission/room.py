"""Room: whether a node fits a Pod now, as kube-scheduler would judge it, so that a hold is proof.

    RoomIndex ─▶ RoomView: one moment ─▶ Room: the same, less what our Pods without a node will take
                                          ├─▶ has_room(needs), has_room_for(pod)
                                          └─▶ with_launches(pod): the room after them

kube-scheduler alone judges claims and volumes, affinity between Pods, topology spread, host ports, the defaults of a
LimitRange, and the overhead of a RuntimeClass. Here they hold no row.

`ReservedRoom`: NodeReservations, as far as they make nodes smaller for our Pods. A reservation begins when it is made.
It ends when a Pod of its target gets a node (it has landed), when its time is over, or when it is deleted. The extender
keeps all other Pods from the reserved amount. A row that is itself a target is not judged by room: it may use more than
others see.

`RoomIndex`: free amounts of all nodes for Pods of each priority, updated with every change. A cycle gets an unchanging
copy.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.admission.claims import NONE_REJECTS, Claim, RejectingNodes, is_free, may_have
from dispatcher.admission.demand import AUTO, Demand, DemandPods
from dispatcher.admission.room_view import (
    KnownSizes,
    LevelOfRoom,
    RoomView,
    SortedAmounts,
    free_for,
    is_lasting,
    nodes_to_find,
)
from dispatcher.model.cluster import CRITICAL, LONG_AGO, BoundPod, Node, PriorityClass
from dispatcher.model.launches import PodKind, PodOrigin
from dispatcher.model.needs import PodNeeds, is_of_the_start
from dispatcher.model.reservations import Reservation, key_of
from dispatcher.model.resources import NOTHING, Amounts, add_to, added, take_from
from dispatcher.model.verdicts import Hold

NOBODY: Final[PodOrigin] = "", ""
ANY_NUMBER: Final = 2**31
"""Number of Pods without requests that a node has room for: no bound."""


class Room(Struct, frozen=True):
    """The room that is left for the next launch of a cycle.

    view: nodes and free amounts at the beginning of the cycle.
    taken: amounts that our Pods without a node will take, by node.
    waiting: our Pods for which there was no node: the demand.
    turn: by needs, the index in the list of nodes with room at which the next Pod is placed.
    witness: by needs and by those that nodes reject, a node that fits; "": no node does; "*": not judged.
    closed: claimed nodes, with the task of each. Nothing is counted on them.
    guarded: claimed nodes for which no Pod may wait that could take them.
    ready: rows whose claimed node fits them now.
    refusals: answers that were asked for: the hold of a kind of Pod without room; None: it may wait as demand.
    rejecting: nodes whose kubelet rejects Pods. None of such a Pod's submitter and shape is counted on them.
    """

    view: RoomView
    taken: Mapping[str, Amounts] = {}
    waiting: DemandPods = DemandPods()
    turn: Mapping[PodNeeds, int] = {}
    witness: dict[tuple[PodNeeds, PodOrigin], str] = {}
    closed: Mapping[str, int] = {}
    guarded: Set[str] = frozenset()
    ready: Set[int] = frozenset()
    refusals: dict[PodKind, Hold | None] = {}
    rejecting: RejectingNodes = NONE_REJECTS

    def usable_by(self, origin: PodOrigin) -> Callable[[str], bool]:
        """Tells whether Pods of this origin may be counted on a node."""
        closed, avoided = self.closed, self.rejecting.avoided_by(origin)
        return lambda node: node not in closed and node not in avoided

    def is_kept_for(self, task_id: int) -> bool:
        """Whether a node, or a part of one, is kept for the row. Then room does not hold it."""
        return task_id in self.ready or task_id in self.view.targets

    def could_take_claimed(self, task_id: int, shape: str, needs: PodNeeds | None) -> bool:
        """Whether the Pod may not wait, because kube-scheduler could give it a node that is claimed for another row.

        The Pod of a row with a claim of its own may wait: otherwise two such rows would take each other's Pods back for
        ever.
        """
        if not self.guarded or needs is None or task_id in self.closed.values():
            return False
        if self.waiting.demand.has_grown(shape):
            return False
        return any(may_have(needs, node, self.view) for node in self.guarded)

    def has_room_for(self, pod: PodKind) -> bool:
        """Whether a node has room for the Pod. False for a shape in doubt."""
        return pod.shape not in self.waiting.demand.contradicted.doubted and self.has_room(pod.needs, pod.origin)

    def has_room(self, needs: PodNeeds | None, origin: PodOrigin = NOBODY) -> bool:
        """Whether a node has room now, or will when it has started. True for a Pod that cannot be judged."""
        if needs is None:
            return True
        key = needs, origin if self.rejecting.by_origin else NOBODY
        if (node := self.witness.get(key)) is None:
            threshold = self.view.threshold(needs)
            node = self.witness[key] = "*" if threshold is None else self._first(*key, self.view.level(threshold))
        return node != ""

    def _first(self, needs: PodNeeds, origin: PodOrigin, level: LevelOfRoom) -> str:
        """The first node with room; empty: there is none."""
        coming, is_usable = self.view.coming(needs), self.usable_by(origin)
        return next(
            (
                name for name in chain(self.view.fitting(needs, level), coming)
                if is_usable(name) and is_left(needs.asks, level.free[name], self.taken.get(name, NOTHING))
            ),
            "",
        )  # fmt: skip

    def with_launches(self, pod: PodKind, count: int = 1) -> "Room":
        """The room after launches of equal Pods. Pods without a node, or of a shape in doubt, wait as demand."""
        if pod.shape in self.waiting.demand.contradicted.doubted:
            return replace(self, waiting=self.waiting.with_pods(pod, count), refusals={})
        threshold = self.view.threshold(pod.needs) if pod.needs is not None else None
        if pod.needs is None or threshold is None:
            return self
        charging = RoomAllocation(self, pod, pod.needs, self.view.level(threshold))
        placed = charging.place(count)
        placed += charging.place_on(self.view.coming(pod.needs), count - placed) if placed < count else 0
        # Room only shrinks within a cycle: an answer stays true unless its node was taken.
        witness = {key: node for key, node in self.witness.items() if node not in charging.nodes}
        waiting = self.waiting.with_pods(pod, count - placed) if placed < count else self.waiting
        turn = {**self.turn, pod.needs: charging.turn}
        return replace(self, taken=charging.taken, waiting=waiting, turn=turn, witness=witness, refusals={})


class RoomAllocation:
    """Counts equal Pods on nodes, in turns. `taken`, `turn`: of the room after it. `nodes`: the nodes that changed."""

    def __init__(self, room: Room, pod: PodKind, needs: PodNeeds, level: LevelOfRoom) -> None:
        self.taken = dict(room.taken)
        self.turn = room.turn.get(needs, 0)
        self.nodes: set[str] = set()
        self._asks = dict(needs.asks)
        self._free = level.free
        self._is_usable = room.usable_by(pod.origin)
        self._found = room.view.nodes_with_room(needs, level)

    def place(self, count: int) -> int:
        """Places up to `count` Pods on nodes with room. Returns their number."""
        left = count
        while left and (placed := self._round(left)):
            left -= placed
        return count - left

    def place_on(self, names: Iterable[str], count: int) -> int:
        """Fills these nodes one by one with up to `count` Pods. Returns their number."""
        left = count
        for name in names:
            if left and (placed := min(left, self._left(name))) > 0:
                self._take(name, placed)
                left -= placed
        return count - left

    def _take(self, name: str, count: int) -> None:
        more = self._asks if count == 1 else {resource: n * count for resource, n in self._asks.items()}
        self.taken[name] = added(self.taken.get(name, NOTHING), more)
        self.nodes.add(name)

    def _round(self, most: int) -> int:
        """Gives each node with room `most // nodes` Pods, at least one, while Pods are left. Returns their number."""
        placed, each = 0, max(1, most // len(self._found.names)) if self._found.names else 1
        for at in self._found.places(self.turn):
            name = self._found.names[at]
            count = min(each, most - placed, self._left(name))
            if count > 0:
                self._take(name, count)
                placed, self.turn = placed + count, at + 1
                if placed == most:
                    break
        return placed

    def _left(self, name: str) -> int:
        """Number of these Pods that the node has room for."""
        if not self._is_usable(name):
            return 0
        return pods_left(self._asks.items(), self._free[name], self.taken.get(name, NOTHING))


def room_of(
    view: RoomView, unplaced: Mapping[PodKind, int], claims: Sequence[Claim] = (), demand: Demand = AUTO,
    rejecting: RejectingNodes = NONE_REJECTS,
) -> Room:  # fmt: skip
    """The room that Pods without a node, and claims, leave.

    unplaced: number of Pods without a node, by kind.
    rejecting: nodes that reject Pods.
    """
    ready = frozenset(claim.task_id for claim in claims if is_free(claim, view))
    closed = {claim.node: claim.task_id for claim in claims}
    guarded = {claim.node for claim in claims if not claim.lets_ask}
    room = Room(view, waiting=DemandPods(demand), closed=closed, guarded=guarded, ready=ready, rejecting=rejecting)
    for pod, count in unplaced.items():
        room = room.with_launches(pod, count)
    return room


def is_left(asks: Iterable[tuple[str, int]], free: Amounts, taken: Amounts) -> bool:
    """Whether the node still has room for the Pod after `taken`."""
    return not taken or all(free.get(name, 0) - taken.get(name, 0) >= amount for name, amount in asks)


def pods_left(asks: Iterable[tuple[str, int]], free: Amounts, taken: Amounts) -> int:
    """Number of Pods with these requests that a node has room for after `taken`. Below 0: too much is taken."""
    left = ANY_NUMBER
    for name, amount in asks:
        left = min(left, (free.get(name, 0) - taken.get(name, 0)) // amount)
    return left


class ReservedRoom:
    """The active reservations of all nodes. Each method for a change returns the nodes whose reserved amounts
    change.
    """

    def __init__(self, namespace: str, installation: str) -> None:
        """`namespace`, `installation`: those of our Jobs."""
        self._jobs = key_of("jobName", namespace, f"{installation}-")
        self._tasks = key_of("taskId", namespace, "")
        self._claims = f"{namespace}/{installation}-claim-"
        self._active: dict[str, Reservation] = {}
        self._by_target: dict[str, set[str]] = defaultdict(set)
        self._landed: set[str] = set()
        """UIDs of reservations whose target has a node."""
        self._next_end = float("inf")

    def hear_reservation(self, before: Reservation | None, after: Reservation | None) -> set[str]:
        nodes = self._end(before.name) if before is not None else set()
        if before is not None and (after is None or before.uid != after.uid):
            self._landed.discard(before.uid)
        if after is not None and self._counts(after):
            self._active[after.name] = after
            self._by_target[after.target].add(after.name)
            self._next_end = min(self._next_end, after.ends_at)
            nodes.add(after.node)
        return nodes

    def hear_bound(self, pod: BoundPod) -> set[str]:
        """Ends the reservations for this Pod, because it has a node."""
        if not self._by_target:
            return set()
        names = set(chain.from_iterable(self._by_target.get(key, ()) for key in pod.keys))
        self._landed |= {self._active[name].uid for name in names}
        return set().union(*(self._end(name) for name in names))

    def pass_time(self, now: float) -> set[str]:
        """Ends the reservations whose time is over. `now`: seconds of the API server's clock."""
        if now < self._next_end:
            return set()
        over = [one.name for one in self._active.values() if one.ends_at <= now]
        nodes = set().union(*(self._end(name) for name in over))
        self._next_end = min((one.ends_at for one in self._active.values()), default=float("inf"))
        return nodes

    def active(self) -> tuple[Reservation, ...]:
        """The reservations that take room now."""
        return tuple(self._active.values())

    def by_node(self) -> Mapping[str, Amounts]:
        """The sum of what is reserved on each node."""
        found: dict[str, Amounts] = {}
        for one in self._active.values():
            found[one.node] = added(found.get(one.node, NOTHING), one.amounts)
        return found

    def tasks(self) -> Set[int]:
        """Our tasks that are targets of a reservation, by task or by the name of a Job."""
        return frozenset(chain(numbers(self._by_target, self._tasks), numbers(self._by_target, self._jobs)))

    def _counts(self, one: Reservation) -> bool:
        """Whether the reservation takes room. Our own claims do not: the room gate knows them already."""
        return not (one.has_landed or one.uid in self._landed or one.name.startswith(self._claims))

    def _end(self, name: str) -> set[str]:
        one = self._active.pop(name, None)
        if one is None:
            return set()
        self._by_target[one.target].discard(name)
        if not self._by_target[one.target]:
            del self._by_target[one.target]
        return {one.node}


def numbers(targets: Iterable[str], prefix: str) -> Iterable[int]:
    """The numbers that follow the prefix in these targets."""
    for target in targets:
        number = target.removeprefix(prefix).partition("-")[0]
        if target.startswith(prefix) and number.isdecimal():
            yield int(number)


MOST_THRESHOLDS: Final = 20
"""Thresholds whose free amounts are kept, at most."""
YOUNG_SECONDS: Final = 900
"""A node that has not started after this time will not (the default of `max-node-provision-time`)."""
Asked = Mapping[int, Amounts]
"""Requested amounts on one node, by priority."""


class RoomIndex:
    """Nodes, requests and PriorityClasses, from their changes in any order."""

    def __init__(
        self, schedulers: Iterable[str], percentage: int = 0, reserved: ReservedRoom | None = None
    ) -> None:  # fmt: skip
        """`schedulers`: names of further kube-schedulers. `percentage`: their percentageOfNodesToScore; 0: default.

        reserved: NodeReservations; None: nobody enforces them.
        """
        self._schedulers = frozenset(schedulers)
        self._percentage = percentage
        self._nodes: dict[str, Node] = {}
        self._sums: dict[str, dict[int, dict[str, int]]] = {}
        """All that Pods ask for, by node and priority. Changed in place."""
        self._asked: dict[str, Asked] = {}
        """The part of it that the nodes have. Anybody may bind Pods with thousands of other resources."""
        self._classes: dict[str, PriorityClass] = {}
        self._levels: dict[int, LevelIndex] = {}
        self._changed: set[str] = set()
        self._young: dict[str, float] = {}
        self._reserved = reserved or ReservedRoom("", "")
        self._is_reserving = reserved is not None
        self._sizes = KnownSizes()
        self._last: RoomView | None = None

    def hear_node(self, before: Node | None, after: Node | None) -> None:
        if before is not None:
            self._nodes.pop(before.name, None)
            self._changed.add(before.name)
            self._young.pop(before.name, None)
        if after is not None:
            self._nodes[after.name] = after
            self._changed.add(after.name)
            if after.created_at > LONG_AGO:
                self._young[after.name] = after.created_at.timestamp()
        if lasting(before) != lasting(after):
            self._sizes = KnownSizes()

    def hear_pod(self, before: BoundPod | None, after: BoundPod | None) -> None:
        """Takes over a change of a Pod. A Pod that preempts others already uses the room of its nominated node."""
        if before is not None and (node := before.node or before.nominated):
            self._changed.add(node)
            take_from(self._sums_of(node, before.priority), before.asks)
            self._drop_empty(node, before.priority)
        if after is not None and (node := after.node or after.nominated):
            self._changed.add(node)
            add_to(self._sums_of(node, after.priority), after.asks)
            self._changed |= self._reserved.hear_bound(after) if after.node else set()

    def hear_reservation(self, before: Reservation | None, after: Reservation | None) -> None:
        self._changed |= self._reserved.hear_reservation(before, after)

    def hear_priority_class(self, before: PriorityClass | None, after: PriorityClass | None) -> None:
        if before is not None:
            self._classes.pop(before.name, None)
        if after is not None:
            self._classes[after.name] = after
        self._last = None

    def view(self, now: float = 0) -> RoomView:
        """The room at this moment. It is the same object as before if nothing has changed.

        now: seconds of the API server's clock, by which reservations end.
        """
        self._changed |= self._reserved.pass_time(now)
        self._changed |= self._grown_old(now)
        if self._last is None or self._changed:
            self._last = self._look(self._last)
            self._changed.clear()
        return self._last

    def _grown_old(self, now: float) -> set[str]:
        """The nodes that are no longer young. After the first look, most nodes of a large cluster are not young."""
        old = {name for name, created_at in self._young.items() if created_at < now - YOUNG_SECONDS}
        for name in old:
            del self._young[name]
        return old

    def _look(self, last: RoomView | None) -> RoomView:
        for name in self._changed:
            self._measure(name)
        asked = self._asked_with_reserved()
        thresholds = [*(last.levels if last else ())][-MOST_THRESHOLDS:]
        is_much = len(self._changed) > len(self._nodes) // 4
        for threshold in thresholds:
            if is_much or threshold not in self._levels:
                self._levels[threshold] = LevelIndex(self._free(asked, threshold, self._nodes))
            else:
                self._levels[threshold].update(self._free(asked, threshold, self._changed))
        self._levels = {threshold: self._levels[threshold] for threshold in thresholds}
        most = nodes_to_find(len(self._nodes), self._percentage)
        return RoomView(
            nodes=self._nodes.copy(),
            asked=asked,
            classes=self._classes.copy(),
            schedulers=self._schedulers,
            most=most,
            start=last.start + most if last else 0,
            sizes=self._sizes,
            targets=self._reserved.tasks(),
            reservations=self._reserved.active() if self._is_reserving else None,
            young=tuple(self._young),
            starting=tuple(sorted(name for name in self._young if any(map(is_of_the_start, self._nodes[name].taints)))),
            levels={threshold: level.copy() for threshold, level in self._levels.items()},
        )

    def _asked_with_reserved(self) -> dict[str, Asked]:
        """A copy of the requests by node. Reserved amounts count as requests of a high priority."""
        every = self._asked.copy()
        for node, amounts in self._reserved.by_node().items():
            asked = every.get(node, {})
            every[node] = {**asked, CRITICAL: added(asked.get(CRITICAL, {}), amounts)}
        return every

    def _free(self, asked: Mapping[str, Asked], threshold: int, names: Iterable[str]) -> dict[str, Amounts | None]:
        """Free amounts by node; None for a node that is gone."""
        return {
            name: free_for(node, asked.get(name, {}), threshold) if (node := self._nodes.get(name)) else None
            for name in names
        }

    def _sums_of(self, node: str, priority: int) -> dict[str, int]:
        return self._sums.setdefault(node, {}).setdefault(priority, {})

    def _drop_empty(self, node: str, priority: int) -> None:
        if not self._sums[node][priority]:
            del self._sums[node][priority]
        if not self._sums[node]:
            del self._sums[node]

    def _measure(self, name: str) -> None:
        """Copies the sums of a node for the next views, for the resources that the node has."""
        self._asked.pop(name, None)
        if (node := self._nodes.get(name)) is not None and name in self._sums:
            sums = self._sums[name].items()
            self._asked[name] = {at: {one: asks[one] for one in node.size if one in asks} for at, asks in sums}


def lasting(node: Node | None) -> object:
    """The part of a node that decides whether it is ever large enough. A node that flaps changes only the rest."""
    return node and (node.size, node.labels, [taint for taint in node.taints if is_lasting(taint)])


class LevelIndex:
    """Free amounts for one threshold: by node, and sorted for each resource."""

    def __init__(self, free: Mapping[str, Amounts | None]) -> None:
        self._free = {name: amounts for name, amounts in free.items() if amounts is not None}
        by_resource: dict[str, dict[str, int]] = defaultdict(dict)
        for name, amounts in self._free.items():
            for resource, amount in amounts.items():
                by_resource[resource][name] = amount
        self._sorted = {resource: SortedAmounts(amounts) for resource, amounts in by_resource.items()}

    def update(self, changed: Mapping[str, Amounts | None]) -> None:
        for name, amounts in changed.items():
            now = amounts or {}
            for resource in self._free.get(name, {}).keys() - now.keys():
                self._sorted[resource].drop(name)
            for resource, amount in now.items():
                self._sorted.setdefault(resource, SortedAmounts()).put(name, amount)
            if amounts is None:
                self._free.pop(name, None)
            else:
                self._free[name] = amounts

    def copy(self) -> LevelOfRoom:
        return LevelOfRoom(self._free.copy(), {resource: one.order() for resource, one in self._sorted.items()})
