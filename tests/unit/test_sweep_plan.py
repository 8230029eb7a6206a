"""Which finished Jobs may go: docs/protocol.md, section 7. A finished Job is the only memory of its launch."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.jobs import End, Job, Phase
from dispatcher.model.tasks import Status, Task
from dispatcher.sweep.plan import MOST_TOMBSTONES, Absences, plan_due, plan_sweep
from tests.builders import (
    DATABASE_ID,
    NOW,
    OTHER_DATABASE,
    a_complete_job,
    a_failed_job,
    a_job,
    a_running_task,
    a_task,
    ago,
    later,
)

FIVE_MINUTES = timedelta(minutes=5)
OVER = a_task(status=Status.SUCCEEDED, launch=1)


def due(*jobs: Job, tombstone: timedelta = FIVE_MINUTES) -> list[str]:
    return [job.uid for job in plan_due(jobs, NOW, tombstone)]


def swept(job: Job, task: Task | None = None, absences: Absences | None = None, *, seconds: float = 0) -> list[End]:
    tasks = {} if task is None else {task.id: task}
    return plan_sweep([job], tasks, DATABASE_ID, later(seconds), absences or Absences())


# Whose time is over


@pytest.mark.museum("GC without tombstone")
@pytest.mark.parametrize(("seconds", "is_due"), [(0, False), (299, False), (300, True), (9000, True)])
def test_a_tombstone_is_kept_for_its_time(seconds: float, is_due: bool) -> None:
    assert due(a_failed_job(ended_at=ago(seconds))) == (["job-1-1"] if is_due else [])


def test_without_a_tombstone_time_a_finished_job_is_due_at_once() -> None:
    assert due(a_complete_job(ended_at=NOW), tombstone=timedelta(0)) == ["job-1-1"]


def test_a_job_that_does_not_say_when_it_ended_is_as_old_as_it_is() -> None:
    assert due(a_failed_job(ended_at=None, created_at=ago(300))) == ["job-1-1"]
    assert due(a_failed_job(ended_at=None, created_at=ago(299))) == []


@pytest.mark.parametrize(
    "job",
    [a_job(created_at=ago(9000)), a_job(phase=Phase.FAILING, created_at=ago(9000)), a_complete_job(deleting=True)],
)
def test_a_job_that_is_not_finished_or_goes_already_is_never_due(job: Job) -> None:
    assert due(job) == []


def test_the_oldest_are_due_first() -> None:
    jobs = [a_failed_job(1, n, ended_at=ago(seconds)) for n, seconds in ((1, 400), (2, 900), (3, 10), (4, 600))]
    assert due(*jobs) == ["job-1-2", "job-1-4", "job-1-1"]


def test_of_more_than_a_thousand_the_oldest_are_due_before_their_time() -> None:
    jobs = [a_complete_job(1, n, ended_at=ago(n / 10)) for n in range(1, MOST_TOMBSTONES + 4)]
    assert MOST_TOMBSTONES == 1000
    assert due(*jobs) == ["job-1-1003", "job-1-1002", "job-1-1001"]
    assert due(*jobs[:1000]) == []


# Which of them mean nothing any more


@pytest.mark.fault(47)
@pytest.mark.museum("GC without UID")
@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.FAILED, Status.CANCELLED])
def test_the_job_of_a_row_that_is_over_goes_as_it_was_judged(status: Status) -> None:
    job = a_complete_job(resource_version="771")
    assert swept(job, a_task(status=status)) == [
        End("jobs", job.name, job.uid, "its row is over", resource_version="771")
    ]


@pytest.mark.parametrize(
    "task", [a_task(attempt=2), a_running_task(attempt=3), a_task(attempt=2, status=Status.FAILED)]
)
def test_the_job_of_a_past_attempt_goes_whatever_the_row_does_now(task: Task) -> None:
    (end,) = swept(a_failed_job(1, 2), task)
    assert end.cause == "its attempt is past"


@pytest.mark.fault(47)
@pytest.mark.parametrize("task", [a_task(), a_running_task(), a_running_task(cancel_requested_at=ago(600))])
def test_the_jobs_of_a_live_attempt_stay_for_they_count(task: Task) -> None:
    assert swept(a_failed_job(), task) == []


@pytest.mark.parametrize("task", [a_task(), OVER])
def test_a_job_of_a_higher_attempt_stays_for_it_tells_of_a_restored_database(task: Task) -> None:
    assert swept(a_complete_job(2), task) == []


@pytest.mark.fault(51)
@pytest.mark.parametrize("task", [None, OVER])
def test_a_job_of_another_database_is_never_touched(task: Task | None) -> None:
    absences = Absences()
    for seconds in (0, 20, 40, 60):
        assert swept(a_complete_job(database_id=OTHER_DATABASE), task, absences, seconds=seconds) == []


def test_removals_come_in_the_order_of_what_is_due() -> None:
    jobs = [a_failed_job(1, n, task_id=n) for n in (3, 1, 2)]
    tasks = {n: a_task(id=n, status=Status.FAILED) for n in (1, 3)}
    ends = plan_sweep(jobs, tasks, DATABASE_ID, NOW, Absences())
    assert [end.uid for end in ends] == ["job-1-3", "job-1-1"]


# Rows that are not there


def looks_in_vain(*seconds: float, task: Task | None = None) -> list[bool]:
    absences = Absences()
    return [bool(swept(a_complete_job(), task, absences, seconds=at)) for at in seconds]


@pytest.mark.fault(8)
def test_a_row_is_gone_after_three_looks_ten_seconds_apart() -> None:
    assert looks_in_vain(0, 10, 20, 21) == [False, False, True, True]
    assert looks_in_vain(0, 3600, 7200) == [False, False, True]


def test_looks_that_follow_too_fast_are_one() -> None:
    assert looks_in_vain(*range(20)) == [False] * 20
    assert looks_in_vain(0, 9.9, 10, 19.9, 20) == [False, False, False, False, True]


def test_a_row_of_the_same_number_that_was_made_at_another_time_is_another_row() -> None:
    stranger = a_task(status=Status.SUCCEEDED, created_at=ago(7200))
    assert looks_in_vain(0, 10, 20, task=stranger) == [False, False, True]


def test_each_job_is_confirmed_by_itself_and_what_is_not_due_any_more_begins_anew() -> None:
    absences = Absences()
    for at in (0, 10):
        assert not absences.confirm("a", later(at))
        assert not absences.confirm("b", later(at))
    absences.keep_only(["b", "c"])
    assert absences.confirm("b", later(20))
    assert not absences.confirm("a", later(20))
    assert not absences.confirm("c", later(20))


def test_a_row_that_came_back_in_between_was_not_gone() -> None:
    absences, job = Absences(), a_complete_job()
    for at in (0, 10):
        assert swept(job, None, absences, seconds=at) == []
    assert swept(job, a_task(), absences, seconds=20) == []
    assert swept(job, None, absences, seconds=30) == []


# Whatever is seen


@given(
    st.builds(a_failed_job, st.integers(1, 3), st.integers(1, 3), phase=st.sampled_from(list(Phase)),
              deleting=st.booleans(), database_id=st.sampled_from([DATABASE_ID, OTHER_DATABASE]),
              ended_at=st.sampled_from([ago(1), ago(9000)])),
    st.builds(a_task, status=st.sampled_from(list(Status)), attempt=st.integers(1, 3)),
)  # fmt: skip
def test_nothing_goes_that_is_unfinished_foreign_young_or_still_counts(job: Job, task: Task) -> None:
    """S6: the sweep removes no Job that is acceptable or still counts."""
    found: list[Any] = plan_due([job], NOW, FIVE_MINUTES)
    ends = plan_sweep(found, {task.id: task}, DATABASE_ID, NOW, Absences())
    over = task.status in {Status.SUCCEEDED, Status.FAILED, Status.CANCELLED}
    may_go = task.attempt > job.attempt or (task.attempt == job.attempt and over)
    is_old = job.is_finished and not job.deleting and job.ended_at == ago(9000)
    assert bool(ends) == (may_go and is_old and job.database_id == DATABASE_ID)
