"""Refused Pods: whose Events are read, and what they say."""

from datetime import datetime
from typing import Any

import pytest

from dispatcher.kube.events import (  # fmt: skip
    LONGEST_MESSAGE,
    MOST_JOBS,
    cause_of,
    jobs_without_pod,
    next_jobs,
    refusal_of,
)
from dispatcher.kube.wire import Meta, WireEvent
from dispatcher.model.cluster import LONG_AGO, PodRefusal
from dispatcher.model.jobs import Job
from dispatcher.model.snapshot import ClusterView
from tests.rig.builders import NOW, a_failed_job, a_job, a_pod, ago


def an_event(first: float | None, last: float | None = None, message: str = "no") -> WireEvent:
    return WireEvent(message=message, first_timestamp=at(first), last_timestamp=at(last))


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else ago(seconds)


def test_job_without_events_is_not_refused() -> None:
    assert refusal_of(()) is None


def test_refusal_began_with_the_first_event_and_has_the_words_of_the_last() -> None:
    events = [an_event(20, 5, "newest"), an_event(60, 50, "oldest"), an_event(30, 10, "between")]
    assert refusal_of(events) == PodRefusal(ago(60), "newest", is_outage=True)


def test_event_without_times_counts_from_its_creation() -> None:
    assert refusal_of([WireEvent(Meta(creation_timestamp=ago(7)))]) == PodRefusal(ago(7), "", is_outage=True)
    assert refusal_of([WireEvent()]) == PodRefusal(LONG_AGO, "", is_outage=True)


def test_quota_is_told_from_other_refusals() -> None:
    words = 'pods "job-1-1-x" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=4, limited: pods=4'
    found = refusal_of([an_event(1, 1, words)])
    assert found is not None
    assert found.is_quota


BY_A_RULE = [
    'Error creating: pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true',
    'Error creating: pods "a" is forbidden: error looking up service account jobs/x: serviceaccount "x" not found',
    'Error creating: admission webhook "validate.example" denied the request: no team label',
    "Error creating: pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
    "Error creating: policy 'm' with binding 'm' denied request: expression 'x' resulted in error: no such key: nodes",
    'Error creating: Pod "a" is invalid: spec.containers[0].image: Required value',
]
OF_NOBODY = [
    'Error creating: Internal error occurred: failed calling webhook "w.example": Post "https://w": connection refused',
    'Error creating: Internal error occurred: failed calling webhook "w.example": context deadline exceeded',
    "Error creating: etcdserver: request timed out",
    "Error creating: the server is currently unable to handle the request",
    "Error creating: Timeout: request did not complete within requested timeout - context deadline exceeded",
    "Error creating: the server has received too many requests and has asked us to try again later",
]


@pytest.mark.parametrize("words", BY_A_RULE)
def test_refusal_by_a_rule_is_about_the_pod(words: str) -> None:
    found = refusal_of([an_event(1, 1, words)])
    assert found is not None
    assert (found.is_outage, cause_of(found)) == (False, "refused")


@pytest.mark.parametrize("words", OF_NOBODY)
def test_server_that_does_not_answer_refuses_no_pod(words: str) -> None:
    found = refusal_of([an_event(1, 1, words)])
    assert found is not None
    assert (found.is_outage, cause_of(found)) == (True, "outage")


def test_long_message_of_a_server_is_cut() -> None:
    found = refusal_of([an_event(1, 1, "x" * 100_000)])
    assert found is not None
    assert len(found.message) == LONGEST_MESSAGE


@pytest.mark.parametrize(
    ("job", "is_asked"),
    [
        (a_job(created_at=ago(15)), True),
        (a_job(created_at=ago(14)), False),
        (a_failed_job(), False),
        (a_job(suspended=True), False),
        (a_job(deleting=True), False),
    ],
)
def test_only_old_active_jobs_are_asked_about(job: Job, is_asked: bool) -> None:
    assert [*jobs_without_pod(view(job))] == [job] * is_asked


def test_job_with_a_pod_is_not_asked_about() -> None:
    mine, other = a_job(), a_job(launch=2)
    assert [*jobs_without_pod(view(mine, other, pods=[a_pod(mine)]))] == [other]


def view(*jobs: Job, pods: Any = ()) -> ClusterView:
    return ClusterView(NOW, {job.name: job for job in jobs}, {pod.name: pod for pod in pods}, {})


def test_all_jobs_get_their_turn() -> None:
    """As many Jobs as two rounds read and one more: the third round begins with the last one."""
    waiting = [a_job(task_id=number, name=f"job-{number:03}") for number in range(2 * MOST_JOBS + 1)]
    after, rounds = "", []
    for _ in range(3):
        rounds.append([job.name for job in next_jobs(reversed(waiting), after=after)])
        after = rounds[-1][-1]
    assert [len(names) for names in rounds] == [MOST_JOBS] * 3
    assert {name for names in rounds for name in names} == {job.name for job in waiting}
    assert rounds[2][0] == waiting[-1].name


def test_no_jobs_have_no_turn() -> None:
    assert next_jobs([], after="job-7") == []
