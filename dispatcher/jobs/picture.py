"""An immutable picture of this installation's Jobs and creates, by which one cycle judges its rows.

    view, memory, templates, Carried of the last cycle ─▶ JobsPicture ─▶ judge_row(task) ─▶ JobsVerdict
                                                                      ─▶ carry(judged)   ─▶ Carried

The dispatcher and the janitor judge rows by the same code. Judging a row changes nothing. The next cycle gets its state
as a value, `Carried`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec
from msgspec import Struct

from dispatcher.jobs.in_flight import JobCounts, count_in_flight, count_jobs, count_to_come, find_probes, find_runs
from dispatcher.jobs.launch_groups import busy_groups, failing_groups
from dispatcher.jobs.memory import OPEN, KnownCreates
from dispatcher.jobs.observed import ObservedCluster, Rules
from dispatcher.jobs.outcome import judge
from dispatcher.jobs.resting import Rest, is_news, may_rest, plan_rest, still_resting
from dispatcher.jobs.unseen import Unseen, plan_create
from dispatcher.jobs.unstarted import waits_since
from dispatcher.model.identity import job_name, task_identity
from dispatcher.model.jobs import Job, LaunchGroup
from dispatcher.model.launches import InFlight, JobsVerdict, Launch, Offer, Probe, Run, ToCome
from dispatcher.model.snapshot import Brakes, ClusterView
from dispatcher.model.tasks import TERMINAL, IndexedRow, Kind, Task
from dispatcher.model.verdicts import Hold

Judged = Sequence[tuple[Task, JobsVerdict]]
"""The rows that a cycle judged, each with its verdict."""


class Offers(Protocol):
    """The templates' offers to kinds of rows. A kind is judged once, until a template changes."""

    def offer(self, kind: Kind) -> Offer | Hold: ...
    def known_offer(self, digest: bytes) -> Offer | Hold | None: ...


class Carried(Struct, frozen=True):
    """State that one cycle hands to the next. Its loss costs time, never correctness.

    first_seen: when a state that has no timestamp of its own was seen first, by the API server's clock.
    settled: UIDs of finished Jobs that no row needs any more.
    resting: rows that need not be read, by task.
    """

    first_seen: Mapping[str, datetime] = {}
    settled: frozenset[str] = frozenset()
    resting: Mapping[int, Rest] = {}


class JobsPicture(Struct, frozen=True, kw_only=True):
    """The picture of one cycle.

    installation: prefix of all names of Jobs.
    database_id: the database that the rows are from.
    cluster: Pods, nodes and clocks.
    all_jobs: all Jobs of the installation.
    jobs: the same, by task.
    offers: the templates' offers.
    creates: creates of this process, and the pauses that answers asked for.
    carried: state of the last cycle, without entries that are over.
    counted: numbers of the Jobs, if they are known already.
    at: when the picture was taken, in seconds of this process's clock.
    """

    installation: str
    database_id: str
    cluster: ObservedCluster
    all_jobs: Sequence[Job]
    jobs: Mapping[int, Sequence[Job]]
    offers: Offers
    creates: KnownCreates = KnownCreates()
    carried: Carried = Carried()
    counted: JobCounts | None = None
    at: float = 0

    @property
    def brakes(self) -> Brakes:
        """Pauses of all creates that the API server's answers ask for."""
        return self.creates.brakes

    def rows_to_read(self) -> set[int]:
        """Tasks that need a judgement: they have a Job that is not settled, or a create whose answer was lost."""
        open_jobs = {job.task_id for job in self.all_jobs if job.uid not in self.carried.settled}
        unknown = {unseen.task_id for unseen in self.creates.unseen.values() if not unseen.is_awaited}
        return (open_jobs - self.carried.resting.keys()) | unknown

    def resting(self) -> Mapping[int, Rest | Unseen]:
        """Rows that need not be read: their create is awaited, or their Job has not changed since they were judged."""
        awaited = {unseen.task_id: unseen for unseen in self.creates.unseen.values() if unseen.is_awaited}
        return {**self.carried.resting, **awaited}

    def in_flight(self) -> InFlight:
        """The unfinished Jobs and unseen creates."""
        counted = self.counted or count_jobs(self.all_jobs, self.cluster)
        return count_in_flight(counted, self.cluster, self.creates.unseen.values())

    def to_come(self) -> ToCome:
        """The Jobs without a Pod, and the unseen creates."""
        return count_to_come(self.all_jobs, self.cluster, self.creates.unseen.values())

    def probes(self) -> Iterator[Probe]:
        """The Jobs whose Pods wait for a node, after kube-scheduler has found none."""
        return find_probes(self.all_jobs, self.cluster)

    def runs(self) -> Iterator[Run]:
        """Our Pods on nodes."""
        return find_runs(self.all_jobs, self.cluster)

    def launch_groups(self, tasks: Mapping[int, Task]) -> tuple[frozenset[LaunchGroup], frozenset[LaunchGroup]]:
        """(failing, busy): the launch groups that fail, and the groups that have a launch under way."""
        failing = failing_groups(tasks, self.all_jobs, self.cluster)
        return failing, busy_groups(self.all_jobs, failing) | {unseen.group for unseen in self.creates.unseen.values()}

    def offer(self, kind: Kind) -> Offer | Hold:
        return self.offers.offer(kind)

    def known_offer(self, digest: bytes) -> Offer | Hold | None:
        return self.offers.known_offer(digest)

    def refused(self, row: IndexedRow) -> Hold | None:
        """The hold that answers of the API server to this row, to similar rows or to their template ask for."""
        offer = self.offers.known_offer(row.kind)
        template = self.creates.templates.get(offer.template, OPEN).hold if isinstance(offer, Offer) else None
        return template or self.creates.refused.hold(row, self.at)

    def tried_at(self, task_id: int) -> float:
        """Time of the row's last failed create, in seconds of this process's clock."""
        return self.creates.tried_at.get(task_id, float("-inf"))

    def judge_row(self, task: Task) -> JobsVerdict:
        """The verdict of the table of outcomes. A launch becomes a hold if this process's creates forbid it."""
        found = judge(task, self.jobs_of(task), self.cluster)
        if not isinstance(found.verdict, Launch):
            return found
        identity = task_identity(self.database_id, task.id, task.created_at)
        name = job_name(self.installation, task.id, identity, task.attempt, found.verdict.number)
        plan = plan_create(found.verdict, self.creates.unseen.get(task.id), name)
        if isinstance(plan, Launch):
            plan = self.creates.why_wait(task, self.at) or plan
        return msgspec.structs.replace(found, verdict=plan)

    def jobs_of(self, task: Task) -> list[Job]:
        """The row's Jobs, by identity. Labels alone do not make a Job the row's."""
        identity = task_identity(self.database_id, task.id, task.created_at)
        return [job for job in self.jobs.get(task.id, ()) if job.identity == identity]

    def carry(self, judged: Judged) -> Carried:
        """The state for the next cycle, after these rows were judged."""
        resting = dict(self.carried.resting)
        settled = set(self.carried.settled)
        for task, found in judged:
            resting.pop(task.id, None)
            jobs = self.jobs_of(task)
            settled |= {job.uid for job in jobs if is_settled(job, task)}
            if (rest := plan_rest_of(self, task, jobs, found)) is not None:
                resting[task.id] = rest
        known, now = self.carried.first_seen, self.cluster.cluster_now
        first_seen = {key: known.get(key, now) for _, found in judged for key in found.seen}
        return Carried(first_seen, frozenset(settled), resting)


def with_jobs(picture: JobsPicture, task_id: int, jobs: Sequence[Job]) -> JobsPicture:
    """The picture with the Jobs of one task replaced, for example by a live LIST."""
    return msgspec.structs.replace(picture, jobs={**picture.jobs, task_id: jobs})


def plan_rest_of(picture: JobsPicture, task: Task, jobs: Sequence[Job], found: JobsVerdict) -> Rest | None:
    """The rest of a row whose one Job is under way; None: the row is read again in the next cycle."""
    if len(jobs) != 1 or len(picture.jobs[task.id]) != 1:
        return None
    pods, now = picture.cluster.pods.get(jobs[0].uid, ()), picture.cluster.cluster_now
    if jobs[0].uid in picture.cluster.refusals or not may_rest(found, jobs[0], pods):
        return None
    since = max([waits_since(pod) for pod in pods if pod.node_name], default=now)
    left = picture.cluster.rules.start_deadline_seconds - (now - since).total_seconds()
    return plan_rest(task, jobs[0], pods, picture.at, left)


def is_settled(job: Job, task: Task) -> bool:
    """Whether a finished Job needs no judgement: its row is terminal, or its attempt is past and never returns."""
    return job.is_finished and (task.attempt > job.attempt or task.status in TERMINAL)


def observe(view: ClusterView, now: datetime, rules: Rules, first_seen: Mapping[str, datetime]) -> ObservedCluster:
    """The view in the form that the table of outcomes takes. `now`: the database's clock."""
    pods = defaultdict(list)
    for pod in view.pods.values():
        pods[pod.job_uid].append(pod)
    return ObservedCluster(now, view.now, pods, view.nodes, first_seen, rules, view.refusals)


def by_task(jobs: Iterable[Job]) -> Mapping[int, Sequence[Job]]:
    found = defaultdict(list)
    for job in jobs:
        found[job.task_id].append(job)
    return found


def still_carried(carried: Carried, view: ClusterView, jobs: Mapping[int, Sequence[Job]], at: float) -> Carried:
    """`carried` without Jobs that are gone and rows whose rest is over."""
    settled = carried.settled & {job.uid for job in view.jobs.values()}
    with_news = frozenset({*view.refusals, *(pod.job_uid for pod in view.pods.values() if is_news(pod))})
    return Carried(carried.first_seen, settled, still_resting(carried.resting, jobs, with_news, at))


class KnownJobs(Struct, frozen=True):
    """What follows from the Jobs of a view alone. It holds as long as Jobs, Pods and refusals stay the same objects."""

    view: ClusterView
    jobs: Sequence[Job]
    by_task: Mapping[int, Sequence[Job]]
    counted: JobCounts

    def is_of(self, view: ClusterView) -> bool:
        before = self.view
        return before.jobs is view.jobs and before.pods is view.pods and before.refusals is view.refusals


def know_jobs(view: ClusterView, now: datetime) -> KnownJobs:
    jobs = list(view.jobs.values())
    return KnownJobs(view, jobs, by_task(jobs), count_jobs(jobs, observe(view, now, Rules(), {})))
