"""NodeReservations, as far as they make nodes smaller for our Pods.

A reservation begins when it is made. It ends when a Pod of its target gets a node (it has landed), when its time is
over, or when it is deleted. The extender keeps all other Pods from the reserved amount.

A row that is itself a target is not judged by room: what is reserved for it is more than others see.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from itertools import chain
from typing import Final

from dispatcher.model.amounts import NOTHING, Amounts, added
from dispatcher.model.capacity import BoundPod
from dispatcher.model.reservations import Reservation, key_of

CRITICAL: Final = 2_000_000_000
"""Pods of this priority or a higher one may use what is reserved, as with the extender."""


class ReservedRoom:
    """The active reservations of all nodes. Each method for a change returns the nodes where it changes the amounts."""

    def __init__(self, namespace: str, installation: str) -> None:
        """`namespace`, `installation`: of our Jobs."""
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
        """Ends the reservations for this Pod, which has a node."""
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
        """Our tasks for which something is reserved: as a task, or as a Job by its name."""
        return frozenset(chain(numbers(self._by_target, self._tasks), numbers(self._by_target, self._jobs)))

    def _counts(self, one: Reservation) -> bool:
        """Whether it takes room. The room gate knows our own claims already."""
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
