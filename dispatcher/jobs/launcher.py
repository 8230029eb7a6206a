"""What the Jobs stage does for a cycle: says what rows and their Jobs mean, what is in flight, and launches.

`begin` fixes the view of the cluster for a cycle; everything until the next `begin` is judged by it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.launch_groups import busy_groups, failing_groups
from dispatcher.jobs.memory import Memory, Unseen, plan_create
from dispatcher.jobs.observed import FirstSeen, ObservedCluster, Rules
from dispatcher.jobs.outcome import judge
from dispatcher.jobs.resting import Rest, is_news, may_rest, plan_rest, still_resting
from dispatcher.jobs.submit import Submitter
from dispatcher.model.identity import job_name, task_identity
from dispatcher.model.jobs import Job, LaunchGroup
from dispatcher.model.launches import JobsVerdict, Launch, Offer, Order
from dispatcher.model.snapshot import Brakes, ClusterView
from dispatcher.model.tasks import TERMINAL, IndexedRow, Kind, Task
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.runtime.clock import Clock, elapsed


class Launcher:
    """One for the life of the process; its memory is a cache."""

    def __init__(
        self, submitter: Submitter, memory: Memory, catalog: Catalog, rules: Rules, clock: Clock = elapsed
    ) -> None:
        self._submitter = submitter
        self._memory = memory
        self._catalog = catalog
        self._rules = rules
        self._clock = clock
        self._sightings = FirstSeen()
        self._settled: set[str] = set()
        self._probed: set[str] = set()
        self._all: Sequence[Job] = ()
        self._jobs: Mapping[int, Sequence[Job]] = {}
        self._unseen: Mapping[int, Unseen] = {}
        self._resting: dict[int, Rest] = {}
        self._scene: ObservedCluster | None = None
        self._database_id = ""

    def begin(self, view: ClusterView, now: datetime, database_id: str) -> None:
        """A new cycle, with this view of the cluster and this database."""
        if self._catalog.refresh() or self._database_id not in {"", database_id}:
            self._memory.forget_rows()
            self._resting.clear()
        self._memory.observe(view)
        self._submitter.tell_time(now)
        self._database_id = database_id
        self._probed = {unseen.group.template for unseen in self._memory.under_way()}
        self._unseen = {unseen.task_id: unseen for unseen in self._memory.unseen.values()}
        self._all = list(view.jobs.values())
        self._jobs = jobs = defaultdict(list)
        for job in self._all:
            jobs[job.task_id].append(job)
        self._settled &= {job.uid for job in self._all}
        pods = defaultdict(list)
        for pod in view.pods.values():
            pods[pod.job_uid].append(pod)
        self._scene = ObservedCluster(now, view.now, pods, view.nodes, self._sightings, self._rules)
        stuck = frozenset(pod.job_uid for pod in view.pods.values() if is_news(pod))
        self._resting = still_resting(self._resting, jobs, stuck, self._clock())

    def rows_to_read(self) -> set[int]:
        """Tasks with a Job whose meaning is still open, or with a create that the view does not show."""
        open_jobs = {job.task_id for job in self._all if job.uid not in self._settled}
        unknown = {unseen.task_id for unseen in self._unseen.values() if not unseen.is_awaited}
        return (open_jobs - self._resting.keys()) | unknown

    def resting(self) -> Mapping[int, Rest | Unseen]:
        """Rows that need not be read: their create is, or their Job is under way as it was when they were judged."""
        awaited = {unseen.task_id: unseen for unseen in self._unseen.values() if unseen.is_awaited}
        return {**self._resting, **awaited}

    def in_flight(self) -> list[tuple[str, str]]:
        """(queue, submitter) of every unfinished Job and unseen create."""
        unseen = [(u.group.queue, u.submitted_by) for u in self._unseen.values()]
        return [(job.queue, job.submitted_by) for job in self._all if not job.is_finished] + unseen

    def unseen_count(self) -> int:
        """Creates that the view does not show."""
        return len(self._unseen)

    def groups(self, tasks: Mapping[int, Task]) -> tuple[frozenset[LaunchGroup], frozenset[LaunchGroup]]:
        """Those that fail, and those of them that are busy."""
        failing = failing_groups(tasks, self._all, self._seen)
        return failing, busy_groups(self._all, failing) | {unseen.group for unseen in self._unseen.values()}

    def brakes(self) -> Brakes:
        """What the API server's answers ask for."""
        memory, now = self._memory, self._clock()
        probing = memory.api.is_probing or memory.quota.is_probing
        return Brakes(memory.api.hold(now), memory.quota.hold(now), probing, len(memory.under_way()))

    def offer(self, kind: Kind) -> Offer | Hold:
        return self._catalog.offer(kind)

    def known_offer(self, digest: bytes) -> Offer | Hold | None:
        return self._catalog.known_offer(digest)

    def parked(self, row: IndexedRow) -> Hold | None:
        """A hold by what the API server answered to this row, its kind or its template."""
        now, offer = self._clock(), self._catalog.known_offer(row.kind)
        template = self._memory.of_template(offer.template).hold(now) if isinstance(offer, Offer) else None
        return template or self._memory.parked(row, now)

    def tried_at(self, task_id: int) -> float:
        """When a create of the row failed last, by the monotonic clock."""
        return self._memory.tried_at(task_id)

    def _braked(self, task: Task) -> Hold | None:
        """What answers ask of this row: to wait for good, for its template, or for the watch."""
        memory, now = self._memory, self._clock()
        if memory.is_deferred(task.id, now):
            return Hold(HoldReason.LAUNCHED, "its Job is there; the watch does not show it yet")
        if (hold := memory.parked(task, now) or memory.of_template(task.template).hold(now)) is not None:
            return hold
        if memory.of_template(task.template).is_probing and task.template in self._probed:
            return Hold(HoldReason.DISPATCHER_NOT_READY, "ApiThrottled: one create of this template at a time")
        return None

    def standing(self, task: Task) -> JobsVerdict:
        """What the row and its Jobs mean, and what this process knows of its own creates."""
        identity = task_identity(self._database_id, task.id, task.created_at)
        jobs = [job for job in self._jobs.get(task.id, ()) if job.identity == identity]
        self._settle(task, jobs)
        standing = judge(task, jobs, self._seen)
        self._let_rest(task, jobs, standing)
        launch = standing.verdict
        if not isinstance(launch, Launch):
            return standing
        name = job_name(self._submitter.installation, task.id, identity, task.attempt, launch.number)
        plan = plan_create(launch, self._unseen.get(task.id), name)
        if isinstance(plan, Launch):
            plan = self._braked(task) or plan
        return JobsVerdict(plan, standing.ends)

    async def launch(self, orders: Sequence[Order]) -> int:
        """Carries the orders out; returns how many, when all are on their way."""
        self._sightings.forget_the_rest()  # a cycle was judged to its end
        await self._submitter.resolve()
        sent = [order for order in self._probes(orders) if not self._memory.rests(order, self._clock())]
        await self._submitter.submit(sent, self._catalog.templates)
        return len(sent)

    def _probes(self, orders: Iterable[Order]) -> Iterator[Order]:
        """Of a template that failed last, one create at a time. Only what passed the gates may be it: a row that is
        held elsewhere would take every turn and send nothing.
        """
        for order in orders:
            name = order.task.template
            if not self._memory.of_template(name).is_probing:
                yield order
            elif name not in self._probed:
                self._probed.add(name)
                yield order

    async def drain(self) -> None:
        """Until every create has its answer."""
        await self._submitter.drain()

    def _let_rest(self, task: Task, jobs: Sequence[Job], standing: JobsVerdict) -> None:
        self._resting.pop(task.id, None)
        if len(jobs) != 1 or len(self._jobs[task.id]) != 1:
            return
        pods, now = self._seen.pods.get(jobs[0].uid, ()), self._seen.cluster_now
        if may_rest(standing, jobs[0], pods):
            since = max([pod.created_at for pod in pods], default=now)
            left = self._rules.start_deadline_seconds - (now - since).total_seconds()
            self._resting[task.id] = plan_rest(task, jobs[0], pods, self._clock(), left)

    @property
    def _seen(self) -> ObservedCluster:
        assert self._scene is not None  # begin comes first
        return self._scene

    def _settle(self, task: Task, jobs: Sequence[Job]) -> None:
        """A finished Job of a row that is over or past its attempt means nothing more: a past attempt never returns."""
        for job in jobs:
            if job.is_finished and (task.attempt > job.attempt or task.status in TERMINAL):
                self._settled.add(job.uid)
