"""What a reflector knows: objects by name, the resource version it stands at, and when it last had proof of that."""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


def hear_nothing(_before: object, _after: object) -> None:
    """Whoever only looks at the whole."""


class Store(Generic[T]):
    """Objects of one resource. Before the first list it is not synced, and nothing may be decided by it."""

    def __init__(self) -> None:
        self._hear: Callable[[T | None, T | None], None] = hear_nothing
        self._items: dict[str, T] = {}
        self.is_synced = False
        self.resource_version = ""
        self.proven_at = float("-inf")

    def on_each(self, hear: Callable[[T | None, T | None], None]) -> None:
        """`hear` of each object that changes: what it was, and what it is; None: there was none, there is none."""
        self._hear = hear

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def view(self) -> Mapping[str, T]:
        """A copy that stays as it is while a cycle waits for rows."""
        return dict(self._items)

    def replace(self, items: Iterable[T], resource_version: str, now: float) -> bool:
        """The whole list. True: something was not as the watch had told (drift)."""
        fresh = {item.name: item for item in items}
        differs = self.is_synced and fresh != self._items
        before, self._items = self._items, fresh
        for name in before.keys() | fresh.keys():
            if before.get(name) != fresh.get(name):
                self._hear(before.get(name), fresh.get(name))
        self.is_synced = True
        self.prove(now, resource_version)
        return differs

    def put(self, item: T) -> bool:
        """True: it says something new. A node's heartbeat, for one, does not."""
        before = self._items.get(item.name)
        self._items[item.name] = item
        if before == item:
            return False
        self._hear(before, item)
        return True

    def drop(self, name: str) -> bool:
        before = self._items.pop(name, None)
        if before is not None:
            self._hear(before, None)
        return before is not None

    def has_passed(self, resource_version: str) -> bool:
        """Whether it stands at a later version already (KEP-5504: versions are ordered integers)."""
        ours, theirs = self.resource_version, resource_version
        return ours.isdecimal() and theirs.isdecimal() and int(ours) > int(theirs)

    def prove(self, now: float, resource_version: str = "") -> None:
        """A sign of life from the server, at monotonic `now`."""
        self.proven_at = now
        self.resource_version = resource_version or self.resource_version

    def age(self, now: float) -> float:
        """Seconds since the last proof; infinite before the first."""
        return now - self.proven_at
