"""The nodes to which the launches of one cycle are drawn: warm ones, and one more while these have no room. Pure.

kube-scheduler chooses the node. Without a hint, each launch that finds no room on a warm node goes to a node of its
own, and a busy key ends up on all nodes.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Final

from dispatcher.admission.claims import may_have
from dispatcher.admission.room import Room, pods_left
from dispatcher.model.amounts import NOTHING
from dispatcher.model.needs import PodNeeds

Key = tuple[str, str]
"""Queue and cache key."""
Order = Callable[[Key, Collection[str]], Iterator[str]]
"""All nodes, in an order of the key."""
MOST_WARM: Final = 20
"""So many of its warm nodes are looked at. Each costs some microseconds for each key of a cycle."""
MOST_LOOKED_AT: Final = 200
"""So many nodes are looked at for one more node with room."""


class Draw:
    """One cycle.

    room: the room at its beginning; None: it is not judged, so no node is added.
    copies: to how many nodes a key is drawn at most.
    """

    def __init__(self, room: Room | None, order: Order, copies: int) -> None:
        self._room = room
        self._order = order
        self._copies = copies
        self._keys: dict[tuple[Key, PodNeeds], DrawnKey] = {}

    def nodes(self, key: Key, warm: Sequence[str], needs: PodNeeds | None) -> tuple[str, ...]:
        """The nodes of the next launch of a key, those with room first. `warm`: its warm nodes, the best first."""
        threshold = self._room.view.threshold(needs) if self._room is not None and needs is not None else None
        if self._room is None or needs is None or threshold is None or not warm:
            return tuple(warm)
        if (key, needs) not in self._keys:
            more = (node for node in self._order(key, self._room.view.nodes) if node not in warm)
            self._keys[key, needs] = DrawnKey(self._room, needs, threshold, (warm[:MOST_WARM], more))
        return self._keys[key, needs].next(self._copies)


class DrawnKey:
    """A key in one cycle: its nodes, and for how many more launches they have room."""

    def __init__(self, room: Room, needs: PodNeeds, threshold: int, nodes: tuple[Sequence[str], Iterator[str]]) -> None:
        """`nodes`: the warm ones, and all others in the order of the key."""
        self._room = room
        self._needs = needs
        self._free = room.view.level(threshold).free
        warm, others = nodes
        self._more = islice(others, MOST_LOOKED_AT)
        self._left = {node: self._room_on(node) for node in warm}

    def next(self, copies: int) -> tuple[str, ...]:
        """The nodes of the next launch. It is counted on the first one that has room."""
        first = self._with_room() or self._one_more(copies)
        if first:
            self._left[first] -= 1
        return tuple(sorted(self._left, key=lambda node: (node != first, self._left[node] <= 0)))

    def _with_room(self) -> str:
        return next((node for node, left in self._left.items() if left > 0), "")

    def _one_more(self, copies: int) -> str:
        """One more node that has room; empty: there is none, or the key has enough nodes."""
        if len(self._left) >= copies:
            return ""
        found = next(((node, left) for node in self._more if (left := self._room_on(node)) > 0), None)
        if found is None:
            return ""
        self._left[found[0]] = found[1]
        return found[0]

    def _room_on(self, node: str) -> int:
        """For how many of the Pods the node has room."""
        if node in self._room.closed or not may_have(self._needs, node, self._room.view):
            return 0
        return max(0, pods_left(self._needs.asks, self._free.get(node, NOTHING), self._room.taken.get(node, NOTHING)))
