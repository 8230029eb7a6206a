"""Which finished Jobs are deleted (docs/protocol.md, section 7). A finished Job is the only memory of its launch."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.cluster import ClusterView
from dispatcher.model.jobs import Job, ObjectWrite, Phase
from dispatcher.model.tasks import Status, Task
from dispatcher.sweep.plan import (
    MOST_FINALIZERS,
    MOST_TOMBSTONES,
    Absences,
    kept_by_finalizers,
    plan_due,
    plan_sweep,
    plan_uncounted,
)
from tests.rig.builders import (
    DATABASE_ID,
    NOW,
    OTHER_DATABASE,
    a_complete_job,
    a_failed_job,
    a_job,
    a_pod,
    a_running_task,
    a_task,
    ago,
    later,
)

FIVE_MINUTES = timedelta(minutes=5)
OVER = a_task(status=Status.SUCCEEDED, launch=1)


def due(*jobs: Job, tombstone: timedelta = FIVE_MINUTES) -> list[str]:
    return [job.uid for job in plan_due(jobs, NOW, tombstone)]


def swept(
    job: Job, task: Task | None = None, absences: Absences | None = None, *, seconds: float = 0
) -> list[ObjectWrite]:
    tasks = {} if task is None else {task.id: task}
    return plan_sweep([job], tasks, DATABASE_ID, later(seconds), absences or Absences())


# Jobs whose tombstone time is over


def test_jobs_with_much_text_are_due_first() -> None:
    """etcd has the room of one of them for many small ones."""
    jobs = [a_complete_job(n, 1, ended_at=ago(9000 - n), size=size) for n, size in ((1, 3000), (2, 400_000), (3, 9000))]
    assert due(*jobs) == ["job-2-1", "job-1-1", "job-3-1"]


@pytest.mark.museum("GC without tombstone")
@pytest.mark.parametrize(("seconds", "is_due"), [(0, False), (299, False), (300, True), (9000, True)])
def test_a_tombstone_is_kept_for_its_time(seconds: float, is_due: bool) -> None:
    assert due(a_failed_job(ended_at=ago(seconds))) == (["job-1-1"] if is_due else [])


@pytest.mark.parametrize(("seconds", "found"), [(0, ["job-1-2"]), (19, ["job-1-2"]), (20, ["job-1-1", "job-1-2"])])
def test_a_full_quota_of_jobs_shortens_the_time(seconds: float, found: list[str]) -> None:
    """The janitor needs some seconds to write down why a Job failed. A complete one has nothing to say."""
    jobs = a_failed_job(1, 1, ended_at=ago(seconds)), a_complete_job(1, 2, ended_at=NOW)
    assert [job.uid for job in plan_due(jobs, NOW, FIVE_MINUTES, is_crowded=True)] == found
    brief = timedelta(seconds=1)
    assert due(jobs[0], tombstone=brief) == [job.uid for job in plan_due(jobs[:1], NOW, brief, is_crowded=True)]


def test_a_finished_job_is_due_at_once_without_a_tombstone_time() -> None:
    assert due(a_complete_job(ended_at=NOW), tombstone=timedelta(0)) == ["job-1-1"]


def test_a_job_without_an_end_time_ages_from_its_creation() -> None:
    assert due(a_failed_job(ended_at=None, created_at=ago(300))) == ["job-1-1"]
    assert due(a_failed_job(ended_at=None, created_at=ago(299))) == []


@pytest.mark.parametrize(
    "job",
    [a_job(created_at=ago(9000)), a_job(phase=Phase.FAILING, created_at=ago(9000)), a_complete_job(deleting=True)],
)
def test_a_job_that_is_unfinished_or_being_deleted_is_never_due(job: Job) -> None:
    assert due(job) == []


def test_the_oldest_jobs_are_due_first() -> None:
    jobs = [a_failed_job(1, n, ended_at=ago(seconds)) for n, seconds in ((1, 400), (2, 900), (3, 10), (4, 600))]
    assert due(*jobs) == ["job-1-2", "job-1-4", "job-1-1"]


def test_tombstones_beyond_a_thousand_are_due_early_oldest_first() -> None:
    jobs = [a_complete_job(1, n, ended_at=ago(n / 10)) for n in range(1, MOST_TOMBSTONES + 4)]
    assert MOST_TOMBSTONES == 1000
    assert due(*jobs) == ["job-1-1003", "job-1-1002", "job-1-1001"]
    assert due(*jobs[:1000]) == []


# Due Jobs that are no longer needed


@pytest.mark.fault(47)
@pytest.mark.museum("GC without UID")
@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.FAILED, Status.CANCELLED])
def test_a_job_of_a_terminal_row_is_deleted_as_it_was_judged(status: Status) -> None:
    job = a_complete_job(resource_version="771")
    assert swept(job, a_task(status=status)) == [
        ObjectWrite("jobs", job.name, job.uid, "its row is over", resource_version="771")
    ]


@pytest.mark.parametrize(
    "task", [a_task(attempt=2), a_running_task(attempt=3), a_task(attempt=2, status=Status.FAILED)]
)
def test_a_job_of_a_past_attempt_is_deleted_whatever_the_row_does(task: Task) -> None:
    (end,) = swept(a_failed_job(1, 2), task)
    assert end.cause == "its attempt is past"


@pytest.mark.fault(47)
@pytest.mark.parametrize("task", [a_task(), a_running_task(), a_running_task(cancel_requested_at=ago(600))])
def test_a_job_of_a_live_attempt_stays_because_it_counts(task: Task) -> None:
    assert swept(a_failed_job(), task) == []


@pytest.mark.parametrize("task", [a_task(), OVER])
def test_a_job_of_a_higher_attempt_than_the_rows_stays(task: Task) -> None:
    assert swept(a_complete_job(2), task) == []


@pytest.mark.fault(51)
@pytest.mark.parametrize("task", [None, OVER])
def test_a_job_of_another_database_is_never_touched(task: Task | None) -> None:
    absences = Absences()
    for seconds in (0, 20, 40, 60):
        assert swept(a_complete_job(database_id=OTHER_DATABASE), task, absences, seconds=seconds) == []


# Jobs of a living attempt that count for nothing


def forgotten(*jobs: Job, task: Task | None = None, is_crowded: bool = False) -> list[str]:
    task = task or a_task()
    view = ClusterView(NOW, {job.name: job for job in jobs}, {}, {})
    ends = plan_uncounted(jobs, {task.id: task}, DATABASE_ID, view, is_crowded=is_crowded)
    assert ends == [
        ObjectWrite("jobs", job.name, job.uid, end.cause, resource_version=job.resource_version)
        for end in ends
        for job in jobs
        if job.uid == end.uid
    ]
    return [f"{end.uid[-1]}: {end.cause}" for end in ends]


LATER, TAKEN_BACK = "a later launch has its counts", "it was taken back, and nothing counts before it"


def test_waiting_row_keeps_one_finished_job_however_often_it_was_launched() -> None:
    """A row that fits nowhere is taken back for weeks. One that each kubelet rejects is launched every five minutes."""
    rejected = [a_failed_job(1, launch, ended_by="node", unplaced_before=launch - 1) for launch in range(1, 9)]
    assert forgotten(*rejected) == [f"{launch}: {LATER}" for launch in range(1, 8)]
    running = a_job(1, 9, unplaced_before=8)
    assert forgotten(*rejected, running) == [f"{launch}: {LATER}" for launch in range(1, 9)]


def test_launch_that_was_taken_back_is_forgotten_if_nothing_counts_before_it() -> None:
    """A submitter may insert any number of rows that fit nowhere, each of another size."""
    assert forgotten(a_failed_job(is_unplaced=True)) == [f"1: {TAKEN_BACK}"]
    both = a_failed_job(is_unplaced=True), a_failed_job(1, 2, is_unplaced=True, unplaced_before=1)
    assert forgotten(*both) == [f"1: {LATER}", f"2: {TAKEN_BACK}"]


@pytest.mark.parametrize(
    ("job", "task"),
    [
        (a_failed_job(), a_task()),
        (a_failed_job(ended_by="node"), a_task()),
        (a_failed_job(1, 2, is_unplaced=True, unstarted=1), a_task()),
        (a_failed_job(1, 2, is_unplaced=True, disrupted=1), a_task()),
        (a_failed_job(1, 2, is_unplaced=True), a_running_task(launch=1)),
        (a_failed_job(1, 3, is_unplaced=True, unplaced_before=2), a_running_task(launch=1)),
        (a_failed_job(is_unplaced=True), a_running_task(launch=1)),
        (a_failed_job(is_unplaced=True, database_id=OTHER_DATABASE), a_task()),
        (a_failed_job(is_unplaced=True), a_task(created_at=ago(7200))),
        (a_failed_job(is_unplaced=True), a_task(id=77)),
        (a_failed_job(is_unplaced=True), a_task(attempt=2)),
        (a_failed_job(is_unplaced=True), OVER),
        (a_failed_job(is_unplaced=True, ended_at=ago(3599)), a_task()),
    ],
    ids=[
        "a launch that never started", "a Pod that a kubelet rejected", "a launch before it never started",
        "a launch before it was disrupted", "a launch before it started", "an older launch holds the row",
        "its own launch holds the row", "another database", "another row of this id", "no row", "a past attempt",
        "a terminal row", "within an hour",
    ],
)  # fmt: skip
def test_newest_job_of_a_living_attempt_stays_if_something_rests_on_it(job: Job, task: Task) -> None:
    assert forgotten(job, task=task) == []


def test_job_of_a_launch_that_holds_the_row_stays_behind_later_ones() -> None:
    jobs = a_failed_job(1, 1), a_failed_job(1, 2), a_failed_job(1, 3)
    assert forgotten(*jobs, task=a_running_task(launch=2)) == [f"1: {LATER}"]


def test_job_with_our_labels_and_a_high_number_makes_no_other_job_superfluous() -> None:
    forged = a_failed_job(1, 9, identity="somebody else's")
    assert forgotten(a_failed_job(1, 1), forged) == []


def test_full_quota_of_jobs_shortens_the_hour_to_five_minutes() -> None:
    jobs = a_failed_job(ended_at=ago(300)), a_failed_job(1, 2, ended_at=ago(299))
    assert forgotten(*jobs) == []
    assert forgotten(*jobs, a_job(1, 3), is_crowded=True) == [f"1: {LATER}"]


def test_deletes_have_the_order_of_the_due_jobs() -> None:
    jobs = [a_failed_job(1, n, task_id=n) for n in (3, 1, 2)]
    tasks = {n: a_task(id=n, status=Status.FAILED) for n in (1, 3)}
    ends = plan_sweep(jobs, tasks, DATABASE_ID, NOW, Absences())
    assert [end.uid for end in ends] == ["job-1-3", "job-1-1"]


# Missing rows


def looks_in_vain(*seconds: float, task: Task | None = None) -> list[bool]:
    absences = Absences()
    return [bool(swept(a_complete_job(), task, absences, seconds=at)) for at in seconds]


@pytest.mark.fault(8)
def test_a_row_is_gone_after_three_looks_ten_seconds_apart() -> None:
    assert looks_in_vain(0, 10, 20, 21) == [False, False, True, True]
    assert looks_in_vain(0, 3600, 7200) == [False, False, True]
    assert looks_in_vain(3600, 0, 10, 20) == [False, False, False, True], "the clock was set back"


def test_looks_within_ten_seconds_count_as_one() -> None:
    assert looks_in_vain(*range(20)) == [False] * 20
    assert looks_in_vain(0, 9.9, 10, 19.9, 20) == [False, False, False, False, True]


def test_a_row_with_the_same_id_and_another_creation_is_another_row() -> None:
    stranger = a_task(status=Status.SUCCEEDED, created_at=ago(7200))
    assert looks_in_vain(0, 10, 20, task=stranger) == [False, False, True]


def test_each_job_is_confirmed_alone_and_begins_anew_after_it_was_not_due() -> None:
    absences = Absences()
    for at in (0, 10):
        assert not absences.confirm("a", later(at))
        assert not absences.confirm("b", later(at))
    absences.keep_only(["b", "c"])
    assert absences.confirm("b", later(20))
    assert not absences.confirm("a", later(20))
    assert not absences.confirm("c", later(20))


def test_a_row_that_comes_back_restarts_the_count() -> None:
    absences, job = Absences(), a_complete_job()
    for at in (0, 10):
        assert swept(job, None, absences, seconds=at) == []
    assert swept(job, a_task(), absences, seconds=20) == []
    assert swept(job, None, absences, seconds=30) == []


# Any Job with any row


@given(
    st.builds(a_failed_job, st.integers(1, 3), st.integers(1, 3), phase=st.sampled_from(list(Phase)),
              deleting=st.booleans(), database_id=st.sampled_from([DATABASE_ID, OTHER_DATABASE]),
              ended_at=st.sampled_from([ago(1), ago(9000)])),
    st.builds(a_task, status=st.sampled_from(list(Status)), attempt=st.integers(1, 3)),
)  # fmt: skip
def test_the_sweep_keeps_unfinished_foreign_young_and_needed_jobs(job: Job, task: Task) -> None:
    """S6 (docs/protocol.md, section 10): the sweep deletes no Job that still counts."""
    found: list[Any] = plan_due([job], NOW, FIVE_MINUTES)
    ends = plan_sweep(found, {task.id: task}, DATABASE_ID, NOW, Absences())
    over = task.status in {Status.SUCCEEDED, Status.FAILED, Status.CANCELLED}
    may_go = task.attempt > job.attempt or (task.attempt == job.attempt and over)
    is_old = job.is_finished and not job.deleting and job.ended_at == ago(9000)
    assert bool(ends) == (may_go and is_old and job.database_id == DATABASE_ID)


def test_finalizers_of_others_are_counted_once_the_containers_have_ended() -> None:
    jobs = [a_job(deleting=True, kept_by=("b.example/x",)), a_job(launch=2, deleting=True)]
    pods = [
        a_pod(jobs[0], phase="Succeeded", deleting=True, kept_by=("b.example/x", "m.example/y")),
        a_pod(jobs[1], phase="Running", deleting=True, kept_by=("m.example/y",)),
    ]
    assert kept_by_finalizers(jobs, pods, NOW) == {"b.example/x": 2, "m.example/y": 1}


def test_job_that_kubernetes_itself_keeps_is_counted_after_ten_minutes() -> None:
    """A policy that refuses what the Job controller writes, or a collector that is away, says nothing by itself."""
    late = [a_failed_job(launch, deleting_since=ago(600)) for launch in (1, 2, 3)]
    runs = a_pod(late[1], phase="Running", deleting=True)
    jobs = [*late, a_failed_job(4, deleting_since=ago(599)), a_failed_job(5, ended_at=ago(9000))]
    assert kept_by_finalizers(jobs, [runs, a_pod(late[2], phase="Failed")], NOW) == {"foregroundDeletion": 2}


def test_only_the_most_frequent_finalizers_are_told() -> None:
    jobs = [a_job(kept_by=(f"f{n}",)) for n in range(MOST_FINALIZERS + 5)] + [a_job(kept_by=("often",))] * 2
    found = kept_by_finalizers(jobs, [], NOW)
    assert (len(found), found["often"]) == (MOST_FINALIZERS, 2)


def test_job_without_its_annotations_is_swept_by_its_row_alone() -> None:
    """Nothing tells of which database it is, so a row that is not there says nothing."""
    job, absences = a_failed_job(identity=a_job().identity[:8], database_id=""), Absences()
    assert [end.cause for end in swept(job, OVER)] == ["its row is over"]
    other = a_task(status=Status.SUCCEEDED, launch=1, created_at=ago(99))
    for task in (None, other):  # its row may be in another database
        assert [swept(job, task, absences, seconds=seconds) for seconds in (0, 60, 120, 180)] == [[], [], [], []]
