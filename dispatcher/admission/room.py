"""Room: whether a node fits a Pod now, as kube-scheduler would judge it, so that a hold is proof.

    RoomIndex ─▶ RoomView: one moment ─▶ Room: the same, less what our Pods without a node will take
                                          └─▶ node_for(needs): the best node with room

What the dispatcher cannot judge is left out, and kube-scheduler decides: claims and volumes, affinity between Pods,
topology spread, host ports, defaults of a LimitRange, overhead of a RuntimeClass.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.admission.room_view import LevelOfRoom, RoomView
from dispatcher.model.amounts import NOTHING, Amounts, added
from dispatcher.model.launches import Unplaced
from dispatcher.model.needs import PodNeeds

K = TypeVar("K")
ANY_NODE: Final = "*"
"""Stands for the node of a Pod that is not judged. No node has this name."""
NO_NODE: Final = ""


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

    def with_pods(self, pod: Unplaced, count: int = 1) -> "Waiting":
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
    best: answers of `node_for`, each with its place in that list.
    """

    view: RoomView
    taken: Mapping[str, Amounts] = {}
    waiting: Waiting = Waiting()
    turn: Mapping[PodNeeds, int] = {}
    best: dict[PodNeeds, tuple[str, int]] = {}

    def node_for(self, needs: PodNeeds | None) -> str:
        """A node with room, ANY_NODE for a Pod that is not judged, or NO_NODE.

        Pods with equal needs take turns on the nodes, the best node first.
        """
        return self._find(needs)[0] if needs is not None else ANY_NODE

    def _find(self, needs: PodNeeds) -> tuple[str, int]:
        if needs not in self.best:
            threshold = self.view.threshold(needs)
            self.best[needs] = (ANY_NODE, 0) if threshold is None else self._search(needs, self.view.level(threshold))
        return self.best[needs]

    def _search(self, needs: PodNeeds, level: LevelOfRoom) -> tuple[str, int]:
        found = self.view.nodes_with_room(needs, level)
        fitting = (at for at in found.places(self.turn.get(needs, 0)) if self._fits(needs, found.names[at], level))
        at = next(fitting, None)
        return (found.names[at], at) if at is not None else (NO_NODE, 0)

    def _fits(self, needs: PodNeeds, node: str, level: LevelOfRoom) -> bool:
        """Whether the node has room beside what is taken of it. Without that it had room."""
        taken, free = self.taken.get(node), level.free[node]
        return taken is None or all(free.get(name, 0) - taken.get(name, 0) >= amount for name, amount in needs.asks)

    def with_launch(self, pod: Unplaced) -> "Room":
        """The room after one more launch."""
        if pod.needs is None:
            return self
        node, at = self._find(pod.needs)
        if node == NO_NODE:
            return replace(self, waiting=self.waiting.with_pods(pod))
        if node == ANY_NODE:
            return self
        taken = {**self.taken, node: added(self.taken.get(node, NOTHING), dict(pod.needs.asks))}
        # Room only shrinks within a cycle: an answer stays true unless its node was taken.
        best = {needs: one for needs, one in self.best.items() if one[0] != node}
        return Room(self.view, taken, self.waiting, {**self.turn, pod.needs: at + 1}, best)

    def with_launches(self, pod: Unplaced, count: int) -> "Room":
        """The room after launches whose Pods are alike."""
        room = self
        for left in range(count, 0, -1):
            if room.node_for(pod.needs) == NO_NODE:
                return replace(room, waiting=room.waiting.with_pods(pod, left))
            room = room.with_launch(pod)
        return room


def room_of(view: RoomView, unplaced: Mapping[Unplaced, int]) -> Room:
    """The room that Pods without a node leave. `unplaced`: how many there are of each."""
    room = Room(view)
    for pod, count in unplaced.items():
        room = room.with_launches(pod, count)
    return room


def more(counts: Mapping[K, int], key: K, count: int) -> dict[K, int]:
    return {**counts, key: counts.get(key, 0) + count}
