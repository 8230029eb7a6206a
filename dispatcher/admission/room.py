"""Room: whether a node fits a Pod now, as kube-scheduler would judge it, so that a hold is proof.

    RoomIndex ─▶ RoomView: one moment ─▶ Room: the same, less what our Pods without a node will take
                                          ├─▶ has_room(needs)
                                          └─▶ with_launches(pod): the room after them

kube-scheduler alone judges claims and volumes, affinity between Pods, topology spread, host ports, the defaults of a
LimitRange, and the overhead of a RuntimeClass. Here they hold no row.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final, TypeVar

from msgspec import Struct

from dispatcher.admission.claims import Claim, is_free, may_have
from dispatcher.admission.room_view import LevelOfRoom, RoomView
from dispatcher.model.amounts import NOTHING, Amounts, added
from dispatcher.model.launches import PodKind
from dispatcher.model.needs import PodNeeds

K = TypeVar("K")
ANY_NUMBER: Final = 2**31


class Waiting(Struct, frozen=True):
    """Numbers of our Pods for which no node has room. They wait as probes, which a cluster autoscaler sees.

    by_shape: over all queues.
    by_queue: by (queue, shape).
    by_submitter: over all queues.
    total: in all.
    """

    by_shape: Mapping[str, int] = {}
    by_queue: Mapping[tuple[str, str], int] = {}
    by_submitter: Mapping[str, int] = {}
    total: int = 0

    def with_pods(self, pod: PodKind, count: int = 1) -> "Waiting":
        return Waiting(
            more(self.by_shape, pod.shape, count),
            more(self.by_queue, (pod.queue, pod.shape), count),
            more(self.by_submitter, pod.submitted_by, count),
            self.total + count,
        )


class Room(Struct, frozen=True):
    """The room that is left for the next launch of a cycle.

    view: nodes and free amounts at the beginning of the cycle.
    taken: amounts that our Pods without a node will take, by node.
    waiting: our Pods for which there was no node.
    turn: by needs, the place in the list of nodes with room from which the next node is taken.
    witness: by needs, a node that has room; empty if there is none.
    closed: claimed nodes, with the task of each. Nothing is counted on them.
    ready: rows whose claimed node fits them now.
    """

    view: RoomView
    taken: Mapping[str, Amounts] = {}
    waiting: Waiting = Waiting()
    turn: Mapping[PodNeeds, int] = {}
    witness: dict[PodNeeds, str] = {}
    closed: Mapping[str, int] = {}
    ready: Set[int] = frozenset()

    def is_kept_for(self, task_id: int) -> bool:
        """Whether a node, or a part of one, is kept for the row. Then it is not held for room."""
        return task_id in self.ready or task_id in self.view.targets

    def could_take_claimed(self, task_id: int, needs: PodNeeds) -> bool:
        """Whether kube-scheduler could give the Pod a node that is claimed for another row."""
        return any(other != task_id and may_have(needs, node, self.view) for node, other in self.closed.items())

    def has_room(self, needs: PodNeeds | None) -> bool:
        """Whether a node has room now. True for a Pod of which nothing can be said."""
        if needs is None:
            return True
        if needs not in self.witness:
            threshold = self.view.threshold(needs)
            self.witness[needs] = "*" if threshold is None else self._first(needs, self.view.level(threshold))
        return self.witness[needs] != ""

    def _first(self, needs: PodNeeds, level: LevelOfRoom) -> str:
        """The first node with room; empty: there is none."""
        return next(
            (
                name for name in self.view.fitting(needs, level)
                if name not in self.closed and is_left(needs.asks, level.free[name], self.taken.get(name, NOTHING))
            ),
            "",
        )  # fmt: skip

    def with_launches(self, pod: PodKind, count: int = 1) -> "Room":
        """The room after launches whose Pods are alike. Pods for which no node is left wait."""
        threshold = self.view.threshold(pod.needs) if pod.needs is not None else None
        if pod.needs is None or threshold is None:
            return self
        charging = Charging(self, pod.needs, self.view.level(threshold))
        placed = charging.place(count)
        # Room only shrinks within a cycle: an answer stays true unless its node was taken.
        witness = {needs: node for needs, node in self.witness.items() if node not in charging.nodes}
        waiting = self.waiting.with_pods(pod, count - placed) if placed < count else self.waiting
        turn = {**self.turn, pod.needs: charging.turn}
        return Room(self.view, charging.taken, waiting, turn, witness, self.closed, self.ready)


class Charging:
    """Counts equal Pods on nodes, in turns. `taken`, `turn`: of the room after it. `nodes`: the nodes that changed."""

    def __init__(self, room: Room, needs: PodNeeds, level: LevelOfRoom) -> None:
        self.taken = dict(room.taken)
        self.turn = room.turn.get(needs, 0)
        self.nodes: set[str] = set()
        self._asks = dict(needs.asks)
        self._free = level.free
        self._closed = room.closed
        self._found = room.view.nodes_with_room(needs, level)

    def place(self, count: int) -> int:
        """Returns for how many Pods there was room, at most `count`."""
        left = count
        while left and (placed := self._round(left)):
            left -= placed
        return count - left

    def _round(self, most: int) -> int:
        """The same number of Pods for each node that has room for so many, at most `most` in all.

        The number is that of the rounds in which each node would get one Pod.
        """
        placed, each = 0, max(1, most // len(self._found.names)) if self._found.names else 1
        for at in self._found.places(self.turn):
            name = self._found.names[at]
            count = min(each, most - placed, self._left(name))
            if count > 0:
                more = self._asks if count == 1 else {resource: n * count for resource, n in self._asks.items()}
                self.taken[name] = added(self.taken.get(name, NOTHING), more)
                self.nodes.add(name)
                placed, self.turn = placed + count, at + 1
                if placed == most:
                    break
        return placed

    def _left(self, name: str) -> int:
        """For how many of the Pods the node has room."""
        if name in self._closed:
            return 0
        return pods_left(self._asks.items(), self._free[name], self.taken.get(name, NOTHING))


def room_of(view: RoomView, unplaced: Mapping[PodKind, int], claims: Sequence[Claim] = ()) -> Room:
    """The room that Pods without a node, and claims, leave. `unplaced`: how many there are of each."""
    ready = frozenset(claim.task_id for claim in claims if is_free(claim, view))
    room = Room(view, closed={claim.node: claim.task_id for claim in claims}, ready=ready)
    for pod, count in unplaced.items():
        room = room.with_launches(pod, count)
    return room


def is_left(asks: Iterable[tuple[str, int]], free: Amounts, taken: Amounts) -> bool:
    """Whether a node with room has room beside what is taken of it."""
    return not taken or all(free.get(name, 0) - taken.get(name, 0) >= amount for name, amount in asks)


def pods_left(asks: Iterable[tuple[str, int]], free: Amounts, taken: Amounts) -> int:
    """For how many Pods of these requests a node has room beside what is taken of it. Below 0: too much is taken."""
    left = ANY_NUMBER
    for name, amount in asks:
        left = min(left, (free.get(name, 0) - taken.get(name, 0)) // amount)
    return left


def more(counts: Mapping[K, int], key: K, count: int) -> dict[K, int]:
    return {**counts, key: counts.get(key, 0) + count}
