"""Resting rows: rows that a cycle need not read, because their only Job is under way and has not changed.

A change of the Job, or a Pod that cannot start, ends the rest at once. A cancel, a retry or an end of the row itself is
found within 30 s. The graces of 60 s that follow allow this delay. So the cost of a cycle depends on the number of
changes, not on the number of rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from dispatcher.jobs.observed import CANNOT_START
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job, Phase
from dispatcher.model.launches import JobsVerdict
from dispatcher.model.tasks import Status, Task
from dispatcher.model.verdicts import Hold, HoldReason

REST_SECONDS: Final = 30


class Rest(Struct, frozen=True):
    """The rest of one row.

    attempt: attempt of the row.
    queue: queue of the row.
    is_waiting: whether the row was `waiting` when it was judged.
    version: resourceVersion of its Job. Another version ends the rest.
    until: end of the rest, in seconds of this process's clock.
    """

    attempt: int
    queue: str
    is_waiting: bool
    version: str
    until: float


def may_rest(found: JobsVerdict, job: Job, pods: Iterable[Pod]) -> bool:
    """Whether the row's only Job is under way, with no object to delete and no Pod to watch."""
    verdict = found.verdict
    if found.ends or not isinstance(verdict, Hold) or verdict.reason is not HoldReason.LAUNCHED:
        return False
    is_plain = job.phase is Phase.ACTIVE and not job.deleting
    return is_plain and not any(is_news(pod) for pod in pods)


def is_news(pod: Pod) -> bool:
    """Whether a Pod cannot start, or is being deleted."""
    return pod.deleting or pod.waiting_reason in CANNOT_START


def plan_rest(task: Task, job: Job, pods: Iterable[Pod], now: float, left: float) -> Rest:
    """A rest of 15 to 30 s, spread by task id. Before the start: at most `left` seconds, to the start deadline."""
    has_started = any(pod.phase != "Pending" for pod in pods)
    most = REST_SECONDS * (0.5 + task.id % 16 / 32)
    until = now + (most if has_started else min(most, left))
    return Rest(task.attempt, task.queue, task.status is Status.WAITING, job.resource_version, until)


def still_resting(
    resting: Mapping[int, Rest], jobs: Mapping[int, Sequence[Job]], stuck: frozenset[str], now: float
) -> dict[int, Rest]:
    """Rows whose rest is not over and whose Job has not changed. `stuck`: UIDs of Jobs with a Pod that `is_news`."""
    return {
        id_: rest
        for id_, rest in resting.items()
        if rest.until > now
        and len(found := jobs.get(id_, ())) == 1
        and found[0].resource_version == rest.version
        and found[0].uid not in stuck
    }
