"""Asks the decision table, and reads what it says."""

from datetime import datetime
from typing import Any

from dispatcher.jobs.outcome import judge
from dispatcher.model.jobs import Job
from dispatcher.model.launches import JobsVerdict, Launch
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Hold, HoldReason
from tests.builders import NOW, a_cluster


def look(task: Task, *jobs: Job, seen: dict[str, datetime] | None = None, **cluster: Any) -> JobsVerdict:
    """`seen`: what is remembered from one look to the next, as cycles do."""
    seen = {} if seen is None else seen
    found = judge(task, jobs, a_cluster(first_seen=seen, **cluster))
    first = {key: seen.get(key, cluster.get("at", NOW)) for key in found.seen}
    seen.clear()
    seen.update(first)
    return found


def reason_of(standing: JobsVerdict) -> HoldReason:
    assert isinstance(standing.verdict, Hold)
    return standing.verdict.reason


def detail_of(standing: JobsVerdict) -> str:
    assert isinstance(standing.verdict, Hold)
    return standing.verdict.detail


def removed(standing: JobsVerdict) -> list[tuple[str, str]]:
    """What goes, by kind and uid. A Job goes only in the version that was judged."""
    assert all((end.resource_version is not None) == (end.kind == "jobs") for end in standing.ends)
    return [(end.kind, end.uid) for end in standing.ends]


def hold_of(task: Task, *jobs: Job, **cluster: Any) -> Hold:
    verdict = look(task, *jobs, **cluster).verdict
    assert isinstance(verdict, Hold), verdict
    return verdict


def next_launch(task: Task, *jobs: Job, **cluster: Any) -> Launch:
    verdict = look(task, *jobs, **cluster).verdict
    assert isinstance(verdict, Launch), verdict
    return verdict
