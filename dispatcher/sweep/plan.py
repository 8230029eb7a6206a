"""Decides which finished Jobs to delete (docs/protocol.md, section 7). A finished Job is the only memory of its launch.

Invariant: a Job is deleted only if its row is past the Job's attempt, or is terminal in that attempt. The row is read
after the Job was seen finished. A Job of a higher attempt than its row's stays: it shows a restore of the database.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from dispatcher.model.identity import task_identity
from dispatcher.model.jobs import End, Job
from dispatcher.model.tasks import TERMINAL, Task

MOST_TOMBSTONES: Final = 1000
CONFIRMATIONS: Final = 3
CONFIRM_EVERY: Final = timedelta(seconds=10)


class Absences:
    """Counts how often each Job's row was not found. A restore or a wrong database makes rows missing by mistake."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, datetime]] = {}

    def confirm(self, uid: str, now: datetime) -> bool:
        """Counts one more look that found no row. Returns True after CONFIRMATIONS looks, CONFIRM_EVERY apart."""
        times, last = self._seen.get(uid, (0, now - CONFIRM_EVERY))
        if now - last >= CONFIRM_EVERY:
            times, last = times + 1, now
        self._seen[uid] = (times, last)
        return times >= CONFIRMATIONS

    def forget(self, uid: str) -> None:
        """The row of this Job was found, so its count begins anew."""
        self._seen.pop(uid, None)

    def keep_only(self, uids: Iterable[str]) -> None:
        wanted = set(uids)
        self._seen = {uid: seen for uid, seen in self._seen.items() if uid in wanted}


def plan_due(jobs: Iterable[Job], cluster_now: datetime, tombstone: timedelta) -> list[Job]:
    """Finished Jobs past their tombstone time, or beyond the newest MOST_TOMBSTONES; oldest first."""
    finished = sorted((job for job in jobs if job.is_finished and not job.deleting), key=ended_at)
    beyond = len(finished) - MOST_TOMBSTONES
    return [job for rank, job in enumerate(finished) if rank < beyond or cluster_now - ended_at(job) >= tombstone]


def plan_sweep(
    due: Sequence[Job], tasks: Mapping[int, Task], database_id: str, now: datetime, absences: Absences
) -> list[End]:
    """Deletes, in the order of `due`. `tasks` were read after the Jobs were seen finished."""
    return [
        End("jobs", job.name, job.uid, cause, resource_version=job.resource_version)
        for job in due
        if job.database_id == database_id and (cause := why_swept(job, tasks.get(job.task_id), now, absences))
    ]


def why_swept(job: Job, task: Task | None, now: datetime, absences: Absences) -> str:
    """Why a finished Job is no longer needed; empty if it is still needed."""
    if task is None or task_identity(job.database_id, task.id, task.created_at) != job.identity:
        return "its row is gone" if absences.confirm(job.uid, now) else ""
    absences.forget(job.uid)
    if task.attempt > job.attempt:
        return "its attempt is past"
    return "its row is over" if task.attempt == job.attempt and task.status in TERMINAL else ""


def ended_at(job: Job) -> datetime:
    return job.ended_at or job.created_at
