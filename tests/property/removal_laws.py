"""I9 and I22: which Jobs and Pods may be deleted, judged by the real rows, Jobs and Pods at that moment.

A delete with an old resourceVersion hits nothing, so it breaks no law. A delete that hits must be right. A past attempt
never returns, so a decision that was right stays right.
"""

from datetime import timedelta
from typing import Final

from dispatcher.model.jobs import Job, ObjectWrite
from dispatcher.model.tasks import TERMINAL
from tests.property.cluster import Cluster
from tests.property.replica import SWEEPING, Replica
from tests.property.rows import Row, Table

CONFIRMATIONS: Final = 3
CONFIRM_EVERY: Final = timedelta(seconds=10)
AGAIN_SECONDS: Final = 10


class RemovalLaws:
    """Laws I9 and I22.

    touched: tasks whose Job somebody deleted.
    foreign: uids of Jobs of other databases.
    """

    def __init__(self, cluster: Cluster, table: Table) -> None:
        self._cluster = cluster
        self._table = table
        self.touched: set[int] = set()
        self.foreign: set[str] = set()
        self._sent: dict[tuple[int, str], float] = {}

    def check(self, replica: Replica, end: ObjectWrite) -> None:
        now, key = replica.clock(), (id(replica), f"{end.kind} {end.uid}")
        assert now - self._sent.get(key, float("-inf")) >= AGAIN_SECONDS, (
            f"I21: {end.name} is deleted twice within {AGAIN_SECONDS} s"
        )
        self._sent[key] = now
        assert end.uid, f"I9: {end.name} is deleted without its uid"
        if end.kind == "pods":
            pod = self._cluster.pods.get(end.name)
            assert pod is None or pod.node_name, f"I22: {end.name} is deleted while it waits for a node"
        if end.kind == "unplaced-pods":
            marked = [job for job in self._cluster.jobs.values() if job.is_unplaced]
            pod = self._cluster.pods.get(end.name)
            assert pod is None or pod.job_uid in {job.uid for job in marked}, f"I22: {end.name} is deleted unmarked"
        if end.kind != "jobs":
            return
        assert end.resource_version, f"I9: {end.name} is deleted without its resourceVersion"
        assert end.uid not in self.foreign, f"I9: {end.name} is a foreign Job"
        job = self._cluster.jobs.get(end.name)
        if job is None or (job.uid, job.resource_version) != (end.uid, end.resource_version):
            return
        assert not job.deleting, f"I21: {job.name} is being deleted already"
        if job.is_finished and self._times_missed(replica, job.task_id) >= CONFIRMATIONS:
            self.touched.add(job.task_id)  # the row may only be hidden: then it loses the memory of this launch
            return
        row = self._table.rows.get(job.task_id) or last_read(replica, job.task_id)
        assert row is not None, f"I9: {job.name}: its row is absent, but not confirmed gone"
        if job.is_finished:
            assert is_over(job, row), f"I9: {job.name} is a tombstone that its row still needs"
            self._check_age(replica, job)
        else:
            assert self._may_end(job, row), f"I9: {job.name} is unfinished and wanted by its row"

    def _check_age(self, replica: Replica, job: Job) -> None:
        age = replica.clock.of_cluster - (job.ended_at or job.created_at)
        assert age >= timedelta(seconds=SWEEPING.tombstone_seconds), f"I9: {job.name} has been finished for only {age}"

    def _may_end(self, job: Job, row: Row) -> bool:
        task = row.task
        if task.id in self.touched or task.attempt > job.attempt:
            return True
        if task.status in TERMINAL or task.cancel_requested_at is not None:
            return True
        of_attempt = [one.launch for one in self._cluster.of_task(task.id) if one.attempt == job.attempt]
        return max([task.launch, *of_attempt]) > job.launch

    def _times_missed(self, replica: Replica, task_id: int) -> int:
        """How many looks of the sweep have missed the row since it was last found. Looks less than CONFIRM_EVERY apart
        count once.
        """
        times, last = 0, None
        for look in replica.database.sweeps:
            if task_id not in look.read:
                continue
            if task_id in look.rows:
                times, last = 0, None
            elif last is None or look.now - last >= CONFIRM_EVERY:
                times, last = times + 1, look.now
        return times


def last_read(replica: Replica, task_id: int) -> Row | None:
    """The row in the last look of the sweep. A row may be dropped between that look and the delete."""
    looks = [look for look in replica.database.sweeps if task_id in look.read]
    return looks[-1].rows.get(task_id) if looks else None


def is_over(job: Job, row: Row) -> bool:
    return row.task.attempt > job.attempt or (row.task.attempt == job.attempt and row.task.status in TERMINAL)
