"""Judges a row by the table of outcomes, and takes the verdict apart."""

from datetime import datetime
from typing import Any

from dispatcher.jobs.outcome import judge
from dispatcher.model.jobs import EndedBy, Job, Phase
from dispatcher.model.launches import JobsVerdict, Launch
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Hold, HoldReason
from tests.rig.builders import NOW, a_cluster, an_exited_pod


def judged(task: Task, *jobs: Job, seen: dict[str, datetime] | None = None, **cluster: Any) -> JobsVerdict:
    """The verdict of one cycle. By default Pods of complete Jobs are there.

    seen: first sights of states, kept from one cycle to the next.
    """
    seen = {} if seen is None else seen
    cluster.setdefault("pods", [an_exited_pod(job) for job in jobs if job.phase is Phase.COMPLETE])
    found = judge(task, jobs, a_cluster(first_seen=seen, **cluster))
    first = {key: seen.get(key, cluster.get("at", NOW)) for key in found.seen}
    seen.clear()
    seen.update(first)
    return found


def reason_of(found: JobsVerdict) -> HoldReason:
    assert isinstance(found.verdict, Hold)
    return found.verdict.reason


def detail_of(found: JobsVerdict) -> str:
    assert isinstance(found.verdict, Hold)
    return found.verdict.detail


def removed(found: JobsVerdict) -> list[tuple[str, str]]:
    """(kind, uid) of the objects to end. A Job is ended only in the version that was judged; a note is for any."""
    assert all((end.resource_version is None) == (end.kind in {"pods", *EndedBy}) for end in found.ends)
    return [(end.kind, end.uid) for end in found.ends]


def hold_of(task: Task, *jobs: Job, **cluster: Any) -> Hold:
    verdict = judged(task, *jobs, **cluster).verdict
    assert isinstance(verdict, Hold), verdict
    return verdict


def next_launch(task: Task, *jobs: Job, **cluster: Any) -> Launch:
    verdict = judged(task, *jobs, **cluster).verdict
    assert isinstance(verdict, Launch), verdict
    return verdict
