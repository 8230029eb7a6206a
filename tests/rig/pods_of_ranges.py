"""LimitRanges and Pods, with what becomes of each Pod, for the judgement of the doctor and for the server's."""

from typing import Any

from tests.rig.pods_of_levels import Json, a_pod

SIZED = a_pod(
    container={"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}}
)


def a_bound(kind: str, **bounds: Any) -> Json:
    return {"type": kind, **bounds}


def with_server_defaults(items: list[Json]) -> list[Json]:
    """The items as the API server keeps them: the maximum is the default limit, which is the default request."""
    return [one | filled(one) if one["type"] == "Container" else one for one in items]


def filled(one: Json) -> Json:
    limits = {**one.get("max", {}), **one.get("default", {})}
    return {"default": limits, "defaultRequest": {**limits, **one.get("min", {}), **one.get("defaultRequest", {})}}


NO_AMOUNTS = a_pod()
ALWAYS = {"restartPolicy": "Always"}


def beside(fields: Json, pod: Json = SIZED) -> Json:
    """The Pod with an init container of two cores."""
    amounts = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
    return pod | {"initContainers": [pod["containers"][0] | {"name": "first", "resources": amounts} | fields]}


FIRST = beside({}, a_pod(container={"resources": {"limits": {"cpu": "1"}}}))
WHOLE = a_pod() | {"resources": {"limits": {"cpu": "3", "memory": "1Gi"}}}
GIVEN = {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}}
RANGES: dict[str, tuple[list[Json], Json, str]] = {
    "limit at the maximum": ([a_bound("Container", max={"cpu": "2"})], SIZED, ""),
    "limit above the maximum": (
        [a_bound("Container", max={"cpu": "1"})],
        SIZED,
        "container task has a limit of cpu above the maximum 1, or none",
    ),
    "no limit": ([a_bound("Pod", max={"ephemeral-storage": "1Gi"})], SIZED, "above the maximum 1Gi, or none"),
    "limit filled in": ([a_bound("Container", max={"ephemeral-storage": "1Gi"})], SIZED, ""),
    "request below the minimum": (
        [a_bound("Container", min={"cpu": "1500m"})],
        SIZED,
        "container task requests less cpu than the minimum 1500m",
    ),
    "no request": (
        [a_bound("Pod", min={"ephemeral-storage": "1"})],
        SIZED,
        "less ephemeral-storage than the minimum 1",
    ),
    "request above the minimum": ([a_bound("Container", min={"memory": 1})], SIZED, ""),
    "ratio too large": (
        [a_bound("Container", maxLimitRequestRatio={"cpu": "1"})],
        SIZED,
        "a limit of cpu above 1 times its request",
    ),
    "ratio": ([a_bound("Container", maxLimitRequestRatio={"cpu": 2})], SIZED, ""),
    "Pod above the maximum": (
        [a_bound("Pod", max={"cpu": "1"})],
        SIZED,
        "the Pod has a limit of cpu above the maximum 1, or none",
    ),
    "Pod above the minimum": ([a_bound("Pod", min={"cpu": "1"})], SIZED, ""),
    "Pod with a default": ([GIVEN, a_bound("Pod", max={"cpu": "1"})], NO_AMOUNTS, ""),
    "Pod with a default that is too large": ([GIVEN, a_bound("Pod", max={"cpu": "250m"})], NO_AMOUNTS, "the Pod has"),
    "Pod without a limit": ([a_bound("Pod", max={"cpu": "1"})], NO_AMOUNTS, "or none"),
    "Pod with a sidecar above the maximum": ([a_bound("Pod", max={"cpu": "3"})], beside(ALWAYS), "the Pod has"),
    "Pod with an init container below the maximum": ([a_bound("Pod", max={"cpu": "3"})], beside({}), ""),
    "Pod with an init container above the maximum": ([a_bound("Pod", max={"cpu": "1500m"})], FIRST, "the Pod has"),
    "Pod with amounts as a whole": ([a_bound("Pod", max={"cpu": "3"})], WHOLE, ""),
    "Pod with amounts as a whole above the maximum": ([a_bound("Pod", max={"cpu": "2"})], WHOLE, "the Pod has"),
    "Pod whose limit as a whole is its request": ([a_bound("Pod", min={"cpu": "3"})], WHOLE, ""),
    "claims": ([a_bound("PersistentVolumeClaim", max={"storage": "1Gi"})], SIZED, ""),
}
"""By name: the items of a LimitRange, a Pod's spec, and words of the refusal; empty: the Pod is admitted."""

ONLY_LIMITS = a_pod(container={"resources": {"limits": {"cpu": "1"}}})
ONLY_REQUESTS = a_pod(container={"resources": {"requests": {"cpu": "1"}}})
QUOTAS: dict[str, tuple[Json, Json, bool]] = {
    "too small": ({"requests.cpu": "1m"}, SIZED, True),
    "large enough": ({"requests.cpu": "1", "limits.cpu": "2", "pods": "1"}, SIZED, False),
    "no Pods": ({"pods": "0"}, SIZED, True),
    "other objects": ({"services": "0", "count/secrets": "0"}, SIZED, False),
    "demands a limit": ({"limits.cpu": "10"}, ONLY_REQUESTS, True),
    "demands a request": ({"requests.memory": "1Gi"}, ONLY_LIMITS, True),
    "old name of a request": ({"cpu": "10"}, NO_AMOUNTS, True),
    "limit as request": ({"requests.cpu": "10"}, ONLY_LIMITS, False),
    "amounts of the Pod as a whole": ({"requests.cpu": "10", "limits.memory": "1Gi"}, WHOLE, False),
    "amounts of the Pod as a whole that are too large": ({"limits.cpu": "2"}, WHOLE, True),
}
"""By name: the hard limits of an empty ResourceQuota, a Pod's spec, and whether the Pod is refused."""
