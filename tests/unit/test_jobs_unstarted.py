"""Launches that have not started: the start deadline, errors of the image, refused Pods, and the wait for a node."""

from datetime import datetime
from typing import Any

import pytest

from dispatcher.jobs.observed import Rules
from dispatcher.model.cluster import PodRefusal
from dispatcher.model.jobs import End
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import HoldReason
from tests.rig.builders import NOW, a_job, a_pod, a_running_task, a_task, ago, later
from tests.unit.judging import detail_of, judged, reason_of, removed


@pytest.mark.fault(41)
def test_start_deadline_deletes_the_pod_and_never_the_job() -> None:
    job = a_job(created_at=ago(1800), ended_by="us")
    found = judged(a_task(), job, pods=[a_pod(job)])
    assert reason_of(found) is HoldReason.LAUNCHED
    assert found.ends == (End("pods", "pod-of-job-1-1", "pod-of-job-1-1", "the start deadline passed"),)


def test_job_is_noted_before_its_pod_is_deleted() -> None:
    job = a_job(created_at=ago(1800))
    found = judged(a_task(), job, pods=[a_pod(job)])
    cause, version = "the start deadline passed", job.resource_version
    assert found.ends == (End("us", job.name, job.uid, cause, resource_version=version),)


@pytest.mark.parametrize(
    ("task", "job", "pod"),
    [
        (a_task(), {"created_at": ago(1799)}, {}),
        (a_task(), {"suspended": True}, {}),
        (a_task(), {}, {"phase": "Running"}),
        (a_task(), {}, {"had_run": True}),
        (a_task(), {"ended_by": "us"}, {"deleting": True}),
        (a_running_task(), {}, {}),
        (a_task(), {}, {"node_name": ""}),
        (a_task(), {}, {"scheduled_at": ago(1799)}),
    ],
    ids=["in time", "suspended by somebody", "runs", "has run", "is being deleted", "has started", "has no node",
         "has a node in time"],
)  # fmt: skip
def test_start_deadline_is_for_pods_that_never_started(task: Task, job: dict[str, Any], pod: dict[str, Any]) -> None:
    late = a_job(**({"created_at": ago(9000)} | job))
    assert removed(judged(task, late, pods=[a_pod(late, **pod)])) == []


def test_start_deadline_counts_from_the_binding_to_a_node() -> None:
    job = a_job(created_at=ago(90_000), ended_by="us")
    found = judged(a_task(), job, pods=[a_pod(job, scheduled_at=ago(1800))])
    assert removed(found) == [("pods", "pod-of-job-1-1")]


def test_start_deadline_is_a_setting_and_ends_no_job_without_a_pod() -> None:
    job, rules = a_job(created_at=ago(100), ended_by="us"), Rules(start_deadline_seconds=100)
    assert removed(judged(a_task(), job, pods=[a_pod(job)], rules=rules)) == [("pods", "pod-of-job-1-1")]
    assert removed(judged(a_task(), job, rules=rules)) == []


def test_start_deadline_does_not_pass_while_the_job_is_suspended() -> None:
    seen, job = dict[str, datetime](), a_job(created_at=ago(1000), suspended=True)
    judged(a_task(), job, seen=seen)
    resumed = a_job(created_at=ago(1000))
    found = judged(a_task(), resumed, pods=[a_pod(resumed, created_at=later(5000))], seen=seen, at=later(5001))
    assert removed(found) == []


@pytest.mark.fault(27)
def test_refused_pod_ends_a_launch_60_seconds_after_the_first_event() -> None:
    job = a_job(created_at=ago(600))
    known = {job.uid: PodRefusal(NOW, "violates PodSecurity")}
    found = [judged(a_task(), job, at=later(seconds), refusals=known) for seconds in (59, 60)]
    assert [removed(one) for one in found] == [[], [("deadline", job.uid)]]
    assert detail_of(found[1]) == "PodRefused: violates PodSecurity"


@pytest.mark.parametrize(
    ("task", "job", "pods", "refusal"),
    [
        (a_task(), {}, False, PodRefusal(ago(600), "exceeded quota: pods", is_quota=True)),
        (a_task(), {}, False, None),
        (a_task(), {}, True, PodRefusal(ago(600), "no")),
        (a_task(), {"suspended": True}, False, PodRefusal(ago(600), "no")),
        (a_task(), {"deleting": True}, False, PodRefusal(ago(600), "no")),
        (a_running_task(), {}, False, PodRefusal(ago(600), "no")),
    ],
    ids=["quota", "no event", "has a Pod", "suspended", "is being deleted", "has started"],
)
def test_other_launches_without_a_pod_are_waited_for(
    task: Task, job: dict[str, Any], pods: bool, refusal: PodRefusal | None
) -> None:
    one = a_job(**({"created_at": ago(90_000)} | job))
    refusals = {one.uid: refusal} if refusal else {}
    found = judged(task, one, pods=[a_pod(one, node_name="")] if pods else [], refusals=refusals)
    assert reason_of(found) is HoldReason.LAUNCHED
    assert removed(found) == []


@pytest.mark.fault(39)
@pytest.mark.parametrize("reason", ["ErrImagePull", "InvalidImageName", "CreateContainerConfigError"])
def test_broken_image_or_configuration_ends_a_launch_after_60_seconds(reason: str) -> None:
    seen, job = dict[str, datetime](), a_job(created_at=NOW, ended_by="us")
    pod = a_pod(job, waiting_reason=reason)
    verdicts = [judged(a_task(), job, pods=[pod], seen=seen, at=later(s)) for s in (0, 59, 60)]
    assert [removed(found) for found in verdicts] == [[], [], [("pods", pod.uid)]]
    assert verdicts[2].ends[0].cause == reason


def test_container_that_is_being_created_is_given_until_the_start_deadline() -> None:
    seen, job = dict[str, datetime](), a_job(created_at=NOW)
    pod = a_pod(job, waiting_reason="CrashLoopBackOff")
    assert [removed(judged(a_task(), job, pods=[pod], seen=seen, at=later(s))) for s in (0, 600)] == [[], []]
