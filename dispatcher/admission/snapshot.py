"""The immutable snapshot by which a cycle judges rows. Each admitted launch makes a new snapshot for the next row.

`Shares`: a share is the largest part of any one resource of all nodes that a queue or a submitter has in flight
(Dominant Resource Fairness, Ghodsi et al. 2011). So a queue of large Pods cannot take more than a queue of many small
ones. The number of Pods is a resource, too: otherwise Pods without requests would have no share. So are the places in
MAX_JOBS where it is used up: a queue of tiny Pods would have almost all of them. If the size of the cluster is not
known, a share is a number of Jobs.

`Load`, `PendingPods`: no counter follows events. Each cycle counts Jobs in flight again, from the observed Jobs and
from our own creates that the watch has not shown yet. So a lost event can delay a launch, but never leak a slot.
Kueue's snapshot does the same. Airflow #36998 and Buildkite #302 are leaks of programs that count events.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Struct

from dispatcher.admission.demand import Demand, DemandPods, FirstPods
from dispatcher.admission.room import Room
from dispatcher.model.cluster import ClusterView, Quota, Quotas
from dispatcher.model.jobs import LaunchGroup
from dispatcher.model.launches import InFlight, PodKind, Probe, UncountedPods
from dispatcher.model.needs import PodNeeds
from dispatcher.model.resources import NOTHING, Amounts, added
from dispatcher.model.tasks import Queue
from dispatcher.model.verdicts import Hold

ONE_JOB: Final[Amounts] = MappingProxyType({"pods": 1000})
PLACES: Final = "(MAX_JOBS)"
"""The places in MAX_JOBS, as if they were a resource of the cluster. No resource has such a name."""


class Shares(Struct, frozen=True):
    """Requested amounts of all unfinished Jobs and unseen creates, without those whose Pods have ended.

    size: what all nodes have, and PLACES if they count.
    by_queue: by queue.
    by_submitter: by (queue, submitter).
    """

    size: Amounts = ONE_JOB
    by_queue: Mapping[str, Amounts] = {}
    by_submitter: Mapping[tuple[str, str], Amounts] = {}

    def of_queue(self, queue: str, more: Amounts = NOTHING) -> float:
        """The share of a queue. `more`: further requests that are added."""
        asked = self.by_queue.get(queue, NOTHING)
        return dominant(added(asked, more) if more else asked, self.size)

    def of_submitter(self, queue: str, submitter: str, more: Amounts = NOTHING) -> float:
        asked = self.by_submitter.get((queue, submitter), NOTHING)
        return dominant(added(asked, more) if more else asked, self.size)

    def with_launches(self, pods: Mapping[PodKind, int]) -> "Shares":
        """The shares with further Pods, by kind."""
        growing = GrowingShares(self)
        for pod, count in pods.items():
            growing.add(pod, count)
        return growing.shares


class GrowingShares:
    """One copy of shares that changes with each launch, to add hundreds of them. `shares` shows the changes."""

    def __init__(self, begin: Shares) -> None:
        self._by_queue, self._by_submitter = dict(begin.by_queue), dict(begin.by_submitter)
        self.shares = Shares(begin.size, self._by_queue, self._by_submitter)

    def add(self, pod: PodKind, count: int = 1) -> None:
        key, asks = (pod.queue, pod.submitted_by), asks_of(pod.needs, count)
        self._by_queue[pod.queue] = added(self._by_queue.get(pod.queue, NOTHING), asks)
        self._by_submitter[key] = added(self._by_submitter.get(key, NOTHING), asks)


def plan_shares(
    in_flight: Mapping[PodKind, int], size: Amounts, waiting: Mapping[PodKind, int] = {}, places: int = 0
) -> Shares:
    """The shares at the beginning of a cycle. `size`: what all nodes have; empty: not known.

    waiting: the part of `in_flight` that waits as demand. It uses nothing.
    places: MAX_JOBS, where it is used up; 0: its places do not count.
    """
    growing = GrowingShares(Shares({**size, PLACES: places * 1000} if size and places else size or ONE_JOB))
    for pod, count in in_flight.items():
        if (left := count - waiting.get(pod, 0)) > 0:
            growing.add(pod, left)
    return growing.shares


def holders(in_flight: Mapping[PodKind, int]) -> Mapping[tuple[str, str], int]:
    """Number of Jobs of each (queue, submitter)."""
    found: Counter[tuple[str, str]] = Counter()
    for pod, count in in_flight.items():
        found[pod.queue, pod.submitted_by] += count
    return found


def asks_of(needs: PodNeeds | None, count: int) -> Amounts:
    asks = needs.asks if needs is not None else ONE_JOB.items()
    return {PLACES: 1000 * count} | {name: amount * count for name, amount in asks}


def dominant(asked: Amounts, size: Amounts) -> float:
    """The largest part of a resource. A resource that no node has is left out."""
    return max((amount / size[name] for name, amount in asked.items() if size.get(name, 0) > 0), default=0)


NO_QUEUE = Queue("")


class Load(Struct, frozen=True):
    """Numbers of unfinished Jobs and unseen creates, as the caps count them.

    total: in all.
    by_queue: by queue.
    by_submitter: by (queue, submitter).
    """

    total: int = 0
    by_queue: Mapping[str, int] = {}
    by_submitter: Mapping[tuple[str, str], int] = {}

    def sparing(self, held: "Load") -> "Load":
        """The load with `held` removed from the total only: MAX_JOBS ignores Jobs that others hold.

        The caps of queues and submitters count them: with a cap of one, two rows never run together.
        """
        return Load(self.total - held.total, self.by_queue, self.by_submitter)

    def without(self, pods: Mapping[PodKind, int]) -> "Load":
        """The load without the Jobs of these Pods."""
        by_submitter = dict(self.by_submitter)
        for pod, count in pods.items():
            key = pod.queue, pod.submitted_by
            by_submitter[key] = by_submitter.get(key, 0) - count
        fewer = plan_load(by_submitter)
        return Load(self.total - sum(pods.values()), fewer.by_queue, fewer.by_submitter)

    def with_job(self, queue: str, submitted_by: str) -> "Load":
        key = (queue, submitted_by)
        return Load(
            self.total + 1,
            {**self.by_queue, queue: self.by_queue.get(queue, 0) + 1},
            {**self.by_submitter, key: self.by_submitter.get(key, 0) + 1},
        )


class PendingPods(Struct, frozen=True):
    """Numbers of our Pods that do not run yet.

    total: in all, with Jobs that have no Pod yet and unseen creates.
    stuck_by_shape: Pods that have been unschedulable for longer than the grace, by shape.
    stuck_of_queue: these Pods by (queue, shape).
    """

    total: int = 0
    stuck_by_shape: Mapping[str, int] = {}
    stuck_of_queue: Mapping[tuple[str, str], int] = {}


class Allowance(Struct, frozen=True):
    """Number of launches that this cycle may still admit.

    writes: tokens of the write rate.
    batch: places in the batch.
    """

    writes: int = 0
    batch: int = 0


class RowInLine(Struct, frozen=True):
    """A kind of Pod that waits for room. `size`: the requests of one such Pod, as a share."""

    pod: PodKind
    size: float


class InLine(Struct, frozen=True):
    """The rows that wait for room.

    rows: the first kinds of Pods of each submitter for which the last cycle had no room, or not for all of their rows.
    since: by (queue, submitter): when others began to keep its Pods from waiting as demand.
    asking: by (queue, submitter): the shapes of its waiting Pods for which no node has come.
    """

    rows: Sequence[RowInLine] = ()
    since: Mapping[tuple[str, str], datetime] = {}
    asking: Mapping[tuple[str, str], Set[str]] = {}


class ClusterSnapshot(Struct, frozen=True, kw_only=True):
    """Everything that a gate may use.

    now: the database's clock.
    queues: declared queues by name, with defaults filled in.
    max_jobs: cap of all Jobs.
    max_pending: unschedulable Pods of one shape that are allowed, unless the queue says otherwise.
    is_strict: any pending Pod holds all launches.
    load: Jobs in flight.
    held: Jobs that somebody else keeps from running.
    pending: Pods that do not run yet.
    allowance: launches that may still be admitted.
    not_ready: why this replica launches nothing now; None: it may launch.
    is_blind: the view of the cluster is too old to judge rows by their Jobs.
    is_probing: one create at a time is sent.
    quota: the hold after the API server refused a Job for a quota; None: no hold.
    quotas: the ResourceQuotas, as far as they are known.
    failing_groups: launch groups whose newest launches never started.
    busy_groups: failing groups with a launch under way, and groups launched in this cycle.
    room: room for Pods; None: it is not judged.
    shares: what queues and submitters have in flight.
    first: what is known of the Pods of each shape; None: it is not judged.
    stuck: where room is not judged, the Pods that kube-scheduler finds no node for. They give way like demand.
    stuck_shapes: the shapes of the Pods in `stuck`, and those that waited lately. A further Pod would only wait.
    in_line: the rows that wait for room.
    launched_at: when a row of each (queue, submitter) was launched last, where the write rate or the batch is used up;
    None: neither is.
    """

    now: datetime
    queues: Mapping[str, Queue]
    max_jobs: int
    max_pending: int
    is_strict: bool = False
    load: Load = Load()
    held: Load = Load()
    pending: PendingPods = PendingPods()
    allowance: Allowance = Allowance()
    not_ready: Hold | None = None
    is_blind: bool = False
    is_probing: bool = False
    quota: Hold | None = None
    quotas: Quotas = Quotas()
    failing_groups: frozenset[LaunchGroup] = frozenset()
    busy_groups: frozenset[LaunchGroup] = frozenset()
    room: Room | None = None
    shares: Shares = Shares()
    first: FirstPods | None = None
    stuck: DemandPods = DemandPods()
    stuck_shapes: frozenset[str] = frozenset()
    in_line: InLine = InLine()
    launched_at: Mapping[tuple[str, str], datetime] | None = None

    def queue(self, name: str) -> Queue:
        return self.queues.get(name, NO_QUEUE)

    def row_in_line(self, pod: PodKind) -> RowInLine:
        return RowInLine(pod, dominant(dict(pod.needs.asks), self.shares.size) if pod.needs is not None else 0)

    @property
    def waiting(self) -> DemandPods:
        """Our Pods that kube-scheduler finds no node for."""
        return self.stuck if self.room is None else self.room.waiting

    def without_demand(self) -> "ClusterSnapshot":
        """The snapshot for the scan, in which demand hides no row that could run. The plan takes such demand back."""
        every = self.waiting.every
        return msgspec.structs.replace(self, load=self.load.without(every)) if every else self

    def with_groups(self, failing: frozenset[LaunchGroup], busy: frozenset[LaunchGroup]) -> "ClusterSnapshot":
        """The snapshot with these failing and busy launch groups."""
        return msgspec.structs.replace(self, failing_groups=failing, busy_groups=busy)

    def with_launch(self, group: LaunchGroup, pod: PodKind, *, is_new: bool = True) -> "ClusterSnapshot":
        """The snapshot after one more launch. `is_new`: False for a repeated create, which is counted already."""
        return msgspec.structs.replace(
            self,
            load=self.load.with_job(pod.queue, pod.submitted_by) if is_new else self.load,
            room=self.room.with_launches(pod) if self.room is not None and is_new else self.room,
            shares=self.shares.with_launches({pod: 1}) if is_new else self.shares,
            first=self.first.with_launch(pod.shape) if self.first is not None and is_new else self.first,
            quotas=self.quotas.with_launches(pod.needs) if is_new else self.quotas,
            pending=msgspec.structs.replace(self.pending, total=self.pending.total + 1),
            allowance=Allowance(self.allowance.writes - 1, self.allowance.batch - 1),
            busy_groups=self.busy_groups | {group},
        )


def plan_load(holders: Iterable[tuple[str, str]] | Mapping[tuple[str, str], int]) -> Load:
    """The load. `holders`: (queue, submitter) of each unfinished Job and unseen create, or the numbers of them."""
    by_submitter = Counter(holders)
    by_queue: Counter[str] = Counter()
    for (queue, _), count in by_submitter.items():
        by_queue[queue] += count
    return Load(by_queue.total(), by_queue, by_submitter)


def plan_pending(view: ClusterView, in_flight: InFlight, grace_seconds: float) -> PendingPods:
    """Counts pending Pods, Jobs without a Pod and unseen creates. The grace gives an autoscaler time to act.

    Anybody who may create Pods can give one our labels, and a policy can take them. So Pods count by their Jobs. Nobody
    knows when a gated or refused one goes on, or one that no scheduler looks at.
    """
    pending = [pod for pod in view.pods.values() if pod.phase == "Pending" and not (pod.deleting or pod.is_gated)]
    ours = {job.uid: job for job in view.jobs.values()} if pending else {}
    waiting = [(pod, ours[pod.job_uid]) for pod in pending if pod.job_uid in ours]
    grace = timedelta(seconds=grace_seconds)
    stuck = [job for pod, job in waiting if pod.unschedulable_since and view.now - pod.unschedulable_since >= grace]
    by_shape, of_queue = Counter(job.shape for job in stuck), Counter((job.queue, job.shape) for job in stuck)
    total = len(waiting) - in_flight.overlooked + in_flight.podless + in_flight.unseen
    return PendingPods(total, by_shape, of_queue)


def plan_stuck(probes: Iterable[Probe], demand: Demand) -> DemandPods:
    """The Pods that wait. It is used where room is not judged."""
    kinds = (PodKind(one.job.queue, one.job.submitted_by, one.job.shape, one.needs) for one in probes)
    return DemandPods(demand, Counter(kinds))


def plan_quotas(every: tuple[Quota, ...], to_come: UncountedPods) -> Quotas:
    """The ResourceQuotas, less what Jobs and Pods will use that the quotas may not count yet.

    A Pod that a quota has refused keeps its place there if it fits now. Otherwise it would hold smaller Pods of all
    teams for as long as it waits.
    """
    quotas = Quotas(every)
    for pod, number in to_come.pods.items():
        quotas = quotas.with_launches(pod.needs, number, with_job=False)
    for pod, number in to_come.jobs.items():
        quotas = quotas.with_launches(pod.needs, number)
    for pod, number in to_come.refused.items():
        for _ in range(number):
            if quotas.has_room(pod.needs):
                quotas = quotas.with_launches(pod.needs, with_job=False)
    return quotas


def effective_queues(rows: Iterable[Queue]) -> dict[str, Queue]:
    """Declared queues with the defaults and the pause of `*` filled in."""
    by_name = {row.name: row for row in rows}
    default = by_name.pop("*", NO_QUEUE)
    return {name: _with_defaults(queue, default) for name, queue in by_name.items()}


def _with_defaults(queue: Queue, default: Queue) -> Queue:
    pauses = [pause for pause in (queue.paused_until, default.paused_until) if pause is not None]
    return Queue(
        queue.name,
        queue.weight,
        default.max_jobs if queue.max_jobs is None else queue.max_jobs,
        default.max_jobs_per_submitter if queue.max_jobs_per_submitter is None else queue.max_jobs_per_submitter,
        default.max_pending if queue.max_pending is None else queue.max_pending,
        max(pauses, default=None),
        queue.fair_submitters,
    )
