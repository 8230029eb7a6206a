"""One row with its Jobs and Pods: its newest launch, the stage of that launch, and the ages of states."""

from datetime import timedelta

import pytest

from dispatcher.jobs.observed import TaskWithJobs, stage
from dispatcher.model.cluster import Pod, PodRefusal
from dispatcher.model.jobs import Job, Phase
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Stage
from tests.rig.builders import (
    NOW,
    a_cluster,
    a_complete_job,
    a_failed_job,
    a_job,
    a_pod,
    a_running_task,
    a_task,
    ago,
    later,
)

MINUTE = timedelta(seconds=60)


@pytest.mark.parametrize(
    ("task", "jobs", "last", "newest"),
    [
        (a_task(), [], 0, None),
        (a_task(), [a_job(1, 2), a_failed_job(1, 1)], 2, "job-1-2"),
        (a_running_task(2), [a_failed_job(1, 1), a_job(1, 2)], 2, "job-1-2"),
        (a_running_task(3), [a_job(1, 2)], 3, None),
        (a_running_task(1), [a_job(1, 2)], 2, "job-1-2"),
        (a_task(attempt=2), [a_job(1, 5), a_job(3, 7)], 0, None),
    ],
    ids=["no Jobs", "two Jobs", "row and Jobs agree", "its Job is gone", "its Job is older", "other attempts"],
)
def test_newest_launch_comes_from_the_jobs_of_the_attempt_and_the_row(
    task: Task, jobs: list[Job], last: int, newest: str | None
) -> None:
    row = TaskWithJobs(task, jobs, a_cluster())
    assert row.last == last
    assert (row.job.uid if row.job else None) == newest


def test_pods_are_the_pods_of_the_newest_job() -> None:
    one, two = a_failed_job(1, 1), a_job(1, 2)
    cluster = a_cluster(pods=[a_pod(one), a_pod(two)])
    assert TaskWithJobs(a_task(), [one, two], cluster).pods == [a_pod(two)]
    assert TaskWithJobs(a_task(), [a_job(1, 3)], cluster).pods == ()
    assert TaskWithJobs(a_task(), [], cluster).pods == ()


@pytest.mark.parametrize(
    ("job", "pods", "code"),
    [
        (a_job(suspended=True), [], "Suspended"),
        (a_job(suspended=True), [a_pod()], "Suspended"),
        (a_job(created_at=ago(29)), [], "Starting"),
        (a_job(created_at=ago(30)), [], "Starting: its Job has no Pod yet"),
        (a_complete_job(deleting=True), [], "Ending"),
        (a_job(), [a_pod()], "Starting"),
        (a_job(), [a_pod(waiting_reason="CrashLoopBackOff")], "SidecarCrashes"),
        (
            a_job(),
            [a_pod(waiting_reason="CrashLoopBackOff", waiting_message="back-off 10s, container=proxy")],
            "SidecarCrashes: back-off 10s, container=proxy",
        ),
        (a_job(), [a_pod(unschedulable_since=ago(1))], "Unschedulable"),
        (a_job(), [a_pod(unschedulable_since=ago(1), waiting_message="0/3 nodes")], "Unschedulable: 0/3 nodes"),
        (a_job(), [a_pod(is_gated=True)], "Suspended: by scheduling gates of its Pod"),
        (a_job(), [a_pod(waiting_reason="ImagePullBackOff")], "ImagePull: ImagePullBackOff"),
        (
            a_job(),
            [a_pod(waiting_reason="ErrImagePull", waiting_message="not found")],
            "ImagePull: ErrImagePull: not found",
        ),
        (a_job(), [a_pod(phase="Running")], "Running"),
        (a_job(phase=Phase.FAILING), [a_pod(phase="Failed")], "Running"),
    ],
)
def test_stage_of_a_launch_is_one_word_and_what_the_cluster_says(job: Job, pods: list[Pod], code: str) -> None:
    assert stage(job, pods, NOW) == code
    assert code.partition(":")[0] in set(Stage)


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (PodRefusal(NOW, "violates PodSecurity"), "PodRefused: violates PodSecurity"),
        (PodRefusal(NOW, "exceeded quota: pods", is_quota=True), "QuotaExceeded: exceeded quota: pods"),
    ],
)
def test_refused_pod_is_told_in_the_words_of_the_server(refusal: PodRefusal, told: str) -> None:
    assert stage(a_job(created_at=NOW), [], NOW, refusal) == told
    assert stage(a_job(suspended=True), [], NOW, refusal) == "Suspended"
    assert stage(a_job(), [a_pod()], NOW, refusal) == "Starting"


@pytest.mark.parametrize("reason", [
    "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
    "RegistryUnavailable", "SignatureValidationFailed", "CreateContainerConfigError", "CreateContainerError",
    "PreCreateHookError", "PreStartHookError", "RunContainerError",
])  # fmt: skip
def test_container_cannot_start_whatever_kubelet_calls_its_fault(reason: str) -> None:
    assert a_pod(waiting_reason=reason).cannot_start


@pytest.mark.parametrize("reason", ["", "Waiting", "ProviderPending", "Pulling", "CrashLoopBackOff"])
def test_container_that_is_being_created_may_still_start(reason: str) -> None:
    """Virtual nodes have words of their own for what only takes time."""
    pod = a_pod(waiting_reason=reason, waiting_message="" if reason in {"", "CrashLoopBackOff"} else "please wait")
    assert not pod.cannot_start
    if pod.waiting_message:
        assert stage(a_job(), [pod], NOW) == f"Starting: {reason}: please wait"


def test_task_runs_although_a_container_beside_it_cannot_start() -> None:
    pod = a_pod(had_run=True, had_begun=True, waiting_reason="ImagePullBackOff", waiting_message="cannot pull mesh")
    assert (stage(a_job(), [pod], NOW), pod.cannot_start) == ("Running", False)


# States without a time of their own


def test_state_seen_first_now_has_lasted_no_time() -> None:
    assert a_cluster().has_lasted("a", timedelta(0))
    assert not a_cluster().has_lasted("a", MINUTE)


def test_state_lasts_from_its_first_sight() -> None:
    lasted = [a_cluster(first_seen={"a": NOW}, at=later(s)).has_lasted("a", MINUTE) for s in (0, 30, 59, 60, 61)]
    assert lasted == [False, False, False, True, True]


def test_states_are_timed_separately() -> None:
    cluster = a_cluster(first_seen={"a": NOW}, at=later(60))
    assert cluster.has_lasted("a", MINUTE)
    assert not cluster.has_lasted("b", MINUTE)
