"""Programs in one namespace, Jobs in another. An upgrade to this layout must stop the old installation first."""

from itertools import product

import pytest

from tests.controlplane.api import Json, KubeFault
from tests.controlplane.waiting import wait_for
from tests.journey.installation import Installation, install
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import reaches


async def leases(installation: Installation, namespace: str) -> dict[str, str]:
    """Holder of each lease of a namespace; empty if it has none."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    found: list[Json] = (await installation.place.control_plane.admin("GET", path))["items"]
    return {one["metadata"]["name"]: one["spec"].get("holderIdentity") or "" for one in found}


async def rename_rights(place: Place) -> None:
    """The old version's rights on Jobs have other names than those of the chart."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}"
    for kind, name in product(("roles", "rolebindings"), ("dispatcher-jobs", "dispatcher-janitor-jobs")):
        one = await place.control_plane.admin("GET", f"{rbac}/{kind}/{name}")
        of_role = {"roleRef": {**one["roleRef"], "name": f"old-{name}"}} if "roleRef" in one else {}
        old = {**one, **of_role, "metadata": {"name": f"old-{name}"}}
        await place.control_plane.admin("POST", f"{rbac}/{kind}", old)
        await place.control_plane.admin("DELETE", f"{rbac}/{kind}/{name}")


@pytest.mark.slow
async def test_lease_is_in_the_programs_namespace_and_jobs_are_not(place: Place) -> None:
    await rename_rights(place)
    async with (
        install(place) as installation,
        place.playing(),
        await installation.dispatcher() as dispatcher,
    ):
        await dispatcher.ready()
        await reaches(place, dispatcher, await place.database.insert_task(), "succeeded", 40)
        assert list(await leases(installation, installation.namespace)) == ["dispatcher-leader"]
        assert await leases(installation, place.namespace) == {}
        assert await place.jobs()
        with pytest.raises(KubeFault, match="not found"):
            await place.control_plane.admin("GET", f"/apis/batch/v1/namespaces/{installation.namespace}/jobs/any")


@pytest.mark.slow
async def test_old_replica_also_leads_until_it_is_stopped(place: Place) -> None:
    """The old version keeps its lease in the namespace of the Jobs, so neither replica sees the other's lease."""
    await rename_rights(place)
    async with Dispatcher(place) as old, install(place) as installation, place.playing():
        await old.ready()
        async with await installation.dispatcher() as new:
            await new.ready()
            await wait_for(lambda: both_lead(old, new), "both lead", 20, check=new.check)
            task_id = await place.database.insert_task()
            await reaches(place, new, task_id, "succeeded", 40)
            assert len(await place.jobs()) == 1, "the name keeps it one Job"
            assert await old.stop() == 0
            assert await new.leads()
            await reaches(place, new, await place.database.insert_task(), "succeeded", 40)
            assert (await leases(installation, place.namespace))["dispatcher-leader"] == ""
            assert (await leases(installation, installation.namespace))["dispatcher-leader"] != ""


async def both_lead(old: Dispatcher, new: Dispatcher) -> bool:
    return await old.leads() and await new.leads()
