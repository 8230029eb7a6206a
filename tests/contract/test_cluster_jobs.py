"""A Job that runs undisturbed: its one Pod, its status meanwhile, and its end."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.contract.played_kubelet import PlayedKubelet, following, playing_alone
from tests.contract.played_kubelet_objects import TRACKING, condition, ended, pod_status, said, says
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

REACHED = [("SuccessCriteriaMet", "CompletionsReached"), ("Complete", "CompletionsReached")]
EXCEEDED = [("FailureTarget", "BackoffLimitExceeded"), ("Failed", "BackoffLimitExceeded")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kubelet(control_plane: ControlPlane) -> AsyncIterator[PlayedKubelet]:
    async with playing_alone(control_plane) as playing_here:
        yield playing_here


@dataclass(frozen=True)
class Story:
    """One Job from its create to its end.

    * made: the answer to the create.
    * placed: the Pod when it was on its node.
    * job, pod: the Job and the Pod at the end.
    * versions: every version of the Job.
    """

    kubelet: PlayedKubelet
    made: Json
    placed: Json
    job: Json
    pod: Json
    versions: list[Json]

    def statuses(self) -> list[Json]:
        return [job["status"] for job in self.versions]


async def told(kubelet: PlayedKubelet, job: str, exit_code: int) -> Story:
    """The story of a Job whose container ran and ended."""
    async with following(kubelet.plane, kubelet.jobs) as versions:
        made = await kubelet.submit(job)
        name = await kubelet.pod_of(job)
        placed = await kubelet.pod(name)
        await kubelet.run(name)
        await kubelet.until_job(lambda seen: seen["status"].get("ready") == 1, "its Pod is ready", job)
        await kubelet.tell_pod(name, pod_status("Failed" if exit_code else "Succeeded", ended(exit_code)))
        last = "Failed" if exit_code else "Complete"
        seen = await kubelet.until_said(last, job)

        def own() -> list[Json]:
            return [version for version in versions if version["metadata"]["name"] == job]

        await kubelet.plane.wait_for(lambda: says(own()[-1], last), "its last version in the watch")
        return Story(kubelet, made, placed, seen, await kubelet.pod(name), own())


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stories(kubelet: PlayedKubelet) -> tuple[Story, Story]:
    return await asyncio.gather(told(kubelet, "success", 0), told(kubelet, "failure", 3))


@pytest.fixture(scope="module")
def success(stories: tuple[Story, Story]) -> Story:
    return stories[0]


@pytest.fixture(scope="module")
def failure(stories: tuple[Story, Story]) -> Story:
    return stories[1]


class TestPodOfJob:
    async def test_pod_is_named_after_its_job(self, success: Story) -> None:
        assert re.fullmatch(r"success-[a-z0-9]{5}", success.placed["metadata"]["name"])
        assert success.placed["metadata"]["generateName"] == "success-"

    async def test_pod_is_the_only_one_of_its_job(self, success: Story) -> None:
        assert len(await success.kubelet.pods_of("success")) == 1

    async def test_pod_has_the_labels_of_its_template_and_of_its_job(self, success: Story) -> None:
        uid = success.made["metadata"]["uid"]
        assert success.placed["metadata"]["labels"] == {
            "kept": "label",
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": "success",
            "controller-uid": uid,
            "job-name": "success",
        }

    async def test_pod_has_the_annotations_of_its_template(self, success: Story) -> None:
        assert success.placed["metadata"]["annotations"] == {"kept": "annotation"}

    async def test_pod_has_its_job_as_controlling_owner(self, success: Story) -> None:
        assert success.placed["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "success",
                "uid": success.made["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]

    async def test_pod_keeps_its_finalizer_until_its_job_has_counted_it(self, success: Story) -> None:
        assert success.placed["metadata"]["finalizers"] == [TRACKING]
        assert "finalizers" not in success.pod["metadata"]

    async def test_pod_outlives_the_end_of_its_job(self, success: Story, failure: Story) -> None:
        assert (success.pod["status"]["phase"], failure.pod["status"]["phase"]) == ("Succeeded", "Failed")
        assert "deletionTimestamp" not in success.pod["metadata"] | failure.pod["metadata"]

    async def test_event_tells_of_the_create_of_the_pod(self, success: Story) -> None:
        event = await success.kubelet.until_event("success", "SuccessfulCreate")
        about = event["involvedObject"]
        assert (event["type"], about["kind"], about["apiVersion"]) == ("Normal", "Job", "batch/v1")
        assert about["uid"] == success.made["metadata"]["uid"]
        assert success.placed["metadata"]["name"] in event["message"]

    async def test_pod_with_only_the_name_label_of_a_job_is_not_counted_by_the_job(
        self, kubelet: PlayedKubelet
    ) -> None:
        await kubelet.submit("namesake")
        own = await kubelet.pod_of("namesake")
        labels = {"job-name": "namesake", "batch.kubernetes.io/job-name": "namesake"}
        body = {"metadata": {"name": "stray", "labels": labels}, "spec": kubelet.pod_spec()}
        await kubelet.plane.admin("POST", f"{kubelet.core}/pods", body)
        await kubelet.fail("stray")
        await kubelet.succeed(own)
        assert said(await kubelet.until_said("Complete", "namesake")) == REACHED
        assert "ownerReferences" not in (await kubelet.pod("stray"))["metadata"]


class TestJobStatus:
    async def test_job_is_made_without_a_status(self, success: Story) -> None:
        assert success.made["status"] == success.statuses()[0] == {}

    async def test_job_counts_its_pod_as_soon_as_the_pod_is_made(self, success: Story) -> None:
        counted = success.statuses()[1]
        counts = {"active": 1, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}
        assert counted == {"startTime": counted["startTime"], **counts}
        assert counted["startTime"] >= success.made["metadata"]["creationTimestamp"]

    async def test_job_counts_a_ready_pod(self, success: Story) -> None:
        assert success.statuses()[2] == success.statuses()[1] | {"ready": 1}

    async def test_job_reports_success_in_two_steps(self, success: Story) -> None:
        assert [said(job) for job in success.versions] == [[], [], [], REACHED[:1], REACHED]

    async def test_job_reports_failure_in_two_steps(self, failure: Story) -> None:
        assert [said(job) for job in failure.versions] == [[], [], [], EXCEEDED[:1], EXCEEDED]

    async def test_first_step_names_the_pod_that_is_not_counted_yet(self, success: Story, failure: Story) -> None:
        for story, outcome in ((success, "succeeded"), (failure, "failed")):
            before = story.statuses()[3]
            assert before["uncountedTerminatedPods"] == {outcome: [story.placed["metadata"]["uid"]]}
            assert (before["ready"], before["terminating"]) == (0, 0)
            assert not {"active", "completionTime", outcome} & before.keys()

    async def test_complete_job_counts_one_success_and_has_its_time(self, success: Story) -> None:
        status = success.job["status"]
        assert (status["succeeded"], status["ready"], status["terminating"]) == (1, 0, 0)
        assert status["uncountedTerminatedPods"] == {}
        assert not {"active", "failed"} & status.keys()
        complete = condition(success.job, "Complete")
        assert complete
        assert status["completionTime"] >= status["startTime"]
        assert min(complete["lastTransitionTime"], complete["lastProbeTime"]) >= status["startTime"]

    async def test_failed_job_counts_one_failure_and_has_no_completion_time(self, failure: Story) -> None:
        status = failure.job["status"]
        assert (status["failed"], status["ready"], status["terminating"]) == (1, 0, 0)
        assert status["uncountedTerminatedPods"] == {}
        assert not {"active", "succeeded", "completionTime"} & status.keys()

    async def test_events_tell_of_the_end_of_a_job(self, success: Story, failure: Story) -> None:
        assert (await success.kubelet.until_event("success", "Completed"))["type"] == "Normal"
        assert (await failure.kubelet.until_event("failure", "BackoffLimitExceeded"))["type"] == "Warning"


class TestFailedJob:
    async def test_failed_job_gets_no_second_pod(self, failure: Story) -> None:
        assert [pod["metadata"]["uid"] for pod in await failure.kubelet.pods_of("failure")] == [
            failure.placed["metadata"]["uid"]
        ]

    async def test_reason_of_a_failed_pod_does_not_change_the_end_of_its_job(self, kubelet: PlayedKubelet) -> None:
        """One Pod is refused by its node; the own deadline of another one passes."""
        reasons = {
            "refused": {"phase": "Failed", "reason": "OutOfcpu", "message": "not enough cpu"},
            "late": {**pod_status("Failed", ended(143)), "reason": "DeadlineExceeded", "message": "active too long"},
        }
        for name, status in reasons.items():
            await kubelet.submit(name)
            await kubelet.tell_pod(await kubelet.pod_of(name), status)
        for name, status in reasons.items():
            assert said(await kubelet.until_said("Failed", name)) == EXCEEDED
            assert [pod["status"]["reason"] for pod in await kubelet.pods_of(name)] == [status["reason"]]
