"""When a full node has room again, as the run limits of our Jobs tell. Pure.

A Pod of somebody else has no limit that is known here, so it counts as if it stayed for ever. So does a Pod of another
PriorityClass: the row may preempt it, and then its room is counted as free already.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from dispatcher.model.amounts import Amounts, added
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job
from dispatcher.model.needs import PodNeeds


class PodLimit(Struct, frozen=True):
    """A running Pod of ours: when it ends at the latest, and what it gives back."""

    ends_at: datetime
    asks: Amounts


def limits_by_node(
    jobs: Iterable[Job], pods: Mapping[str, Sequence[Pod]], priority_class: str, now: datetime
) -> Mapping[str, Sequence[PodLimit]]:
    """The running Pods of this PriorityClass by node, the first to end first. `pods`: by uid of the Job."""
    found: dict[str, list[PodLimit]] = defaultdict(list)
    for job in jobs:
        is_alike = job.needs is not None and job.needs.priority_class == priority_class
        if job.limit_seconds and job.needs is not None and is_alike and not job.is_finished:
            asks, limit = dict(job.needs.asks), timedelta(seconds=job.limit_seconds)
            for pod in pods.get(job.uid, ()):
                if pod.node_name and not pod.has_ended:
                    began = pod.scheduled_at or pod.created_at
                    found[pod.node_name].append(PodLimit(max(now, began + limit), asks))
    return {node: sorted(limits, key=lambda one: one.ends_at) for node, limits in found.items()}


def fits_at(needs: PodNeeds, free: Amounts, limits: Iterable[PodLimit]) -> datetime | None:
    """When the Pod fits, if no other Pod comes; None: not even after all of these Pods have ended."""
    for one in limits:
        free = added(free, one.asks)
        if all(free.get(resource, 0) >= asked for resource, asked in needs.asks):
            return one.ends_at
    return None
