"""A Job that something ends: its Pod is disrupted or deleted, its deadline passes, or it is deleted itself.

The Job controller takes up what becomes of a Pod within a second. So what several tests start from is made once for
all of them, each with a Job of its own.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from tests.contract.played_kubelet import PlayedKubelet, playing_alone
from tests.contract.played_kubelet_objects import TRACKING, condition, disrupted, disruption, ended, pod_status, said
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

REACHED = [("SuccessCriteriaMet", "CompletionsReached"), ("Complete", "CompletionsReached")]
EXCEEDED = [("FailureTarget", "BackoffLimitExceeded"), ("Failed", "BackoffLimitExceeded")]
DISRUPTION = [("FailureTarget", "PodFailurePolicy"), ("Failed", "PodFailurePolicy")]
DEADLINE = [("FailureTarget", "DeadlineExceeded"), ("Failed", "DeadlineExceeded")]
NOWHERE = {"nodeSelector": {"hand.test.internal/no": "node"}}
Pods = dict[str, str]  # by their Jobs


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hand(control_plane: ControlPlane) -> AsyncIterator[PlayedKubelet]:
    async with playing_alone(control_plane) as playing_here:
        yield playing_here


async def started(hand: PlayedKubelet, job: str, spec: Json | None = None) -> str:
    """The Pod of a new Job; it runs."""
    await hand.submit(job, spec)
    name = await hand.pod_of(job)
    await hand.run(name)
    return name


async def unplaced(hand: PlayedKubelet, job: str, spec: Json | None = None) -> str:
    """The Pod of a new Job; there is no node for it."""
    await hand.submit(job, spec, NOWHERE)
    name = await hand.pod_of(job, bound=False)
    await hand.held(name)
    return name


async def terminating(hand: PlayedKubelet, job: str) -> Json:
    return await hand.until_job(lambda seen: seen["status"].get("terminating") == 1, "its Pod ends", job)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def disruptions(hand: PlayedKubelet) -> Pods:
    """All ran and were disrupted: two of them failed, for one of these it was not true any more; the third runs on."""
    jobs = ("runs-on", "disrupted", "undisrupted")
    pods = {job: await started(hand, job) for job in jobs}
    await hand.tell_pod(pods["runs-on"], {"conditions": [disruption()]})
    await hand.tell_pod(pods["disrupted"], disrupted(143))
    await hand.tell_pod(pods["undisrupted"], {"conditions": [disruption("False")]})
    await hand.fail(pods["undisrupted"], 143)
    await hand.turn("first-clock")
    return pods


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def deleted(hand: PlayedKubelet) -> Pods:
    """All were told to end, and kubelet has not said that they did: those that ran, and one that is on no node."""

    async def told_to_end(job: str) -> str:
        name = await (unplaced if job == "nowhere" else started)(hand, job)
        if job == "evicted":
            await hand.tell_pod(name, {"conditions": [disruption()]})
        await hand.delete_pod(name)
        if job == "let-go":
            await hand.reap(name)
        await terminating(hand, job)
        return name

    jobs = ("counts", "fails", "succeeds", "evicted", "let-go", "nowhere")
    pods = dict(zip(jobs, await asyncio.gather(*map(told_to_end, jobs)), strict=True))
    await hand.turn("second-clock")
    return pods


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ended_pods(hand: PlayedKubelet, deleted: Pods) -> Pods:
    """Those of which kubelet has said how they ended, and one that never ran."""
    await hand.submit("unstarted")
    deleted["unstarted"] = await hand.pod_of("unstarted")
    await hand.delete_pod(deleted["unstarted"])
    await hand.tell_pod(deleted["unstarted"], {"phase": "Failed"})
    await hand.fail(deleted["fails"], 143)
    await hand.succeed(deleted["succeeds"])
    await hand.fail(deleted["evicted"], 143)
    return deleted


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def overdue(hand: PlayedKubelet) -> Pods:
    """All had longer than their Job might: three ran, one is on no node."""

    async def too_long(job: str) -> str:
        # Times are cut to the second: a deadline of 1 may pass before the Pod is seen.
        name = await (unplaced if job == "late-nowhere" else started)(hand, job, {"activeDeadlineSeconds": 2})
        await hand.until_job(lambda seen: seen["status"].get("failed") == 1, "its Pod is counted", job)
        return name

    jobs = ("late", "late-success", "late-gone", "late-nowhere")
    return dict(zip(jobs, await asyncio.gather(*map(too_long, jobs)), strict=True))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def leaving(hand: PlayedKubelet) -> Pods:
    """All run, and their Jobs were deleted in the foreground."""

    async def asked_to_go(job: str) -> str:
        name = await started(hand, job)
        await hand.delete_job("Foreground", job)
        await terminating(hand, job)
        return name

    jobs = ("leaves", "leaves-failed", "leaves-done")
    return dict(zip(jobs, await asyncio.gather(*map(asked_to_go, jobs)), strict=True))


class TestItsPodIsDisrupted:
    async def test_when_it_has_failed_the_policy_ends_the_job(self, hand: PlayedKubelet, disruptions: Pods) -> None:
        job = await hand.until_said("Failed", "disrupted")
        assert said(job) == DISRUPTION
        assert (job["status"]["failed"], job["status"]["ready"], job["status"]["terminating"]) == (1, 0, 0)
        for one in (condition(job, "FailureTarget"), condition(job, "Failed")):
            assert one
            assert disruptions["disrupted"] in one["message"]
            assert "DisruptionTarget" in one["message"]

    async def test_while_it_runs_on_it_is_let_run(self, hand: PlayedKubelet, disruptions: Pods) -> None:
        assert said(await hand.job("runs-on")) == []
        await hand.succeed(disruptions["runs-on"])
        assert said(await hand.until_said("Complete", "runs-on")) == REACHED

    async def test_if_that_is_no_longer_true_it_failed_like_any_other(
        self, hand: PlayedKubelet, disruptions: Pods
    ) -> None:
        assert said(await hand.until_said("Failed", "undisrupted")) == EXCEEDED


class TestItsPodIsDeleted:
    async def test_while_it_ends_it_is_only_counted(self, hand: PlayedKubelet, deleted: Pods) -> None:
        status = (await hand.job("counts"))["status"]
        start = {"startTime": status["startTime"]}
        assert status == {"ready": 0, "terminating": 1, "uncountedTerminatedPods": {}, **start}

    async def test_while_it_ends_there_is_no_other_pod(self, hand: PlayedKubelet, deleted: Pods) -> None:
        assert [pod["metadata"]["name"] for pod in await hand.pods_of("counts")] == [deleted["counts"]]

    async def test_a_disruption_is_nothing_before_it_has_failed(self, hand: PlayedKubelet, deleted: Pods) -> None:
        assert said(await hand.job("evicted")) == []

    async def test_let_go_without_a_word_it_stays_until_someone_says_how_it_ended(
        self, hand: PlayedKubelet, deleted: Pods
    ) -> None:
        name = deleted["let-go"]
        left = (await hand.pod(name))["metadata"]
        assert (left["deletionGracePeriodSeconds"], left["finalizers"]) == (0, [TRACKING])
        assert said(await hand.job("let-go")) == []
        await hand.fail(name, 137)
        await hand.until_pod_gone(name)
        assert said(await hand.until_said("Failed", "let-go")) == EXCEEDED

    async def test_on_no_node_it_stays_until_someone_says_that_it_failed(
        self, hand: PlayedKubelet, deleted: Pods
    ) -> None:
        """On a real cluster the collector of Pods does, within 20 seconds."""
        name = deleted["nowhere"]
        left = (await hand.pod(name))["metadata"]
        assert (left["deletionGracePeriodSeconds"], left["finalizers"]) == (0, [TRACKING])
        assert said(await hand.job("nowhere")) == []
        await hand.tell_pod(name, {"phase": "Failed"})
        await hand.until_pod_gone(name)
        job = await hand.until_said("Failed", "nowhere")
        assert (said(job), job["status"]["failed"], job["status"]["terminating"]) == (EXCEEDED, 1, 0)

    async def test_when_it_has_failed_so_has_the_job(self, hand: PlayedKubelet, ended_pods: Pods) -> None:
        name = ended_pods["fails"]
        job = await hand.until_said("Failed", "fails")
        assert (said(job), job["status"]["failed"], job["status"]["terminating"]) == (EXCEEDED, 1, 0)
        assert "finalizers" not in (await hand.pod(name))["metadata"]
        await hand.reap(name)
        await hand.until_pod_gone(name)

    async def test_when_it_has_succeeded_the_job_is_complete(self, hand: PlayedKubelet, ended_pods: Pods) -> None:
        assert said(await hand.until_said("Complete", "succeeds")) == REACHED

    async def test_a_disruption_counts_when_it_has_failed(self, hand: PlayedKubelet, ended_pods: Pods) -> None:
        assert said(await hand.until_said("Failed", "evicted")) == DISRUPTION

    async def test_before_it_had_started_it_is_the_same(self, hand: PlayedKubelet, ended_pods: Pods) -> None:
        assert said(await hand.until_said("Failed", "unstarted")) == EXCEEDED


class TestItsDeadlinePasses:
    async def test_a_running_pod_is_told_to_end_and_counted_as_failed(self, hand: PlayedKubelet, overdue: Pods) -> None:
        job = await hand.job("late")
        assert said(job) == DEADLINE[:1]
        assert (job["status"]["terminating"], job["status"]["uncountedTerminatedPods"]) == (1, {})
        pod = await hand.pod(overdue["late"])
        assert (pod["status"]["phase"], pod["metadata"]["deletionGracePeriodSeconds"]) == ("Running", 30)
        assert "finalizers" not in pod["metadata"]

    async def test_it_has_failed_when_the_pod_has_ended(self, hand: PlayedKubelet, overdue: Pods) -> None:
        await hand.succeed(overdue["late-success"])
        job = await hand.until_said("Failed", "late-success")
        assert (said(job), job["status"]["failed"], job["status"]["terminating"]) == (DEADLINE, 1, 0)
        assert (await hand.pod(overdue["late-success"]))["status"]["phase"] == "Succeeded"

    async def test_it_has_failed_when_the_pod_is_gone_without_a_word(self, hand: PlayedKubelet, overdue: Pods) -> None:
        await hand.reap(overdue["late-gone"])
        await hand.until_pod_gone(overdue["late-gone"])
        assert said(await hand.until_said("Failed", "late-gone")) == DEADLINE

    async def test_a_pod_on_no_node_is_gone_at_once_and_the_job_fails(self, hand: PlayedKubelet, overdue: Pods) -> None:
        await hand.until_pod_gone(overdue["late-nowhere"])
        job = await hand.until_said("Failed", "late-nowhere")
        assert (said(job), job["status"]["failed"], job["status"]["terminating"]) == (DEADLINE, 1, 0)
        assert "active" not in job["status"]


class TestItIsDeleted:
    async def test_in_the_foreground_it_stays_as_long_as_its_pod(self, hand: PlayedKubelet, leaving: Pods) -> None:
        meta = (await hand.job("leaves"))["metadata"]
        assert (meta["finalizers"], meta["deletionGracePeriodSeconds"]) == (["foregroundDeletion"], 0)
        pod = (await hand.pod(leaving["leaves"]))["metadata"]
        assert (pod["deletionGracePeriodSeconds"], pod.get("finalizers")) == (30, None)
        await hand.reap(leaving["leaves"])
        await hand.until_job_gone("leaves")
        assert await hand.pods_of("leaves") == []

    async def test_in_the_foreground_it_never_says_how_its_pod_ended(self, hand: PlayedKubelet, leaving: Pods) -> None:
        await hand.tell_pod(leaving["leaves-failed"], pod_status("Failed", ended(143)))
        await hand.tell_pod(leaving["leaves-done"], pod_status("Succeeded", ended(0)))
        for name in ("leaves-failed", "leaves-done"):
            job = await hand.until_job(lambda seen: seen["status"]["terminating"] == 0, "its Pod has ended", name)
            assert not {"conditions", "failed", "succeeded", "active"} & job["status"].keys()
            await hand.reap(leaving[name])
            await hand.until_job_gone(name)

    async def test_in_the_foreground_a_pod_on_no_node_goes_with_it(self, hand: PlayedKubelet) -> None:
        name = await unplaced(hand, "leaves-nowhere")
        await hand.delete_job("Foreground", "leaves-nowhere")
        await hand.until_job_gone("leaves-nowhere")
        await hand.until_pod_gone(name)

    async def test_in_the_background_it_goes_at_once_and_its_pod_is_told_to_end(self, hand: PlayedKubelet) -> None:
        name = await started(hand, "hurry")
        await hand.delete_job("Background", "hurry")
        await hand.until_job_gone("hurry")
        pod = await hand.until_pod(name, lambda pod: "deletionTimestamp" in pod["metadata"], "it is to end")
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
        await hand.until_pod(name, lambda pod: "finalizers" not in pod["metadata"], "no one keeps it")
        await hand.reap(name)
        await hand.until_pod_gone(name)

    async def test_once_finished_its_pod_goes_with_it(self, hand: PlayedKubelet) -> None:
        pods = {policy: await started(hand, policy.lower()) for policy in ("Foreground", "Background")}
        for name in pods.values():
            await hand.succeed(name)
        for policy, name in pods.items():
            await hand.until_said("Complete", policy.lower())
            await hand.delete_job(policy, policy.lower())
            await hand.until_job_gone(policy.lower())
            await hand.until_pod_gone(name)

    async def test_suspended_it_has_no_pod_to_wait_for(self, hand: PlayedKubelet) -> None:
        await hand.submit("asleep", {"suspend": True})
        await hand.until_said("Suspended", "asleep")
        await hand.delete_job("Foreground", "asleep")
        await hand.until_job_gone("asleep")

    async def test_another_of_the_same_name_has_a_pod_of_its_own(self, hand: PlayedKubelet) -> None:
        first = await started(hand, "again")
        await hand.delete_job("Background", "again")
        await hand.until_job_gone("again")
        made = await hand.submit("again")

        async def look() -> list[Json]:
            return [pod for pod in await hand.pods_of("again") if pod["metadata"]["name"] != first]

        (second,) = await hand.plane.wait_for(look, "a Pod of the second Job")
        assert second["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
