"""The Pods of a deleted Job: they go first, they go after it, or they stay."""

import pytest

from tests.contract.wire import HELD, Event, Wire, a_job
from tests.controlplane.api import Json
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

FOREGROUND = {"propagationPolicy": "Foreground"}
BACKGROUND = {"propagationPolicy": "Background"}
ORPHAN = {"propagationPolicy": "Orphan"}


async def job_with_pod(wire: Wire) -> tuple[Json, str]:
    """A running Job `a`, and the path of its Pod, which waits for a scheduler that does not exist."""
    job = await wire.made("jobs", a_job("a", {"suspend": False}))

    async def is_at_work() -> bool:
        return bool((await wire.found("jobs/a"))["status"].get("active") == 1)

    await wire.plane.wait_for(is_at_work, "the Job has its Pod")
    (name,) = await wire.names("pods", labelSelector="batch.kubernetes.io/job-name=a")
    return job, f"pods/{name}"


async def hold(wire: Wire, pod: str) -> None:
    finalizers = (await wire.found(pod))["metadata"].get("finalizers", [])
    await wire.changed(pod, {"metadata": {"finalizers": [*finalizers, HELD]}})


async def let_go(wire: Wire, pod: str) -> None:
    await wire.changed(pod, {"metadata": {"finalizers": None}})


async def is_being_deleted(wire: Wire, path: str) -> None:
    async def is_so() -> bool:
        return "deletionTimestamp" in (await wire.found(path))["metadata"]

    await wire.plane.wait_for(is_so, f"{path} is being deleted")


async def ended(wire: Wire, resource: str, since: str) -> Event:
    async with wire.watch(resource, resourceVersion=since) as watch:
        while (event := await watch.next()).type != "DELETED":
            pass
    return event


class TestForeground:
    async def test_foreground_job_stays_until_its_pod_is_gone(self, wire: Wire) -> None:
        _, pod = await job_with_pod(wire)
        await hold(wire, pod)
        since = await wire.now("jobs")
        answer = await wire.delete("jobs/a", FOREGROUND)
        assert (answer.status, answer.body["kind"]) == (200, "Job")
        assert "deletionTimestamp" in answer.body["metadata"]
        assert answer.body["metadata"]["finalizers"] == ["foregroundDeletion"]
        await is_being_deleted(wire, pod)
        assert (await wire.found("jobs/a"))["metadata"]["finalizers"] == ["foregroundDeletion"]
        await let_go(wire, pod)
        await wire.gone("jobs/a")
        assert (await wire.get(pod)).status == 404
        assert (await ended(wire, "jobs", since)).version > (await ended(wire, "pods", since)).version

    async def test_foreground_job_without_pods_is_deleted(self, wire: Wire) -> None:
        await wire.made("jobs", a_job("a"))
        assert (await wire.delete("jobs/a", FOREGROUND)).body["kind"] == "Job"
        await wire.gone("jobs/a")

    async def test_second_foreground_delete_changes_nothing(self, wire: Wire) -> None:
        _, pod = await job_with_pod(wire)
        await hold(wire, pod)
        first = (await wire.delete("jobs/a", FOREGROUND)).body["metadata"]
        again = await wire.delete("jobs/a", FOREGROUND)
        assert again.status == 200
        for kept in ("deletionTimestamp", "finalizers", "uid"):
            assert again.body["metadata"][kept] == first[kept]
        await is_being_deleted(wire, pod)
        await let_go(wire, pod)
        await wire.gone("jobs/a")

    async def test_background_delete_ends_a_foreground_delete(self, wire: Wire) -> None:
        _, pod = await job_with_pod(wire)
        await hold(wire, pod)
        await wire.delete("jobs/a", FOREGROUND)
        assert (await wire.delete("jobs/a", BACKGROUND)).status == 200
        assert (await wire.get("jobs/a")).status == 404
        await is_being_deleted(wire, pod)
        await let_go(wire, pod)


class TestOrphan:
    @pytest.mark.parametrize("options", [ORPHAN, None, {}], ids=["asked", "nothing-said", "no-policy-said"])
    async def test_orphaned_pod_stays_and_has_no_owner(self, wire: Wire, options: Json | None) -> None:
        """A Job is deleted in this way if the request names no policy."""
        _, pod = await job_with_pod(wire)
        answer = await wire.delete("jobs/a", options)
        assert (answer.status, answer.body["kind"]) == (200, "Job")
        assert answer.body["metadata"]["finalizers"] == ["orphan"]
        await wire.gone("jobs/a")
        meta = (await wire.found(pod))["metadata"]
        assert "ownerReferences" not in meta
        assert "deletionTimestamp" not in meta
