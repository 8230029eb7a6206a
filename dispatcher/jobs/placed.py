"""Writes a placement into a Pod's spec: pool, preferred nodes, cache. The template's own entries stay.

One of several `nodeSelectorTerms` has to match, so the demand of a pool goes into each term. A template that mounts
something at `/cache`, or has a volume with the name of our cache volume, gets no cache.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dispatcher.model.jobs import Manifest
from dispatcher.model.placement import Placement, Pool

Json = dict[str, Any]
CACHE_VOLUME: Final = "dispatcher-cache"
CACHE_DIR: Final = "/cache"
WEIGHTS: Final = (100, 60, 30)
"""Weights of the preferred nodes, newest first. kube-scheduler scales the highest sum to 100."""
AVOIDED: Final = 100
"""Weight of every other node than one to avoid. A node's free room never outweighs it."""
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def place_pod(pod: Manifest, placement: Placement) -> Manifest:
    """A Pod's spec with the placement. `pod` itself is not changed."""
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
    """Path of the cache directory in the container; empty: no cache."""
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
    """The template's affinity with the pool's demand and the preferred nodes."""
    node: Json = dict(theirs.get("nodeAffinity") or {})
    if placement.pool is not None:
        demand = {"key": placement.pool.label, "operator": "In", "values": [placement.pool.value]}
        terms = (node.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
        node[REQUIRED] = {"nodeSelectorTerms": [with_demand(term, demand) for term in terms]}
    if placement.preferred or placement.avoided:
        node[PREFERRED] = [*(node.get(PREFERRED) or []), *preferences(placement)]
    return {**theirs, "nodeAffinity": node} if node else theirs


def with_demand(term: Json, demand: Json) -> Json:
    return {**term, "matchExpressions": [*(term.get("matchExpressions") or []), demand]}


def preferences(placement: Placement) -> Iterator[Json]:
    """Preferences by the node's name. Its label `hostname` may differ from the name."""
    wanted = [("In", node, weight) for node, weight in zip(placement.preferred, WEIGHTS, strict=False)]
    for operator, node, weight in (*wanted, *(("NotIn", node, AVOIDED) for node in placement.avoided)):
        field = {"key": "metadata.name", "operator": operator, "values": [node]}
        yield {"weight": weight, "preference": {"matchFields": [field]}}
