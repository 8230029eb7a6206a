"""Room: whether a node fits a Pod now, as kube-scheduler would judge it, so that a hold is proof.

    RoomIndex ─▶ RoomView: one moment ─▶ Room: the same, less what our Pods without a node will take
                                          └─▶ node_for(needs): the best node with room

What the dispatcher cannot judge is left out, and kube-scheduler decides: claims and volumes, affinity between Pods,
topology spread, host ports, defaults of a LimitRange, overhead of a RuntimeClass.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.admission.room_view import LevelOfRoom, RoomView, fits, score
from dispatcher.model.amounts import NOTHING, Amounts, added, less, written
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

    def with_pod(self, pod: Unplaced) -> "Waiting":
        return Waiting(
            more(self.by_shape, pod.shape),
            more(self.by_queue, (pod.queue, pod.shape)),
            more(self.by_submitter, pod.submitted_by),
            self.total + 1,
        )


class Room(Struct, frozen=True):
    """The room that is left for the next launch of a cycle.

    view: nodes and free amounts at the beginning of the cycle.
    taken: amounts that our Pods without a node will take, by node: each is counted on the best node for it.
    waiting: our Pods for which there was no node.
    best: answers of `node_for`.
    """

    view: RoomView
    taken: Mapping[str, Amounts] = {}
    waiting: Waiting = Waiting()
    best: dict[PodNeeds, str] = {}

    def node_for(self, needs: PodNeeds | None) -> str:
        """The best node with room, ANY_NODE for a Pod that is not judged, or NO_NODE."""
        if needs is None:
            return ANY_NODE
        if needs not in self.best:
            self.best[needs] = self._find(needs)
        return self.best[needs]

    def _find(self, needs: PodNeeds) -> str:
        threshold = self.view.threshold(needs)
        if threshold is None:
            return ANY_NODE
        level = self.view.level(threshold)
        for group in self.view.groups(needs, level):
            if found := self._best_of(group, needs, level):
                return found
        return NO_NODE

    def _best_of(self, group: Iterable[tuple[float, str]], needs: PodNeeds, level: LevelOfRoom) -> str:
        """`group`: the best first. What is taken only makes a node worse."""
        best, points = NO_NODE, float("-inf")
        for points_before, name in group:
            if points_before <= points:
                break
            taken = self.taken.get(name, NOTHING)
            free = less(level.free[name], taken)
            if fits(needs.asks, free) and (now := score(free, self.view.nodes[name].size)) > points:
                best, points = name, now
        return best

    def with_launch(self, pod: Unplaced) -> "Room":
        """The room after one more launch."""
        node = self.node_for(pod.needs)
        if node == NO_NODE:
            return replace(self, waiting=self.waiting.with_pod(pod))
        if node == ANY_NODE or pod.needs is None:
            return self
        taken = {**self.taken, node: added(self.taken.get(node, NOTHING), dict(pod.needs.asks))}
        # Room only shrinks within a cycle: an answer stays true unless its node was taken.
        return Room(self.view, taken, self.waiting, {needs: one for needs, one in self.best.items() if one != node})

    def why_not(self, needs: PodNeeds) -> tuple[bool, str]:
        """Whether a node could ever have room, and why none has room now."""
        asked = told(needs.asks)
        if self.view.is_large_enough_somewhere(needs):
            return True, f"no node has room for {asked} now"
        if (largest := self.view.largest(needs)) is None:
            return False, f"none of {len(self.view.nodes)} nodes may have it: taints, node selector or node affinity"
        size = told((name, largest.size.get(name, 0)) for name, _ in needs.asks)
        return False, f"no node is large enough for {asked}, even when empty; the largest, {largest.name}, has {size}"


def room_of(view: RoomView, unplaced: Iterable[Unplaced]) -> Room:
    """The room that Pods without a node leave."""
    room = Room(view)
    for pod in unplaced:
        room = room.with_launch(pod)
    return room


def told(amounts: Iterable[tuple[str, int]]) -> str:
    """Amounts in thousandths as text: `cpu 2, memory 4Gi`."""
    return ", ".join(f"{name} {written(name, amount)}" for name, amount in amounts if name != "pods")


def more(counts: Mapping[K, int], key: K) -> dict[K, int]:
    return {**counts, key: counts.get(key, 0) + 1}
