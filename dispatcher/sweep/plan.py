"""Decides which finished Jobs to delete (docs/protocol.md, section 7). A finished Job is the only memory of its launch.

Invariant: a Job is deleted only if its row is past the Job's attempt, or is terminal in that attempt. The row is read
after the Job was seen finished. A Job of a higher attempt than its row's stays: it shows a restore of the database.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job, ObjectWrite, Phase
from dispatcher.model.launches import is_same, task_identity
from dispatcher.model.tasks import TERMINAL, Task

MOST_TOMBSTONES: Final = 1000
"""The newest finished Jobs that may stay. Older ones are due at once."""
CROWDED: Final = timedelta(seconds=20)
"""Time for which a failed Job stays while a ResourceQuota is full: two rounds of the janitor."""
LARGE_BYTES: Final = 16 * 2**10
"""Unit by which Jobs with much text are ordered, in bytes of env, command and args."""
CONFIRMATIONS: Final = 3
"""Looks without a row, before a Job counts as an orphan."""
MOST_FINALIZERS: Final = 10
"""Finalizers that are counted apart, at most."""
CONFIRM_EVERY: Final = timedelta(seconds=10)
"""Time between two such looks."""


class Absences:
    """Counts how often each Job's row was not found. A restore or a wrong database makes rows missing by mistake.

    apart: time between two looks that count.
    """

    def __init__(self, apart: timedelta = CONFIRM_EVERY) -> None:
        self._apart = apart
        self._seen: dict[str, tuple[int, datetime]] = {}

    def confirm(self, uid: str, now: datetime) -> bool:
        """Counts one more look that found no row. Returns True after CONFIRMATIONS looks."""
        times, last = self._seen.get(uid, (0, now - self._apart))
        if now - last >= self._apart:
            times, last = times + 1, now
        self._seen[uid] = (times, last)
        return times >= CONFIRMATIONS

    def forget(self, uid: str) -> None:
        """Begins the count of this Job anew, because its row was found."""
        self._seen.pop(uid, None)

    def keep_only(self, uids: Iterable[str]) -> None:
        wanted = set(uids)
        self._seen = {uid: seen for uid, seen in self._seen.items() if uid in wanted}


def kept_by_others(jobs: Iterable[Job], pods: Iterable[Pod]) -> Mapping[str, int]:
    """How many Jobs and ended Pods each finalizer of others keeps although they are being deleted."""
    of_jobs = (name for job in jobs for name in job.kept_by)
    of_pods = (name for pod in pods if pod.has_ended for name in pod.kept_by)
    return dict(Counter(chain(of_jobs, of_pods)).most_common(MOST_FINALIZERS))


def plan_due(
    jobs: Iterable[Job], cluster_now: datetime, tombstone: timedelta, *, is_crowded: bool = False
) -> list[Job]:
    """Finished Jobs that are older than their tombstone time, or beyond the newest MOST_TOMBSTONES.

    Order: Jobs with much text first, because etcd has room for many small ones instead; then the oldest.

    is_crowded: a ResourceQuota counts finished Jobs, and has no room for another one. Then Jobs stay only until the
    janitor has written down why they failed.
    """
    finished = sorted((job for job in jobs if job.is_finished and not job.deleting), key=ended_at)
    beyond = len(finished) - MOST_TOMBSTONES

    def stays(job: Job) -> timedelta:
        if not is_crowded:
            return tombstone
        return timedelta(0) if job.phase is Phase.COMPLETE else min(tombstone, CROWDED)

    due = [job for rank, job in enumerate(finished) if rank < beyond or cluster_now - ended_at(job) >= stays(job)]
    return sorted(due, key=lambda job: -(job.size // LARGE_BYTES))


def plan_sweep(
    due: Sequence[Job], tasks: Mapping[int, Task], database_id: str, now: datetime, absences: Absences
) -> list[ObjectWrite]:
    """The deletes, in the order of `due`. `tasks` were read after the Jobs were seen finished."""
    return [
        ObjectWrite("jobs", job.name, job.uid, cause, resource_version=job.resource_version)
        for job in due
        if job.database_id in {database_id, ""}
        and (cause := why_swept(job, tasks.get(job.task_id), database_id, now, absences))
    ]


def why_swept(job: Job, task: Task | None, database_id: str, now: datetime, absences: Absences) -> str:
    """Why a finished Job is no longer needed; empty if it is still needed."""
    is_its = task is not None and is_same(job.identity, task_identity(database_id, task.id, task.created_at))
    if not (job.database_id or is_its):
        return ""  # somebody removed its annotations: nothing tells whether its row was in this database
    if task is None or not is_its:
        return "its row is gone" if absences.confirm(job.uid, now) else ""
    absences.forget(job.uid)
    if task.attempt > job.attempt:
        return "its attempt is past"
    return "its row is over" if task.attempt == job.attempt and task.status in TERMINAL else ""


def ended_at(job: Job) -> datetime:
    return job.ended_at or job.created_at
