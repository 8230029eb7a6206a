"""Launch numbers, counts of earlier launches, and budgets: docs/protocol.md, sections 5 and 6."""

import tracemalloc
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.jobs.observed import Rules
from dispatcher.jobs.outcome import MAX_DISRUPTED, backoff
from dispatcher.model.cluster import Pod, PodEnd
from dispatcher.model.jobs import EndedBy, Job, Phase
from dispatcher.model.launches import Ask, Launch
from dispatcher.model.reasons import advice_of
from dispatcher.model.tasks import Status, Task
from dispatcher.model.verdicts import Hold, HoldReason
from tests.rig.builders import (
    NOW,
    a_complete_job,
    a_disrupted_job,
    a_failed_job,
    a_job,
    a_pod,
    a_running_task,
    a_task,
    ago,
    an_exited_pod,
)
from tests.unit.judging import hold_of, judged, next_launch

# Launch number: one above the highest launch of Jobs and row


@pytest.mark.parametrize(
    ("task", "jobs", "number"),
    [
        (a_task(), [a_failed_job(1, 1)], 2),
        (a_task(max_failures=9), [a_failed_job(1, n) for n in (2, 1, 3)], 4),
        (a_running_task(1), [a_failed_job(1, 2)], 3),
        (a_running_task(2), [a_failed_job(1, 1)], 3),
        (a_running_task(5), [], 6),
        (a_task(attempt=2), [a_failed_job(1, 7), a_failed_job(2, 1), a_failed_job(3, 9)], 2),
    ],
    ids=["Jobs alone", "any order", "Jobs above the row", "row above the Jobs", "row alone", "this attempt's only"],
)
def test_launch_number_is_one_above_jobs_and_row(task: Task, jobs: list[Job], number: int) -> None:
    assert next_launch(task, *jobs).number == number


# Counts of earlier launches in the next Job


@pytest.mark.parametrize(
    ("job", "task", "unstarted", "disrupted"),
    [
        (a_failed_job(), a_task(), 1, 0),
        (a_failed_job(), a_running_task(), 0, 0),
        (a_disrupted_job(), a_task(), 0, 1),
        (a_disrupted_job(), a_running_task(), 0, 1),
        (a_complete_job(uid="twin"), a_running_task(), 0, 1),
    ],
    ids=["never started", "started", "disrupted before its start", "disrupted after its start", "refused twin"],
)
def test_ended_launch_counts_as_unstarted_disrupted_or_failed(
    job: Job, task: Task, unstarted: int, disrupted: int
) -> None:
    launch = next_launch(task, job)
    assert (launch.number, launch.unstarted, launch.disrupted) == (2, unstarted, disrupted)


@pytest.mark.parametrize(
    ("task", "code", "counts"),
    [(a_task(), 75, (0, 1)), (a_task(), 1, (1, 0)), (a_running_task(), 75, (0, 0))],
    ids=["the database took no start", "the image is faulty", "CMD ended with 75"],
)
def test_launch_whose_start_the_database_did_not_take_counts_as_disrupted(
    task: Task, code: int, counts: tuple[int, int]
) -> None:
    job = a_failed_job()
    launch = next_launch(task, job, pods=[an_exited_pod(job, code)])
    assert (launch.unstarted, launch.disrupted) == counts


@pytest.mark.parametrize(
    ("before", "reason"), [(1, HoldReason.BACKOFF), (MAX_DISRUPTED, HoldReason.DISRUPTED_TOO_OFTEN)]
)
def test_row_whose_containers_reach_no_database_says_so(before: int, reason: HoldReason) -> None:
    """Nothing evicts its Pods, and other nodes do not help."""
    job = a_failed_job(1, before + 1, disrupted=before, disrupted_at=(NOW,) * before, ended_at=NOW)
    hold = hold_of(a_task(), job, pods=[an_exited_pod(job, 75)])
    assert (hold.reason, hold.detail.startswith("the database took no start: ")) == (reason, True)
    assert "TASK_DATABASE_URL" in advice_of(hold).next_step
    assert "TASK_DATABASE_URL" not in advice_of(hold_of(a_task(), job)).next_step


def test_end_of_a_sidecar_says_nothing_about_the_database() -> None:
    job = a_failed_job()
    end = PodEnd(container="proxy", exit_code=75)
    assert next_launch(a_task(), job, pods=[a_pod(job, phase="Failed", end=end)]).unstarted == 1


@pytest.mark.parametrize(
    ("job", "task", "counts"),
    [
        (a_failed_job(is_unplaced=True), a_task(), (0, 0, 1)),
        (a_disrupted_job(is_unplaced=True), a_task(), (0, 0, 1)),
        (a_failed_job(is_unplaced=True), a_running_task(), (0, 0, 0)),
        (a_disrupted_job(is_unplaced=True), a_running_task(), (0, 1, 0)),
        (a_failed_job(1, 3, unstarted=1, disrupted=1, unplaced_before=1), a_task(), (2, 1, 1)),
    ],
    ids=["taken back", "disrupted meanwhile", "started after all", "started and disrupted", "earlier ones"],
)
def test_launch_that_was_taken_back_counts_as_nothing_unless_it_started(
    job: Job, task: Task, counts: tuple[int, int, int]
) -> None:
    launch = next_launch(task, job)
    assert (launch.unstarted, launch.disrupted, launch.unplaced) == counts


@pytest.mark.parametrize("times", [1, 30, 3000])
def test_row_is_launched_again_at_once_however_often_it_was_taken_back(times: int) -> None:
    job = a_failed_job(1, times, is_unplaced=True, unplaced_before=times - 1, ended_at=NOW)
    launch = next_launch(a_task(max_failures=1), job, rules=Rules(max_launches=1))
    assert (launch.number, launch.unplaced) == (times + 1, times)


def test_counts_go_on_from_those_of_the_newest_job() -> None:
    job = a_failed_job(1, 6, unstarted=1, disrupted=3)
    assert next_launch(a_task(max_failures=9), a_failed_job(1, 5), job) == Launch(7, 2, 3)


@pytest.mark.fault(49)
def test_launches_whose_job_is_missing_count_as_disrupted() -> None:
    assert next_launch(a_running_task(2)) == Launch(3, 0, 2, Ask.THAT_JOB, disrupted_at=(NOW, NOW))
    older = a_disrupted_job(1, 2, unstarted=1)
    times = (ago(3600), NOW, NOW, NOW)
    assert older.ended_at == times[0]
    assert next_launch(a_running_task(5), older) == Launch(6, 1, 4, Ask.THAT_JOB, disrupted_at=times)


@pytest.mark.parametrize("jobs", [[], [a_failed_job()]], ids=["no Job", "the first Job"])
def test_container_that_says_it_is_launch_32767_costs_no_cycle_more_than_others(jobs: list[Job]) -> None:
    """Any container may say so of its own row, and each cycle judges a parked row."""
    last = a_running_task(32767)
    assert hold_of(last, *jobs).reason is HoldReason.DISRUPTED_TOO_OFTEN
    tracemalloc.start()
    hold_of(last, *jobs)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 50_000


def test_missing_job_is_asked_for_and_a_seen_job_is_not() -> None:
    assert next_launch(a_running_task(2), a_failed_job(1, 1)).ask is Ask.THAT_JOB
    assert next_launch(a_running_task(2), a_failed_job(1, 2)).ask is Ask.NOTHING
    assert next_launch(a_task(attempt=2), a_failed_job(2, 1)).ask is Ask.NOTHING


# Budgets


@pytest.mark.parametrize("most", [1, 3])
def test_launches_that_never_started_are_bounded_by_max_launches(most: int) -> None:
    rules = Rules(max_launches=most)
    if most > 1:
        next_launch(a_task(), a_failed_job(1, most - 1, unstarted=most - 2), rules=rules)
    hold = hold_of(a_task(), a_failed_job(1, most, unstarted=most - 1), rules=rules)
    assert hold.reason is HoldReason.LAUNCHES_EXHAUSTED
    assert f"{most} launches never started" in hold.detail


@pytest.mark.parametrize(
    ("seconds", "pods", "detail"),
    [
        (100, (), "1 launches never started"),
        (1800, (), "the start deadline passed: 1 launches never started"),
        (1800, ("",), "1 launches never started"),
        (60, ("DeadlineExceeded",), "the run limit passed before task_start: 1 launches never started"),
    ],
)
def test_slow_beginning_is_told_apart_from_a_bad_image(seconds: float, pods: tuple[str, ...], detail: str) -> None:
    job = a_failed_job(1, 1, created_at=ago(seconds + 100), ended_at=ago(100))
    made = [a_pod(job, phase="Failed", end=PodEnd(reason=reason)) for reason in pods]
    assert hold_of(a_task(), job, pods=made, rules=Rules(max_launches=1)).detail == detail


@pytest.mark.parametrize(
    ("task", "has_run", "says_so"),
    [(a_task(), True, True), (a_task(), False, False), (a_running_task(4), True, False)],
    ids=["ran", "never began", "started"],
)
def test_program_that_ran_and_called_nothing_is_told_apart_from_one_that_never_began(
    task: Task, *, has_run: bool, says_so: bool
) -> None:
    """For example an image whose ENTRYPOINT, with `exec`, a `command` of the template replaces."""
    job = a_failed_job(1, 4, unstarted=3)
    pod = an_exited_pod(job, 1) if has_run else a_pod(job, phase="Failed")
    hold = hold_of(task, job, pods=[pod])
    assert hold.reason is HoldReason.LAUNCHES_EXHAUSTED
    assert hold.detail.startswith("its container ran, and ended before task_start: ") == says_so
    assert ("dispatcher exec" in advice_of(hold).next_step) == says_so


def test_runs_that_did_not_report_are_bounded_by_max_failures() -> None:
    next_launch(a_running_task(1, max_failures=2), a_failed_job())
    hold = hold_of(a_running_task(2, max_failures=2), a_failed_job(1, 2))
    assert hold == Hold(HoldReason.FAILURES_EXHAUSTED, "2 failed runs of 2")


def test_failures_of_earlier_attempts_count_with_those_of_this_one() -> None:
    next_launch(a_running_task(1, failures=1), a_failed_job())
    assert hold_of(a_running_task(1, failures=2), a_failed_job()).reason is HoldReason.FAILURES_EXHAUSTED


@pytest.mark.fault(37)
def test_disruptions_are_no_failures_and_have_a_bound_of_20() -> None:
    next_launch(a_running_task(19, max_failures=2), a_disrupted_job(1, 19, disrupted=18))
    hold = hold_of(a_running_task(21, max_failures=2), a_disrupted_job(1, 21, disrupted=20))
    assert hold.reason is HoldReason.DISRUPTED_TOO_OFTEN
    assert "21 of them disrupted within a day" in hold.detail


def test_deleted_jobs_count_toward_the_bound_of_disruptions() -> None:
    next_launch(a_running_task(19))
    assert hold_of(a_running_task(21)).reason is HoldReason.DISRUPTED_TOO_OFTEN


DAY = 86_400


def test_disruptions_of_more_than_a_day_ago_count_no_more() -> None:
    """A spot pool that takes each Pod once an hour ends no work of a week."""
    task = a_running_task(21, max_failures=2)
    times = tuple(ago(DAY - 1 - n) for n in range(20))
    assert (
        hold_of(task, a_disrupted_job(1, 21, disrupted=20, disrupted_at=times)).reason is HoldReason.DISRUPTED_TOO_OFTEN
    )
    found = next_launch(task, a_disrupted_job(1, 21, disrupted=20, disrupted_at=(ago(DAY), *times[1:])))
    assert (found.number, found.disrupted, found.unplaced) == (22, 20, 1)
    assert found.disrupted_at == (*times[1:], ago(3600))


def test_each_disruption_counts_for_a_day_of_its_own() -> None:
    """Not for a day that begins with the first one: then twice as many would fit around its end."""
    first = next_launch(a_running_task(), a_disrupted_job(ended_at=ago(7200)))
    assert (first.disrupted, first.disrupted_at) == (1, (ago(7200),))
    times = (ago(DAY + 5), *(ago(600 - n) for n in range(19)))
    then = next_launch(a_running_task(21, max_failures=2), a_disrupted_job(1, 21, disrupted=20, disrupted_at=times))
    assert (then.disrupted, len(then.disrupted_at), then.disrupted_at[0]) == (20, 20, ago(3600))


def test_disruption_of_an_unknown_time_counts_for_ever() -> None:
    found = next_launch(a_running_task(3, max_failures=9), a_disrupted_job(1, 3, disrupted=2, disrupted_at=(ago(DAY),)))
    assert (found.disrupted, found.unplaced) == (2, 1)


@pytest.mark.parametrize(("ran", "pause"), [(79, 80), (80, 10), (90_000, 10)])
def test_pause_grows_only_for_runs_that_were_shorter(ran: int, pause: int) -> None:
    task = a_running_task(4, max_failures=9, started_at=ago(ran), heartbeat_at=NOW)
    for ended, is_over in ((pause - 1, False), (pause, True)):
        job = a_disrupted_job(1, 4, disrupted=3, ended_at=ago(ended))
        assert isinstance(judged(task, job).verdict, Launch) is is_over


@pytest.mark.parametrize(
    ("made", "by", "ran", "pause"),
    [
        (a_disrupted_job, "", 79, 80), (a_disrupted_job, "", 80, 10), (a_failed_job, "others", 80, 10),
        (a_failed_job, "others", 79, 80), (a_failed_job, "", 80, 80), (a_complete_job, "others", 90_000, 10),
    ],
)  # fmt: skip
def test_pause_after_a_run_without_heartbeats_that_others_ended_begins_anew(
    made: Callable[..., Job], by: str, ran: int, pause: int
) -> None:
    for ended, is_over in ((pause - 1, False), (pause, True)):
        times = {"created_at": ago(ended + ran), "ended_at": ago(ended)}
        job = made(1, 4, disrupted=3, report="exit-code", ended_by=by, **times)
        assert isinstance(judged(a_task(max_failures=9), job, pods=[]).verdict, Launch) is is_over


def test_launch_that_never_started_is_no_failure_when_the_job_after_it_is_deleted() -> None:
    """Nor is it known that it never started."""
    found = next_launch(a_running_task(2, max_failures=2, failures=1), a_failed_job(1, 1))
    assert (found.number, found.unstarted, found.disrupted) == (3, 0, 2)


def a_rejected_pod(job: Job) -> Pod:
    return a_pod(job, phase="Failed", node_name=f"node-{job.launch}", end=PodEnd(reason="OutOfcpu"))


def test_rejection_by_a_kubelet_costs_nothing_and_its_node_is_avoided() -> None:
    earlier, newest = a_failed_job(1, 4), a_failed_job(1, 5, unplaced_before=4, ended_at=NOW)
    found = next_launch(a_task(max_failures=1), newest, pods=[a_rejected_pod(newest)])
    assert (found.number, found.unstarted, found.disrupted, found.unplaced) == (6, 0, 0, 5)
    assert found.avoid == ("node-5",)
    noted = msgspec.structs.replace(newest, ended_by=EndedBy.NODE)  # its Pod went with its node
    assert next_launch(a_task(max_failures=1), noted).unplaced == 5
    both = [a_rejected_pod(earlier), a_rejected_pod(newest)]
    for ended, is_over in ((9, False), (10, True)):  # or one node that rejects everything would never be quiet
        again = judged(a_task(), earlier, msgspec.structs.replace(newest, ended_at=ago(ended)), pods=both)
        assert isinstance(again.verdict, Launch) is is_over


def test_pause_after_rejections_does_not_end_with_the_rejected_pods() -> None:
    """Whoever removes the nodes, or all Pods that have failed, removes the rejected Pods at once."""
    jobs = [a_failed_job(1, launch, ended_at=ago(5), ended_by="node", unplaced_before=launch - 1) for launch in (1, 2)]
    assert hold_of(a_task(), *jobs).detail == "launch 3 in 5 s, because no node took its Pods, which are gone"


def test_backoff_after_rejections_says_who_rejects_the_pods() -> None:
    """No budget counts them, so the row would wait for ever and name nobody."""
    first, second = a_failed_job(1, 1, ended_by="node"), a_failed_job(1, 2, ended_at=ago(5), ended_by="node")
    earlier = msgspec.structs.replace(a_rejected_pod(first), end=PodEnd(reason="OutOfpods"), created_at=ago(9000))
    for node, who in (
        (earlier.node_name, "kubelets of 2 nodes rejected its Pods"),
        ("node-2", "a kubelet rejected its Pod"),
    ):
        pods = [a_rejected_pod(second), msgspec.structs.replace(earlier, node_name=node)]
        hold = hold_of(a_task(), first, second, pods=pods)
        assert hold == Hold(HoldReason.BACKOFF, f"launch 3 in 5 s, because {who}: OutOfcpu")


def test_run_whose_kubelet_rejects_its_pod_after_a_restart_is_disrupted() -> None:
    """A kubelet that starts again admits its Pods anew, and forgets the containers of those that it rejects."""
    job = a_failed_job(1, 1)
    for pods in ([a_rejected_pod(job)], []):  # the Pod goes with its node
        noted = msgspec.structs.replace(job, ended_by="" if pods else EndedBy.NODE)
        found = next_launch(a_running_task(1, max_failures=2, failures=1), noted, pods=pods)
        assert (found.number, found.unstarted, found.disrupted, found.unplaced) == (2, 0, 1, 0)


def test_launch_that_started_counts_although_its_pod_looks_rejected() -> None:
    job = a_failed_job(1, 1)
    hold = hold_of(a_running_task(1, max_failures=1), job, pods=[a_rejected_pod(job)])
    assert hold.reason is HoldReason.FAILURES_EXHAUSTED


LIVES = ["never started", "disrupted early", "disrupted late", "started"]


def live(task: Task, launch: Launch, life: str) -> tuple[Task, Job]:
    """The row and the Job that are left after a launch with this life."""
    make = a_disrupted_job if "disrupted" in life else a_failed_job
    job = make(task.attempt, launch.number, unstarted=launch.unstarted, disrupted=launch.disrupted)
    if life not in {"never started", "disrupted early"}:
        task = a_running_task(launch.number, max_failures=task.max_failures, failures=task.failures)
    return task, job


@given(st.lists(st.sampled_from(LIVES), min_size=30, max_size=40), st.integers(1, 5), st.integers(0, 2))
def test_row_is_parked_for_the_budget_that_is_used_up(lives: list[str], max_failures: int, failures: int) -> None:
    task: Task = a_task(max_failures=max(max_failures, failures + 1), failures=failures)
    jobs: list[Job] = []
    done: list[str] = []
    for life in lives:
        verdict = judged(task, *jobs).verdict
        if isinstance(verdict, Hold):
            break
        assert isinstance(verdict, Launch)
        assert verdict.number == len(done) + 1
        task, job = live(task, verdict, life)
        done.append(life)
        jobs.append(job)
    unstarted = done.count("never started")
    disrupted = len([life for life in done if "disrupted" in life])
    failed = task.failures + done.count("started")
    hold = hold_of(task, *jobs)
    if hold.reason is HoldReason.FAILURES_EXHAUSTED:
        assert task.max_failures in {failed, 1}
    else:
        of_both = {HoldReason.LAUNCHES_EXHAUSTED: unstarted == 3, HoldReason.DISRUPTED_TOO_OFTEN: disrupted in {20, 21}}
        assert of_both[hold.reason]


# Backoff


@pytest.mark.parametrize(
    ("launches", "seconds"), [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (7, 300), (32767, 300)]
)
def test_pause_doubles_up_to_five_minutes(launches: int, seconds: float) -> None:
    assert backoff(launches, Rules()) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("task", "jobs"),
    [
        (a_task(), [a_failed_job(ended_at=ago(4))]),
        (a_task(), [a_failed_job(ended_at=None, created_at=ago(4))]),
        (a_running_task(), [a_disrupted_job(ended_at=ago(4))]),
        (a_running_task(started_at=ago(4)), []),
        (a_running_task(started_at=None, created_at=ago(4)), []),
        (a_running_task(job_uid="twin"), [a_complete_job(ended_at=ago(4))]),
    ],
    ids=["failed", "failed, no time", "disrupted", "gone", "gone, no time", "twin"],
)
def test_next_launch_waits_and_says_how_long(task: Task, jobs: list[Job]) -> None:
    assert hold_of(task, *jobs) == Hold(HoldReason.BACKOFF, "launch 2 in 6 s")
    later: datetime = NOW + timedelta(seconds=6)
    assert next_launch(task, *jobs, at=later).number == 2


# Any row and any Jobs

statuses = st.sampled_from(list(Status))
phases = st.sampled_from(list(Phase))


@st.composite
def any_job(draw: st.DrawFn) -> Job:
    """A Job of the row, with counts that it could have."""
    launch = draw(st.integers(1, 4))
    unstarted = draw(st.integers(0, launch - 1))
    return a_job(
        draw(st.integers(1, 3)),
        launch,
        phase=draw(phases),
        deleting=draw(st.booleans()),
        unstarted=unstarted,
        disrupted=draw(st.integers(0, launch - 1 - unstarted)),
        report=draw(st.sampled_from(["sql", "exit-code"])),
        reason=draw(st.sampled_from(["PodFailurePolicy", "BackoffLimitExceeded", "DeadlineExceeded"])),
        ended_at=draw(st.sampled_from([None, NOW, ago(59), ago(4000)])),
    )


any_jobs = st.lists(any_job(), max_size=5, unique_by=lambda job: job.name)


@st.composite
def any_task(draw: st.DrawFn) -> Task:
    """A row that satisfies the rules of its table."""
    status = draw(statuses)
    launch = 0 if status is Status.WAITING else draw(st.integers(1, 4))
    attempt, running = draw(st.integers(1, 3)), status is Status.PROCESSING
    return a_task(
        status=status, attempt=attempt, launch=launch, max_failures=draw(st.integers(1, 4)),
        job_uid=draw(st.sampled_from([f"job-{attempt}-{launch}", "other"])) if launch else None,
        cancel_requested_at=ago(draw(st.integers(0, 90))) if running and draw(st.booleans()) else None,
        finished_at=None if status in {Status.WAITING, Status.PROCESSING} else ago(draw(st.integers(0, 90))),
        started_at=ago(600) if launch else None,
    )  # fmt: skip


@given(any_task(), any_jobs)
def test_verdict_starts_no_second_job_and_deletes_no_finished_job(task: Task, jobs: list[Job]) -> None:
    found = judged(task, *jobs)
    of_attempt = [job for job in jobs if job.attempt == task.attempt]
    gone_soon = {(job.name, job.uid, job.resource_version) for job in jobs if not job.is_finished}
    assert all((end.name, end.uid, end.resource_version) in gone_soon for end in found.ends)
    if isinstance(found.verdict, Launch):
        launch = found.verdict
        assert all(job.is_finished for job in jobs)
        assert task.status in {Status.WAITING, Status.PROCESSING}
        assert task.cancel_requested_at is None
        assert launch.number == max([task.launch, *(job.launch for job in of_attempt)]) + 1
        assert launch.unstarted + launch.disrupted < launch.number
        assert launch.number == 1 or not (task.status is Status.PROCESSING and task.max_failures == 1)
        assert launch.ask is not Ask.NOTHING or of_attempt or task.attempt == 1
    elif task.status is Status.WAITING and not jobs:
        pytest.fail("a row without Jobs is launched")
