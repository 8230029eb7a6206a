"""Decides which finished Jobs to delete (docs/protocol.md, section 7). A finished Job is the only memory of its launch.

Invariant: a Job is deleted only if its row is past the Job's attempt, or is terminal in that attempt. The row is read
after the Job was seen finished. A Job of a higher attempt than its row's stays: it shows a restore of the database.

Exception: a row may wait for weeks, while its launches are taken back, or while kubelets reject its Pods. Its Jobs
would fill etcd. So a Job of a living attempt goes, too, long after its end, if a later Job has its counts.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from dispatcher.model.cluster import ClusterView, Pod
from dispatcher.model.jobs import Job, ObjectWrite, Phase
from dispatcher.model.launches import is_same, task_identity
from dispatcher.model.tasks import TERMINAL, Task

MOST_TOMBSTONES: Final = 1000
"""The newest finished Jobs that may stay. Older ones are due at once."""
MANY_FINISHED: Final = 2 * MOST_TOMBSTONES
"""Finished Jobs beyond which half of the writes are for deletes. A long backlog of short rows could use all of them for
creates: then nothing would be deleted for hours, and etcd would fill.
"""
CROWDED: Final = timedelta(seconds=20)
"""Time for which a failed Job stays while a ResourceQuota is full: two rounds of the janitor."""
LARGE_BYTES: Final = 16 * 2**10
"""Unit by which Jobs with much text are ordered, in bytes of env, command and args."""
CONFIRMATIONS: Final = 3
"""Looks without a row, before a Job counts as an orphan."""
UNCOUNTED: Final = timedelta(hours=1)
"""Time for which a finished Job of a living attempt stays although nothing rests on it. No create is so late."""
UNCOUNTED_CROWDED: Final = timedelta(minutes=5)
"""The same while a ResourceQuota is full: Jobs that count for nothing must not keep the place of others."""
MOST_FINALIZERS: Final = 10
"""Finalizers that are counted apart, at most."""
OF_KUBERNETES: Final = "foregroundDeletion"
"""Kubernetes' own finalizer on a Job that we delete."""
KEPT_LONG: Final = timedelta(minutes=10)
"""Time after which a Job that Kubernetes alone keeps is counted: its controllers cannot finish the deletion."""
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
        last = min(last, now)  # after a clock that was set back
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


def kept_by_finalizers(jobs: Collection[Job], pods: Collection[Pod], now: datetime) -> Mapping[str, int]:
    """How many Jobs and ended Pods each finalizer keeps although they are being deleted. `now`: the API server's clock.

    Kubernetes takes its own finalizers away when the containers have ended, within seconds.
    """
    of_jobs = (name for job in jobs for name in job.kept_by)
    of_pods = (name for pod in pods if pod.has_ended for name in pod.kept_by)
    alive = {pod.job_uid for pod in pods if not pod.has_ended}
    late = [job for job in jobs if job.deleting_since is not None and now - job.deleting_since >= KEPT_LONG]
    own = (OF_KUBERNETES for job in late if not job.kept_by and job.uid not in alive)
    return dict(Counter(chain(of_jobs, of_pods, own)).most_common(MOST_FINALIZERS))


def are_many(jobs: Iterable[Job]) -> bool:
    """Whether finished Jobs pile up."""
    return sum(job.is_finished and not job.deleting for job in jobs) > MANY_FINISHED


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


def plan_uncounted(
    due: Sequence[Job], tasks: Mapping[int, Task], database_id: str, view: ClusterView, *, is_crowded: bool
) -> list[ObjectWrite]:
    """The deletes of due Jobs of living attempts on which nothing rests. `tasks`, `is_crowded`: as above."""
    kept = UNCOUNTED_CROWDED if is_crowded else UNCOUNTED
    old = [job for job in due if job.database_id == database_id and view.now - ended_at(job) >= kept]
    newest = newest_launches(view.jobs.values(), {job.identity for job in old})
    return [
        ObjectWrite("jobs", job.name, job.uid, cause, resource_version=job.resource_version)
        for job in old
        if (task := tasks.get(job.task_id)) is not None
        and (cause := why_uncounted(job, task, newest[job.identity, job.attempt], database_id))
    ]


def newest_launches(jobs: Iterable[Job], identities: Set[str]) -> Mapping[tuple[str, int], int]:
    """The highest launch that has a Job, by (identity, attempt). Labels count for nothing: any client can set them."""
    newest: dict[tuple[str, int], int] = {}
    for job in jobs:
        if job.identity in identities:
            key = job.identity, job.attempt
            newest[key] = max(job.launch, newest.get(key, 0))
    return newest


def why_uncounted(job: Job, task: Task, newest: int, database_id: str) -> str:
    """Why nothing rests on a finished Job of the row's own attempt; empty: it is needed. `newest`: the highest launch.

    A later Job has the number and the counts of those before it. A Job that was taken back had no container, so its
    number may be given again if nothing else was counted before it.
    """
    is_its = is_same(job.identity, task_identity(database_id, task.id, task.created_at))
    if not is_its or task.attempt != job.attempt or task.status in TERMINAL or task.launch == job.launch:
        return ""
    if job.launch < newest:
        return "a later launch has its counts"
    is_first = not task.launch and not (job.unstarted or job.disrupted) and job.launch == job.unplaced_before + 1
    return "it was taken back, and nothing counts before it" if job.is_unplaced and is_first else ""


def ended_at(job: Job) -> datetime:
    return job.ended_at or job.created_at
