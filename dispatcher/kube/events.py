"""Events (core/v1): the ones that we write about objects, and those that name refused Pods.

`Events`: writes Events. The API server keeps them for an hour.

`PodRefusals`: finds Jobs whose Pods the API server refuses: by Pod Security, a missing ServiceAccount, a webhook or a
quota. Such a Job stays active and has no Pod, and only Events of the Job controller say why. They are read only after
the Job had no Pod for a while, and of few Jobs at a time.
"""

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec
import structlog

from dispatcher.kube.client import OF_A_ROUND_SECONDS, AnswerTooLarge, KubeClient, Reply
from dispatcher.kube.wire import RawItems, WireEvent, in_namespace
from dispatcher.model.cluster import ClusterView, Pod, PodRefusal
from dispatcher.model.errors import NOT_READY_YET, ClusterError, ClusterRefused
from dispatcher.model.jobs import Job, Notice, Notices
from dispatcher.model.rights import NODE_EVENTS
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import EVENTS, REFUSED_PODS

VERSIONS: Final = {"Job": "batch/v1", "Pod": "v1", "NodeReservation": "dispatcher.internal/v1alpha1", "Node": "v1"}
"""apiVersion of each kind that we write Events about."""
KNOWN: Final = 409
BUSY, BROKEN = 429, 500
LONGEST_NAME, LONGEST_WORDS = 200, 1024
log = structlog.get_logger(component="kube.events")


class Events:
    """Writes Events. `component` is the source that they name."""

    def __init__(self, client: KubeClient, component: str) -> None:
        self._client = client
        self._component = component

    async def tell(self, notice: Notice) -> None:
        """Writes one Event for an object and a reason, in place of an earlier one.

        Raises ClusterError if a later try may succeed. A final refusal only goes to the log, for example while the
        namespace is being deleted.
        """
        reply, path, body = await self._create(notice)
        if reply.status == KNOWN:
            reply = await self._client.request("PATCH", path, body, seconds=OF_A_ROUND_SECONDS)
        note_outcome(reply, notice)

    async def tell_once(self, notice: Notice) -> None:
        """Writes one Event for an object and a reason. An earlier one stays as it is. Raises as `tell` does."""
        reply, _, _ = await self._create(notice)
        if reply.status != KNOWN:
            note_outcome(reply, notice)

    async def _create(self, notice: Notice) -> tuple[Reply, str, bytes]:
        """The answer, the path of the Event, and the Event."""
        event = self._event(notice)
        namespace, name = event["metadata"]["namespace"], event["metadata"]["name"]
        path, body = in_namespace("/api/v1", namespace, "events"), msgspec.json.encode(event)
        return await self._client.request("POST", path, body, seconds=OF_A_ROUND_SECONDS), f"{path}/{name}", body

    def _event(self, notice: Notice) -> dict[str, Any]:
        namespace, _, name = notice.name.partition("/")
        now = self._client.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"kind": notice.kind, "namespace": namespace, "name": name, "uid": notice.uid}
        return {
            "metadata": {"name": name_of(notice, name), "namespace": namespace or NODE_EVENTS},
            "involvedObject": {"apiVersion": VERSIONS[notice.kind], **about},
            "reason": notice.reason,
            "message": notice.words[:LONGEST_WORDS],
            "type": "Warning" if notice.is_warning else "Normal",
            "source": {"component": self._component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


async def write_due(notices: Notices, most: int, tell: Callable[[Notice], Awaitable[None]]) -> None:
    """Writes the oldest notices, and counts the dropped ones. Raises ClusterError at the first that `tell` raises."""
    for notice in notices.due(most):
        try:
            await tell(notice)
        except ClusterError:
            notices.put_off(notice)
            raise
        notices.told(notice)
    while notices.dropped:
        reason, count = notices.dropped.popitem()
        EVENTS.labels(reason, "dropped").inc(count)


def note_outcome(reply: Reply, notice: Notice) -> None:
    """Counts the answer. Raises ClusterError if a later try may succeed."""
    try:
        reply.expect(f"write the event {notice.reason} of {notice.name}")
    except ClusterRefused as fault:
        if fault.status == BUSY or fault.status >= BROKEN:
            raise
        EVENTS.labels(notice.reason, "refused").inc()
        log.warning("event not written", about=notice.name, reason=notice.reason, fault=str(fault))
    else:
        EVENTS.labels(notice.reason, "written").inc()


def name_of(notice: Notice, name: str) -> str:
    """Name of the Event. The same object and reason give the same name."""
    digest = hashlib.sha256(f"{notice.uid}/{notice.reason}".encode()).hexdigest()[:16]
    return f"{name[:LONGEST_NAME].rstrip('.-')}.{digest}"


ROUND_SECONDS: Final = 5
"""Seconds between two rounds."""
MOST_EVENTS: Final = "100"
"""Events of one object that are read, at most."""
MOST_ASKED: Final = 20
"""Jobs, or Pods, about which one round asks, at most. The others follow in later rounds."""
ASKED_AFTER: Final = timedelta(seconds=15)
"""Age of a Job from which on it is asked why it has no Pod."""
READ_SECONDS: Final = 1
"""Seconds after which a round begins no further read. The API server keeps no Events in memory: for those of one object
it reads all Events of the namespace, which takes seconds where thousands of Pods ran within the hour.
"""
REST: Final = 4
"""The pause after these reads is at least so many times as long as they took. So they take a fifth of the time."""
LONGEST_MESSAGE: Final = 500
"""Characters of a message that are kept, at most."""
OF_QUOTAS: Final = ("exceeded quota: ", "status unknown for quota: ")
OF_RULES: Final = (" is forbidden: ", " denied the request", " denied request: ", " is invalid: ")
"""Parts of messages by which a rule refuses: Pod Security, RBAC, quotas and policies (403), webhooks, wrong fields
(422). Any other message says nothing about the Pod: a webhook or etcd does not answer, or a server is overloaded.
"""


N = TypeVar("N", Job, Pod)
A = TypeVar("A")


class Turns:
    """Chooses the objects about which one round asks. They take turns by name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = ""

    def next(self, waiting: Iterable[N]) -> Iterator[N]:
        """At most MOST_ASKED objects, first those behind the last one of the round before; one at least, and others
        until READ_SECONDS are over.
        """
        until = self._clock() + READ_SECONDS
        for one in sorted(waiting, key=lambda one: (one.name <= self._last, one.name))[:MOST_ASKED]:
            self._last = one.name
            yield one
            if self._clock() >= until:
                return

    async def ask(
        self, about: Iterable[N], known: Mapping[str, A], read: Callable[[N], Awaitable[A | None]]
    ) -> Mapping[str, A]:
        """The answers by UID after one round. `known`: those before it; it is the same object if nothing is new."""
        by_uid = {one.uid: one for one in about}
        found = {uid: answer for uid, answer in known.items() if uid in by_uid}
        for one in self.next(by_uid.values()):
            if (answer := await read(one)) is not None:
                found[one.uid] = answer
        return found if found != known else known


class PodRefusals:
    """The refusals of Pods, by UID of the Job. `known` never changes; a round with news replaces it."""

    def __init__(self, client: KubeClient, namespace: str, view: Callable[[], ClusterView]) -> None:
        self.known: Mapping[str, PodRefusal] = {}
        self._client = client
        self._events = in_namespace("/api/v1", namespace, "events")
        self._view = view
        self._turns = Turns(elapsed)

    async def run_once(self) -> float:
        """Reads the Events of Jobs without a Pod. Raises ClusterError if they cannot be read."""
        self.known = await self._turns.ask(jobs_without_pod(self._view()), self.known, self._read)
        causes = Counter(cause_of(one) for one in self.known.values())
        for cause in ("quota", "refused", "outage"):
            REFUSED_PODS.labels(cause).set(causes[cause])
        return ROUND_SECONDS

    def forget(self) -> None:
        """Forgets the refusals, and ends their metric. Call it if no round follows soon."""
        self.known = {}
        REFUSED_PODS.clear()

    async def _read(self, job: Job) -> PodRefusal | None:
        about = f"involvedObject.uid={job.uid},reason=FailedCreate,type=Warning"
        refusal = refusal_of(await events_about(self._client, self._events, about))
        if refusal is not None and job.uid not in self.known:
            log.warning("Pod refused", job=job.name, message=refusal.message)
        return refusal


async def events_about(client: KubeClient, path: str, selector: str) -> list[WireEvent]:
    """The Events that a field selector names, those of one object. Raises ClusterError if they cannot be read.

    Whoever may write Events chooses their size. If those of one object are too large, it has none: the others count.
    """
    try:
        asked = {"fieldSelector": selector, "limit": MOST_EVENTS}
        reply = await client.request("GET", path, params=asked, seconds=OF_A_ROUND_SECONDS)
    except AnswerTooLarge as fault:
        log.warning("events are too large to be read", about=selector, fault=str(fault))
        return []
    return reply.read(f"list events of {selector}", RawItems).readable(WireEvent)


async def read_in_turn(rounds: Iterable[Callable[[], Awaitable[float]]], clock: Clock = elapsed) -> float:
    """Runs rounds that read Events, one after the other. Returns the pause before the next ones."""
    began = clock()
    usual = min([await one() for one in rounds])
    return max(usual, REST * (clock() - began))


def refusal_of(events: Sequence[WireEvent]) -> PodRefusal | None:
    """The refusal in the words of the last of these Events, since the first of its kind. None: there are no Events.

    Time in which a quota was full, or a webhook was away, is no time of a refusal by a rule.
    """
    if not events:
        return None
    last = max(events, key=lambda event: event.ended_at)
    is_quota, is_outage = kind_of(last)
    since = min(event.began_at for event in events if kind_of(event) == (is_quota, is_outage))
    return PodRefusal(since, last.message[:LONGEST_MESSAGE], is_quota, is_outage)


def kind_of(event: WireEvent) -> tuple[bool, bool]:
    """Whether a quota refused the Pod, and whether nothing did: somebody did not answer."""
    message = event.message[:LONGEST_MESSAGE]
    is_rule = any(one in message for one in OF_RULES) and not NOT_READY_YET.search(message)
    return any(one in message for one in OF_QUOTAS), not is_rule


def cause_of(refusal: PodRefusal) -> str:
    return "quota" if refusal.is_quota else "outage" if refusal.is_outage else "refused"


def jobs_without_pod(view: ClusterView) -> Iterator[Job]:
    """Jobs that have no Pod and are old enough to be asked about."""
    with_pod = {pod.job_uid for pod in view.pods.values()}
    for job in view.jobs.values():
        is_old = view.now - job.created_at >= ASKED_AFTER
        if is_old and not (job.is_finished or job.suspended or job.deleting) and job.uid not in with_pod:
            yield job
