"""A Pod's spec with its placement written into it: pool, preferred nodes, cache. The template's own words stay.

In `nodeSelectorTerms` one term of several has to match, so what a pool demands goes into each. A template that mounts
something at `/cache`, or calls a volume as ours is called, goes without our cache.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dispatcher.model.jobs import Manifest
from dispatcher.model.placement import Placement, Pool

Json = dict[str, Any]
CACHE_VOLUME: Final = "dispatcher-cache"
CACHE_DIR: Final = "/cache"
WEIGHTS: Final = (100, 60, 30)
"""Of the newest node, and those before; kube-scheduler scales the highest sum to its own 100."""
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def place_pod(pod: Manifest, placement: Placement) -> Manifest:
    """The parts of a Pod's spec that change; `pod` itself is not written to."""
    changed: Json = {}
    if affinity := build_affinity(pod.get("affinity") or {}, placement):
        changed["affinity"] = affinity
    if (pool := placement.pool) is not None and pool.is_private:
        changed["tolerations"] = [*(pod.get("tolerations") or []), toleration(pool)]
    if has_cache(pod, placement):
        changed["volumes"] = [*(pod.get("volumes") or []), cache_volume(placement.cache_path)]
        for field in ("initContainers", "containers"):
            if pod.get(field):
                changed[field] = [with_cache(container) for container in pod[field]]
    return {**pod, **changed}


def cache_dir(pod: Mapping[str, Any], placement: Placement) -> str:
    """Where the container finds its cache; empty: it has none."""
    return CACHE_DIR if has_cache(pod, placement) else ""


def has_cache(pod: Mapping[str, Any], placement: Placement) -> bool:
    names = {volume.get("name") for volume in pod.get("volumes") or []}
    taken = any(mount.get("mountPath", "").rstrip("/") == CACHE_DIR for mount in mounts(pod))
    return bool(placement.cache_path) and CACHE_VOLUME not in names and not taken


def mounts(pod: Mapping[str, Any]) -> Iterator[Json]:
    for field in ("initContainers", "containers"):
        for container in pod.get(field) or []:
            yield from container.get("volumeMounts") or []


def with_cache(container: Json) -> Json:
    mount = {"name": CACHE_VOLUME, "mountPath": CACHE_DIR}
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or []), mount]}


def cache_volume(path: str) -> Json:
    return {"name": CACHE_VOLUME, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}


def toleration(pool: Pool) -> Json:
    return {"key": pool.label, "operator": "Equal", "value": pool.value, "effect": "NoSchedule"}


def build_affinity(theirs: Json, placement: Placement) -> Json:
    """The template's, with what the pool demands and what history prefers."""
    node: Json = dict(theirs.get("nodeAffinity") or {})
    if placement.pool is not None:
        demand = {"key": placement.pool.label, "operator": "In", "values": [placement.pool.value]}
        terms = (node.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
        node[REQUIRED] = {"nodeSelectorTerms": [with_demand(term, demand) for term in terms]}
    if placement.preferred:
        node[PREFERRED] = [*(node.get(PREFERRED) or []), *preferences(placement.preferred)]
    return {**theirs, "nodeAffinity": node} if node else theirs


def with_demand(term: Json, demand: Json) -> Json:
    return {**term, "matchExpressions": [*(term.get("matchExpressions") or []), demand]}


def preferences(nodes: tuple[str, ...]) -> Iterator[Json]:
    """By the node's own name: its label `hostname` may say something else."""
    for node, weight in zip(nodes, WEIGHTS, strict=False):
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        yield {"weight": weight, "preference": {"matchFields": [field]}}
