"""Waits until the API server judges by what a test wrote. Admission reads its own caches, which lag behind a write."""

from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane

ENFORCED = "pod-security.kubernetes.io/enforce"
FORBIDDEN = {"name": "forbidden"}
IN_FORCE_SECONDS = 30


async def is_refused_with(plane: ControlPlane, path: str, body: Json, words: str) -> bool:
    """Whether a dry run of this create is refused with these words."""
    try:
        await plane.admin("POST", path, body, params={"dryRun": "All"})
    except KubeFault as fault:
        return words in str(fault)
    return False


async def quota_in_force(plane: ControlPlane, namespace: str, hard: Json, *, name: str = "q") -> Json:
    """Makes a ResourceQuota, waits until it is in force, and returns it.

    It also forbids every Secret. A refused Secret shows that admission has read the quota with its counts.
    """
    path = f"/api/v1/namespaces/{namespace}"
    quota = {"metadata": {"name": name}, "spec": {"hard": {**hard, "count/secrets": "0"}}}
    await plane.admin("POST", f"{path}/resourcequotas", quota)

    async def refuses() -> bool:
        return await is_refused_with(plane, f"{path}/secrets", {"metadata": FORBIDDEN}, f"exceeded quota: {name},")

    await plane.wait_for(refuses, f"the quota {name} is in force", IN_FORCE_SECONDS)
    return await plane.admin("GET", f"{path}/resourcequotas/{name}")


async def pod_security_in_force(plane: ControlPlane, namespace: str, level: str) -> None:
    """Enforces that level in the namespace, and waits until Pods are judged by it."""
    wanted = {"metadata": {"labels": {ENFORCED: level}}}
    await plane.admin("PATCH", f"/api/v1/namespaces/{namespace}", wanted)
    spec = {"hostNetwork": True, "containers": [{"name": "a", "image": "x:1"}]}
    pod = {"metadata": FORBIDDEN, "spec": spec}
    words = f'violates PodSecurity "{level}:'

    async def refuses() -> bool:
        return await is_refused_with(plane, f"/api/v1/namespaces/{namespace}/pods", pod, words)

    await plane.wait_for(refuses, f"Pod Security enforces {level}", IN_FORCE_SECONDS)
