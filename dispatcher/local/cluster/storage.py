"""Objects under one version counter, and a history of their changes.

Pure. A stored object never changes: a write stores another one. The history serves a list `Exact` at an old version,
the pages of one list, and a watch from an old version. It holds `REMEMBERED` changes of each kind. A request for an
older version gets 410.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.local.cluster.faults import ApiFault, expired
from dispatcher.local.cluster.kinds import Kind

Json = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name. Namespace "": the kind has none."""
REMEMBERED: Final = 20_000


class Entry(Struct, frozen=True):
    """One version of an object. `item`: its JSON inside a list. `whole`: its JSON alone, with kind and apiVersion."""

    version: int
    object: Json
    item: bytes
    whole: bytes


class Change(Struct, frozen=True):
    version: int
    kind: Kind
    key: Key
    before: Entry | None
    after: Entry | None


class Storage:
    """All objects of the cluster. Each write calls the `listeners` with its change before it returns."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self.version = 1
        self.listeners: list[Callable[[Change], None]] = []
        self._entries: dict[Kind, dict[Key, Entry]] = defaultdict(dict)
        self._changes: dict[Kind, deque[Change]] = defaultdict(lambda: deque(maxlen=remembered))

    def get(self, kind: Kind, key: Key) -> Entry | None:
        return self._entries[kind].get(key)

    def all(self, kind: Kind) -> dict[Key, Entry]:
        """The present objects of the kind. Callers must not write to the dict."""
        return self._entries[kind]

    def put(self, kind: Kind, key: Key, object: Json) -> Entry:  # noqa: A002  # Kubernetes calls it so
        self.version += 1
        entry = write_entry(kind, object, self.version)
        before, self._entries[kind][key] = self.get(kind, key), entry
        self._publish(Change(self.version, kind, key, before, entry))
        return entry

    def drop(self, kind: Kind, key: Key) -> None:
        self.version += 1
        before = self._entries[kind].pop(key)
        self._publish(Change(self.version, kind, key, before, None))

    def as_of(self, kind: Kind, version: int) -> dict[Key, Entry]:
        """All objects of the kind at that version. ApiFault 410: it is forgotten. ApiFault 504: it is in the future."""
        self._check(kind, version)
        found = dict(self._entries[kind])
        for change in takewhile(lambda change: change.version > version, reversed(self._changes[kind])):
            if change.before is None:
                del found[change.key]
            else:
                found[change.key] = change.before
        return found

    def since(self, kind: Kind, version: int) -> Iterator[Change]:
        """Changes after that version, oldest first. ApiFault as `as_of`."""
        self._check(kind, version)
        newer = list(takewhile(lambda change: change.version > version, reversed(self._changes[kind])))
        return reversed(newer)

    def check_reached(self, version: int) -> None:
        """ApiFault 504: the version is in the future."""
        if version > self.version:
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            words = f"Too large resource version: {version}, current: {self.version}"
            raise ApiFault(504, words, details={"causes": [cause], "retryAfterSeconds": 1})

    def _check(self, kind: Kind, version: int) -> None:
        self.check_reached(version)
        changes = self._changes[kind]
        if changes and len(changes) == changes.maxlen and version < changes[0].version - 1:
            raise expired(f"too old resource version: {version} ({changes[0].version})")

    def _publish(self, change: Change) -> None:
        self._changes[change.kind].append(change)
        for listener in self.listeners:
            listener(change)


def write_entry(kind: Kind, object: Json, version: int = 0) -> Entry:  # noqa: A002  # Kubernetes calls it so
    """The entry for an object. `version` 0: the object is not stored."""
    versioned = {"resourceVersion": str(version)} if version else {}
    stored = {**object, "metadata": {**object["metadata"], **versioned}}
    item = msgspec.json.encode(stored)
    head = f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'.encode()
    return Entry(version, stored, item, head + item[1:])
