"""Where the cache of a row is, and whether a launch found it. Pure.

The names of the fields are public: they are the names in JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from dispatcher.model.jobs import LaunchCache
from dispatcher.model.node_caches import CacheTotal, Kept, NodeCaches

WARM = "warm"


class Caches(Protocol):
    """What is known of the caches on nodes. Keys are (queue, cache key)."""

    def nodes(self, key: tuple[str, str], history: Mapping[str, float]) -> tuple[str, ...]: ...
    def kept(self, key: tuple[str, str]) -> Mapping[str, Kept]: ...
    def told_by(self, node: str) -> NodeCaches | None: ...
    def total(self) -> CacheTotal: ...


class CacheNow(Struct, frozen=True, kw_only=True):
    """The cache of a row's key.

    message: where it is, in words.
    nodes: nodes that have it, or may have it, the best first. The next launch prefers the first three.
    bytes: what it takes on their disks; None: no cache keeper tells.
    """

    message: str
    nodes: Sequence[str]
    bytes: int | None


def cache_now(key: tuple[str, str], history: Mapping[str, float], caches: Caches) -> CacheNow:
    """`history`: nodes where the key succeeded, the newest first, as containers told; and the seconds since then."""
    nodes, kept = caches.nodes(key, history), caches.kept(key)
    size = sum(one.size for one in kept.values()) if kept else None
    return CacheNow(message=in_words(nodes, size), nodes=nodes, bytes=size)


def in_words(nodes: Sequence[str], size: int | None) -> str:
    if not nodes:
        return "no node is known to have its cache"
    count = "1 node" if len(nodes) == 1 else f"{len(nodes):,} nodes"
    return f"warm on {count}" + ("" if size is None else f" ({binary(size)})")


def binary(size: float) -> str:
    """Bytes in the largest unit of which there is one: `12 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:,.3g} TiB" if size < 1000 else f"{size:,.0f} TiB"


def of_launch(cache: LaunchCache, node: str) -> str:
    """Whether the launch found its cache on this node, and why not."""
    warm = [name for name in cache.nodes if name not in cache.cold]
    if node in warm:
        return WARM
    if node in cache.cold:
        return f"cold: {', '.join(warm)} had no room, and one more node gets the cache"
    return f"cold: kube-scheduler did not choose {' or '.join(warm)}" if warm else "cold: no node had the cache"
