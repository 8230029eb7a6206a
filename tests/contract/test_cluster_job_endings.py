"""A Job that something ends: its Pod is disrupted or deleted, its deadline passes, or the Job is deleted.

The Job controller takes up a change of a Pod within a second. So a starting point that several tests share is made
once, with one Job for each test.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from tests.contract.played_kubelet import PlayedKubelet, playing_alone
from tests.contract.played_kubelet_objects import (
    TRACKING,
    condition,
    disrupted,
    disruption,
    ended,
    pod_status,
    said,
    says,
)
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

REACHED = [("SuccessCriteriaMet", "CompletionsReached"), ("Complete", "CompletionsReached")]
EXCEEDED = [("FailureTarget", "BackoffLimitExceeded"), ("Failed", "BackoffLimitExceeded")]
DISRUPTION = [("FailureTarget", "PodFailurePolicy"), ("Failed", "PodFailurePolicy")]
DEADLINE = [("FailureTarget", "DeadlineExceeded"), ("Failed", "DeadlineExceeded")]
NOWHERE = {"nodeSelector": {"kubelet.test.internal/no": "node"}}
Pods = dict[str, str]  # Pod name by Job name


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kubelet(control_plane: ControlPlane) -> AsyncIterator[PlayedKubelet]:
    async with playing_alone(control_plane) as playing_here:
        yield playing_here


async def started(kubelet: PlayedKubelet, job: str, spec: Json | None = None) -> str:
    """The Pod of a new Job; the Pod runs."""
    await kubelet.submit(job, spec)
    name = await kubelet.pod_of(job)
    await kubelet.run(name)
    return name


async def unplaced(kubelet: PlayedKubelet, job: str, spec: Json | None = None) -> str:
    """The Pod of a new Job; there is no node for the Pod."""
    await kubelet.submit(job, spec, NOWHERE)
    name = await kubelet.pod_of(job, bound=False)
    await kubelet.held(name)
    return name


async def terminating(kubelet: PlayedKubelet, job: str) -> Json:
    return await kubelet.until_job(lambda seen: seen["status"].get("terminating") == 1, "its Pod ends", job)


def ends_or_ended(job: Json) -> bool:
    return job["status"].get("terminating") == 1 or says(job, "Failed")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def disruptions(kubelet: PlayedKubelet) -> Pods:
    """Three disrupted Pods: one failed, one failed with the condition set to False, one runs on."""
    jobs = ("runs-on", "disrupted", "undisrupted")
    pods = {job: await started(kubelet, job) for job in jobs}
    await kubelet.tell_pod(pods["runs-on"], {"conditions": [disruption()]})
    await kubelet.tell_pod(pods["disrupted"], disrupted(143))
    await kubelet.tell_pod(pods["undisrupted"], {"conditions": [disruption("False")]})
    await kubelet.fail(pods["undisrupted"], 143)
    await kubelet.turn("first-clock")
    return pods


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def deleted(kubelet: PlayedKubelet) -> Pods:
    """All Pods ran and are being deleted, and kubelet has not reported their end."""

    async def asked_to_end(job: str) -> str:
        name = await started(kubelet, job)
        if job == "evicted":
            await kubelet.tell_pod(name, {"conditions": [disruption()]})
        await kubelet.delete_pod(name)
        if job == "let-go":
            await kubelet.reap(name)
        await terminating(kubelet, job)
        return name

    jobs = ("counts", "fails", "succeeds", "evicted", "let-go")
    pods = dict(zip(jobs, await asyncio.gather(*map(asked_to_end, jobs)), strict=True))
    await kubelet.turn("second-clock")
    return pods


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ended_pods(kubelet: PlayedKubelet, deleted: Pods) -> Pods:
    """The Pods whose end kubelet has reported, and one that never ran."""
    await kubelet.submit("unstarted")
    deleted["unstarted"] = await kubelet.pod_of("unstarted")
    await kubelet.delete_pod(deleted["unstarted"])
    await kubelet.tell_pod(deleted["unstarted"], {"phase": "Failed"})
    await kubelet.fail(deleted["fails"], 143)
    await kubelet.succeed(deleted["succeeds"])
    await kubelet.fail(deleted["evicted"], 143)
    return deleted


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def overdue(kubelet: PlayedKubelet) -> Pods:
    """All Jobs are past their deadline: three Pods ran, one is on no node."""

    async def overrun(job: str) -> str:
        # Times are cut to the second: a deadline of 1 s may pass before the Pod is seen.
        name = await (unplaced if job == "late-nowhere" else started)(kubelet, job, {"activeDeadlineSeconds": 2})
        await kubelet.until_job(lambda seen: seen["status"].get("failed") == 1, "its Pod is counted", job)
        return name

    jobs = ("late", "late-success", "late-gone", "late-nowhere")
    return dict(zip(jobs, await asyncio.gather(*map(overrun, jobs)), strict=True))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def leaving(kubelet: PlayedKubelet) -> Pods:
    """All Pods run, and their Jobs were deleted in the foreground."""

    async def asked_to_leave(job: str) -> str:
        name = await started(kubelet, job)
        await kubelet.delete_job("Foreground", job)
        await terminating(kubelet, job)
        return name

    jobs = ("leaves", "leaves-failed", "leaves-done")
    return dict(zip(jobs, await asyncio.gather(*map(asked_to_leave, jobs)), strict=True))


class TestPodIsDisrupted:
    async def test_failed_disrupted_pod_ends_its_job_by_policy(self, kubelet: PlayedKubelet, disruptions: Pods) -> None:
        job = await kubelet.until_said("Failed", "disrupted")
        assert said(job) == DISRUPTION
        assert (job["status"]["failed"], job["status"]["ready"], job["status"]["terminating"]) == (1, 0, 0)
        for one in (condition(job, "FailureTarget"), condition(job, "Failed")):
            assert one
            assert disruptions["disrupted"] in one["message"]
            assert "DisruptionTarget" in one["message"]

    async def test_disrupted_pod_that_runs_on_may_succeed(self, kubelet: PlayedKubelet, disruptions: Pods) -> None:
        assert said(await kubelet.job("runs-on")) == []
        await kubelet.succeed(disruptions["runs-on"])
        assert said(await kubelet.until_said("Complete", "runs-on")) == REACHED

    async def test_withdrawn_disruption_is_an_ordinary_failure(self, kubelet: PlayedKubelet, disruptions: Pods) -> None:
        assert said(await kubelet.until_said("Failed", "undisrupted")) == EXCEEDED


class TestPodIsDeleted:
    async def test_ending_pod_is_only_counted_as_terminating(self, kubelet: PlayedKubelet, deleted: Pods) -> None:
        status = (await kubelet.job("counts"))["status"]
        start = {"startTime": status["startTime"]}
        assert status == {"ready": 0, "terminating": 1, "uncountedTerminatedPods": {}, **start}

    async def test_job_gets_no_other_pod_while_its_pod_is_ending(self, kubelet: PlayedKubelet, deleted: Pods) -> None:
        assert [pod["metadata"]["name"] for pod in await kubelet.pods_of("counts")] == [deleted["counts"]]

    async def test_disruption_does_not_count_for_a_running_pod(self, kubelet: PlayedKubelet, deleted: Pods) -> None:
        assert said(await kubelet.job("evicted")) == []

    async def test_reaped_pod_stays_until_its_end_is_reported(self, kubelet: PlayedKubelet, deleted: Pods) -> None:
        name = deleted["let-go"]
        left = (await kubelet.pod(name))["metadata"]
        assert (left["deletionGracePeriodSeconds"], left["finalizers"]) == (0, [TRACKING])
        assert said(await kubelet.job("let-go")) == []
        await kubelet.fail(name, 137)
        await kubelet.until_pod_gone(name)
        assert said(await kubelet.until_said("Failed", "let-go")) == EXCEEDED

    async def test_pod_on_no_node_stays_until_reported_failed(self, kubelet: PlayedKubelet) -> None:
        """On a real cluster the Pod garbage collector does that every 20 seconds. It can be faster than a test once."""
        for job_name in ("nowhere", "nowhere-again"):
            name = await unplaced(kubelet, job_name)
            await kubelet.delete_pod(name)
            seen = await kubelet.until_job(ends_or_ended, "its Pod ends", job_name)
            if not says(seen, "Failed"):
                break
        left = (await kubelet.pod(name))["metadata"]
        assert (left["deletionGracePeriodSeconds"], left["finalizers"]) == (0, [TRACKING])
        assert said(await kubelet.job(job_name)) == []
        await kubelet.tell_pod(name, {"phase": "Failed"})
        await kubelet.until_pod_gone(name)
        job = await kubelet.until_said("Failed", job_name)
        assert (said(job), job["status"]["failed"], job["status"]["terminating"]) == (EXCEEDED, 1, 0)

    async def test_deleted_pod_that_failed_fails_its_job(self, kubelet: PlayedKubelet, ended_pods: Pods) -> None:
        name = ended_pods["fails"]
        job = await kubelet.until_said("Failed", "fails")
        assert (said(job), job["status"]["failed"], job["status"]["terminating"]) == (EXCEEDED, 1, 0)
        assert "finalizers" not in (await kubelet.pod(name))["metadata"]
        await kubelet.reap(name)
        await kubelet.until_pod_gone(name)

    async def test_deleted_pod_that_succeeded_completes_its_job(self, kubelet: PlayedKubelet, ended_pods: Pods) -> None:
        assert said(await kubelet.until_said("Complete", "succeeds")) == REACHED

    async def test_disruption_counts_once_its_pod_has_failed(self, kubelet: PlayedKubelet, ended_pods: Pods) -> None:
        assert said(await kubelet.until_said("Failed", "evicted")) == DISRUPTION

    async def test_deleted_pod_that_never_started_fails_its_job(self, kubelet: PlayedKubelet, ended_pods: Pods) -> None:
        assert said(await kubelet.until_said("Failed", "unstarted")) == EXCEEDED


class TestJobDeadlinePasses:
    async def test_running_pod_is_ended_and_counted_as_failed(self, kubelet: PlayedKubelet, overdue: Pods) -> None:
        job = await kubelet.job("late")
        assert said(job) == DEADLINE[:1]
        assert (job["status"]["terminating"], job["status"]["uncountedTerminatedPods"]) == (1, {})
        pod = await kubelet.pod(overdue["late"])
        assert (pod["status"]["phase"], pod["metadata"]["deletionGracePeriodSeconds"]) == ("Running", 30)
        assert "finalizers" not in pod["metadata"]

    async def test_overdue_job_fails_when_its_pod_has_ended(self, kubelet: PlayedKubelet, overdue: Pods) -> None:
        await kubelet.succeed(overdue["late-success"])
        job = await kubelet.until_said("Failed", "late-success")
        assert (said(job), job["status"]["failed"], job["status"]["terminating"]) == (DEADLINE, 1, 0)
        assert (await kubelet.pod(overdue["late-success"]))["status"]["phase"] == "Succeeded"

    async def test_overdue_job_fails_when_its_pod_is_gone(self, kubelet: PlayedKubelet, overdue: Pods) -> None:
        await kubelet.reap(overdue["late-gone"])
        await kubelet.until_pod_gone(overdue["late-gone"])
        assert said(await kubelet.until_said("Failed", "late-gone")) == DEADLINE

    async def test_pod_on_no_node_is_gone_and_its_job_fails(self, kubelet: PlayedKubelet, overdue: Pods) -> None:
        await kubelet.until_pod_gone(overdue["late-nowhere"])
        job = await kubelet.until_said("Failed", "late-nowhere")
        assert (said(job), job["status"]["failed"], job["status"]["terminating"]) == (DEADLINE, 1, 0)
        assert "active" not in job["status"]


class TestJobIsDeleted:
    async def test_foreground_deletion_waits_for_the_pod(self, kubelet: PlayedKubelet, leaving: Pods) -> None:
        meta = (await kubelet.job("leaves"))["metadata"]
        assert (meta["finalizers"], meta["deletionGracePeriodSeconds"]) == (["foregroundDeletion"], 0)
        pod = (await kubelet.pod(leaving["leaves"]))["metadata"]
        assert (pod["deletionGracePeriodSeconds"], pod.get("finalizers")) == (30, None)
        await kubelet.reap(leaving["leaves"])
        await kubelet.until_job_gone("leaves")
        assert await kubelet.pods_of("leaves") == []

    async def test_foreground_deletion_hides_how_the_pod_ended(self, kubelet: PlayedKubelet, leaving: Pods) -> None:
        await kubelet.tell_pod(leaving["leaves-failed"], pod_status("Failed", ended(143)))
        await kubelet.tell_pod(leaving["leaves-done"], pod_status("Succeeded", ended(0)))
        for name in ("leaves-failed", "leaves-done"):
            job = await kubelet.until_job(lambda seen: seen["status"]["terminating"] == 0, "its Pod has ended", name)
            assert not {"conditions", "failed", "succeeded", "active"} & job["status"].keys()
            await kubelet.reap(leaving[name])
            await kubelet.until_job_gone(name)

    async def test_foreground_deletion_takes_a_pod_on_no_node_along(self, kubelet: PlayedKubelet) -> None:
        name = await unplaced(kubelet, "leaves-nowhere")
        await kubelet.delete_job("Foreground", "leaves-nowhere")
        await kubelet.until_job_gone("leaves-nowhere")
        await kubelet.until_pod_gone(name)

    async def test_background_deletion_is_immediate_and_ends_the_pod(self, kubelet: PlayedKubelet) -> None:
        name = await started(kubelet, "hurry")
        await kubelet.delete_job("Background", "hurry")
        await kubelet.until_job_gone("hurry")
        pod = await kubelet.until_pod(name, lambda pod: "deletionTimestamp" in pod["metadata"], "it is to end")
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
        await kubelet.until_pod(name, lambda pod: "finalizers" not in pod["metadata"], "no one keeps it")
        await kubelet.reap(name)
        await kubelet.until_pod_gone(name)

    async def test_pod_of_a_finished_job_goes_with_the_job(self, kubelet: PlayedKubelet) -> None:
        pods = {policy: await started(kubelet, policy.lower()) for policy in ("Foreground", "Background")}
        for name in pods.values():
            await kubelet.succeed(name)
        for policy, name in pods.items():
            await kubelet.until_said("Complete", policy.lower())
            await kubelet.delete_job(policy, policy.lower())
            await kubelet.until_job_gone(policy.lower())
            await kubelet.until_pod_gone(name)

    async def test_second_job_of_a_name_gets_a_pod_of_its_own(self, kubelet: PlayedKubelet) -> None:
        first = await started(kubelet, "again")
        await kubelet.delete_job("Background", "again")
        await kubelet.until_job_gone("again")
        made = await kubelet.submit("again")

        async def look() -> list[Json]:
            return [pod for pod in await kubelet.pods_of("again") if pod["metadata"]["name"] != first]

        (second,) = await kubelet.plane.wait_for(look, "a Pod of the second Job")
        assert second["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
