"""The error with which the janitor ends a row names what ended its launch."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pytest

from dispatcher.janitor.closing import Act, Closing, plan_closing
from dispatcher.jobs.observed import LaunchEnd
from dispatcher.model.jobs import Job, Phase
from dispatcher.model.tasks import Task
from tests.rig.builders import (
    a_cluster,
    a_complete_job,
    a_failed_job,
    a_picture,
    a_pod,
    a_running_task,
    a_task,
    ago,
    an_exited_pod,
)

OOM = LaunchEnd(reason="OOMKilled (limit 64Mi)", exit_code=137, output="the end")
PARKED = "FailuresExhausted: the task had started, and max_failures is 1"


def planned(task: Task, *jobs: Job, ends: Mapping[str, LaunchEnd]) -> Closing:
    pods = [an_exited_pod(job) for job in jobs if job.phase is Phase.COMPLETE]
    closing = plan_closing(a_picture(jobs, a_cluster(pods)), task, timedelta(hours=1), ends=ends)
    assert closing is not None
    return closing


def error_of(task: Task, *jobs: Job, ends: Mapping[str, LaunchEnd]) -> str:
    return planned(task, *jobs, ends=ends).error


def a_lost_run() -> Task:
    """A run that may not be repeated, and that is silent for a minute."""
    return a_running_task(heartbeat_at=ago(60), max_failures=1)


def test_error_names_what_ended_the_launch_and_the_end_of_its_output() -> None:
    job = a_failed_job()
    words = f"{PARKED}; launch 1: OOMKilled (limit 64Mi)"
    assert error_of(a_lost_run(), job, ends={job.uid: OOM}) == f"{words}\nthe end"
    silent = msgspec.structs.replace(OOM, output="")
    assert error_of(a_lost_run(), job, ends={job.uid: silent}) == words


def test_error_says_nothing_of_a_launch_that_nobody_has_seen_end() -> None:
    assert error_of(a_lost_run(), a_failed_job(), ends={"another": OOM}) == PARKED
    assert not error_of(a_lost_run(), ends={"job-1-1": OOM}).count("OOMKilled")


@pytest.mark.parametrize(
    ("codes", "of_task", "act"),
    [
        ({3, 64}, True, Act.FAIL),
        ({1, 2}, True, Act.RETRY),
        (set(), True, Act.RETRY),
        ({3, 137}, False, Act.RETRY),
    ],
    ids=["final", "another", "none", "only the end of a sidecar is known"],
)
def test_status_that_the_template_calls_final_ends_the_row(codes: set[int], of_task: bool, act: Act) -> None:
    job = a_failed_job(report="exit-code", final_codes=frozenset(codes))
    pod = an_exited_pod(job, 3) if of_task else a_pod(job, phase="Failed", had_run=True)
    closing = plan_closing(a_picture([job], a_cluster([pod])), a_task(), timedelta(hours=1), ends={job.uid: OOM})
    assert closing is not None
    assert closing.act is act


def test_success_is_no_final_code() -> None:
    job = a_complete_job(report="exit-code", final_codes=frozenset({137}))
    assert planned(a_task(), job, ends={job.uid: OOM}).act is Act.SUCCEED


def test_row_that_ends_well_has_no_error() -> None:
    job = a_complete_job(report="exit-code")
    assert error_of(a_task(), job, ends={job.uid: OOM}) == ""
