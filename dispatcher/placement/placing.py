"""The placement of one launch: pool, cache directory, history, real use, and the nodes with a cache directory.

`cache_path`: ROOT/INSTALLATION/DIGEST on a node's disk. Each cache key of a queue has one directory.

`write_history`: the nodes where a queue's cache key succeeded last, in an annotation that the extender reads.

`choose_pool`: the nodes that a row's Pods may go to. The first pool that is named counts (docs/settings.md).

`write_uses`: cpu and memory that earlier runs of a cache key used, in an annotation that the extender reads. The rule
is BlueKing CI's. cpu and memory of the newest ten runs are sorted separately, and the highest five of each are kept. So
an entry does not describe one run, and the first entry holds both maxima. Memory is in MiB of 2**20 bytes.

`Warmth`: which nodes have the directory of a cache key, by the ConfigMaps of their cache keepers. A node without a
keeper says nothing, and history alone counts for it. The number of remembered directories is bounded. A ConfigMap that
would exceed the bound is left out, as if the node had none.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.model.caches import CacheDirectory, CacheHistory, CacheTotal, NodeCaches, Placement, Pool, Use
from dispatcher.model.launches import COLD_NODES, HISTORY_NODES, REAL_RESOURCES
from dispatcher.model.resources import milli_of
from dispatcher.model.tasks import Request
from dispatcher.settings.definition import PlacementSettings


def cache_digest(installation: str, queue: str, key: str) -> str:
    """Name of a cache directory: 40 hex digits, so no text of a submitter is part of a path.

    The same key in another queue is another directory, so teams cannot reach each other's caches. Neither can two
    installations with the same root.
    """
    return hashlib.sha256(msgspec.json.encode([installation, queue, key])).hexdigest()[:40]


def cache_folder(root: str, installation: str) -> str:
    """The folder of an installation's caches. Its cache keeper can reach no other."""
    return f"{root}/{installation}"


def cache_path(root: str, installation: str, digest: str) -> str:
    return f"{cache_folder(root, installation)}/{digest}"


MOST_NODES: Final = 3
"""Nodes of a history, at most."""
POINTS: Final = (3, 2, 1)
"""Points of the newest node and of the two before it. With weight 1, kube-scheduler makes 30, 20 and 10 of them."""


def write_history(nodes: Sequence[str]) -> str:
    return msgspec.json.encode(nodes[:MOST_NODES]).decode()


def read_history(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The nodes, the newest first. Raises ValueError if the annotation is not an array of names."""
    written = annotations.get(HISTORY_NODES)
    if written is None:
        return ()
    return tuple(dict.fromkeys(msgspec.json.decode(written, type=list[str])))[:MOST_NODES]


def history_points(nodes: Sequence[str]) -> dict[str, int]:
    """Points by node, for nodes of the history only."""
    return dict(zip(nodes, POINTS, strict=False))


def choose_pool(spec: Mapping[str, Any], settings: PlacementSettings) -> Pool | None:
    """The pool of a row; None: any node. The bounds of its template are checked before. `spec`: the row's spec."""
    if name := spec.get("private_machine"):
        return Pool(settings.private_machine_label, name, is_private=True)
    if name := spec.get("special_machine"):
        return Pool(settings.special_machine_label, name)
    label, _, value = settings.node_selector.partition("=")
    return Pool(label, value) if label else None


NEWEST_RUNS: Final = 10
"""Runs of a cache key whose use is read, at most."""
MOST_USES: Final = 5
"""Entries of the annotation, at most."""
MIB: Final = 2**20


class UseEntry(Struct, frozen=True):
    """One entry of the annotation. An empty or missing amount is unknown."""

    cpu: str = ""
    memory: str = ""


class RealUses(Struct, frozen=True):
    """The annotation as numbers, in thousandths, highest first. An unknown amount is None."""

    cpu: tuple[int | None, ...] = ()
    memory: tuple[int | None, ...] = ()


def write_uses(uses: Sequence[Use]) -> str:
    """The annotation. `uses`: one for each of the newest runs, the newest first."""
    cpus = sorted((use.cpu for use in uses[:NEWEST_RUNS]), reverse=True)
    memories = sorted((use.memory for use in uses[:NEWEST_RUNS]), reverse=True)
    ranked = list(zip(cpus, memories, strict=True))[:MOST_USES]
    return msgspec.json.encode(
        [UseEntry(f"{cpu * 1000:.0f}m", f"{memory / MIB:.0f}Mi") for cpu, memory in ranked]
    ).decode()


def read_needs(annotations: Mapping[str, str]) -> RealUses:
    """The annotation as numbers. Raises ValueError if it is not an array of uses."""
    written = annotations.get(REAL_RESOURCES)
    if written is None:
        return RealUses()
    uses = msgspec.json.decode(written, type=list[UseEntry])[:MOST_USES]
    return RealUses(tuple(amount(use.cpu) for use in uses), tuple(amount(use.memory) for use in uses))


def amount(written: str) -> int | None:
    """The amount in thousandths, or None if it is no quantity or negative."""
    try:
        found = milli_of(written)
    except ValueError:
        return None
    return found if found >= 0 else None


class PlacementPolicy(Struct, frozen=True):
    """How an installation places its Pods."""

    installation: str
    settings: PlacementSettings

    def plan(self, queue: str, request: Request, history: CacheHistory) -> Placement:
        """The placement of one launch. `history` is empty for a row without a cache key.

        Preferred nodes are only set without a scheduler of our own: then no extender reads the annotations.
        """
        notes = dict[str, str]()
        if history.nodes:
            notes[HISTORY_NODES] = write_history(history.nodes)
        if cold := [node for node in history.nodes[:MOST_NODES] if node in history.cold]:
            notes[COLD_NODES] = write_history(cold)
        if history.uses:
            notes[REAL_RESOURCES] = write_uses(history.uses)
        return Placement(
            pool=choose_pool(request.spec, self.settings),
            preferred=() if self.settings.scheduler_name else history.nodes[:MOST_NODES],
            notes=notes,
            cache_path=self._cache_path(queue, request.cache_key),
        )

    def _cache_path(self, queue: str, key: str | None) -> str:
        root = self.settings.cache_root
        if not root or key is None:
            return ""
        return cache_path(root, self.installation, cache_digest(self.installation, queue, key))


Key = tuple[str, str]
"""Queue and cache key."""
MOST_REMEMBERED: Final = 200_000
"""Directories of all nodes that are remembered, at most."""
NOTHING: Final[Mapping[str, CacheDirectory]] = {}


class Warmth:
    """The directories that cache keepers report, kept in step with their ConfigMaps by `hear`."""

    def __init__(
        self, installation: str, has_shown: Callable[[str], bool], clock: Callable[[], float],
        most: int = MOST_REMEMBERED,
    ) -> None:  # fmt: skip
        """`has_shown`: whether the API server has shown a node of this name. Other reports are not believed.

        clock: seconds from any beginning.
        most: directories that are remembered.
        """
        self._most = most
        self._clock = clock
        self._installation = installation
        self._has_shown = has_shown
        self._kept: dict[str, dict[str, CacheDirectory]] = defaultdict(dict)
        self._heard: dict[str, NodeCaches] = {}
        self._heard_at: dict[str, float] = {}
        self._number = self._bytes = 0

    def hear(self, before: NodeCaches | None, after: NodeCaches | None) -> None:
        """Takes over a change of a ConfigMap. `before`: the node's last report; None: none. `after`: its newest one."""
        if before is not None and (last := self._heard.pop(before.node, None)) is not None:
            self._forget(last)
        if before is not None and before != after:  # what is listed once more is not newer
            self._heard_at.pop(before.node, None)
        if after is not None and self._number + len(after.directories) <= self._most:
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

    def kept(self, key: Key) -> Mapping[str, CacheDirectory]:
        """The nodes whose keepers report the directory of the key."""
        found = self._kept.get(cache_digest(self._installation, *key), NOTHING)
        return {node: kept for node, kept in found.items() if self._has_shown(node)}

    def told_by(self, node: str) -> NodeCaches | None:
        """The last report of the keeper of a node; None: there is none."""
        return self._heard.get(node)

    def total(self) -> CacheTotal:
        """The sums over all reports."""
        return CacheTotal(len(self._heard), self._number, self._bytes)

    def nodes(self, key: Key, history: Mapping[str, float]) -> tuple[str, ...]:
        """The nodes that have the directory, or may have it, the best first.

        A node whose report lacks the directory is left out, unless the key succeeded there after the report. Nodes
        whose reports have the directory come before nodes without a report.

        history: nodes where the key succeeded, the newest first, and the seconds since then.
        """
        shown = {node: age for node, age in history.items() if self._has_shown(node)}
        return tuple(self._in_order(self.kept(key), shown))

    def _in_order(self, kept: Mapping[str, CacheDirectory], history: Mapping[str, float]) -> Iterator[str]:
        yield from (node for node in history if node in kept)
        others = kept.keys() - set(history)
        yield from sorted(others, key=lambda node: (-kept[node].last_use, node))
        yield from (node for node, age in history.items() if node not in kept and not self._says_no(node, age))

    def _says_no(self, node: str, age: float) -> bool:
        """Whether the node's report is whole and newer than the run. A keeper writes once a minute at most."""
        heard = self._heard.get(node)
        return heard is not None and heard.whole and self._clock() - self._heard_at[node] <= age
