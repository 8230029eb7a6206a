"""Which nodes have the directory of a cache key: what their cache keepers say, beside where the key succeeded before.

A node without a keeper says nothing, and history alone counts for it. The number of directories that are remembered is
bounded. The words of a keeper that would exceed it are left out, as if the node had none.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from dispatcher.model.node_caches import CacheTotal, Kept, NodeCaches
from dispatcher.placement.cache import cache_digest

Key = tuple[str, str]
"""Queue and cache key."""
MOST_REMEMBERED: Final = 200_000
NOTHING: Final[Mapping[str, Kept]] = {}


class Warmth:
    """What keepers say, kept in step with their ConfigMaps by `hear`."""

    def __init__(self, installation: str, has_shown: Callable[[str], bool], clock: Callable[[], float]) -> None:
        """`has_shown`: whether the API server has shown a node of this name. Others are not believed.

        clock: seconds from any beginning.
        """
        self._clock = clock
        self._installation = installation
        self._has_shown = has_shown
        self._kept: dict[str, dict[str, Kept]] = defaultdict(dict)
        self._heard: dict[str, NodeCaches] = {}
        self._heard_at: dict[str, float] = {}
        self._number = self._bytes = 0

    def hear(self, before: NodeCaches | None, after: NodeCaches | None) -> None:
        """`before`: the last words of a node; None: it said nothing. `after`: its newest ones."""
        if before is not None and (last := self._heard.pop(before.node, None)) is not None:
            self._forget(last)
        if before is not None and before != after:  # what is listed once more is not newer
            self._heard_at.pop(before.node, None)
        if after is not None and self._number + len(after.directories) <= MOST_REMEMBERED:
            self._heard[after.node] = after
            self._heard_at.setdefault(after.node, self._clock())
            self._number += len(after.directories)
            self._bytes += after.size
            for digest, kept in after.directories.items():
                self._kept[digest][after.node] = kept

    def _forget(self, last: NodeCaches) -> None:
        self._number -= len(last.directories)
        self._bytes -= last.size
        for digest in last.directories:
            del self._kept[digest][last.node]
            if not self._kept[digest]:
                del self._kept[digest]

    def kept(self, key: Key) -> Mapping[str, Kept]:
        """The nodes that say that they have the directory of the key."""
        found = self._kept.get(cache_digest(self._installation, *key), NOTHING)
        return {node: kept for node, kept in found.items() if self._has_shown(node)}

    def told_by(self, node: str) -> NodeCaches | None:
        """The last words of the keeper of a node; None: it says nothing."""
        return self._heard.get(node)

    def total(self) -> CacheTotal:
        """What all keepers tell together."""
        return CacheTotal(len(self._heard), self._number, self._bytes)

    def nodes(self, key: Key, history: Mapping[str, float]) -> tuple[str, ...]:
        """The nodes that have the directory, or may have it, the best first.

        history: nodes where the key succeeded, the newest first, and the seconds since then. A node that says that it
        has not the directory is left out, unless the key succeeded there after these words. Nodes that say that they
        have it come before those that say nothing.
        """
        shown = {node: age for node, age in history.items() if self._has_shown(node)}
        return tuple(self._in_order(self.kept(key), shown))

    def _in_order(self, kept: Mapping[str, Kept], history: Mapping[str, float]) -> Iterator[str]:
        yield from (node for node in history if node in kept)
        others = kept.keys() - set(history)
        yield from sorted(others, key=lambda node: (-kept[node].last_use, node))
        yield from (node for node, age in history.items() if node not in kept and not self._says_no(node, age))

    def _says_no(self, node: str, age: float) -> bool:
        """A keeper writes once a minute at most, so it tells a new directory late."""
        heard = self._heard.get(node)
        return heard is not None and heard.whole and self._clock() - self._heard_at[node] <= age
