"""What the janitor does about a row that stands still (docs/protocol.md, section 8), by the table that launches.

Each closing is one compare-and-set on what was read: the attempt, and the run's token or the Job that was judged. So a
dispatcher, a container or a second janitor may act in between, and the late call changes nothing.

Invariant: a run is never ended on the word of a Job that does not hold the row, and never returned while the table
would launch again: then the next launch takes it over by its fence.

Not guaranteed: that the Jobs are current. The shell lists them after the rows were read.
"""

from datetime import timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from dispatcher.jobs.observed import TaskWithJobs, due_at
from dispatcher.jobs.outcome import remembered
from dispatcher.jobs.picture import JobsPicture
from dispatcher.model.jobs import Job, Phase
from dispatcher.model.launches import Launch
from dispatcher.model.tasks import Status, Task
from dispatcher.model.verdicts import PARKED, Hold, HoldReason

STALE: Final = timedelta(seconds=60)
"""Without a heartbeat for this long, a run whose Job is over may be returned; the database checks it again."""


class Act(StrEnum):
    """What becomes of the row."""

    SUCCEED = "succeeded"
    FAIL = "failed"
    RETURN = "returned"
    CANCEL = "cancelled"


class Closing(Struct, frozen=True):
    """One call, with what it is only valid for: `launch` and `job_uid` of the Job judged, or `launch` of the row."""

    act: Act
    task_id: int
    attempt: int
    launch: int
    job_uid: str | None = None
    failures: int = 0
    error: str = ""


def plan_closing(picture: JobsPicture, task: Task, patience: timedelta, refusal: Hold | None = None) -> Closing | None:
    """What the janitor does about a row; None: nothing.

    patience: how long a parked row waits for a person.
    refusal: why no Job can be made of the row, by its template, its policy or the API server. It counts only where the
        table of outcomes would launch.
    """
    case = TaskWithJobs(task, picture.jobs_of(task), picture.cluster)
    verdict = picture.judge_row(task).verdict
    if task.cancel_requested_at is not None:
        return cancelled(case)
    if isinstance(verdict, Launch):
        return parked(case, refusal, patience) if refusal and is_over(case, patience) else None
    return parked(case, verdict, patience) if verdict and verdict.reason in PARKED else None


def cancelled(case: TaskWithJobs) -> Closing | None:
    """A cancel that its container can no longer answer."""
    if case.task.status is not Status.PROCESSING or not all(job.is_finished for job in case.of_attempt):
        return None
    return Closing(Act.CANCEL, case.task.id, case.task.attempt, case.task.launch)


def parked(case: TaskWithJobs, hold: Hold, patience: timedelta) -> Closing | None:
    """A row that is held until somebody acts."""
    task, job = case.task, case.job
    if task.status is Status.PROCESSING and not (job and is_held_by(task, job) and is_ended(hold)):
        return returned(case, hold)
    if hold.reason is HoldReason.EXITED_WITHOUT_REPORT and job is not None and job.report == "exit-code":
        return by_exit_code(task, job, hold)
    return ended(case, Act.FAIL, hold) if is_over(case, patience) else None


def is_held_by(task: Task, job: Job) -> bool:
    """Whether this Job's container is the one that the row knows: the exit of a refused twin says nothing."""
    return task.launch == job.launch and task.job_uid == job.uid


def is_ended(hold: Hold) -> bool:
    """Exhausted budgets of a run are settled by returning it: the failures are counted, the row fails by itself."""
    return hold.reason not in {HoldReason.FAILURES_EXHAUSTED, HoldReason.LAUNCHES_EXHAUSTED}


def returned(case: TaskWithJobs, hold: Hold) -> Closing | None:
    """A run whose container is gone: the next attempt, or failed where its failures are used up."""
    task, now = case.task, case.cluster.now
    unfinished = [job for job in case.of_attempt if job.launch >= task.launch and not job.is_finished]
    if unfinished or (task.heartbeat_at is not None and now - task.heartbeat_at < STALE):
        return None
    unstarted, disrupted = remembered(case)
    failures = max(1, case.last - unstarted - disrupted)
    return Closing(Act.RETURN, task.id, task.attempt, task.launch, failures=failures, error=said(hold))


def by_exit_code(task: Task, job: Job, hold: Hold) -> Closing:
    """The Job's outcome is the row's."""
    act = Act.SUCCEED if job.phase is Phase.COMPLETE else Act.FAIL
    error = "" if act is Act.SUCCEED else said(hold)
    return Closing(act, task.id, task.attempt, job.launch, job.uid, error=error)


def ended(case: TaskWithJobs, act: Act, hold: Hold) -> Closing:
    task, job = case.task, case.job
    launch, uid = (job.launch, job.uid) if job else (0, None)
    return Closing(act, task.id, task.attempt, launch, uid, error=said(hold))


def is_over(case: TaskWithJobs, patience: timedelta) -> bool:
    """Whether a person had the time to act: since the Job's end, else since the row was due."""
    task, job, cluster = case.task, case.job, case.cluster
    if job is not None:
        return cluster.cluster_now - (job.ended_at or job.created_at) >= patience
    return cluster.now - due_at(task) >= patience


def said(hold: Hold) -> str:
    """The words in the row's `error`: the stable code first."""
    return f"{hold.reason}: {hold.detail}"
