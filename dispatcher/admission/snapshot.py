"""The immutable snapshot by which a cycle judges rows. Each admitted launch makes a new snapshot for the next row.

No counter follows events. Each cycle counts Jobs in flight again, from the observed Jobs and from our own creates that
the watch has not shown yet. So a lost event can delay a launch, but never leak a slot (as in kueue's snapshot; airflow
#36998 and buildkite #302 show leaks by counting on events).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from dispatcher.admission.room import Room
from dispatcher.admission.shares import Shares
from dispatcher.model.jobs import LaunchGroup
from dispatcher.model.launches import InFlight, PodKind, ToCome
from dispatcher.model.quotas import Quota, Quotas
from dispatcher.model.snapshot import ClusterView
from dispatcher.model.tasks import Queue
from dispatcher.model.verdicts import Hold

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

    def with_job(self, queue: str, submitted_by: str) -> "Load":
        key = (queue, submitted_by)
        return Load(
            self.total + 1,
            {**self.by_queue, queue: self.by_queue.get(queue, 0) + 1},
            {**self.by_submitter, key: self.by_submitter.get(key, 0) + 1},
        )


class Pending(Struct, frozen=True):
    """Numbers of our Pods that do not run yet.

    total: in all, with Jobs that have no Pod yet and unseen creates.
    stuck_by_shape: Pods that are unschedulable for longer than the grace, by shape.
    """

    total: int = 0
    stuck_by_shape: Mapping[str, int] = {}


class Allowance(Struct, frozen=True):
    """Number of launches that this cycle may still admit.

    writes: tokens of the write rate.
    batch: places in the batch.
    """

    writes: int = 0
    batch: int = 0


class ClusterSnapshot(Struct, frozen=True, kw_only=True):
    """Everything that a gate may use.

    now: the database's clock.
    queues: declared queues by name, with defaults filled in.
    max_jobs: cap of all Jobs.
    max_pending: unschedulable Pods of one shape that are allowed, unless the queue says otherwise.
    is_strict: any pending Pod holds all launches.
    load: Jobs in flight.
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
    """

    now: datetime
    queues: Mapping[str, Queue]
    max_jobs: int
    max_pending: int
    is_strict: bool = False
    load: Load = Load()
    pending: Pending = Pending()
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

    def queue(self, name: str) -> Queue:
        return self.queues.get(name, NO_QUEUE)

    def with_groups(self, failing: frozenset[LaunchGroup], busy: frozenset[LaunchGroup]) -> "ClusterSnapshot":
        """The snapshot with these failing and busy launch groups."""
        return msgspec.structs.replace(self, failing_groups=failing, busy_groups=busy)

    def with_launch(self, group: LaunchGroup, pod: PodKind, *, is_new: bool = True) -> "ClusterSnapshot":
        """The snapshot after one more launch. `is_new`: False for a repeated create, which is counted already."""
        return msgspec.structs.replace(
            self,
            load=self.load.with_job(pod.queue, pod.submitted_by) if is_new else self.load,
            room=self.room.with_launches(pod) if self.room is not None and is_new else self.room,
            shares=self.shares.with_launch(pod) if is_new else self.shares,
            quotas=self.quotas.with_launches(pod.needs) if is_new else self.quotas,
            pending=Pending(self.pending.total + 1, self.pending.stuck_by_shape),
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


def plan_pending(view: ClusterView, in_flight: InFlight, grace_seconds: float) -> Pending:
    """Counts pending Pods, Jobs without a Pod and unseen creates. The grace gives an autoscaler time to act."""
    waiting = [pod for pod in view.pods.values() if pod.phase == "Pending" and not pod.deleting]
    grace = timedelta(seconds=grace_seconds)
    stuck = Counter(p.shape for p in waiting if p.unschedulable_since and view.now - p.unschedulable_since >= grace)
    return Pending(len(waiting) + in_flight.podless + in_flight.unseen, stuck)


def plan_quotas(every: tuple[Quota, ...], to_come: ToCome) -> Quotas:
    """The ResourceQuotas, less what Jobs and Pods will use that they may not count yet."""
    quotas = Quotas(every)
    for pod, number in to_come.pods.items():
        quotas = quotas.with_launches(pod.needs, number, with_job=False)
    for pod, number in to_come.jobs.items():
        quotas = quotas.with_launches(pod.needs, number)
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
