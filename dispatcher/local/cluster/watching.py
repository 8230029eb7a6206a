"""One watch: changes from a version on, as lines, with a bookmark before the end."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from dispatcher.local.cluster.faults import ApiFault, expired
from dispatcher.local.cluster.kinds import Kind, Target
from dispatcher.local.cluster.listing import Query, read_number, read_selection, read_version
from dispatcher.local.cluster.storage import Change, Storage

DEFAULT_SECONDS: Final = 1800
BOOKMARK_SECONDS: Final = 50
BEFORE_THE_END: Final = 2
BEHIND_AT_MOST: Final = 10_000
"""Most lines that wait for one reader. A slower reader gets an error, and has to list again."""


class Watch:
    """One watch. `lines` ends after the requested time. The caller must call `close`, also after a fault."""

    def __init__(self, storage: Storage, target: Target, query: Query) -> None:
        self._storage = storage
        self._kind = target.kind
        self._selection = read_selection(target, query)
        self._is_marked = query.get("allowWatchBookmarks") in {"true", "1"}
        self._ends_at = time.monotonic() + (read_number(query, "timeoutSeconds") or DEFAULT_SECONDS)
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._after = version = read_version(query.get("resourceVersion") or "0")
        self._refused = b""
        if version > storage.version:
            pass  # changes up to that version are skipped
        elif version:
            self._replay(version)
        else:
            for _, entry in sorted(storage.all(self._kind).items()):
                if self._selection.matches(entry.object):
                    self._waiting.put_nowait(line("ADDED", entry.whole))
        storage.listeners.append(self._hear)

    def _replay(self, version: int) -> None:
        """Queues the changes since that version. A forgotten version becomes an error line, as in the real server."""
        try:
            for change in self._storage.since(self._kind, version):
                self._hear(change)
        except ApiFault as fault:
            self._refused = line("ERROR", msgspec.json.encode(fault.status))

    def close(self) -> None:
        self._storage.listeners.remove(self._hear)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yields the waiting lines, all in one piece."""
        if self._refused:
            yield self._refused
            return
        while (left := self._ends_at - time.monotonic()) > 0:
            pause = min(BOOKMARK_SECONDS, left - BEFORE_THE_END if left > BEFORE_THE_END else left)
            try:
                async with asyncio.timeout(pause):
                    found = [await self._waiting.get()]
            except TimeoutError:
                if self._is_marked:
                    yield bookmark(self._kind, self._storage.version)
                continue
            if self._waiting.qsize() > BEHIND_AT_MOST:
                yield line("ERROR", msgspec.json.encode(expired("this watch fell behind").status))
                return
            while not self._waiting.empty():
                found.append(self._waiting.get_nowait())
            yield b"".join(found)

    def _hear(self, change: Change) -> None:
        if change.kind is self._kind and change.version > self._after and (event := self._selection.event(change)):
            self._waiting.put_nowait(line(event[0], event[1].whole))


def line(what: str, whole: bytes) -> bytes:
    return b'{"type":"' + what.encode() + b'","object":' + whole + b"}\n"


def bookmark(kind: Kind, version: int) -> bytes:
    head = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {"resourceVersion": str(version)}}
    return line("BOOKMARK", msgspec.json.encode(head))
