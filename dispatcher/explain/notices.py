"""What people read below a Job in `kubectl describe`: that its row was launched again, or is parked. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from dispatcher.admission.last_cycle import LastCycle
from dispatcher.explain.reasons import ADVICE, cause_of
from dispatcher.jobs.launch_ends import launch_end
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job
from dispatcher.model.notices import Notice
from dispatcher.model.verdicts import PARKED

RELAUNCHED, PARKED_ROW = "Relaunched", "Parked"
YOUNG: Final = timedelta(minutes=2)
"""A launch of before is not told again when another replica begins to lead."""


def notices_of(cycle: LastCycle, namespace: str) -> Iterator[Notice]:
    """The notices about Jobs after this cycle. Most of them were told after an earlier one."""
    yield from of_launches(cycle, namespace)
    yield from of_parked_rows(cycle, namespace)


def of_launches(cycle: LastCycle, namespace: str) -> Iterator[Notice]:
    """The Job of a launch that ended tells that another one follows."""
    pods, now = cycle.picture.cluster.pods, cycle.picture.cluster.cluster_now
    for jobs in cycle.picture.jobs.values():
        for job in jobs if len(jobs) > 1 else ():
            before = launch_before(job, jobs)
            if before is not None and now - job.created_at < YOUNG:
                words = f"launch {job.launch} of attempt {job.attempt} follows{why(before, pods)}"
                yield notice_about(before, namespace, RELAUNCHED, words)


def launch_before(job: Job, jobs: Sequence[Job]) -> Job | None:
    """The newest of the row's Jobs that came before this one."""
    earlier = [one for one in jobs if one.identity == job.identity and number(one) < number(job)]
    return max(earlier, key=number, default=None)


def number(job: Job) -> tuple[int, int]:
    return job.attempt, job.launch


def why(job: Job, pods: Mapping[str, Sequence[Pod]]) -> str:
    end = launch_end(job, pods.get(job.uid, ()))
    return f": {end.reason}" if end is not None else ""


def of_parked_rows(cycle: LastCycle, namespace: str) -> Iterator[Notice]:
    """The newest Job of a parked row tells why, and what helps."""
    for id_, told in cycle.told.items():
        if told.hold.reason not in PARKED:
            continue
        jobs = [one for one in cycle.picture.jobs.get(id_, ()) if one.attempt == told.attempt]
        job = max(jobs, key=number, default=None)
        if job is not None:
            words = f"{told.hold.reason}: {cause_of(told.hold).message}; {ADVICE[told.hold.reason].next_step}"
            yield notice_about(job, namespace, PARKED_ROW, words)


def notice_about(job: Job, namespace: str, reason: str, words: str) -> Notice:
    return Notice("Job", f"{namespace}/{job.name}", job.uid, reason, words, is_warning=True)
