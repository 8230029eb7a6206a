"""Ends of launches at the real API server: deletes of Jobs and Pods, and the deadline, each of what was judged."""

import msgspec
import pytest

from dispatcher.model.jobs import End, EndedBy, Job, Manifest, Phase
from tests.contract.own_jobs import Account
from tests.controlplane.api import Json
from tests.controlplane.sides import BOTH_SIDES

pytestmark = [BOTH_SIDES, pytest.mark.usefixtures("nodes")]


def end(job: Job, **changes: str | int | None) -> End:
    return msgspec.structs.replace(End("jobs", job.name, job.uid, "test"), **changes)


def is_running(pod: Json) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def waiting_for_no_node(account: Account) -> Manifest:
    """A Job whose Pod no node may have."""
    job = account.manifest()
    job["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "no-such-node"}
    return job


class TestEnd:
    @pytest.mark.museum("default propagation")
    async def test_deleted_job_is_gone_after_its_pods(self, account: Account) -> None:
        made = await account.created(account.manifest(steer={"stop-seconds": "0.5"}))
        await account.the_pod(made, "runs", is_running)
        job = await account.the_job(made.name)
        answer = await account.api.end(end(job, resource_version=job.resource_version))
        assert answer.status == 200
        assert answer.job is not None
        assert answer.job.deleting
        assert await account.pods_of(job)

        async def is_gone() -> bool:
            return not await account.plane.exists(account.path("jobs", job.name))

        await account.plane.wait_for(is_gone, "the Job is gone", 20)
        assert not await account.pods_of(job)

    @pytest.mark.fault(47)
    @pytest.mark.museum("GC without UID")
    async def test_delete_with_another_uid_is_a_conflict(self, account: Account) -> None:
        job = await account.created()
        answer = await account.api.end(end(job, uid="00000000-0000-4000-8000-000000000000"))
        assert (answer.status, answer.reason) == (409, "Conflict")
        assert "the UID in the precondition" in answer.message
        found = await account.the_job(job.name)
        assert (found.uid, found.deleting) == (job.uid, False)

    @pytest.mark.fault(47)
    async def test_job_that_changed_since_it_was_judged_stays(self, account: Account) -> None:
        job = await account.created()
        changed = {"metadata": {"annotations": {"somebody": "was here"}}}
        await account.plane.admin("PATCH", account.path("jobs", job.name), changed)
        answer = await account.api.end(end(job, resource_version=job.resource_version))
        assert (answer.status, answer.reason) == (409, "Conflict")
        assert not (await account.the_job(job.name)).deleting

    async def test_deadline_fails_the_job_that_was_judged_and_keeps_it(self, account: Account) -> None:
        """The launch of a refused Pod ends so. Another uid or an older version changes nothing."""
        made = await account.created(account.manifest(steer={"never-starts": "true"}))
        await account.the_pod(made, "is there", lambda _: True)
        job = await account.the_job(made.name)
        wrong = [{"uid": "00000000-0000-4000-8000-000000000000"}, {"resource_version": "1"}]
        for change in wrong:
            call = end(job, **({"kind": "deadline", "resource_version": job.resource_version} | change))
            assert (await account.api.end(call)).status in {409, 422}, "422: the uid of an object cannot change"

        async def is_failed() -> bool:
            now = await account.the_job(job.name)
            await account.api.end(end(now, kind="deadline", resource_version=now.resource_version))
            return now.phase is Phase.FAILED

        await account.plane.wait_for(is_failed, "the Job failed", 20)
        assert (await account.the_job(job.name)).reason == "DeadlineExceeded"

    async def test_delete_of_a_job_that_is_gone_is_not_found(self, account: Account) -> None:
        job = await account.created()
        await account.plane.admin("DELETE", account.path("jobs", job.name), {"propagationPolicy": "Background"})
        answer = await account.api.end(end(job, resource_version=job.resource_version))
        assert (answer.status, answer.reason) == (404, "NotFound")

    @pytest.mark.parametrize("grace_seconds", [None, 0])
    async def test_deleted_pod_fails_its_job_and_gets_no_successor(
        self, account: Account, grace_seconds: int | None
    ) -> None:
        job = await account.created(account.manifest(steer={"never-starts": "true"}))
        pod = await account.the_pod(job, "waits", lambda pod: "containerStatuses" in pod["status"])
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        assert (await account.api.end(end(job, kind="pods", name=name))).status == 409
        answer = await account.api.end(end(job, kind="pods", name=name, uid=uid, grace_seconds=grace_seconds))
        assert answer.status == 200

        async def has_failed() -> Job | None:
            found = (await account.api.get(job.name)).job
            return found if found and found.phase is Phase.FAILED else None

        failed = await account.plane.wait_for(has_failed, "the Job failed", 20)
        assert failed is not None
        assert (failed.reason, failed.was_disrupted) == ("BackoffLimitExceeded", False)
        assert [found for found in await account.pods_of(job) if found["metadata"]["uid"] != uid] == []

    async def test_mark_changes_only_the_annotation_of_the_job_that_was_judged(self, account: Account) -> None:
        made = await account.created(waiting_for_no_node(account))
        await account.the_pod(made, "is there", lambda _: True)
        old = End("mark", made.name, made.uid, "test", resource_version="1")
        assert (await account.api.end(old)).status == 409
        before = await account.the_job(made.name)
        assert not before.is_unplaced

        async def is_marked() -> bool:
            now = await account.the_job(made.name)
            await account.api.end(msgspec.structs.replace(old, resource_version=now.resource_version))
            return (await account.the_job(made.name)).is_unplaced

        await account.plane.wait_for(is_marked, "the mark hits the version that was judged", 20)
        now = await account.the_job(made.name)
        assert now == msgspec.structs.replace(before, is_unplaced=True, resource_version=now.resource_version)

    @pytest.mark.parametrize("who", EndedBy)
    async def test_who_deletes_its_pod_is_noted_on_any_version_of_the_job(self, account: Account, who: EndedBy) -> None:
        made = await account.created(waiting_for_no_node(account))
        await account.the_pod(made, "is there", lambda _: True)  # its controller has changed the Job since
        before = await account.the_job(made.name)
        assert (await account.api.end(End(who, made.name, "another", "test"))).status in {409, 422}
        assert (await account.api.end(End(who, made.name, made.uid, "test"))).status == 200
        now = await account.the_job(made.name)
        assert now == msgspec.structs.replace(before, ended_by=str(who), resource_version=now.resource_version)

    @pytest.mark.slow
    async def test_unplaced_pod_is_deleted_and_its_job_fails(self, account: Account) -> None:
        job = await account.created(waiting_for_no_node(account))
        pod = await account.the_pod(job, "is there", lambda _: True)
        call = End("unplaced-pods", pod["metadata"]["name"], pod["metadata"]["uid"], "test")
        other = msgspec.structs.replace(call, uid="00000000-0000-4000-8000-000000000000")
        assert (await account.api.end(other)).status == 409
        assert (await account.api.end(call)).status == 200

        async def has_failed() -> bool:
            return (await account.the_job(job.name)).phase is Phase.FAILED

        await account.plane.wait_for(has_failed, "the Job fails", 45)  # Pods without a node are collected each 20 s

    async def test_pod_that_got_a_node_meanwhile_is_not_taken_back(self, account: Account) -> None:
        job = await account.created(account.manifest(steer={"stop-seconds": "0.5"}))
        pod = await account.the_pod(job, "runs", is_running)
        answer = await account.api.end(End("unplaced-pods", pod["metadata"]["name"], pod["metadata"]["uid"], "test"))
        assert (answer.status, answer.message) == (409, "the Pod has a node, or is gone")
        assert [one["metadata"].get("deletionTimestamp") for one in await account.pods_of(job)] == [None]
