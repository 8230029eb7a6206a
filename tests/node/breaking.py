"""Faults of a cluster, made in the site."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from tests.controlplane.api import Json, KubeFault
from tests.controlplane.binaries import KUBELET, programs
from tests.node.ahead import AHEAD_SECONDS, kubelet_ahead
from tests.node.disk import ballast, fill
from tests.node.install import JOBS, OURS
from tests.node.node import Node
from tests.node.site import Site

DEPLOYMENTS = ("dispatcher", "dispatcher-janitor")
PRESSURE_SECONDS = 60
"""Kubelet looks every 10 s at amounts that are up to 10 s old, and tells what it finds 10 s later."""
EVICTED = {"fieldSelector": "status.phase=Failed"}
"""Evicted Pods of a Deployment. They stay until an administrator deletes them."""
LEASE_AGE_SECONDS = 15
"""Kubelet renews its lease every 10 s."""


async def delete_leader(site: Site) -> None:
    """Deletes the Pod that holds the lease, as `kubectl delete pod` does."""
    await site.plane.admin("DELETE", f"/api/v1/namespaces/{OURS}/pods/{await leader(site)}")


async def leader(site: Site) -> str:
    """The Pod that holds the lease, or held it last."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{OURS}/leases/dispatcher-leader"
    holder: str = (await site.plane.admin("GET", path))["spec"]["holderIdentity"]
    return holder.partition("_")[0]


async def restart_everything(site: Site) -> None:
    """`kubectl rollout restart` of every Deployment."""
    at = {"kubectl.kubernetes.io/restartedAt": datetime.now(UTC).isoformat()}
    for name in DEPLOYMENTS:
        change = {"spec": {"template": {"metadata": {"annotations": at}}}}
        await site.plane.admin("PATCH", f"/apis/apps/v1/namespaces/{OURS}/deployments/{name}", change)


async def stop_kubelet(site: Site, node: Node, seconds: float) -> None:
    """Kills the kubelet, and starts it again after that time. Its containers go on."""
    clock = asyncio.get_running_loop().time
    node.kubelet.kill()
    back = clock() + seconds
    await site.plane.wait_for(lambda: clock() >= back, "the end of the outage", seconds + 10)
    node.kubelet.start()
    await node.is_up()


async def drain(site: Site, node: Node) -> None:
    """`kubectl drain`: no new Pods, and the eviction of all that are there. Returns when they are gone."""
    await cordon(site, node, is_closed=True)

    async def is_empty() -> bool:
        there = [pod for pod in await pods_on(site, node) if pod["status"].get("phase") in {"Pending", "Running"}]
        await asyncio.gather(*(evict(site, pod) for pod in there if "deletionTimestamp" not in pod["metadata"]))
        return not there

    await site.plane.wait_for(is_empty, f"{node.name} is empty", 90)


async def cordon(site: Site, node: Node, *, is_closed: bool) -> None:
    await site.plane.admin("PATCH", f"/api/v1/nodes/{node.name}", {"spec": {"unschedulable": is_closed}})


@asynccontextmanager
async def only(site: Site, node: Node) -> AsyncIterator[None]:
    """Pods can be placed on this node alone."""
    others = [one for one in site.nodes if one is not node]
    await asyncio.gather(*(cordon(site, one, is_closed=True) for one in others))
    try:
        yield
    finally:
        await asyncio.gather(*(cordon(site, one, is_closed=False) for one in others))


@asynccontextmanager
async def gone(node: Node) -> AsyncIterator[None]:
    """The node has lost its power, with all that ran on it. It comes back at the end."""
    node.stop()
    try:
        yield
    finally:
        await node.start()


@asynccontextmanager
async def full_disk(site: Site, node: Node) -> AsyncIterator[None]:
    """A file takes all room on the node's small disk, and kubelet tells it. It is removed at the end."""

    async def is_under_pressure() -> bool:
        fill(node.disk)  # again: kubelet first removes the images that nothing uses
        return await has_disk_pressure(site, node)

    async def is_over() -> bool:
        return not await has_disk_pressure(site, node)

    try:
        await site.plane.wait_for(is_under_pressure, f"{node.name} tells DiskPressure", PRESSURE_SECONDS)
        yield
    finally:
        ballast(node.disk).unlink(missing_ok=True)
        await site.plane.wait_for(is_over, f"{node.name} has room again", PRESSURE_SECONDS)
        await site.plane.admin("DELETE", f"/api/v1/namespaces/{OURS}/pods", params=EVICTED)


async def without_janitor(site: Site) -> Node:
    """A node on which no janitor runs. The only janitor is what brings reasons into the database."""
    pods = (await site.plane.admin("GET", f"/api/v1/namespaces/{OURS}/pods"))["items"]
    janitors = {pod["spec"]["nodeName"] for pod in pods if pod["metadata"]["name"].startswith(DEPLOYMENTS[1])}
    return next(node for node in site.nodes if node.name not in janitors)


async def has_disk_pressure(site: Site, node: Node) -> bool:
    """Whether Pods are kept from the node for its disk."""
    taints = (await site.plane.admin("GET", f"/api/v1/nodes/{node.name}"))["spec"].get("taints", ())
    return any(taint["key"] == "node.kubernetes.io/disk-pressure" for taint in taints)


@asynccontextmanager
async def clock_ahead(site: Site, node: Node) -> AsyncIterator[None]:
    """The kubelet of the node has a clock that is five minutes ahead. Its containers go on, at its end, too."""
    node.replace_kubelet(kubelet_ahead())
    try:
        await renews(site, node, AHEAD_SECONDS)
        yield
    finally:
        node.replace_kubelet(programs(KUBELET)["kubelet"])
        await renews(site, node, 0)


async def renews(site: Site, node: Node, ahead_seconds: int) -> None:
    """Returns when the kubelet renews its lease with a clock that is so much ahead."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}"

    async def is_so() -> bool:
        node.check()
        renewed = datetime.fromisoformat((await site.plane.admin("GET", path))["spec"]["renewTime"])
        return abs((renewed - datetime.now(UTC)).total_seconds() - ahead_seconds) < LEASE_AGE_SECONDS

    await site.plane.wait_for(is_so, f"{node.name} is {ahead_seconds} s ahead", 60)
    await node.is_up()


async def pods_on(site: Site, node: Node) -> list[Json]:
    found = []
    for namespace in (OURS, JOBS):
        pods = (await site.plane.admin("GET", f"/api/v1/namespaces/{namespace}/pods"))["items"]
        found += [pod for pod in pods if pod["spec"].get("nodeName") == node.name]
    return found


async def evict(site: Site, pod: Json) -> None:
    """Asks for the eviction. A PodDisruptionBudget may refuse it for now."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    try:
        await site.plane.admin("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)
    except KubeFault as fault:
        if fault.status not in {404, 429}:
            raise


async def restart_postgres(site: Site) -> None:
    await site.postgres.stop()
    await site.postgres.start()


async def restart_api_server(site: Site) -> None:
    await site.plane.stop_api_server()
    await site.plane.start_api_server()
