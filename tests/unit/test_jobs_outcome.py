"""The table of docs/protocol.md, section 6, line by line and in its order, down to Jobs that are there.

Jobs that are over: test_jobs_outcome_over. Launch numbers and budgets: test_jobs_outcome_budgets.
"""

from datetime import datetime
from typing import Any

import pytest

from dispatcher.jobs.observed import Rules
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import End, Job, Phase
from dispatcher.model.launches import Ask, JobsVerdict, Launch
from dispatcher.model.tasks import Status, Task
from dispatcher.model.verdicts import HoldReason
from tests.builders import (
    NOW,
    a_complete_job,
    a_disrupted_job,
    a_failed_job,
    a_job,
    a_node,
    a_pod,
    a_running_task,
    a_task,
    ago,
    later,
)
from tests.unit.judging import detail_of, look, reason_of, removed

OVER = [Status.SUCCEEDED, Status.FAILED, Status.CANCELLED]


# terminal | unfinished | after 60 s delete the Job


@pytest.mark.parametrize("status", OVER)
@pytest.mark.parametrize(("seconds", "ends"), [(0, []), (59, []), (60, [("jobs", "job-1-1")])])
def test_the_unfinished_job_of_a_row_that_is_over_is_left_60_seconds(
    status: Status, seconds: float, ends: list[tuple[str, str]]
) -> None:
    standing = look(a_task(status=status, launch=1, finished_at=ago(seconds)), a_job())
    assert standing.verdict is None
    assert removed(standing) == ends


@pytest.mark.fault(44)
@pytest.mark.parametrize("status", OVER)
def test_nothing_is_launched_for_a_row_that_is_over_whatever_its_jobs_are(status: Status) -> None:
    task = a_task(status=status, attempt=2, launch=1, finished_at=ago(600), cancel_requested_at=ago(900))
    standing = look(task, a_job(1), a_job(2, phase=Phase.FAILING), a_failed_job(2, 2), a_job(3))
    assert standing.verdict is None
    assert removed(standing) == [("jobs", "job-1-1"), ("jobs", "job-2-1"), ("jobs", "job-3-1")]


def test_a_removal_names_the_object_that_was_judged() -> None:
    job = a_job(resource_version="771")
    standing = look(a_task(status=Status.FAILED, finished_at=ago(60)), job)
    assert standing.ends == (End("jobs", job.name, job.uid, "its row is over", resource_version="771"),)


# any | older attempt, unfinished | after 60 s delete the Job; no create


@pytest.mark.parametrize("older", [a_job(1), a_job(1, phase=Phase.FAILING), a_job(1, deleting=True)])
def test_a_new_attempt_waits_for_the_job_of_an_older_one(older: Job) -> None:
    standing = look(a_task(attempt=2), older)
    assert reason_of(standing) is HoldReason.FINISHING
    assert removed(standing) == []


def test_the_job_of_an_older_attempt_goes_60_seconds_after_it_was_first_seen() -> None:
    seen, task, job = dict[str, datetime](), a_task(attempt=2), a_job(1, created_at=ago(9000))
    ends = [removed(look(task, job, seen=seen, at=later(seconds))) for seconds in (0, 59, 60, 70)]
    assert ends == [[], [], [("jobs", "job-1-1")], [("jobs", "job-1-1")]]


def test_an_older_attempt_comes_before_a_higher_one_a_cancel_and_a_superseded_job() -> None:
    task = a_task(attempt=2, launch=2, cancel_requested_at=ago(600))
    standing = look(task, a_job(1), a_job(3), a_job(2, 1), a_job(2, 2))
    assert detail_of(standing) == "attempt 1 is not over yet"
    assert removed(standing) == []


def test_a_finished_job_of_an_older_attempt_means_nothing_any_more() -> None:
    standing = look(a_task(attempt=2), a_failed_job(1, 3))
    assert standing.verdict == Launch(1, ask=Ask.ALL_JOBS)


# any | higher attempt, unfinished | no create, alarm


@pytest.mark.parametrize("task", [a_task(), a_running_task(), a_task(cancel_requested_at=ago(600))])
def test_a_job_of_a_higher_attempt_holds_the_row_of_a_restored_database(task: Task) -> None:
    standing = look(task, a_job(2), a_failed_job(1))
    assert reason_of(standing) is HoldReason.FINISHING
    assert "restored" in detail_of(standing)
    assert removed(standing) == []


def test_a_finished_job_of_a_higher_attempt_is_met_by_its_409() -> None:
    assert look(a_task(), a_complete_job(2)).verdict == Launch(1)


# cancel asked | unfinished / none | after the grace delete the Job / never create


@pytest.mark.parametrize(("seconds", "ends"), [(0, []), (59, []), (60, [("jobs", "job-1-1")])])
def test_a_cancelled_task_has_60_seconds_to_stop(seconds: float, ends: list[tuple[str, str]]) -> None:
    standing = look(a_running_task(cancel_requested_at=ago(seconds)), a_job())
    assert reason_of(standing) is HoldReason.FINISHING
    assert removed(standing) == ends


@pytest.mark.parametrize("jobs", [(), (a_failed_job(),), (a_complete_job(),), (a_disrupted_job(),)])
def test_a_cancelled_task_is_never_launched_again(jobs: tuple[Job, ...]) -> None:
    standing = look(a_running_task(cancel_requested_at=ago(600)), *jobs)
    assert reason_of(standing) is HoldReason.FINISHING
    assert removed(standing) == []


def test_a_cancel_comes_before_a_superseded_job() -> None:
    standing = look(a_running_task(2, cancel_requested_at=ago(1)), a_job(1, 1), a_job(1, 2))
    assert detail_of(standing) == "a cancel was asked"
    assert removed(standing) == []


# any | unfinished, n < N | delete it; no create


@pytest.mark.parametrize(
    "jobs",
    [
        (a_job(1, 1), a_job(1, 2)),
        (a_job(1, 1), a_failed_job(1, 2)),
        (a_job(1, 1),),
        (a_complete_job(1, 2), a_job(1, 1)),
    ],
)
def test_a_launch_below_the_newest_goes_at_once(jobs: tuple[Job, ...]) -> None:
    """The newest by the Jobs, or by the row alone."""
    standing = look(a_running_task(2), *jobs)
    assert reason_of(standing) is HoldReason.FINISHING
    assert removed(standing) == [("jobs", "job-1-1")]


# waiting | none, N = 0 | create (att, 1)


def test_a_new_row_is_launched_and_its_post_is_the_question() -> None:
    assert look(a_task()) == JobsVerdict(Launch(1, 0, 0, Ask.NOTHING))


def test_the_first_launch_of_a_later_attempt_asks_for_all_jobs() -> None:
    assert look(a_task(attempt=2)) == JobsVerdict(Launch(1, 0, 0, Ask.ALL_JOBS))


# any | J FailureTarget, its Pod on a lost node | wait; after NODE_LOST_SECONDS force the Pod

FAILING = a_job(phase=Phase.FAILING, reason="PodFailurePolicy")
LOST_POD = a_pod(FAILING, phase="Running", node_name="node-1", deleting=True, had_run=True)
LOST_NODE = a_node(ready=False, unreachable=True)


def look_at_lost_node(patience: int, seen: dict[str, datetime], seconds: float) -> JobsVerdict:
    rules = Rules(node_lost_seconds=patience)
    cluster: dict[str, Any] = {"rules": rules, "seen": seen, "at": later(seconds)}
    return look(a_running_task(), FAILING, pods=[LOST_POD], nodes=[LOST_NODE], **cluster)


@pytest.mark.fault(38)
def test_a_lost_node_is_waited_for_without_end() -> None:
    seen = dict[str, datetime]()
    for seconds in (0, 90_000):
        standing = look_at_lost_node(0, seen, seconds)
        assert reason_of(standing) is HoldReason.NODE_LOST
        assert removed(standing) == []


@pytest.mark.fault(38)
def test_after_node_lost_seconds_the_pod_is_forced_and_a_job_past_its_deadline_stays() -> None:
    seen = dict[str, datetime]()
    assert [removed(look_at_lost_node(300, seen, seconds)) for seconds in (0, 299)] == [[], []]
    assert look_at_lost_node(300, seen, 300).ends == (
        End("pods", LOST_POD.name, LOST_POD.uid, "its node is lost", grace_seconds=0),
    )


@pytest.mark.fault(38)
@pytest.mark.parametrize(
    ("task", "job", "gone"),
    [
        (a_running_task(), a_job(), ["pods", "jobs"]),
        (a_running_task(), a_job(deleting=True), ["pods"]),
        (a_task(), a_job(), []),
        (a_task(), FAILING, ["pods"]),
    ],
    ids=["its finalizer keeps the Pod", "on its way", "nothing else remembers it", "past its deadline"],
)
def test_a_job_on_a_lost_node_goes_only_where_its_row_remembers_it(task: Task, job: Job, gone: list[str]) -> None:
    seen = dict[str, datetime]()
    for seconds in (0, 300):
        cluster: dict[str, Any] = {"rules": Rules(node_lost_seconds=300), "seen": seen, "at": later(seconds)}
        standing = look(task, job, pods=[LOST_POD], nodes=[LOST_NODE], **cluster)
        assert reason_of(standing) is HoldReason.NODE_LOST
    assert [end.kind for end in standing.ends] == gone


@pytest.mark.parametrize(
    ("job", "pod", "nodes"),
    [
        (FAILING, LOST_POD, [a_node()]),
        (FAILING, LOST_POD, []),
        (FAILING, a_pod(FAILING, phase="Running", node_name="node-1"), [LOST_NODE]),
    ],
    ids=["the node is fine", "the node is gone or not watched", "the Pod stays"],
)
def test_without_a_lost_node_a_launch_is_just_launched(job: Job, pod: Pod, nodes: list[Any]) -> None:
    assert reason_of(look(a_running_task(), job, pods=[pod], nodes=nodes)) is HoldReason.LAUNCHED


# any | J unfinished or being deleted | wait


@pytest.mark.parametrize("task", [a_task(), a_running_task(), a_running_task(max_failures=1)])
@pytest.mark.parametrize(
    "job",
    [a_job(), a_job(phase=Phase.FAILING), a_job(deleting=True), a_failed_job(deleting=True),
     a_complete_job(deleting=True), a_failed_job(deleting=True, report="exit-code")],
)  # fmt: skip
def test_a_job_that_is_there_is_waited_for(task: Task, job: Job) -> None:
    standing = look(task, job, pods=[a_pod(job, phase="Running", had_run=True)])
    assert reason_of(standing) is HoldReason.LAUNCHED
    assert removed(standing) == []


@pytest.mark.fault(41)
def test_a_launch_that_does_not_start_in_time_loses_its_pod_and_never_its_job() -> None:
    job = a_job(created_at=ago(1800))
    standing = look(a_task(), job, pods=[a_pod(job)])
    assert reason_of(standing) is HoldReason.LAUNCHED
    assert standing.ends == (End("pods", "pod-of-job-1-1", "pod-of-job-1-1", "the start deadline passed"),)


@pytest.mark.parametrize(
    ("task", "job", "pod"),
    [
        (a_task(), {"created_at": ago(1799)}, {}),
        (a_task(), {"suspended": True}, {}),
        (a_task(), {}, {"phase": "Running"}),
        (a_task(), {}, {"had_run": True}),
        (a_task(), {}, {"deleting": True}),
        (a_running_task(), {}, {}),
    ],
    ids=["in time", "suspended by somebody", "runs", "has run", "goes already", "has started"],
)
def test_the_start_deadline_is_for_pods_that_never_started(
    task: Task, job: dict[str, Any], pod: dict[str, Any]
) -> None:
    late = a_job(**({"created_at": ago(9000)} | job))
    assert removed(look(task, late, pods=[a_pod(late, **pod)])) == []


def test_the_start_deadline_is_a_setting_and_a_job_without_pod_has_its_own() -> None:
    job, rules = a_job(created_at=ago(100)), Rules(start_deadline_seconds=100)
    assert removed(look(a_task(), job, pods=[a_pod(job)], rules=rules)) == [("pods", "pod-of-job-1-1")]
    assert removed(look(a_task(), job, rules=rules)) == []


def test_the_start_deadline_stands_still_while_somebody_suspends_the_job() -> None:
    seen, job = dict[str, datetime](), a_job(created_at=ago(1000), suspended=True)
    look(a_task(), job, seen=seen)
    resumed = a_job(created_at=ago(1000))
    standing = look(a_task(), resumed, pods=[a_pod(resumed, created_at=later(5000))], seen=seen, at=later(5001))
    assert removed(standing) == []


@pytest.mark.fault(39)
@pytest.mark.parametrize("reason", ["ErrImagePull", "InvalidImageName", "CreateContainerConfigError"])
def test_a_broken_image_or_configuration_ends_a_launch_after_60_seconds(reason: str) -> None:
    seen, job = dict[str, datetime](), a_job(created_at=NOW)
    pod = a_pod(job, waiting_reason=reason)
    standings = [look(a_task(), job, pods=[pod], seen=seen, at=later(s)) for s in (0, 59, 60)]
    assert [removed(standing) for standing in standings] == [[], [], [("pods", pod.uid)]]
    assert standings[2].ends[0].cause == reason


def test_a_container_that_is_being_created_is_given_until_the_start_deadline() -> None:
    seen, job = dict[str, datetime](), a_job(created_at=NOW)
    pod = a_pod(job, waiting_reason="CrashLoopBackOff")
    assert [removed(look(a_task(), job, pods=[pod], seen=seen, at=later(s))) for s in (0, 600)] == [[], []]
