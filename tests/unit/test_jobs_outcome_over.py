"""The table of docs/protocol.md, section 6, line by line, from where the newest Job is over or gone."""

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
from tests.unit.judging import detail_of, look, reason_of, removed

# processing, max_failures 1, lau > 0 | J over or gone | park


@pytest.mark.parametrize(
    "jobs",
    [(), (a_failed_job(),), (a_disrupted_job(),), (a_complete_job(),), (a_complete_job(uid="other"),)],
    ids=["gone", "failed", "disrupted", "complete", "twin"],
)
def test_a_started_task_with_max_failures_1_never_runs_again(jobs: tuple[Job, ...]) -> None:
    assert reason_of(look(a_running_task(max_failures=1), *jobs)) is HoldReason.FAILURES_EXHAUSTED


def test_a_left_over_launch_that_started_ends_it_too() -> None:
    standing = look(a_running_task(1, max_failures=1), a_failed_job(1, 2))
    assert reason_of(standing) is HoldReason.FAILURES_EXHAUSTED


# waiting, report: exit-code | J Failed, not disrupted, its container had run | the janitor ends the row


def look_at_exit_code(job: Job, *, had_run: bool = True, task: Task | None = None) -> JobsVerdict:
    return look(task or a_task(), job, pods=[a_pod(job, phase="Failed", had_run=had_run)])


def test_a_container_that_cannot_report_has_spoken_by_its_exit() -> None:
    standing = look_at_exit_code(a_failed_job(report="exit-code"))
    assert reason_of(standing) is HoldReason.EXITED_WITHOUT_REPORT


def test_an_exit_0_that_cannot_report_is_told_as_one() -> None:
    standing = look_at_exit_code(a_complete_job(report="exit-code"))
    assert reason_of(standing) is HoldReason.EXITED_WITHOUT_REPORT
    assert "ended with 0" in detail_of(standing)


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
def test_any_other_failed_launch_is_made_again(job: Job, had_run: bool, task: Task) -> None:
    assert isinstance(look_at_exit_code(job, had_run=had_run, task=task).verdict, Launch)


# lau < N | J Complete | park: exit 0 without any start


@pytest.mark.fault(43)
@pytest.mark.parametrize("task", [a_task(), a_running_task(1)], ids=["nothing started", "only launch 1 started"])
def test_an_exit_0_without_any_start_parks_at_once(task: Task) -> None:
    standing = look(task, a_failed_job(1, 1), a_complete_job(1, 2, ended_at=NOW))
    assert reason_of(standing) is HoldReason.EXITED_WITHOUT_REPORT
    assert "task_start" in detail_of(standing)


# processing, lau = N, job_uid = J.uid | J Complete, grace over | park


@pytest.mark.fault(43)
@pytest.mark.parametrize(
    ("seconds", "reason"),
    [(0, HoldReason.LAUNCHED), (59, HoldReason.LAUNCHED), (60, HoldReason.EXITED_WITHOUT_REPORT)],
)
def test_an_exit_0_without_report_parks_after_60_seconds(seconds: float, reason: HoldReason) -> None:
    standing = look(a_running_task(), a_complete_job(ended_at=ago(seconds)))
    assert reason_of(standing) is reason
    assert removed(standing) == []


def test_a_job_that_does_not_say_when_it_ended_ended_when_it_was_made() -> None:
    standing = look(a_running_task(), a_complete_job(ended_at=None, created_at=ago(60)))
    assert reason_of(standing) is HoldReason.EXITED_WITHOUT_REPORT


# lau = N, other job_uid | J Complete | the exit of a refused twin: next launch


@pytest.mark.fault(13)
def test_the_exit_0_of_a_refused_twin_is_no_success() -> None:
    standing = look(a_running_task(job_uid="its name's first owner"), a_complete_job())
    assert standing.verdict == Launch(2, disrupted=1)


def test_a_refused_twin_is_waited_out_like_any_other_end() -> None:
    for job in (a_complete_job(ended_at=NOW), a_complete_job(ended_at=None, created_at=NOW)):
        standing = look(a_running_task(job_uid="its name's first owner"), job)
        assert reason_of(standing) is HoldReason.BACKOFF
