"""Jobs of the tests on the control plane, and a namespace that goes away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.contract.own_jobs import Account
from tests.contract.played_kubelet_objects import says
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.rig.deployed import rendered


async def finished(plane: ControlPlane, namespace: str, name: str, condition: str, *, seconds: float = 20) -> None:
    """Waits until the condition of the Job is True."""

    async def is_so() -> bool:
        return says(await plane.admin("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"), condition)

    await plane.wait_for(is_so, f"Job {name} {condition}", seconds)


async def submit(plane: ControlPlane, namespace: str, body: Json) -> Json:
    return await plane.admin("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", body)


@asynccontextmanager
async def dying_namespace(account: Account) -> AsyncIterator[str]:
    """A namespace that is being deleted. Finalizers keep the rights of our account in it."""
    name = await account.plane.create_namespace()
    await account.plane.apply(rendered("one-namespace", only="rbac"), namespace=name)
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}"
    subjects = [{"kind": "ServiceAccount", "name": "dispatcher", "namespace": account.namespace}]
    held = {"metadata": {"finalizers": ["tests.example/held"]}}
    both = ("dispatcher", "dispatcher-jobs")
    for role in both:
        await account.plane.admin("PATCH", f"{rights}/roles/{role}", held)
        await account.plane.admin("PATCH", f"{rights}/rolebindings/{role}", held | {"subjects": subjects})
    await account.plane.delete_namespace(name)
    yield name
    for role in both:
        for resource in ("roles", "rolebindings"):
            await account.plane.admin("PATCH", f"{rights}/{resource}/{role}", {"metadata": {"finalizers": None}})
