"""Judges the cache keepers: whether each node has one at work, and whether a disk stays full."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from dispatcher.doctor.cluster import Unread
from dispatcher.doctor.finding import Finding, fault, good, or_good, unchecked, warning


class Keepers(Struct, frozen=True):
    """The Pods of the DaemonSet: how many there should be, and how many are ready."""

    wanted: int
    ready: int


class Facts(Struct, frozen=True):
    """What the API server tells of caches.

    full: the newest words about a full disk, by node, of the last hour.
    """

    keepers: Keepers | Unread
    full: Mapping[str, str] | Unread


def judge_caches(facts: Facts, names: Mapping[str, str]) -> Iterator[Finding]:
    """`names`: words for commands."""
    yield from judge_keepers(facts.keepers, names)
    if isinstance(facts.full, Unread):
        yield unchecked("CacheDiskFull", "Events about nodes", facts.full.why)
        return
    found = (fault("CacheDiskFull", f"node {node}", words, **names) for node, words in sorted(facts.full.items()))
    yield from or_good(found, "CacheDiskFull", "every node")


def judge_keepers(found: Keepers | Unread, names: Mapping[str, str]) -> Iterator[Finding]:
    where = f"DaemonSet {names['installation']}-cache-keeper in namespace {names['namespace']}"
    if isinstance(found, Unread):
        if found.is_absent:
            yield warning("CacheKeeperAbsent", where, "there is none: nobody removes cache directories", **names)
        else:
            yield unchecked("CacheKeeperAbsent", where, found.why)
    elif found.ready < found.wanted:
        yield fault("CacheKeeperAbsent", where, f"{found.ready} of {found.wanted} Pods are ready", **names)
    else:
        yield good("CacheKeeperAbsent", where)
