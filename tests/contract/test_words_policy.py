"""What the dispatcher's account may tell, at the real API server: its own words, which its next write can change."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dispatcher.kube.client import KubeClient
from dispatcher.kube.config_maps import ConfigMaps
from dispatcher.kube.credentials import from_kubeconfig
from dispatcher.model.errors import ClusterError
from tests.contract.installed import Site, guarded
from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane

LEASES = "/apis/coordination.k8s.io/v1"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "somebody", "uid": "11111111-1111-4111-8111-111111111111"}
SPOILT: dict[str, Json] = {
    "immutable": {"immutable": True},
    "a finalizer": {"metadata": {"finalizers": ["example.com/stays"]}},
    "a foreign owner": {"metadata": {"ownerReferences": [OWNER]}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(control_plane: ControlPlane) -> AsyncIterator[Site]:
    async with guarded(control_plane) as made:
        await control_plane.wait_for(lambda: is_in_force(made), "the policy is in force", 30)
        yield made


async def is_in_force(site: Site) -> bool:
    try:
        await write(site, "configmaps", "probe")
    except KubeFault as fault:
        return "the dispatcher writes" in str(fault)
    await site.plane.admin("DELETE", f"/api/v1/namespaces/{site.namespace}/configmaps/probe")
    return False


async def write(site: Site, kind: str, name: str, more: Json | None = None, verb: str = "POST") -> Json:
    """A write by the dispatcher's account, in the namespace of our programs."""
    group = LEASES if kind == "leases" else "/api/v1"
    path = f"{group}/namespaces/{site.namespace}/{kind}" + (f"/{name}" if verb == "PUT" else "")
    extra = dict(more or {})
    body = {"metadata": {"name": name, **extra.pop("metadata", {})}, **extra}
    if verb == "PUT":
        found = await site.plane.admin("GET", path)
        body["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
    return await (await site.account(site.dispatcher)).request(verb, path, body)


async def refused(site: Site, words: str, kind: str, name: str, more: Json | None = None, verb: str = "POST") -> None:
    with pytest.raises(KubeFault) as caught:
        await write(site, kind, name, more, verb)
    assert (caught.value.status, words in str(caught.value)) == (403, True), caught.value


@pytest.mark.parametrize("name", ["dispatcher-cache-orders", "dispatcher-cache-node-1", "dispatcher-templates", "x"])
async def test_stolen_dispatcher_writes_no_config_map_but_its_own(site: Site, name: str) -> None:
    await refused(site, "writes dispatcher-status and dispatcher-reasons alone", "configmaps", name)


@pytest.mark.parametrize("name", ["another-leader", "kube-scheduler"])
async def test_stolen_dispatcher_creates_no_other_lease(site: Site, name: str) -> None:
    await refused(site, "of leases the dispatcher writes dispatcher-leader alone", "leases", name)


@pytest.mark.parametrize("spoilt", SPOILT)
async def test_stolen_dispatcher_leaves_nothing_that_our_next_write_cannot_change(site: Site, spoilt: str) -> None:
    words = "is not immutable, and has neither finalizers nor owners"
    for kind, name in (("configmaps", "dispatcher-status"), ("leases", "dispatcher-leader")):
        if kind == "leases" and spoilt == "immutable":
            continue  # a Lease has no such field
        await refused(site, words, kind, name, SPOILT[spoilt])
        await write(site, kind, name)
        await refused(site, words, kind, name, SPOILT[spoilt], "PUT")
        group = LEASES if kind == "leases" else "/api/v1"
        await site.plane.admin("DELETE", f"{group}/namespaces/{site.namespace}/{kind}/{name}")


def event(site: Site, name: str, kind: str = "Job", **more: object) -> Json:
    about = {"apiVersion": "v1", "kind": kind, "name": "x", "namespace": site.jobs, "uid": "x"}
    return {
        "metadata": {"name": name, "namespace": site.jobs}, "involvedObject": about, "reason": "Killing",
        "message": "words", "source": {"component": "dispatcher"}, **more,
    }  # fmt: skip


async def test_stolen_dispatcher_speaks_as_nobody_else_in_events(site: Site) -> None:
    api, path = await site.account(site.dispatcher), f"/api/v1/namespaces/{site.jobs}/events"
    await api.request("POST", path, event(site, "ours"))
    for one in (
        event(site, "a", source={"component": "kubelet"}),
        event(site, "b", reportingComponent="kubelet"),
        event(site, "c", kind="Pod"),
    ):
        with pytest.raises(KubeFault, match="writes Events of its own about Jobs alone"):
            await api.request("POST", path, one)


async def test_config_map_that_somebody_made_immutable_is_named_with_the_command(site: Site, tmp_path: Path) -> None:
    """A person can make it so. Our account may not delete it."""
    path = f"/api/v1/namespaces/{site.namespace}/configmaps"
    made = {"metadata": {"name": "dispatcher-status"}, "immutable": True, "data": {"status": "old"}}
    await site.plane.admin("POST", path, made)
    token = await site.plane.service_account_token(site.namespace, site.dispatcher)
    file = site.plane.kubeconfig(tmp_path / "kubeconfig", token=token, namespace=site.namespace)
    client = KubeClient(await from_kubeconfig(str(file), None))
    try:
        with pytest.raises(ClusterError, match=f"kubectl -n {site.namespace} delete configmap dispatcher-status"):
            await ConfigMaps(client, site.namespace, "dispatcher").write("status", "status", "new")
    finally:
        await client.close()
        await site.plane.admin("DELETE", f"{path}/dispatcher-status")
