"""Rows that need not be read at every look: their one Job runs, or waits to, and nothing about it is new.

A change of the Job ends the rest at once, and so does a Pod that cannot start. What only the row tells (a cancel, a
retry, an end) is found within half a minute, which is what the graces that follow it can bear. A cycle's cost is then
that of what happens, not of what is there.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from dispatcher.jobs.observed import CANNOT_START
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job, Phase
from dispatcher.model.launches import JobsVerdict
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Hold, HoldReason

REST_SECONDS: Final = 30


class Rest(Struct, frozen=True):
    """Why a row may rest: its Job at this version, until then."""

    attempt: int
    queue: str
    version: str
    until: float


def may_rest(standing: JobsVerdict, job: Job, pods: Iterable[Pod]) -> bool:
    """Whether the row's only Job is under way, with nothing to remove and nothing to watch."""
    verdict = standing.verdict
    if standing.ends or not isinstance(verdict, Hold) or verdict.reason is not HoldReason.LAUNCHED:
        return False
    is_plain = job.phase is Phase.ACTIVE and not job.deleting
    return is_plain and not any(is_news(pod) for pod in pods)


def is_news(pod: Pod) -> bool:
    """A Pod that cannot start, or that somebody wants gone."""
    return pod.deleting or pod.waiting_reason in CANNOT_START


def plan_rest(task: Task, job: Job, pods: Iterable[Pod], now: float, left: float) -> Rest:
    """Until half a minute from now at most, not all at once; no longer than until its start deadline in `left` s."""
    has_started = any(pod.phase != "Pending" for pod in pods)
    most = REST_SECONDS * (0.5 + task.id % 16 / 32)
    return Rest(task.attempt, task.queue, job.resource_version, now + (most if has_started else min(most, left)))


def still_resting(
    resting: Mapping[int, Rest], jobs: Mapping[int, Sequence[Job]], stuck: frozenset[str], now: float
) -> dict[int, Rest]:
    """Those whose time is not over and whose Job is as it was. `stuck`: UIDs of Jobs whose Pod is news."""
    return {
        id_: rest
        for id_, rest in resting.items()
        if rest.until > now
        and len(found := jobs.get(id_, ())) == 1
        and found[0].resource_version == rest.version
        and found[0].uid not in stuck
    }
