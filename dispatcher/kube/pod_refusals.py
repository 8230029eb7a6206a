"""Finds Jobs whose Pods the API server refuses. Only Events of the Job controller tell of this.

Pod Security, a missing ServiceAccount, a webhook or a quota refuse a Pod. The Job stays active and has no Pod. The
Events of such a Job are read only after it had no Pod for a while, and of few Jobs at a time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog

from dispatcher.kube.client import KubeClient
from dispatcher.kube.wire import Meta, Moment, Wire
from dispatcher.model.cluster import LONG_AGO, PodRefusal
from dispatcher.model.jobs import Job
from dispatcher.model.snapshot import ClusterView
from dispatcher.runtime.metrics import REFUSED_PODS

ROUND_SECONDS: Final = 5
REQUEST_SECONDS: Final = 5
"""Limit of one request. A stop of the program waits for the round."""
MOST_JOBS: Final = 20
"""Jobs whose Events one round reads. The others follow in later rounds."""
POD_APPEARS_IN: Final = timedelta(seconds=15)
LONGEST_MESSAGE: Final = 500
log = structlog.get_logger(component="kube.pod_refusals")


class WireEvent(Wire, frozen=True):
    metadata: Meta = Meta()
    message: str = ""
    first_timestamp: Moment | None = None
    last_timestamp: Moment | None = None

    @property
    def began_at(self) -> datetime:
        return self.first_timestamp or self.metadata.creation_timestamp or LONG_AGO

    @property
    def ended_at(self) -> datetime:
        return self.last_timestamp or self.began_at


class EventList(Wire, frozen=True):
    """All Events about one Job."""

    items: Sequence[WireEvent] = ()


class PodRefusals:
    """The refusals of Pods, by UID of the Job. `known` never changes; a round with news replaces it."""

    def __init__(self, client: KubeClient, namespace: str, view: Callable[[], ClusterView]) -> None:
        self.known: Mapping[str, PodRefusal] = {}
        self._client = client
        self._events = f"/api/v1/namespaces/{namespace}/events"
        self._view = view
        self._asked = ""

    async def run_once(self) -> float:
        """Reads the Events of Jobs without a Pod. Raises ClusterError if they cannot be read."""
        view = self._view()
        waiting = {job.uid: job for job in jobs_without_pod(view)}
        found = {uid: known for uid, known in self.known.items() if uid in waiting}
        asked = next_jobs(waiting.values(), after=self._asked)
        self._asked = asked[-1].name if asked else ""
        for job in asked:
            if (refusal := await self._read(job)) is not None:
                if job.uid not in found:
                    log.warning("Pod refused", job=job.name, message=refusal.message)
                found[job.uid] = refusal
        self.known = found if found != self.known else self.known
        for cause, is_quota in (("quota", True), ("refused", False)):
            REFUSED_PODS.labels(cause).set(sum(one.is_quota is is_quota for one in found.values()))
        return ROUND_SECONDS

    def forget(self) -> None:
        """Forgets the refusals, and ends their metric. Call it where no round follows soon."""
        self.known = {}
        REFUSED_PODS.clear()

    async def _read(self, job: Job) -> PodRefusal | None:
        about = f"involvedObject.uid={job.uid},reason=FailedCreate,type=Warning"
        reply = await self._client.request(
            "GET", self._events, params={"fieldSelector": about, "limit": "50"}, seconds=REQUEST_SECONDS
        )
        return refusal_of(reply.read(f"list events of Job {job.name}", EventList).items)


def next_jobs(waiting: Iterable[Job], *, after: str) -> list[Job]:
    """The Jobs of one round, at most MOST_JOBS. They take turns by name, from `after` on."""
    return sorted(waiting, key=lambda job: (job.name <= after, job.name))[:MOST_JOBS]


def refusal_of(events: Sequence[WireEvent]) -> PodRefusal | None:
    """The refusal since the first of these Events, in the words of the last. None without Events."""
    if not events:
        return None
    last = max(events, key=lambda event: event.ended_at)
    message = last.message[:LONGEST_MESSAGE]
    return PodRefusal(min(event.began_at for event in events), message, "exceeded quota: " in message)


def jobs_without_pod(view: ClusterView) -> Iterator[Job]:
    """Jobs that should have a Pod for some time, and have none."""
    with_pod = {pod.job_uid for pod in view.pods.values()}
    for job in view.jobs.values():
        is_old = view.now - job.created_at >= POD_APPEARS_IN
        if is_old and not (job.is_finished or job.suspended or job.deleting) and job.uid not in with_pod:
            yield job
