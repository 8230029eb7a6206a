"""The one picture that a cycle judges by; each admitted launch is folded into it before the next row is judged.

Nothing here is counted up and down on events. What is in flight is derived anew every cycle from the observed Jobs
plus our own creates that the watch has not shown yet, so a lost event can delay a launch but never leak a slot
(kueue's snapshot; airflow #36998 and buildkite #302 are what counting on events leads to).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from dispatcher.model.cluster import Node, Pod
from dispatcher.model.jobs import Job, LaunchGroup
from dispatcher.model.tasks import Queue
from dispatcher.model.verdicts import Hold

NO_QUEUE = Queue("")


class ClusterView(Struct, frozen=True):
    """The cluster at one moment, by its own clock; `stale` says what of it is not known (empty: nothing)."""

    now: datetime
    jobs: Mapping[str, Job]
    pods: Mapping[str, Pod]
    nodes: Mapping[str, Node]
    jobs_version: str = ""
    stale: str = ""

    def has_seen(self, resource_version: str) -> bool:
        """Whether the Jobs are at least as new as a write's answer (KEP-5504: versions are ordered integers)."""
        ours, theirs = self.jobs_version, resource_version
        return ours.isdigit() and theirs.isdigit() and int(ours) >= int(theirs)


class Frame(Struct, frozen=True):
    """What every look begins with: declared queues, rows that a container holds or held, when the next one is due."""

    queues: Sequence[Queue]
    held: Sequence[int]
    next_due: datetime | None


class Load(Struct, frozen=True):
    """Unfinished Jobs and unseen creates, as the caps count them."""

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
    """Pods that do not run yet: all of ours, and the Unschedulable ones past their grace by shape."""

    total: int = 0
    stuck_by_shape: Mapping[str, int] = {}


class Brakes(Struct, frozen=True):
    """What the API server's answers ask for: a pause of all, or of creates; probing: one at a time.

    `under_way`: creates whose answers are awaited.
    """

    api: Hold | None = None
    quota: Hold | None = None
    is_probing: bool = False
    under_way: int = 0

    def places(self, batch: int) -> int:
        """How many creates a cycle may begin."""
        return max(0, 1 - self.under_way) if self.is_probing else batch


class Allowance(Struct, frozen=True):
    """What may still be written in this cycle: tokens of the write rate, and places of the batch."""

    writes: int = 0
    batch: int = 0


class ClusterSnapshot(Struct, frozen=True, kw_only=True):
    """Everything that a gate may look at."""

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
    failing_groups: frozenset[LaunchGroup] = frozenset()
    busy_groups: frozenset[LaunchGroup] = frozenset()

    def queue(self, name: str) -> Queue:
        return self.queues.get(name, NO_QUEUE)

    def with_groups(self, failing: frozenset[LaunchGroup], busy: frozenset[LaunchGroup]) -> "ClusterSnapshot":
        """The picture with what the launches of each lane came to."""
        return msgspec.structs.replace(self, failing_groups=failing, busy_groups=busy)

    def with_launch(self, group: LaunchGroup, submitted_by: str, *, is_new: bool = True) -> "ClusterSnapshot":
        """The picture after one more launch; one that is not new was counted before."""
        return msgspec.structs.replace(
            self,
            load=self.load.with_job(group.queue, submitted_by) if is_new else self.load,
            pending=Pending(self.pending.total + 1, self.pending.stuck_by_shape),
            allowance=Allowance(self.allowance.writes - 1, self.allowance.batch - 1),
            busy_groups=self.busy_groups | {group},
        )


def plan_load(holders: Iterable[tuple[str, str]]) -> Load:
    """Counts (queue, submitter) of each unfinished Job and unseen create."""
    by_submitter = Counter(holders)
    by_queue: Counter[str] = Counter()
    for (queue, _), count in by_submitter.items():
        by_queue[queue] += count
    return Load(by_queue.total(), by_queue, by_submitter)


def plan_pending(view: ClusterView, unseen: int, grace_seconds: float) -> Pending:
    """Pods that wait, Jobs without a Pod, creates not seen yet. The grace lets an autoscaler work first."""
    waiting = [pod for pod in view.pods.values() if pod.phase == "Pending" and not pod.deleting]
    with_pod = {pod.job_uid for pod in view.pods.values()}
    podless = sum(1 for job in view.jobs.values() if not (job.is_finished or job.suspended) and job.uid not in with_pod)
    grace = timedelta(seconds=grace_seconds)
    stuck = Counter(p.shape for p in waiting if p.unschedulable_since and view.now - p.unschedulable_since >= grace)
    return Pending(len(waiting) + podless + unseen, stuck)


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
    )
