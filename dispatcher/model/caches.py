"""Cache keys: earlier runs of them, their directories on nodes, and the placement of a Pod by them. Pure.

The cache keeper of a node writes its directories into a ConfigMap, as this text:

    {"node": "n1", "whole": true, "directories": {DIGEST: [BYTES, LAST_USE]}}

LAST_USE is Unix seconds, down to a full hour: a directory that is used all the time must not change the text.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct


class Use(Struct, frozen=True):
    """Average real use of a run: `cpu` in cores, `memory` in bytes."""

    cpu: float
    memory: float


class CacheRun(Struct, frozen=True):
    """A run that succeeded: its Pod, its start and its end. Times are by the database's clock."""

    pod: str
    began: datetime
    ended: datetime


class CacheHistory(Struct, frozen=True):
    """Nodes (newest first) and real use of earlier runs of a queue's cache key. It is advice, not a limit.

    cold: those of `nodes` that have no cache yet.
    """

    nodes: tuple[str, ...] = ()
    uses: tuple[Use, ...] = ()
    cold: tuple[str, ...] = ()


LARGEST_TEXT: Final = 512 * 2**10
"""Bytes of the whole text, at most. A ConfigMap has 1 MiB."""
KEY: Final = "cache.json"
"""Key of the text in the ConfigMap."""
ORDERS: Final = "cache-orders"
CACHES_OF: Final = {"app.kubernetes.io/component": "cache-keeper"}
"""The label of these ConfigMaps, besides the label of their installation."""
HOUR: Final = 3600
"""Seconds of an hour."""
OTHERS: Final = 300
"""Bytes that are kept free for `node` and `whole`. The name of a node has at most 253."""
LARGEST_SIZE: Final = 2**45
"""Bytes of one directory, at most: JSON numbers have 64 bits, and the sizes of all directories are added."""
Size = Annotated[int, Meta(ge=0, le=LARGEST_SIZE)]
Seconds = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class CacheDirectory(Struct, frozen=True, array_like=True):
    """A directory on one node: its bytes on the disk, and its last use in Unix seconds."""

    size: Size
    last_use: Seconds


class NodeCaches(Struct, frozen=True):
    """The directories of a node, by digest.

    whole: False if the node has more directories than the text can hold.
    """

    node: str
    whole: bool
    directories: Mapping[str, CacheDirectory]

    @property
    def name(self) -> str:
        return self.node

    @property
    def size(self) -> int:
        """Bytes of all directories."""
        return sum(kept.size for kept in self.directories.values())


class CacheTotal(Struct, frozen=True):
    """The nodes whose cache keepers have written, and the number and the bytes of their directories."""

    nodes: int
    directories: int
    bytes: int


def name_of_map(node: str) -> str:
    """Name of a node's ConfigMap, without the installation."""
    return f"cache-{node}"


def write_node_caches(node: str, directories: Iterable[tuple[str, int, float]]) -> str:
    """The text. `directories`: digest, size, last use. If they do not fit, only the last used ones are written."""
    left, kept, whole = LARGEST_TEXT - OTHERS, dict[str, CacheDirectory](), True
    for digest, size, last_use in sorted(directories, key=lambda one: (-one[2], one[0])):
        one = CacheDirectory(rounded(min(size, LARGEST_SIZE)), max(0, int(last_use // HOUR * HOUR)))
        left -= len(digest) + len(msgspec.json.encode(one)) + len('"":,')
        if left < 0:
            whole = False
            break
        kept[digest] = one
    return msgspec.json.encode(NodeCaches(node, whole, kept)).decode()


def read_node_caches(text: str) -> NodeCaches | None:
    """The directories that a text names; None: it is no such text."""
    try:
        return msgspec.json.decode(text, type=NodeCaches)
    except (msgspec.MsgspecError, RecursionError):
        return None


def rounded(size: int) -> int:
    """The size with its first three digits, so that a little more does not change the text."""
    step = int("1" + "0" * max(0, len(str(size)) - 3))
    return size // step * step


class Pool(Struct, frozen=True):
    """A set of nodes that have one label. `is_private`: a taint keeps all other Pods away."""

    label: str
    value: str
    is_private: bool = False


class Placement(Struct, frozen=True):
    """Placement of one Pod.

    pool: the nodes that it must use; None: any node.
    preferred: names of the nodes that it should use, the last used one first.
    avoided: names of nodes that it should not use, because they are kept for other Pods.
    notes: annotations of the Pod about earlier runs.
    cache_path: its cache directory on the node; empty: none.
    """

    pool: Pool | None = None
    preferred: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()
    notes: Mapping[str, str] = {}
    cache_path: str = ""
