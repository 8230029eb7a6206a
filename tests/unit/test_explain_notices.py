"""What is told below a Job: that its row was launched again, or is parked."""

from collections.abc import Iterable

from msgspec.structs import replace

from dispatcher.admission.last_cycle import LastCycle, RowReason
from dispatcher.model.cluster import Pod, PodEnd
from dispatcher.model.jobs import Job
from dispatcher.model.notices import Notice
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views.published import notices_of
from tests.rig.builders import NOW, a_cluster, a_failed_job, a_job, a_picture, a_pod, a_snapshot, ago


def a_cycle(jobs: Iterable[Job], pods: Iterable[Pod] = (), row: RowReason | None = None) -> LastCycle:
    picture = a_picture(jobs, a_cluster(pods))
    return LastCycle(a_snapshot(), picture, {42: row} if row else {}, frozenset(), {}, {}, leads=True)


def told(reason: HoldReason = HoldReason.LAUNCHES_EXHAUSTED, attempt: int = 1) -> RowReason:
    return RowReason("default", attempt, Hold(reason, "3 launches never started"), NOW)


def notices(cycle: LastCycle) -> list[Notice]:
    return list(notices_of(cycle, "jobs"))


def test_a_launch_that_ended_tells_why_another_one_follows() -> None:
    first, second = a_failed_job(), a_job(1, 2, created_at=ago(5))
    crash = a_pod(first, phase="Failed", end=PodEnd(container="task", exit_code=3))
    (notice,) = notices(a_cycle([first, second], [crash]))
    assert (notice.kind, notice.name, notice.uid) == ("Job", f"jobs/{first.name}", first.uid)
    assert (notice.reason, notice.is_warning) == ("Relaunched", True)
    assert notice.words == "launch 2 of attempt 1 follows: exit code 3"
    (without_pod,) = notices(a_cycle([first, second]))
    assert without_pod.words == "launch 2 of attempt 1 follows"


def test_a_next_attempt_is_told_on_the_last_launch_of_the_one_before() -> None:
    jobs = [a_failed_job(1, 1), a_failed_job(1, 2, created_at=ago(600)), a_job(2, 1, created_at=ago(5))]
    (notice,) = notices(a_cycle(jobs))
    assert (notice.name, notice.words) == (f"jobs/{jobs[1].name}", "launch 1 of attempt 2 follows")


def test_a_launch_of_long_ago_is_not_told_again() -> None:
    assert notices(a_cycle([a_failed_job(), a_job(1, 2, created_at=ago(600))])) == []


def test_a_job_of_another_row_with_the_same_id_has_no_part_in_it() -> None:
    """A database that was made anew has the same ids."""
    stranger = replace(a_failed_job(), identity="another")
    assert notices(a_cycle([stranger, a_job(1, 2, created_at=ago(5))])) == []


def test_the_newest_job_of_a_parked_row_tells_what_helps() -> None:
    jobs = [a_failed_job(1, 1), a_failed_job(1, 2, created_at=ago(600))]
    (notice,) = notices(a_cycle(jobs, row=told()))
    assert (notice.name, notice.reason) == (f"jobs/{jobs[1].name}", "Parked")
    assert notice.words == (
        "LaunchesExhausted: its Pods never started: 3 launches never started; "
        "correct the image or template, or its Secret if launches end with exit code 75; then task_retry"
    )


def test_a_parked_row_without_a_job_of_its_attempt_has_nothing_to_tell_it_on() -> None:
    assert notices(a_cycle([], row=told())) == []
    assert notices(a_cycle([a_failed_job(created_at=ago(600))], row=told(attempt=2))) == []


def test_a_row_that_waits_for_something_else_is_not_told() -> None:
    assert notices(a_cycle([a_failed_job(created_at=ago(600))], row=told(HoldReason.BACKOFF))) == []
