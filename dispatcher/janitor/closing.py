"""Plans the janitor's call for a row that cannot move on by itself (docs/protocol.md, section 8).

The table of outcomes decides here, too. Each closing is one compare-and-set on values that were read: the attempt, and
the run's token or the Job that was judged. If a dispatcher, a container or a second janitor acts in between, the late
call changes nothing.

Invariant: a run is never ended on the word of a Job that does not hold the row. A run is never returned while the table
would launch again: the next launch takes that run over.

Not guaranteed: that the Jobs are current. The caller lists them live and judges again before each call.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Struct

from dispatcher.jobs.observed import LaunchEnd, TaskWithJobs, due_at
from dispatcher.jobs.outcome import count_earlier_launches
from dispatcher.jobs.picture import JobsPicture
from dispatcher.model.jobs import Job
from dispatcher.model.launches import Launch
from dispatcher.model.tasks import Status, Task
from dispatcher.model.verdicts import PARKED, Hold, HoldReason, Stage

Ends = Mapping[str, LaunchEnd]
NO_ENDS: Final[Ends] = MappingProxyType({})
FAILED: Final = "ContainerFailed: report is exit-code"
"""Beginning of the error of a row whose container failed."""
USED_UP: Final = frozenset(
    {HoldReason.FAILURES_EXHAUSTED, HoldReason.LAUNCHES_EXHAUSTED, HoldReason.DISRUPTED_TOO_OFTEN}
)
"""Holds of rows whose budgets are used up."""
STALE: Final = timedelta(seconds=60)
"""A run whose Job is over may be returned after this time without a heartbeat. The database checks this again."""


class Act(StrEnum):
    """The janitor's calls, by what becomes of the row. RETRY and RETURN end the row as failed at max_failures."""

    SUCCEED = "succeeded"
    FAIL = "failed"
    RETRY = "retried"
    RETURN = "returned"
    CANCEL = "cancelled"


class Closing(Struct, frozen=True):
    """One call of the janitor, with the values that its compare-and-set matches.

    act: the call.
    task_id: the row.
    attempt: attempt of the row, as read.
    launch: launch of the Job that was judged; for RETURN and CANCEL the row's launch.
    job_uid: UID of the Job that was judged; None: there was no Job, or the call does not need one.
    failures: failures that RETURN adds to the row.
    error: text for the row's `error`; empty: none.
    """

    act: Act
    task_id: int
    attempt: int
    launch: int
    job_uid: str | None = None
    failures: int = 0
    error: str = ""


def plan_closing(
    picture: JobsPicture, task: Task, patience: timedelta, refusal: Hold | None = None, ends: Ends = NO_ENDS
) -> Closing | None:
    """The janitor's call for a row; None: no call.

    patience: time that a parked row waits for a person.
    refusal: why the template, the policy or the API server allow no Job for the row. A refusal counts only if the table
    of outcomes would launch.
    ends: the ends of launches, by UID of the Job.
    """
    row = TaskWithJobs(task, picture.jobs_of(task), picture.cluster)
    closing = plan_call(row, picture, patience, refusal)
    return with_cause(closing, row.job, ends) if closing else None


def plan_call(row: TaskWithJobs, picture: JobsPicture, patience: timedelta, refusal: Hold | None) -> Closing | None:
    task = row.task
    verdict = picture.judge_row(task).verdict
    if task.cancel_requested_at is not None:
        return plan_cancel(row)
    if row.has_succeeded is not None and row.job is not None and is_exit_code(verdict):
        return plan_exit_code(row, row.job, is_success=row.has_succeeded)
    if isinstance(verdict, Launch):
        return plan_parked(row, refusal, patience) if refusal and has_waited(row, patience) else None
    return plan_parked(row, verdict, patience) if verdict and verdict.reason in PARKED else None


def plan_cancel(row: TaskWithJobs) -> Closing | None:
    """A cancel for a run whose Jobs are all finished: its container can no longer answer."""
    if row.task.status is not Status.PROCESSING or not all(map(row.cluster.is_over, row.of_attempt)):
        return None
    return Closing(Act.CANCEL, row.task.id, row.task.attempt, row.task.launch)


def plan_parked(row: TaskWithJobs, hold: Hold, patience: timedelta) -> Closing | None:
    """The call for a row that is held until a person, the row or its template changes."""
    task, job = row.task, row.job
    if hold.reason is HoldReason.DISRUPTED_TOO_OFTEN and not has_waited(row, patience):
        return None  # an operator may end what ends its Pods, and after a day a disruption counts no more
    if task.status is Status.PROCESSING and not (job and is_held_by(task, job) and can_be_ended(hold)):
        return plan_return(row, hold)
    if hold.reason is HoldReason.EXITED_WITHOUT_REPORT and job is not None and job.report == "exit-code":
        return plan_exit_code(row, job, is_success=True)  # it has started, although it need not
    return plan_end(row, Act.FAIL, hold) if has_waited(row, patience) else None


def is_held_by(task: Task, job: Job) -> bool:
    """Whether this Job's container holds the row. The exit of a refused container says nothing about the run."""
    return task.launch == job.launch and task.job_uid == job.uid


def can_be_ended(hold: Hold) -> bool:
    """Whether the row may be ended for this hold. A run with used-up budgets is returned, which adds failures."""
    return hold.reason not in USED_UP


def plan_return(row: TaskWithJobs, hold: Hold) -> Closing | None:
    """The call that returns a run whose container is gone. The database makes the next attempt, or fails the row."""
    task, now = row.task, row.cluster.now
    unfinished = [job for job in row.of_attempt if job.launch >= task.launch and not row.cluster.is_over(job)]
    if unfinished or (task.heartbeat_at is not None and now - task.heartbeat_at < STALE):
        return None
    earlier = count_earlier_launches(row)
    failures = max(1, row.last - earlier.unstarted - earlier.disrupted - earlier.unplaced)
    return Closing(Act.RETURN, task.id, task.attempt, task.launch, failures=failures, error=error_text(hold))


def is_exit_code(verdict: Launch | Hold | None) -> bool:
    return isinstance(verdict, Hold) and verdict.detail == Stage.EXIT_CODE


def plan_exit_code(row: TaskWithJobs, job: Job, *, is_success: bool) -> Closing:
    """The call that writes the outcome of the container. The database makes the next attempt, or fails the row."""
    is_final = row.exit_code in job.final_codes  # of the task's own container: a sidecar's status says nothing
    act, error = (Act.SUCCEED, "") if is_success else (Act.FAIL if is_final else Act.RETRY, FAILED)
    return Closing(act, row.task.id, row.task.attempt, job.launch, job.uid, error=error)


def plan_end(row: TaskWithJobs, act: Act, hold: Hold) -> Closing:
    task, job = row.task, row.job
    launch, uid = (job.launch, job.uid) if job else (0, None)
    return Closing(act, task.id, task.attempt, launch, uid, error=error_text(hold))


def has_waited(row: TaskWithJobs, patience: timedelta) -> bool:
    """Whether the row has waited for `patience`, since the end of J or, without J, since it was due."""
    task, job, cluster = row.task, row.job, row.cluster
    if job is not None:
        return cluster.cluster_now - (job.ended_at or job.created_at) >= patience
    return cluster.now - due_at(task) >= patience


def error_text(hold: Hold) -> str:
    """The text for the row's `error`. It begins with the stable reason code."""
    return f"{hold.reason}: {hold.detail}"


def with_cause(closing: Closing, job: Job | None, ends: Ends) -> Closing:
    """The call, with the end of the judged launch and the end of its output in the error."""
    end = ends.get(job.uid) if job is not None and closing.error else None
    if job is None or end is None:
        return closing
    lines = [f"{closing.error}; launch {job.launch}: {end.reason}", end.output]
    return msgspec.structs.replace(closing, error="\n".join(filter(None, lines)))
