"""Pods that a hold kept from a node: whose turn it is to try again.

kube-scheduler hears nothing of reservations, and would ask again after minutes. So whoever was turned away is
remembered with the nodes that were nearest to having it, and told once one of them could.

Not guaranteed: that the Pod still waits, or that the node still has room when kube-scheduler asks.
"""

from collections.abc import Callable, Iterable
from itertools import islice

from msgspec import Struct

from dispatcher.placement.reservations import Asker

NEAREST, LOOKED_AT, MOST = 10, 200, 5000


class Attempt(Struct, frozen=True, gc=False):
    asker: Asker
    nodes: tuple[str, ...]


class TurnedAway:
    """By name, in the order in which they came."""

    def __init__(self) -> None:
        self._attempts: dict[str, Attempt] = {}
        self._changes, self._to_look_at = 0, 0

    def note(self, asker: Asker, refused: Iterable[str]) -> None:
        """`refused`: nodes with the least room first; none: it was not turned away."""
        self._attempts.pop(asker.name, None)
        if nodes := tuple(refused)[-NEAREST:]:
            self._attempts[asker.name] = Attempt(asker, nodes)
            if len(self._attempts) > MOST:
                self.forget(next(iter(self._attempts)))

    def forget(self, name: str) -> None:
        """It was told, or it is on a node."""
        self._attempts.pop(name, None)

    def who_could(
        self, may_have: Callable[[Asker, str], bool], is_bound: Callable[[Asker], bool], changes: int
    ) -> list[str]:
        """Of some of them, in turn, those that could have one of their nodes now: again, until they are forgotten.
        `changes` of what is held: the others are looked at once after the last.
        """
        if changes != self._changes:
            self._changes, self._to_look_at = changes, len(self._attempts)
        looked_at = list(islice(self._attempts.items(), min(LOOKED_AT, self._to_look_at)))
        found = []
        for name, attempt in looked_at:
            if is_bound(attempt.asker):
                self.forget(name)
            elif any(may_have(attempt.asker, node) for node in attempt.nodes):
                found.append(name)
            else:
                self._attempts[name] = self._attempts.pop(name)  # the others' turn
        self._to_look_at -= len(looked_at) - len(found)
        return found
