"""The stolen account of the chart's scheduler on the real API server: what a thief can do with it, and what not.

kube-scheduler's own ClusterRole may patch `pods/status`, too. So that right exists with or without an extender.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from tests.contract.installed import installed
from tests.controlplane.api import Api, Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.rig.deployed import rendered

PODS = "/api/v1/namespaces/kube-system/pods"
VICTIM = f"{PODS}/victim"
IMAGE = "registry.example/good:1"
EVIL = {"spec": {"containers": [{"name": "task", "image": "registry.example/evil:1"}]}}
PATCHES = {
    "application/merge-patch+json": EVIL,
    "application/strategic-merge-patch+json": EVIL,
    "application/json-patch+json": [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}],
}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "11111111-2222-3333-4444-555555555555"}
KEPT: dict[str, Json] = {
    "annotations": {"metadata": {"annotations": {"thief": "1"}}},
    "labels": {"metadata": {"labels": {"app": "thief"}}},
    "finalizers": {"metadata": {"finalizers": ["thief.example/stays"]}},
    "phase": {"status": {"phase": "Failed"}},
    "addresses": {"status": {"podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]}},
    "conditions": {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    "nominated node": {"status": {"nominatedNodeName": "thief"}},
}
"""Changes that a patch of `pods/status` makes."""
DROPPED: dict[str, Json] = {
    "owners": {"metadata": {"ownerReferences": [OWNER]}},
    "image": EVIL,
    "deadline": {"spec": {"activeDeadlineSeconds": 1}},
    "node": {"spec": {"nodeName": "thief"}},
    "deletion": {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
}
"""Changes that such a patch answers with 200 and does not make."""


@asynccontextmanager
async def stolen(plane: ControlPlane, namespace: str) -> AsyncIterator[Api]:
    """A client with the token of the account and all rights that the chart gives it."""
    async with installed(plane, namespace, rendered("everything", namespace, only="scheduler-rbac")) as there:
        yield await there.account("dispatcher-scheduler")


@pytest_asyncio.fixture(loop_scope="session")
async def thief(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Api]:
    async with stolen(control_plane, namespace) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def victim(control_plane: ControlPlane) -> AsyncIterator[Json]:
    """A Pod in kube-system that no scheduler takes."""
    spec = {"schedulerName": "nobody", "containers": [{"name": "task", "image": IMAGE}]}
    yield await control_plane.admin("POST", PODS, {"metadata": {"name": "victim"}, "spec": spec})
    await control_plane.admin("PATCH", VICTIM, {"metadata": {"finalizers": None}})
    await control_plane.admin("DELETE", VICTIM, {"gracePeriodSeconds": 0})


@pytest.mark.usefixtures("victim")
@pytest.mark.parametrize("content_type", PATCHES)
@pytest.mark.parametrize("part", ["", "/ephemeralcontainers", "/resize"])
async def test_stolen_account_is_forbidden_to_patch_a_pod(thief: Api, content_type: str, part: str) -> None:
    with pytest.raises(KubeFault) as refused:
        await thief.request("PATCH", VICTIM + part, PATCHES[content_type], content_type=content_type)
    assert refused.value.status == 403


async def test_stolen_account_is_forbidden_to_replace_or_create_a_pod(thief: Api, victim: Json) -> None:
    for method, path in (("PUT", VICTIM), ("POST", PODS)):
        with pytest.raises(KubeFault) as refused:
            await thief.request(method, path, victim)
        assert refused.value.status == 403


@pytest.mark.parametrize("change", KEPT.values(), ids=KEPT)
async def test_patch_of_pods_status_changes_status_and_metadata(
    thief: Api, control_plane: ControlPlane, victim: Json, change: Json
) -> None:
    await thief.request("PATCH", f"{VICTIM}/status", change)
    assert differs(victim, await control_plane.admin("GET", VICTIM), change)


@pytest.mark.parametrize("change", DROPPED.values(), ids=DROPPED)
async def test_patch_of_pods_status_changes_no_spec_and_no_owner(
    thief: Api, control_plane: ControlPlane, victim: Json, change: Json
) -> None:
    await thief.request("PATCH", f"{VICTIM}/status", change)
    assert not differs(victim, await control_plane.admin("GET", VICTIM), change)


def differs(before: Json, after: Json, change: Json) -> bool:
    """Whether a field that the change names differs."""
    ((part, fields),) = change.items()
    return any(before[part].get(field) != after[part].get(field) for field in fields)


async def test_stolen_account_writes_its_own_lease_and_no_other_of_its_namespace(
    thief: Api, control_plane: ControlPlane, namespace: str
) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    own, other = [
        await control_plane.admin("POST", leases, {"metadata": {"name": name}})
        for name in ("dispatcher-scheduler", "dispatcher")
    ]
    await thief.request("PUT", f"{leases}/dispatcher-scheduler", own)
    for method, body in (("GET", None), ("PUT", other), ("DELETE", None)):
        with pytest.raises(KubeFault) as refused:
            await thief.request(method, f"{leases}/dispatcher", body)
        assert refused.value.status == 403
    with pytest.raises(KubeFault) as refused:
        await thief.request("GET", leases)
    assert refused.value.status == 403
