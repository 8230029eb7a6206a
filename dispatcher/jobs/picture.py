"""An immutable picture of this installation's Jobs and creates, by which one cycle judges its rows.

    view, memory, templates, CarriedState of the last cycle ─▶ JobsPicture ─▶ judge_row(task) ─▶ JobsVerdict
                                                                           ─▶ carry(judged)   ─▶ CarriedState

The dispatcher and the janitor judge rows by the same code. Judging a row changes nothing.

`count_jobs`: a cycle counts every Job, so the counting loops are plain.

`ReadPause`: a cycle need not read a row whose only Job has not changed, while the Job is under way, or while the
janitor has to end the row by its exit code. A change of the Job, or a Pod that cannot start, ends the pause at once. A
cancel, a retry or an end of the row itself is found within 30 s. The graces of 60 s that follow allow this delay. So
the cost of a cycle depends on the number of changes, not on the number of rows.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from dispatcher.jobs.memory import KnownCreates, UnobservedCreate, plan_create
from dispatcher.jobs.observed import ObservedCluster, Rules, awaits_pod, bound_at, by_job, observe, overlooked_jobs
from dispatcher.jobs.outcome import judge
from dispatcher.model.cluster import CRASHES, DEADLINE, ENDED, ClusterView, Pod
from dispatcher.model.jobs import EndedBy, Job, LaunchGroup, Phase
from dispatcher.model.launches import (
    CreatePauses,
    InFlight,
    JobsVerdict,
    Launch,
    Offer,
    PodKind,
    PodRun,
    Probe,
    UncountedPods,
    is_same,
    job_name,
    task_identity,
)
from dispatcher.model.needs import PodNeeds
from dispatcher.model.tasks import TERMINAL, IndexedRow, Kind, Task
from dispatcher.model.verdicts import Hold, HoldReason, NotReady, Stage, own_fault

Counts = Counter[tuple[str, str, str, PodNeeds | None]]
"""Numbers by queue, submitter, shape and needs."""


class JobCounts(Struct, frozen=True):
    """Numbers of unfinished Jobs.

    every: all of them.
    unplaced: those for whose Pods kube-scheduler looks for a node.
    ended: those whose Pods have ended. The Job controller finishes such a Job a moment later.
    held: those that somebody else keeps from running: suspended, with refused Pods, or with scheduling gates.
    podless: those whose Pods are to come.
    overlooked: those whose Pods no scheduler looks at.
    """

    every: Counts
    unplaced: Counts
    ended: Counts
    held: Counts
    podless: int
    overlooked: int


def count_in_flight(counted: JobCounts, cluster: ObservedCluster, creates: Collection[UnobservedCreate]) -> InFlight:
    """The unfinished Jobs and unseen creates."""
    every, unplaced = counted.every.copy(), counted.unplaced.copy()
    placed = jobs_with_node(cluster) if creates else set()
    for one in creates:
        key = one.queue, one.submitted_by, one.offer.shape, one.offer.needs
        every[key] += 1
        unplaced[key] += one.name not in placed
    every_kind, unplaced_kind, ended, held = (
        by_kind(counts, cluster.made) for counts in (every, unplaced, counted.ended, counted.held)
    )
    return InFlight(every_kind, unplaced_kind, ended, held, len(creates), counted.podless, counted.overlooked)


def by_kind(counts: Counts, made: Mapping[str, PodNeeds]) -> dict[PodKind, int]:
    """The counts by kind of Pod. `made`: what Pods of a shape need, as the API server makes them."""
    found: dict[PodKind, int] = {}
    for (queue, submitter, shape, needs), number in counts.items():
        if number:
            kind = PodKind(queue, submitter, shape, made.get(shape, needs))
            found[kind] = found.get(kind, 0) + number
    return found


def count_jobs(jobs: Iterable[Job], cluster: ObservedCluster) -> JobCounts:
    """Numbers of unfinished Jobs.

    A Job under deletion whose Pods have ended uses nothing, however long a finalizer keeps it. A refused Pod does not
    exist, so it needs no node. A Pod that no scheduler looks at gets none.
    """
    every, unplaced, ended, held, podless, overlooked = Counts(), Counts(), Counts(), Counts(), 0, 0
    pods, refused, active = cluster.pods, cluster.refusals, Phase.ACTIVE
    every_pod = list(chain.from_iterable(pods.values()))
    alive = {pod.job_uid for pod in every_pod if pod.phase not in ENDED}
    ignored, _ = overlooked_jobs(every_pod, cluster.cluster_now)
    gated = ignored.union(pod.job_uid for pod in every_pod if pod.is_gated)
    idle = {pod.job_uid for pod in every_pod if has_node(pod) or pod.deleting}.union(refused, gated)
    for job in jobs:
        if (job.phase is active or not job.is_finished) and not (job.deleting and cluster.is_over(job)):
            key = job.queue, job.submitted_by, job.shape, job.needs
            every[key] = every.get(key, 0) + 1
            podless += not job.suspended and job.uid not in pods and job.uid not in refused
            overlooked += job.uid in ignored
            if job.uid in pods and job.uid not in alive:
                ended[key] = ended.get(key, 0) + 1
            elif job.suspended or job.uid in refused or job.uid in gated:
                held[key] = held.get(key, 0) + 1
            if job.phase is active and job.uid not in idle and not (job.suspended or job.deleting):
                unplaced[key] = unplaced.get(key, 0) + 1
    return JobCounts(every, unplaced, ended, held, podless, overlooked)


def count_to_come(jobs: Iterable[Job], cluster: ObservedCluster, creates: Iterable[UnobservedCreate]) -> UncountedPods:
    """The Jobs whose Pods will come, and the unseen creates."""
    pods, refused = Counts(), Counts()
    for job in jobs:
        if awaits_pod(job, cluster):
            counts = refused if job.uid in cluster.refusals else pods
            counts[job.queue, job.submitted_by, job.shape, job.needs] += 1
    unseen = Counts((one.queue, one.submitted_by, one.offer.shape, one.offer.needs) for one in creates)
    return UncountedPods(*(by_kind(counts, cluster.made) for counts in (pods, unseen, refused)))


def find_probes(jobs: Iterable[Job], cluster: ObservedCluster) -> Iterator[Probe]:
    """The Jobs whose one Pod waits for a node, after kube-scheduler has found none."""
    waiting = {uid: pods[0] for uid, pods in cluster.pods.items() if len(pods) == 1 and waits_for_node(pods[0])}
    if not waiting:
        return
    for job in jobs:
        if job.uid in waiting and job.phase is Phase.ACTIVE and not (job.deleting or job.suspended):
            yield Probe(job, waiting[job.uid], cluster.made.get(job.shape))


def find_runs(jobs: Iterable[Job], cluster: ObservedCluster) -> Iterator[PodRun]:
    """Our Pods on nodes."""
    for job in jobs:
        needs = cluster.needs_of(job)
        for pod in cluster.pods.get(job.uid, ()) if not job.is_finished and needs is not None else ():
            if pod.node_name and needs is not None:
                ends_at = bound_at(pod) + timedelta(seconds=job.limit_seconds)
                yield PodRun(pod.node_name, dict(needs.asks), ends_at)


def waits_for_node(pod: Pod) -> bool:
    return pod.unschedulable_since is not None and not (has_node(pod) or pod.deleting or pod.had_run)


def jobs_with_node(cluster: ObservedCluster) -> set[str]:
    """Names of Jobs that have a Pod with a node. The watch of Pods may be ahead of the watch of Jobs."""
    return {pod.name.rpartition("-")[0] for pods in cluster.pods.values() for pod in pods if has_node(pod)}


def has_node(pod: Pod) -> bool:
    """Whether a node's free room already counts the Pod's requests."""
    return bool(pod.node_name or pod.nominated_node)


LAUNCHES: Final = 3
"""Newest launches of a group that must all have failed."""


def failing_groups(tasks: Mapping[int, Task], jobs: Sequence[Job], cluster: ObservedCluster) -> frozenset[LaunchGroup]:
    """Groups whose newest three launches with a known result all failed to start.

    Few Jobs may have failed to start, so only their groups are examined, all in one pass: each may have its own image.
    """
    stuck = {uid for uid, pods in cluster.pods.items() for pod in pods if pod.cannot_start}
    suspects = Counter(job.group for job in jobs if job.phase is Phase.FAILED or job.uid in stuck)
    known = {group: list[tuple[datetime, bool]]() for group, count in suspects.items() if count >= LAUNCHES}
    for job in jobs if known else ():
        own = known.get(job.group)
        if own is not None and (started := has_started(tasks.get(job.task_id), job, cluster)) is not None:
            own.append((job.created_at, started))
    newest = {group: sorted(own, key=itemgetter(0))[-LAUNCHES:] for group, own in known.items()}
    return frozenset(group for group, own in newest.items() if len(own) == LAUNCHES and not any(one for _, one in own))


def starting_groups(jobs: Iterable[Job], cluster: ObservedCluster) -> frozenset[LaunchGroup]:
    """The groups with a launch under way that has not started. One that runs, maybe for hours, shows nothing new."""
    return frozenset(job.group for job in jobs if not (job.is_finished or has_started(None, job, cluster)))


def has_started(task: Task | None, job: Job, cluster: ObservedCluster) -> bool | None:
    """Whether a launch started; None if that is not known yet, or if the image is not the cause."""
    pods = cluster.pods.get(job.uid, ())
    if job.phase is Phase.COMPLETE or any(pod.had_run or pod.phase == "Running" for pod in pods):
        return True
    if any(pod.cannot_start for pod in pods):
        return False
    is_late = any(pod.end is not None and pod.end.reason == DEADLINE for pod in pods)
    if job.is_unplaced or job.ended_by not in {"", EndedBy.US} or is_late or any(pod.is_rejected for pod in pods):
        return None
    if job.phase is not Phase.FAILED or job.was_disrupted or task is None or task.attempt != job.attempt:
        return None
    if task.launch >= job.launch:
        return True
    # The start was slow, or the Pod had waited for a node. Nothing tells whether the image is the cause.
    late = ((job.ended_at or job.created_at) - job.created_at).total_seconds() >= cluster.rules.start_deadline_seconds
    return None if late else False


class ReadPause(Struct, frozen=True):
    """The rest of one row.

    attempt, queue, submitted_by, priority: those of the row.
    is_waiting: whether the row was `waiting` when it was judged.
    is_parked: whether it waits for a person, because its Job has ended without a report.
    version: resourceVersion of its Job. Another version ends the rest.
    until: end of the rest, in seconds of this process's clock.
    """

    attempt: int
    queue: str
    submitted_by: str
    priority: int
    is_waiting: bool
    version: str
    until: float
    is_parked: bool = False


def may_rest(found: JobsVerdict, job: Job, pods: Iterable[Pod]) -> bool:
    """Whether the row's only Job is under way, with no object to delete and no Pod to watch. Or the Job is over, and
    the janitor will end the row by the exit code of its Pod, or a person has to act.
    """
    verdict, of_launch = found.verdict, {HoldReason.LAUNCHED, HoldReason.EXITED_WITHOUT_REPORT}
    if found.ends or not isinstance(verdict, Hold) or verdict.reason not in of_launch:
        return False
    has_exited = any(pod.had_run and pod.exit is not None and not pod.exit.was_told for pod in pods)
    is_over = found.is_parked or (has_exited and verdict.detail == Stage.EXIT_CODE)
    waits = job.phase is Phase.ACTIVE or (job.is_finished and is_over)
    return waits and not job.deleting and not any(is_news(pod) for pod in pods)


def is_news(pod: Pod) -> bool:
    """Whether a Pod cannot start, or is being deleted."""
    return pod.deleting or pod.cannot_start or pod.waiting_reason == CRASHES


def plan_rest(task: Task, job: Job, until: float, *, is_parked: bool = False) -> ReadPause:
    row = task.attempt, task.queue, task.submitted_by, task.priority, task.is_waiting
    return ReadPause(*row, job.resource_version, until, is_parked)


def rest_seconds(task: Task, pods: Iterable[Pod], longest: float, left: float) -> float:
    """A rest of half of `longest` to all of it, spread by task id.

    left: seconds to the start deadline. A rest before the start is not longer.
    """
    has_started = any(pod.phase != "Pending" for pod in pods)
    most = longest * (0.5 + task.id % 16 / 32)
    return most if has_started else min(most, left)


def still_resting(
    resting: Mapping[int, ReadPause], jobs: Mapping[int, Sequence[Job]], stuck: frozenset[str], now: float
) -> dict[int, ReadPause]:
    """Rows whose rest is not over and whose Job has not changed. `stuck`: UIDs of Jobs with a Pod that `is_news`."""
    return {
        id_: rest
        for id_, rest in resting.items()
        if rest.until > now
        and len(found := jobs.get(id_, ())) == 1
        and found[0].resource_version == rest.version
        and found[0].uid not in stuck
    }


JudgedRows = Sequence[tuple[Task, JobsVerdict]]
"""The rows that a cycle judged, each with its verdict."""


class TemplateOffers(Protocol):
    """The templates' offers to kinds of rows. A kind is judged once, and again if a template changes."""

    def offer(self, kind: Kind) -> Offer | Hold: ...
    def known_offer(self, digest: bytes) -> Offer | Hold | None: ...


class CarriedState(Struct, frozen=True):
    """State that one cycle hands to the next. Its loss costs time, never correctness.

    first_seen: when a state without a timestamp of its own was seen first, by the API server's clock.
    settled: UIDs of finished Jobs that no row needs any more.
    resting: rows that need not be read, by task.
    """

    first_seen: Mapping[str, datetime] = {}
    settled: frozenset[str] = frozenset()
    resting: Mapping[int, ReadPause] = {}


def judge_row(picture: "JobsPicture", task: Task) -> JobsVerdict:
    found = judge(task, picture.jobs_of(task), picture.cluster)
    if not isinstance(found.verdict, Launch):
        return found
    identity = task_identity(picture.database_id, task.id, task.created_at)
    name = job_name(picture.installation, task.id, identity, task.attempt, found.verdict.number)
    plan = plan_create(found.verdict, picture.creates.unseen.get(task.id), name)
    if isinstance(plan, Launch):
        plan = picture.creates.why_wait(task, picture.at) or plan
    return msgspec.structs.replace(found, verdict=plan)


class JobsPicture(Struct, frozen=True, kw_only=True):
    """The picture of one cycle.

    installation: prefix of all names of Jobs.
    database_id: the database that the rows are from.
    cluster: Pods, nodes and clocks.
    all_jobs: all Jobs of the installation.
    jobs: all Jobs, by task.
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
    offers: TemplateOffers
    creates: KnownCreates = KnownCreates()
    carried: CarriedState = CarriedState()
    counted: JobCounts | None = None
    at: float = 0

    @property
    def brakes(self) -> CreatePauses:
        """Pauses of all creates that the API server's answers ask for."""
        return self.creates.brakes

    def rows_to_read(self) -> set[int]:
        """Tasks that need a judgement: they have a Job that is not settled, or a create whose answer was lost."""
        open_jobs = {job.task_id for job in self.all_jobs if job.uid not in self.carried.settled}
        unknown = {unseen.task_id for unseen in self.creates.unseen.values() if not unseen.is_awaited}
        return (open_jobs - self.carried.resting.keys()) | unknown

    def resting(self) -> Mapping[int, ReadPause | UnobservedCreate]:
        """Rows that need not be read: their create is awaited, or their Job has not changed since they were judged."""
        awaited = {unseen.task_id: unseen for unseen in self.creates.unseen.values() if unseen.is_awaited}
        return {**self.carried.resting, **awaited}

    def in_flight(self) -> InFlight:
        """The unfinished Jobs and unseen creates."""
        counted = self.counted or count_jobs(self.all_jobs, self.cluster)
        return count_in_flight(counted, self.cluster, self.creates.unseen.values())

    def to_come(self) -> UncountedPods:
        """The Jobs without a Pod, and the unseen creates."""
        return count_to_come(self.all_jobs, self.cluster, self.creates.unseen.values())

    def probes(self) -> Iterator[Probe]:
        """The Jobs whose Pods wait for a node, after kube-scheduler has found none."""
        return find_probes(self.all_jobs, self.cluster)

    def runs(self) -> Iterator[PodRun]:
        """Our Pods on nodes."""
        return find_runs(self.all_jobs, self.cluster)

    def launch_groups(self, tasks: Mapping[int, Task]) -> tuple[frozenset[LaunchGroup], frozenset[LaunchGroup]]:
        """(failing, busy): the launch groups that fail, and the groups that have a launch under way."""
        failing = failing_groups(tasks, self.all_jobs, self.cluster)
        busy = failing & starting_groups(self.all_jobs, self.cluster) if failing else failing
        return failing, busy | {unseen.group for unseen in self.creates.unseen.values()}

    def offer(self, kind: Kind) -> Offer | Hold:
        return self.offers.offer(kind)

    def known_offer(self, digest: bytes) -> Offer | Hold | None:
        """The offer. Once a Pod of the shape was seen, it has the needs as admitted."""
        offer = self.offers.known_offer(digest)
        made = self.cluster.made.get(offer.shape) if isinstance(offer, Offer) else None
        return offer if made is None or not isinstance(offer, Offer) else offer_with(offer, made)

    def refused(self, row: IndexedRow) -> Hold | None:
        """The hold that the API server's answers ask for, as `judge_row` finds it: a scan passes the row over."""
        offer = self.offers.known_offer(row.kind)
        return self.creates.hold(row, offer.template if isinstance(offer, Offer) else "", self.at)

    def tried_at(self, task_id: int) -> float:
        """Time of the row's last failed create, in seconds of this process's clock."""
        return self.creates.tried_at.get(task_id, float("-inf"))

    def judge_row(self, task: Task) -> JobsVerdict:
        """The verdict of the table of outcomes. A launch becomes a hold if this process's creates forbid it.

        A row that cannot be judged is held: it must not end the cycle of all teams.
        """
        try:
            return judge_row(self, task)
        except Exception as bug:  # noqa: BLE001  # whatever is wrong with one row
            return JobsVerdict(own_fault(bug))

    def jobs_of(self, task: Task) -> list[Job]:
        """The row's Jobs, by identity. Labels alone do not make a Job the row's."""
        identity = task_identity(self.database_id, task.id, task.created_at)
        return [job for job in self.jobs.get(task.id, ()) if is_same(job.identity, identity)]

    def carry(self, judged: JudgedRows) -> CarriedState:
        """The state for the next cycle, after these rows were judged."""
        resting = dict(self.carried.resting)
        settled = set(self.carried.settled)
        for task, found in judged:
            resting.pop(task.id, None)
            if isinstance(found.verdict, Hold) and found.verdict.detail.startswith(NotReady.OWN_FAULT):
                continue
            jobs = self.jobs_of(task)
            settled |= {job.uid for job in jobs if is_settled(job, task)}
            if (rest := plan_rest_of(self, task, jobs, found)) is not None:
                resting[task.id] = rest
        known, now = self.carried.first_seen, self.cluster.cluster_now
        first_seen = {key: min(known.get(key, now), now) for _, found in judged for key in found.seen}
        return CarriedState(first_seen, frozenset(settled), resting)


@lru_cache(maxsize=10_000)
def offer_with(offer: Offer, made: PodNeeds) -> Offer:
    return msgspec.structs.replace(offer, needs=made)


def with_jobs(picture: JobsPicture, task_id: int, jobs: Sequence[Job]) -> JobsPicture:
    """The picture with the Jobs of one task replaced, for example by a live LIST."""
    return msgspec.structs.replace(picture, jobs={**picture.jobs, task_id: jobs})


def plan_rest_of(picture: JobsPicture, task: Task, jobs: Sequence[Job], found: JobsVerdict) -> ReadPause | None:
    """The rest of a row whose one Job is under way; None: the row is read again in the next cycle."""
    if len(jobs) != 1 or len(picture.jobs[task.id]) != 1:
        return None
    uid, cluster = jobs[0].uid, picture.cluster
    pods, now = cluster.pods.get(uid, ()), cluster.cluster_now
    if uid in cluster.refusals or uid in cluster.suspensions or not may_rest(found, jobs[0], pods):
        return None
    since = max([bound_at(pod) for pod in pods if pod.node_name], default=now)
    left = cluster.rules.start_deadline_seconds - (now - since).total_seconds()
    until = picture.at + rest_seconds(task, pods, cluster.rules.rest_seconds, left)
    return plan_rest(task, jobs[0], until, is_parked=found.is_parked)


def is_settled(job: Job, task: Task) -> bool:
    """Whether a finished Job needs no judgement: its row is terminal, or its attempt is past and never returns."""
    return job.is_finished and (task.attempt > job.attempt or task.status in TERMINAL)


def by_task(jobs: Iterable[Job]) -> Mapping[int, Sequence[Job]]:
    found = defaultdict(list)
    for job in jobs:
        found[job.task_id].append(job)
    return found


def still_carried(
    carried: CarriedState, view: ClusterView, jobs: Mapping[int, Sequence[Job]], at: float
) -> CarriedState:
    """`carried` without Jobs that are gone and rows whose rest is over."""
    settled = carried.settled & {job.uid for job in view.jobs.values()}
    news = (pod.job_uid for pod in view.pods.values() if is_news(pod))
    with_news = frozenset({*view.refusals, *view.suspensions, *news})
    return CarriedState(carried.first_seen, settled, still_resting(carried.resting, jobs, with_news, at))


class KnownJobs(Struct, frozen=True):
    """Counts and indexes of one view. Valid before `until`, while jobs, pods and refusals are the same objects.

    until: when a Job under deletion is over, which no event shows.
    """

    view: ClusterView
    jobs: Sequence[Job]
    by_task: Mapping[int, Sequence[Job]]
    pods: Mapping[str, Sequence[Pod]]
    counted: JobCounts
    until: datetime

    def is_of(self, view: ClusterView) -> bool:
        same = (getattr(self.view, one) is getattr(view, one) for one in ("jobs", "pods", "refusals"))
        return view.now < self.until and all(same)


def know_jobs(view: ClusterView, now: datetime) -> KnownJobs:
    jobs, pods = list(view.jobs.values()), by_job(view.pods.values())
    cluster = observe(view, pods, now, Rules(), {})
    until = min(cluster.next_over(jobs), overlooked_jobs(view.pods.values(), view.now)[1])
    return KnownJobs(view, jobs, by_task(jobs), pods, count_jobs(jobs, cluster), until)
