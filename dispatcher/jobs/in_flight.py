"""Numbers of unfinished Jobs and unseen creates by kind of Pod, and the probes among them.

A cycle counts every Job, so the counting loops are plain.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta

from msgspec import Struct

from dispatcher.jobs.observed import ObservedCluster
from dispatcher.jobs.unseen import Unseen
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job, Phase
from dispatcher.model.launches import InFlight, PodKind, Probe, Run, ToCome
from dispatcher.model.needs import PodNeeds

Counts = Counter[tuple[str, str, str, PodNeeds | None]]
"""Numbers by queue, submitter, shape and needs."""


class JobCounts(Struct, frozen=True):
    """Numbers of unfinished Jobs.

    every: all of them.
    unplaced: those for whose Pods kube-scheduler looks for a node.
    ended: those whose Pods have ended. The Job controller finishes such a Job a moment later.
    podless: those that should have a Pod and have none.
    """

    every: Counts
    unplaced: Counts
    ended: Counts
    podless: int


def count_in_flight(counted: JobCounts, cluster: ObservedCluster, creates: Collection[Unseen]) -> InFlight:
    """The unfinished Jobs and unseen creates."""
    every, unplaced = counted.every.copy(), counted.unplaced.copy()
    placed = jobs_with_node(cluster) if creates else set()
    for one in creates:
        key = one.queue, one.submitted_by, one.offer.shape, one.offer.needs
        every[key] += 1
        unplaced[key] += one.name not in placed
    return InFlight(by_kind(every), by_kind(unplaced), by_kind(counted.ended), len(creates), counted.podless)


def by_kind(counts: Counts) -> dict[PodKind, int]:
    return {PodKind(*key): number for key, number in counts.items() if number}


def count_jobs(jobs: Iterable[Job], cluster: ObservedCluster) -> JobCounts:
    """Numbers of unfinished Jobs.

    A refused Pod does not exist, so it needs no node. Every cycle counts every Job: hence one loop, and local names.
    """
    every, unplaced, ended, podless, active = Counts(), Counts(), Counts(), 0, Phase.ACTIVE
    pods = cluster.pods
    over = {uid for uid, own in pods.items() if all(pod.has_ended for pod in own)}
    idle = {uid for uid, own in pods.items() if any(has_node(pod) or pod.deleting for pod in own)}
    idle.update(cluster.refusals)
    for job in jobs:
        if job.phase is active or not job.is_finished:
            key = job.queue, job.submitted_by, job.shape, job.needs
            every[key] = every.get(key, 0) + 1
            podless += not job.suspended and job.uid not in pods
            if job.uid in over:
                ended[key] = ended.get(key, 0) + 1
            if job.phase is active and job.uid not in idle and not (job.suspended or job.deleting):
                unplaced[key] = unplaced.get(key, 0) + 1
    return JobCounts(every, unplaced, ended, podless)


def count_to_come(jobs: Iterable[Job], cluster: ObservedCluster, creates: Iterable[Unseen]) -> ToCome:
    """The Jobs without a Pod, and the unseen creates."""
    without_pod = Counter(
        PodKind(job.queue, job.submitted_by, job.shape, job.needs)
        for job in jobs
        if job.phase is Phase.ACTIVE and job.uid not in cluster.pods and not (job.suspended or job.deleting)
    )
    return ToCome(
        without_pod,
        Counter(PodKind(one.queue, one.submitted_by, one.offer.shape, one.offer.needs) for one in creates),
    )


def find_probes(jobs: Iterable[Job], cluster: ObservedCluster) -> Iterator[Probe]:
    """The Jobs whose one Pod waits for a node, after kube-scheduler has found none."""
    waiting = {uid: pods[0] for uid, pods in cluster.pods.items() if len(pods) == 1 and waits_for_node(pods[0])}
    if not waiting:
        return
    for job in jobs:
        if job.uid in waiting and job.phase is Phase.ACTIVE and not (job.deleting or job.suspended):
            yield Probe(job, waiting[job.uid])


def find_runs(jobs: Iterable[Job], cluster: ObservedCluster) -> Iterator[Run]:
    """Our Pods on nodes."""
    for job in jobs:
        for pod in cluster.pods.get(job.uid, ()) if not job.is_finished and job.needs is not None else ():
            if pod.node_name and job.needs is not None:
                ends_at = (pod.scheduled_at or pod.created_at) + timedelta(seconds=job.limit_seconds)
                yield Run(pod.node_name, dict(job.needs.asks), ends_at)


def waits_for_node(pod: Pod) -> bool:
    return pod.unschedulable_since is not None and not (has_node(pod) or pod.deleting or pod.had_run)


def jobs_with_node(cluster: ObservedCluster) -> set[str]:
    """Names of Jobs that have a Pod with a node. The watch of Pods may be ahead of the watch of Jobs."""
    return {pod.name.rpartition("-")[0] for pods in cluster.pods.values() for pod in pods if has_node(pod)}


def has_node(pod: Pod) -> bool:
    """Whether a node's free room is counted without the Pod's requests already."""
    return bool(pod.node_name or pod.nominated_node)
