"""When a launch that has not started is ended: after the start deadline, an image error, or a refused Pod."""

from datetime import datetime, timedelta
from typing import Final

from dispatcher.jobs.observed import CANNOT_START, GRACE, TaskWithJobs
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job

POD_REFUSED: Final = timedelta(seconds=60)
"""From the first refusal of a Pod to the end of its launch. A webhook can recover."""


def stuck_key(pod: Pod) -> str:
    return f"stuck/{pod.uid}"


def end_cause(row: TaskWithJobs, job: Job, pod: Pod) -> str:
    """Why the Pod of an unstarted launch is deleted; empty: it stays. The Job always stays as the launch's memory.

    A Pod without a node is not deleted, however long it waits: a full cluster must not cost the row a launch.
    """
    if pod.phase != "Pending" or pod.deleting or pod.had_run or row.task.launch >= job.launch or not pod.node_name:
        return ""
    cluster = row.cluster
    if pod.waiting_reason in CANNOT_START and cluster.has_lasted(stuck_key(pod), GRACE):
        return pod.waiting_reason
    late = cluster.cluster_now - waits_since(pod) >= timedelta(seconds=cluster.rules.start_deadline_seconds)
    return "the start deadline passed" if late and not job.suspended else ""


def waits_since(pod: Pod) -> datetime:
    """When the start deadline of a Pod with a node began. The time without a node does not count."""
    return pod.scheduled_at or pod.created_at


def is_refused_for_long(row: TaskWithJobs, job: Job) -> bool:
    """Whether the API server refuses the Pod of an unstarted launch. A quota is waited for: it may have room later."""
    refusal = row.refusal
    if refusal is None or refusal.is_quota or not may_be_deleted(job) or job.suspended or row.task.launch >= job.launch:
        return False
    return row.cluster.cluster_now - refusal.since >= POD_REFUSED


def may_be_deleted(job: Job) -> bool:
    """Whether the Job is unfinished and not being deleted yet."""
    return not job.is_finished and not job.deleting
