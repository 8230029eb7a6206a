"""The janitor's call for a row, by the states of row and Jobs (docs/protocol.md, sections 8 and 6)."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.janitor.closing import Act, Closing, plan_closing
from dispatcher.jobs.observed import Rules, TaskWithJobs
from dispatcher.jobs.outcome import judge
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job, Phase
from dispatcher.model.launches import Launch
from dispatcher.model.tasks import TERMINAL, Status, Task
from dispatcher.model.verdicts import Hold, HoldReason
from tests.rig.builders import (  # fmt: skip
    NOW,
    a_cluster,
    a_complete_job,
    a_disrupted_job,
    a_failed_job,
    a_job,
    a_picture,
    a_pod,
    a_running_task,
    a_task,
    ago,
    an_exited_pod,
    later,
)

PATIENCE = timedelta(hours=1)  # the builders' finished Jobs ended an hour ago, and the row is as old
EXIT: dict[str, Any] = {"report": "exit-code"}
UNKNOWN = Hold(HoldReason.UNKNOWN_TEMPLATE, "no template nope")


def plan(task: Task, *jobs: Job, refusal: Hold | None = None, **cluster: Any) -> Closing | None:
    cluster.setdefault("pods", [an_exited_pod(job) for job in jobs if job.phase is Phase.COMPLETE])
    return plan_closing(a_picture(jobs, a_cluster(**cluster)), task, PATIENCE, refusal)


def fence(closing: Closing | None) -> Closing | None:
    return closing and msgspec.structs.replace(closing, error="")


def a_silent_task(launch: int = 1, **changes: Any) -> Task:
    """A run whose heartbeat is old enough to return it."""
    return a_running_task(launch, **({"heartbeat_at": ago(60)} | changes))


def a_cancelled_task(**changes: Any) -> Task:
    return a_running_task(cancel_requested_at=ago(1), **changes)


def ran(job: Job) -> Any:
    return a_pod(job, phase="Failed", had_run=True)


def pods_of(jobs: Iterable[Job]) -> list[Pod]:
    return [an_exited_pod(job) if job.phase is Phase.COMPLETE else ran(job) for job in jobs]


def ends(act: Act, launch: int = 1, attempt: int = 1) -> Closing:
    """The closing that ends the row by the Job of this launch."""
    return Closing(act, 42, attempt, launch, f"job-{attempt}-{launch}")


def returns(failures: int = 1, launch: int = 1) -> Closing:
    """The closing that returns the run of this launch."""
    return Closing(Act.RETURN, 42, 1, launch, failures=failures)


CANCELS = Closing(Act.CANCEL, 42, 1, 1)
TABLE: list[tuple[str, Task, tuple[Job, ...], Closing | None]] = [
    ("waiting, never launched", a_task(), (), None),
    ("waiting, Job at work", a_task(), (a_job(),), None),
    ("waiting, Job is failing", a_task(), (a_job(phase=Phase.FAILING),), None),
    ("waiting, Job is over but not gone yet", a_task(), (a_complete_job(deleting=True),), None),
    ("waiting, a launch is left", a_task(), (a_failed_job(),), None),
    ("waiting, disrupted", a_task(), (a_disrupted_job(),), None),
    ("waiting, no launch left", a_task(), (a_failed_job(1, 3, unstarted=2),), ends(Act.FAIL, 3)),
    ("waiting, disrupted too often", a_task(), (a_disrupted_job(1, 21, disrupted=20),), ends(Act.FAIL, 21)),
    ("waiting, no failure left", a_task(failures=3), (a_failed_job(),), ends(Act.FAIL)),
    ("waiting, exit 0", a_task(), (a_complete_job(),), ends(Act.FAIL)),
    ("waiting, exit 0 of the second attempt", a_task(attempt=2), (a_complete_job(2),), ends(Act.FAIL, attempt=2)),
    ("waiting, exit 0 of the first attempt", a_task(attempt=2), (a_complete_job(1),), None),
    ("waiting, exit code 0", a_task(), (a_complete_job(**EXIT),), ends(Act.SUCCEED)),
    ("waiting, exit code 0 this moment", a_task(), (a_complete_job(ended_at=NOW, **EXIT),), ends(Act.SUCCEED)),
    ("waiting, exit code, disrupted", a_task(), (a_disrupted_job(**EXIT),), None),
    ("waiting, older attempt at work", a_task(attempt=2), (a_job(1), a_complete_job(2)), None),
    ("waiting, higher attempt at work", a_task(), (a_job(2), a_complete_job(1)), None),
    ("waiting, lower launch at work", a_task(), (a_job(1, 1), a_complete_job(1, 2)), None),
    ("running", a_silent_task(), (a_job(),), None),
    ("running, Job gone", a_silent_task(), (), None),
    ("running, Job gone, the last allowed", a_silent_task(max_failures=1), (), returns()),
    ("running, Jobs gone 21 times", a_silent_task(21), (), returns(1, 21)),
    ("running, failed, a launch is left", a_silent_task(), (a_failed_job(),), None),
    ("running, failed, no failure left", a_silent_task(failures=2), (a_failed_job(),), returns()),
    ("running, failed three times", a_silent_task(3), (a_failed_job(1, 3),), returns(3, 3)),
    ("running, failed, one of three disrupted", a_silent_task(3, failures=1), (a_failed_job(1, 3, disrupted=1),),
     returns(2, 3)),
    ("running, launches after it never started", a_silent_task(1), (a_failed_job(1, 4, unstarted=2),), returns(1, 1)),
    ("running, exit code 1", a_silent_task(), (a_failed_job(**EXIT),), None),
    ("running, exit 0", a_silent_task(), (a_complete_job(),), ends(Act.FAIL)),
    ("running, exit 0, heard of", a_running_task(), (a_complete_job(),), ends(Act.FAIL)),
    ("running, exit 0, the last allowed", a_silent_task(max_failures=1), (a_complete_job(),), returns()),
    ("running, exit 0, within an hour", a_silent_task(), (a_complete_job(ended_at=ago(3599)),), None),
    ("running, exit 0 of a twin", a_silent_task(job_uid="other"), (a_complete_job(),), None),
    ("running, exit 0 of a newer launch", a_silent_task(1), (a_complete_job(1, 2),), returns(1, 1)),
    ("running, exit 0 of a newer launch of its UID", a_silent_task(1, job_uid="job-1-2"), (a_complete_job(1, 2),),
     returns(1, 1)),
    ("running, disrupted too often", a_silent_task(21), (a_disrupted_job(1, 21, disrupted=20),), returns(1, 21)),
    ("running, disrupted too often, within an hour", a_silent_task(21),
     (a_disrupted_job(1, 21, disrupted=20, ended_at=ago(3599)),), None),
    ("running, exit code 0", a_silent_task(), (a_complete_job(**EXIT),), ends(Act.SUCCEED)),
    ("running, exit code 0 after a minute", a_silent_task(), (a_complete_job(ended_at=ago(60), **EXIT),),
     ends(Act.SUCCEED)),
    ("running, exit code 0 just now", a_silent_task(), (a_complete_job(ended_at=ago(59), **EXIT),), None),
    ("running, exit code 0 of a twin", a_silent_task(job_uid="other"), (a_complete_job(**EXIT),), None),
    ("running, exit code 0 of a newer launch", a_silent_task(1), (a_complete_job(1, 2, **EXIT),), returns(1, 1)),
    ("cancel asked, Job gone", a_cancelled_task(), (), CANCELS),
    ("cancel asked, Job over", a_cancelled_task(), (a_failed_job(),), CANCELS),
    ("cancel asked, exit code 0", a_cancelled_task(), (a_complete_job(**EXIT),), CANCELS),
    ("cancel asked, Job at work", a_cancelled_task(), (a_job(),), None),
    ("cancel asked, Job is failing", a_cancelled_task(), (a_job(phase=Phase.FAILING),), None),
    ("cancel asked, newer launch at work", a_cancelled_task(), (a_failed_job(1, 1), a_job(1, 2)), None),
    ("cancel asked, lower launch at work", a_cancelled_task(launch=2), (a_job(1, 1), a_failed_job(1, 2)), None),
    ("cancel asked, older attempt at work", a_cancelled_task(attempt=2), (a_job(1),), Closing(Act.CANCEL, 42, 2, 1)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("task", "closing"),
    [(a_cancelled_task(), CANCELS), (a_silent_task(max_failures=1), returns())],
    ids=["cancel", "return"],
)
def test_run_ends_although_a_finalizer_keeps_its_deleted_job(task: Task, closing: Closing) -> None:
    """A Job under deletion never finishes. The janitor remembers nothing from one round to the next."""
    found = [fence(plan(task, a_job(deleting=True), at=later(seconds))) for seconds in (59, 60)]
    assert found == [None, closing]


@pytest.mark.parametrize(("task", "jobs", "closing"), [line[1:] for line in TABLE], ids=[line[0] for line in TABLE])
def test_row_and_its_jobs_lead_to_one_call(task: Task, jobs: tuple[Job, ...], closing: Closing | None) -> None:
    assert fence(plan(task, *jobs)) == closing


@pytest.mark.parametrize("refusal", [None, UNKNOWN])
@pytest.mark.parametrize("status", [*sorted(TERMINAL), Status.UNKNOWN])
@pytest.mark.parametrize("asked", [None, ago(600)], ids=["", "cancel asked"])
@pytest.mark.parametrize("jobs", [(), (a_job(),), (a_complete_job(**EXIT),), (a_failed_job(1, 3, unstarted=2),)])
def test_terminal_or_unknown_row_gets_no_call(
    status: Status, jobs: tuple[Job, ...], asked: Any, refusal: Hold | None
) -> None:
    task = a_silent_task(status=status, finished_at=ago(600), cancel_requested_at=asked)
    assert plan(task, *jobs, refusal=refusal) is None


@pytest.mark.parametrize(
    ("task", "job", "had_run", "closing"),
    [
        (a_task(), a_failed_job(ended_at=NOW, **EXIT), True, ends(Act.RETRY)),
        (a_task(), a_failed_job(1, 2, **EXIT), True, ends(Act.RETRY, 2)),
        (a_task(), a_failed_job(**EXIT), False, None),
        (a_task(), a_disrupted_job(**EXIT), True, None),
        (a_task(), a_failed_job(), True, None),
        (a_silent_task(), a_failed_job(**EXIT), True, None),
    ],
    ids=["failed", "failed at launch 2", "never ran", "disrupted", "it can report", "it reports"],
)
def test_failed_container_with_report_exit_code_counts_a_failure(
    task: Task, job: Job, had_run: bool, closing: Closing | None
) -> None:
    assert fence(plan(task, job, pods=[ran(job)] if had_run else [a_pod(job)])) == closing


# Return: a run is returned only after its heartbeat is old


@pytest.mark.parametrize(("seconds", "returned"), [(0, False), (59.9, False), (60, True), (None, True)])
def test_run_is_returned_only_after_a_minute_without_heartbeat(seconds: float | None, returned: bool) -> None:
    at = None if seconds is None else ago(seconds)
    assert (plan(a_running_task(max_failures=1, heartbeat_at=at)) is not None) is returned


@pytest.mark.parametrize(("seconds", "is_ended"), [(0, False), (3599, False), (3600, True)])
@pytest.mark.parametrize("task", [a_task(), a_running_task()], ids=["waiting", "its own Job"])
def test_parked_row_fails_an_hour_after_the_end_of_its_job(task: Task, seconds: float, is_ended: bool) -> None:
    assert (plan(task, a_complete_job(ended_at=ago(seconds))) is not None) is is_ended


def test_job_without_end_time_counts_from_its_creation() -> None:
    assert plan(a_task(), a_complete_job(ended_at=None, created_at=ago(3599))) is None
    assert plan(a_task(), a_complete_job(ended_at=None, created_at=ago(3600))) is not None


def test_ages_use_the_cluster_clock_for_jobs_and_the_database_clock_for_rows() -> None:
    cluster = msgspec.structs.replace(a_cluster(), now=later(3600))
    assert plan_closing(a_picture([a_complete_job(ended_at=NOW)], cluster), a_task(), PATIENCE) is None
    cluster = msgspec.structs.replace(a_cluster(), cluster_now=later(3600))
    assert plan_closing(a_picture([], cluster), a_task(created_at=NOW), PATIENCE, UNKNOWN) is None


# Refusals: by the janitor's own templates, its policy, or the API server


@pytest.mark.parametrize("reason", ["UnknownTemplate", "InvalidTemplate", "PolicyDenied", "Poison", "NameCollision"])
def test_refused_row_without_a_job_fails_with_the_refusal(reason: str) -> None:
    closing = plan(a_task(), refusal=Hold(HoldReason(reason), "why"))
    assert closing == Closing(Act.FAIL, 42, 1, 0, None, error=f"{reason}: why")


@pytest.mark.parametrize(
    ("task", "is_ended"),
    [
        (a_task(created_at=ago(3599)), False),
        (a_task(created_at=ago(3600)), True),
        (a_task(created_at=ago(9000), run_at=ago(3599)), False),
        (a_task(created_at=ago(9000), run_at=ago(3600)), True),
        (a_task(created_at=ago(3599), run_at=ago(9000)), False),
        (a_task(attempt=2, created_at=ago(3600)), True),
    ],
)
def test_refused_row_has_an_hour_from_when_it_was_due(task: Task, is_ended: bool) -> None:
    assert (plan(task, refusal=UNKNOWN) is not None) is is_ended


def test_refused_row_has_an_hour_from_the_end_of_its_newest_job() -> None:
    assert plan(a_task(), a_failed_job(ended_at=ago(3599)), refusal=UNKNOWN) is None
    assert fence(plan(a_task(), a_failed_job(), refusal=UNKNOWN)) == ends(Act.FAIL)


@pytest.mark.parametrize("jobs", [(a_job(),), (a_failed_job(ended_at=NOW),), (a_job(1, 1), a_failed_job(1, 2))])
def test_refusal_counts_only_if_a_job_would_be_made(jobs: tuple[Job, ...]) -> None:
    assert plan(a_task(), *jobs, refusal=UNKNOWN) is None


def test_park_reason_comes_before_a_refusal() -> None:
    closing = plan(a_task(), a_complete_job(), refusal=UNKNOWN)
    assert closing is not None
    assert closing.error.startswith("ExitedWithoutReport: ")


def test_dead_run_of_a_refused_row_is_returned_or_failed() -> None:
    assert fence(plan(a_silent_task(), refusal=UNKNOWN)) == returns()
    assert plan(a_running_task(), refusal=UNKNOWN) is None
    assert plan(a_silent_task(created_at=ago(3599)), refusal=UNKNOWN) is None
    assert fence(plan(a_silent_task(1), a_failed_job(), refusal=UNKNOWN)) == ends(Act.FAIL)
    assert fence(plan(a_silent_task(job_uid="other"), a_complete_job(), refusal=UNKNOWN)) == returns()


@pytest.mark.parametrize(
    ("task", "job", "code"),
    [
        (a_task(), a_complete_job(), "ExitedWithoutReport"),
        (a_task(), a_failed_job(1, 3, unstarted=2), "LaunchesExhausted"),
        (a_silent_task(failures=2), a_failed_job(), "FailuresExhausted"),
    ],
)
def test_error_begins_with_the_stable_code_and_says_why(task: Task, job: Job, code: str) -> None:
    closing = plan(task, job)
    assert closing is not None
    told, _, why = closing.error.partition(": ")
    assert told == code
    assert why


def test_success_and_cancel_have_no_error() -> None:
    for closing in (plan(a_task(), a_complete_job(**EXIT)), plan(a_cancelled_task())):
        assert closing is not None
        assert closing.error == ""


def test_bound_of_launches_is_the_installations() -> None:
    job = a_failed_job(1, 2, unstarted=1)
    assert plan(a_task(), job) is None
    assert fence(plan(a_task(), job, rules=Rules(max_launches=2))) == ends(Act.FAIL, 2)


PHASES = st.sampled_from(list(Phase))
JOBS = st.builds(
    a_failed_job, st.integers(1, 2), st.integers(1, 4), phase=PHASES, deleting=st.booleans(),
    unstarted=st.integers(0, 2), disrupted=st.integers(0, 1), report=st.sampled_from(["sql", "exit-code"]),
    reason=st.sampled_from(["PodFailurePolicy", "BackoffLimitExceeded"]),
)  # fmt: skip
RUNS = st.builds(
    a_running_task, st.integers(1, 3), attempt=st.integers(1, 2), failures=st.integers(0, 2),
    max_failures=st.integers(1, 3), heartbeat_at=st.sampled_from([ago(5), ago(61)]),
    job_uid=st.sampled_from(["job-1-1", "job-1-2", "job-2-1", "other"]),
    cancel_requested_at=st.sampled_from([None, NOW, ago(61)]),
)  # fmt: skip
WAITING = st.builds(a_task, attempt=st.integers(1, 2), failures=st.integers(0, 2), max_failures=st.integers(1, 3))


@given(
    task=WAITING | RUNS,
    jobs=st.lists(JOBS, max_size=4, unique_by=lambda job: (job.attempt, job.launch)),
    refusal=st.sampled_from([None, UNKNOWN]),
)
def test_closing_needs_finished_jobs_and_the_job_that_holds_the_row(
    task: Task, jobs: list[Job], refusal: Hold | None
) -> None:
    closing = plan(task, *jobs, refusal=refusal, pods=pods_of(jobs))
    if closing is None:
        return
    of_attempt = [job for job in jobs if job.attempt == task.attempt]
    cluster = a_cluster(pods_of(jobs))
    by_code = TaskWithJobs(task, jobs, cluster).has_succeeded is not None
    assert by_code or all(map(cluster.is_over, of_attempt))
    assert (closing.task_id, closing.attempt) == (42, task.attempt)
    assert (closing.act is Act.CANCEL) == (task.cancel_requested_at is not None)
    assert (
        refusal
        or closing.act is Act.CANCEL
        or not isinstance(judge(task, jobs, a_cluster(pods_of(jobs))).verdict, Launch)
    )
    if task.status is Status.PROCESSING and closing.act in {Act.SUCCEED, Act.FAIL}:
        assert (closing.launch, closing.job_uid) == (task.launch, task.job_uid)
    if closing.act is Act.SUCCEED:
        assert any(job.uid == closing.job_uid and job.phase is Phase.COMPLETE for job in of_attempt)
