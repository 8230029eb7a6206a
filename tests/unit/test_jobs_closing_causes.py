"""The error with which the janitor ends a row names what ended its launch."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from dispatcher.jobs.closing import plan_closing
from dispatcher.jobs.launch_ends import LaunchEnd
from dispatcher.model.jobs import Job
from dispatcher.model.tasks import Task
from tests.builders import a_cluster, a_complete_job, a_failed_job, a_picture, a_running_task, a_task, ago

OOM = LaunchEnd(reason="OOMKilled (limit 64Mi)", exit_code=137, output="the end")
PARKED = "FailuresExhausted: the task had started, and max_failures is 1"


def error_of(task: Task, *jobs: Job, ends: Mapping[str, LaunchEnd]) -> str:
    closing = plan_closing(a_picture(jobs, a_cluster()), task, timedelta(hours=1), ends=ends)
    assert closing is not None
    return closing.error


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


def test_row_that_ends_well_has_no_error() -> None:
    job = a_complete_job(report="exit-code")
    assert error_of(a_task(), job, ends={job.uid: OOM}) == ""
