"""The table of docs/protocol.md, section 6, line by line: rows whose newest Job is finished or gone."""

import pytest

from dispatcher.model.jobs import Job
from dispatcher.model.launches import JobsVerdict, Launch
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import HoldReason
from tests.builders import (
    NOW,
    a_complete_job,
    a_disrupted_job,
    a_failed_job,
    a_pod,
    a_running_task,
    a_task,
    ago,
)
from tests.unit.judging import detail_of, judged, reason_of, removed

# processing, max_failures 1, has started | J finished or gone | park


@pytest.mark.parametrize(
    "jobs",
    [(), (a_failed_job(),), (a_disrupted_job(),), (a_complete_job(),), (a_complete_job(uid="other"),)],
    ids=["gone", "failed", "disrupted", "complete", "twin"],
)
def test_started_task_with_max_failures_1_never_runs_again(jobs: tuple[Job, ...]) -> None:
    assert reason_of(judged(a_running_task(max_failures=1), *jobs)) is HoldReason.FAILURES_EXHAUSTED


def test_older_start_with_max_failures_1_ends_the_row_too() -> None:
    found = judged(a_running_task(1, max_failures=1), a_failed_job(1, 2))
    assert reason_of(found) is HoldReason.FAILURES_EXHAUSTED


# waiting, report: exit-code | J Failed, not disrupted, its container had run | the janitor ends the row


def judged_with_exit_code(job: Job, *, had_run: bool = True, task: Task | None = None) -> JobsVerdict:
    return judged(task or a_task(), job, pods=[a_pod(job, phase="Failed", had_run=had_run)])


def test_failed_container_with_report_exit_code_is_parked() -> None:
    found = judged_with_exit_code(a_failed_job(report="exit-code"))
    assert reason_of(found) is HoldReason.EXITED_WITHOUT_REPORT


def test_exit_0_with_report_exit_code_is_parked_as_exit_0() -> None:
    found = judged_with_exit_code(a_complete_job(report="exit-code"))
    assert reason_of(found) is HoldReason.EXITED_WITHOUT_REPORT
    assert "ended with 0" in detail_of(found)


@pytest.mark.parametrize(
    ("job", "had_run", "task"),
    [
        (a_failed_job(), True, a_task()),
        (a_disrupted_job(report="exit-code"), True, a_task()),
        (a_failed_job(report="exit-code"), False, a_task()),
        (a_failed_job(report="exit-code"), True, a_running_task()),
    ],
    ids=["it can report", "disrupted", "never ran", "it has started, so it can report"],
)
def test_other_failed_launches_are_launched_again(job: Job, had_run: bool, task: Task) -> None:
    assert isinstance(judged_with_exit_code(job, had_run=had_run, task=task).verdict, Launch)


# row's launch < N | J Complete | park: exit 0 without any start


@pytest.mark.fault(43)
@pytest.mark.parametrize("task", [a_task(), a_running_task(1)], ids=["nothing started", "only launch 1 started"])
def test_exit_0_without_any_start_parks_at_once(task: Task) -> None:
    found = judged(task, a_failed_job(1, 1), a_complete_job(1, 2, ended_at=NOW))
    assert reason_of(found) is HoldReason.EXITED_WITHOUT_REPORT
    assert "task_start" in detail_of(found)


# processing, row's launch = N, job_uid is J's uid | J Complete, grace over | park


@pytest.mark.fault(43)
@pytest.mark.parametrize(
    ("seconds", "reason"),
    [(0, HoldReason.LAUNCHED), (59, HoldReason.LAUNCHED), (60, HoldReason.EXITED_WITHOUT_REPORT)],
)
def test_exit_0_without_report_parks_after_60_seconds(seconds: float, reason: HoldReason) -> None:
    found = judged(a_running_task(), a_complete_job(ended_at=ago(seconds)))
    assert reason_of(found) is reason
    assert removed(found) == []


def test_complete_job_without_end_time_ended_at_its_creation() -> None:
    found = judged(a_running_task(), a_complete_job(ended_at=None, created_at=ago(60)))
    assert reason_of(found) is HoldReason.EXITED_WITHOUT_REPORT


# row's launch = N, other job_uid | J Complete | exit of a refused container: next launch


@pytest.mark.fault(13)
def test_exit_0_of_a_refused_container_is_no_success() -> None:
    found = judged(a_running_task(job_uid="its name's first owner"), a_complete_job())
    assert found.verdict == Launch(2, disrupted=1)


def test_refused_containers_job_has_a_backoff() -> None:
    for job in (a_complete_job(ended_at=NOW), a_complete_job(ended_at=None, created_at=NOW)):
        found = judged(a_running_task(job_uid="its name's first owner"), job)
        assert reason_of(found) is HoldReason.BACKOFF
