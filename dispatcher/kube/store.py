"""The local copy of one resource: objects by name, their resource version, and the time of the last proof."""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


class Store(Generic[T]):
    """Objects of one resource. No decision may use them before the first list.

    is_synced: whether a list was read.
    resource_version: the version that the objects have reached.
    proven_at: monotonic seconds of the last sign of life from the API server.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[T | None, T | None], None]] = []
        self._items: dict[str, T] = {}
        self._view: dict[str, T] | None = None
        self.is_synced = False
        self.resource_version = ""
        self.proven_at = float("-inf")

    def on_each(self, hear: Callable[[T | None, T | None], None]) -> None:
        """Calls `hear(before, after)` for each change. `before` is None for a new object, `after` for a deleted one."""
        self._listeners.append(hear)

    def _tell(self, before: T | None, after: T | None) -> None:
        for hear in self._listeners:
            hear(before, after)

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def view(self) -> Mapping[str, T]:
        """The objects at this moment. It never changes, and is the same object as before if nothing has changed."""
        if self._view is None:
            self._view = dict(self._items)
        return self._view

    def values(self) -> list[T]:
        """The objects at this moment, as a list that the store does not keep."""
        return list(self._items.values())

    def replace(self, items: Iterable[T], resource_version: str, now: float) -> bool:
        """Takes a whole list. Returns True if it differs from what the watch had told (drift)."""
        fresh = {item.name: item for item in items}
        differs = self.is_synced and fresh != self._items
        before, self._items, self._view = self._items, fresh, None
        for name in before.keys() | fresh.keys():
            if before.get(name) != fresh.get(name):
                self._tell(before.get(name), fresh.get(name))
        self.is_synced = True
        self.prove(now, resource_version)
        return differs

    def put(self, item: T) -> None:
        """Stores an object. A node's heartbeat changes none of our fields, so nobody hears of it."""
        before = self._items.get(item.name)
        self._items[item.name] = item
        if before != item:
            self._view = None
            self._tell(before, item)

    def drop(self, name: str) -> None:
        before = self._items.pop(name, None)
        if before is not None:
            self._view = None
            self._tell(before, None)

    def has_passed(self, resource_version: str) -> bool:
        """Whether the store has reached a later version (KEP-5504: versions are ordered integers)."""
        ours, theirs = self.resource_version, resource_version
        return ours.isdecimal() and theirs.isdecimal() and int(ours) > int(theirs)

    def prove(self, now: float, resource_version: str = "") -> None:
        """Notes a sign of life from the API server. `now`: monotonic seconds."""
        self.proven_at = now
        self.resource_version = resource_version or self.resource_version

    def age(self, now: float) -> float:
        """Seconds since the last proof; infinite before the first."""
        return now - self.proven_at
