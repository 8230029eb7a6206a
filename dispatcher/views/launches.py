"""Every launch of a row, what became of it, and whether it found its cache. Pure.

The names of the fields are public: they are the names in JSON.

`launches_of`: the database remembers launches that started, and those of which the janitor knows the end. The cluster
knows the Jobs and Pods that still exist.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.jobs.observed import launch_end
from dispatcher.model.cluster import Pod
from dispatcher.model.history import LaunchFacts
from dispatcher.model.jobs import Job, LaunchCache
from dispatcher.placement.placing import Warmth

WARM = "warm"


class CacheNow(Struct, frozen=True, kw_only=True):
    """The cache of a row's key.

    message: where it is, in words.
    nodes: nodes that have it, or may have it, the best first. The next launch prefers the first three.
    bytes: its size on their disks; None: no cache keeper reports it.
    """

    message: str
    nodes: Sequence[str]
    bytes: int | None


def cache_now(key: tuple[str, str], history: Mapping[str, float], caches: Warmth) -> CacheNow:
    """The cache of a key. `history`: nodes where the key succeeded, newest first, by containers' reports; seconds
    since.
    """
    nodes, kept = caches.nodes(key, history), caches.kept(key)
    size = sum(one.size for one in kept.values()) if kept else None
    return CacheNow(message=cache_in_words(nodes, size), nodes=nodes, bytes=size)


def cache_in_words(nodes: Sequence[str], size: int | None) -> str:
    if not nodes:
        return "no node is known to have its cache"
    count = "1 node" if len(nodes) == 1 else f"{len(nodes):,} nodes"
    return f"warm on {count}" + ("" if size is None else f" ({binary(size)})")


def binary(size: float) -> str:
    """Bytes in the largest unit of which there is at least one: `12 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:,.3g} TiB" if size < 1000 else f"{size:,.0f} TiB"


def cache_of_launch(cache: LaunchCache, node: str) -> str:
    """Whether the launch found its cache on this node, and why not."""
    warm = [name for name in cache.nodes if name not in cache.cold]
    if node in warm:
        return WARM
    if node in cache.cold:
        return f"cold: {', '.join(warm)} had no room, and one more node gets the cache"
    return f"cold: kube-scheduler did not choose {' or '.join(warm)}" if warm else "cold: no node had the cache"


STEPS: Final = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
NOTHING: Final = "—"


def duration(seconds: float | None) -> str:
    """A duration by its two largest units: `2 d 3 h`, `4 min 10 s`, `0.4 s`."""
    if seconds is None or not isfinite(seconds):
        return NOTHING
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s".replace(".0 s", " s")
    left, parts = round(seconds), list[str]()
    for size, unit in STEPS:
        if count := left // size:
            parts.append(f"{count:,} {unit}")
            left -= count * size
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


MOST_LAUNCHES: Final = 20
"""Launches of a row that are shown, at most."""
LAST_LINES: Final = 5
"""Lines of an error that `explain` shows."""
PLAIN: Final = re.compile(r"[a-z0-9][-a-z0-9]*")
"""A name of a container that a shell takes as one word."""
ALL_LINES: Final = 10_000
"""More lines than any error has: at most 8 KiB of it are kept."""


def launches_of(
    recorded: Iterable[LaunchFacts], jobs: Iterable[tuple[Job, Sequence[Pod]]], namespace: str
) -> list[LaunchFacts]:
    """The newest launches, oldest first.

    recorded: what the database remembers.
    jobs: the Jobs that still exist, with their Pods.
    """
    found = {(one.attempt, one.launch): one for one in recorded}
    for job, pods in jobs:
        key = job.attempt, job.launch
        found[key] = seen(found.get(key, LaunchFacts(attempt=key[0], launch=key[1])), job, pods, namespace)
    return [found[key] for key in sorted(found)][-MOST_LAUNCHES:]


def seen(known: LaunchFacts, job: Job, pods: Sequence[Pod], namespace: str) -> LaunchFacts:
    """The launch with the values of its Job and its Pod.

    The database's values come first, except for the names of Pod and node: containers report these themselves.
    """
    ended_at = job.ended_at if job.is_finished else None
    told = replace(known, job=job.name, created_at=job.created_at, ended_at=known.ended_at or ended_at)
    for pod in pods[:1]:
        container = f" -c {job.container}" if PLAIN.fullmatch(job.container) else ""
        logs = f"kubectl logs -n {namespace} {pod.name}{container}" if has_log(pod) else None
        found = cache_of_launch(job.cache, pod.node_name) if job.cache and pod.node_name else None
        told = replace(told, pod=pod.name, node=pod.node_name or known.node, logs=logs, cache=found)
    end = launch_end(job, pods)
    if end is None or known.reason is not None:
        return told
    return replace(told, reason=end.reason, exit_code=end.exit_code, error=told.error or end.output or None)


def has_log(pod: Pod) -> bool:
    return pod.had_run or pod.end is not None or pod.phase == "Running"


def launch_in_words(one: LaunchFacts, most: int = LAST_LINES) -> Iterator[str]:
    """The launch as lines for people. `most`: number of the last lines of its error."""
    where = (f" on {one.node}" if one.node else "") + (f" ({one.cache})" if one.cache else "")
    state = one.outcome or ("ended" if one.ended_at else "under way")
    yield f"attempt {one.attempt}, launch {one.launch}{where}: {state}" + (f", {one.reason}" if one.reason else "")
    if one.error:
        yield from (f"  | {line}" for line in one.error.splitlines()[-most:])
    if one.logs:
        yield f"  {one.logs}"
