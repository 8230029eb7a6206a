"""Objects with one version over all of them, and what they were a while ago.

Pure. An object that was stored is never changed: a write stores another. The history is what a list `Exact` at an old
version, the pages of one list, and a watch from an old version are made of; beyond `REMEMBERED` changes of a kind it
is forgotten, and whoever asks for it is told so (410).
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
"""Namespace ("" without) and name."""
REMEMBERED: Final = 20_000


class Entry(Struct, frozen=True):
    """One version of an object; `item` is its JSON as it stands in lists, `whole` as it stands alone."""

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
    """`listeners` hear of each change, in order, at once."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self.version = 1
        self.listeners: list[Callable[[Change], None]] = []
        self._entries: dict[Kind, dict[Key, Entry]] = defaultdict(dict)
        self._changes: dict[Kind, deque[Change]] = defaultdict(lambda: deque(maxlen=remembered))

    def get(self, kind: Kind, key: Key) -> Entry | None:
        return self._entries[kind].get(key)

    def all(self, kind: Kind) -> dict[Key, Entry]:
        """As it is now; not to be written to."""
        return self._entries[kind]

    def put(self, kind: Kind, key: Key, object: Json) -> Entry:  # noqa: A002  # Kubernetes calls it so
        self.version += 1
        entry = write_entry(kind, object, self.version)
        before, self._entries[kind][key] = self.get(kind, key), entry
        self._tell(Change(self.version, kind, key, before, entry))
        return entry

    def drop(self, kind: Kind, key: Key) -> None:
        self.version += 1
        before = self._entries[kind].pop(key)
        self._tell(Change(self.version, kind, key, before, None))

    def as_of(self, kind: Kind, version: int) -> dict[Key, Entry]:
        """All objects of the kind at that version. ApiFault 410: forgotten; 504: still to come."""
        self._check(kind, version)
        found = dict(self._entries[kind])
        for change in takewhile(lambda change: change.version > version, reversed(self._changes[kind])):
            if change.before is None:
                del found[change.key]
            else:
                found[change.key] = change.before
        return found

    def since(self, kind: Kind, version: int) -> Iterator[Change]:
        """What came after that version, oldest first. ApiFault as `as_of`."""
        self._check(kind, version)
        newer = list(takewhile(lambda change: change.version > version, reversed(self._changes[kind])))
        return reversed(newer)

    def check_reached(self, version: int) -> None:
        """ApiFault 504: that version is still to come."""
        if version > self.version:
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            words = f"Too large resource version: {version}, current: {self.version}"
            raise ApiFault(504, words, details={"causes": [cause], "retryAfterSeconds": 1})

    def _check(self, kind: Kind, version: int) -> None:
        self.check_reached(version)
        changes = self._changes[kind]
        if changes and len(changes) == changes.maxlen and version < changes[0].version - 1:
            raise expired(f"too old resource version: {version} ({changes[0].version})")

    def _tell(self, change: Change) -> None:
        self._changes[change.kind].append(change)
        for listener in self.listeners:
            listener(change)


def write_entry(kind: Kind, object: Json, version: int = 0) -> Entry:  # noqa: A002  # Kubernetes calls it so
    """`version` 0: it is not stored."""
    told = {"resourceVersion": str(version)} if version else {}
    stored = {**object, "metadata": {**object["metadata"], **told}}
    item = msgspec.json.encode(stored)
    head = f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'.encode()
    return Entry(version, stored, item, head + item[1:])
