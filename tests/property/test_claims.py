"""A large row beside an endless stream of small ones: a simulation of nodes, kube-scheduler and cycles."""

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from dispatcher.admission.claims import GUARD, Claims
from dispatcher.admission.cycle import plan_cycle
from dispatcher.admission.gates import Candidate
from dispatcher.admission.probes import plan_taken_back
from dispatcher.admission.room import room_of
from dispatcher.admission.room_index import RoomIndex
from dispatcher.admission.snapshot import ClusterSnapshot
from dispatcher.model.capacity import BoundPod
from dispatcher.model.jobs import Job
from dispatcher.model.launches import JobsVerdict, Launch, Offer, Probe, Run
from dispatcher.model.needs import PodNeeds
from dispatcher.model.verdicts import HoldReason
from tests.builders import NOW, a_job, a_pod, a_queue, a_snapshot, a_task
from tests.unit.rooms import a_node, needs

NODES, CORES = 4, 4
SMALL, LARGE = Offer("app:1", "small", "default", needs("1")), Offer("app:1", "large", "default", needs("4"))
LONGEST = 90
"""Seconds that a small Pod runs at most."""
LARGE_ROW = 1


@dataclass
class SimulatedPod:
    """A Pod of ours. `avoided`: nodes that kube-scheduler should not choose for it."""

    row: int
    needs: PodNeeds
    launched_at: datetime
    run_seconds: float
    avoided: frozenset[str] = frozenset()
    node: str = ""
    bound_at: datetime = NOW
    job: Job = field(init=False)

    def __post_init__(self) -> None:
        name = f"job-{self.row}"
        self.job = a_job(task_id=self.row, name=name, uid=name, needs=self.needs, created_at=self.launched_at)

    @property
    def bound(self) -> BoundPod:
        return BoundPod(f"jobs/{self.job.name}", self.node, dict(self.needs.asks))


class Simulation:
    """Rows of one queue on full nodes. The large row comes when the stream of small ones has filled them.

    started: seconds after which each row's Pod got its node.
    """

    def __init__(self, *, with_claims: bool, probes: int, seed: int) -> None:
        self.now = NOW
        self.started: dict[int, float] = {}
        self._chance = random.Random(seed)
        self._claims = Claims()
        self._with_claims = with_claims
        self._probes = probes
        self._index = RoomIndex(())
        for number in range(NODES):
            self._index.hear_node(None, a_node(f"n{number}", cpu=str(CORES), memory="64Gi"))
        self._pods: list[SimulatedPod] = []
        self._waiting: list[int] = []
        self._next = LARGE_ROW + 1

    # What Claims asks

    def probes(self) -> list[Probe]:
        return [
            Probe(pod.job, a_pod(pod.job, uid=pod.job.uid, node_name="", unschedulable_since=pod.launched_at))
            for pod in self._pods
            if not pod.node
        ]

    def runs(self) -> list[Run]:
        return [
            Run(pod.node, dict(pod.needs.asks), pod.bound_at + timedelta(seconds=LONGEST))
            for pod in self._pods
            if pod.node
        ]

    # One second

    def step(self) -> None:
        self.now += timedelta(seconds=1)
        while len(self._waiting) < 3 * NODES * CORES:  # the stream never ends
            self._waiting.append(self._next)
            self._next += 1
        self._end_pods()
        self._bind_pods()
        self._cycle()
        self._bind_pods()

    def insert_large(self) -> None:
        self._waiting.append(LARGE_ROW)

    def _end_pods(self) -> None:
        for pod in [pod for pod in self._pods if pod.node]:
            if self.now >= pod.bound_at + timedelta(seconds=pod.run_seconds):
                self._pods.remove(pod)
                self._index.hear_pod(pod.bound, None)

    def _bind_pods(self) -> None:
        """kube-scheduler: the node with the most free cores, the older Pod first, avoided nodes last."""
        for pod in [pod for pod in self._pods if not pod.node]:
            free = {f"n{number}": CORES for number in range(NODES)}
            for other in self._pods:
                if other.node:
                    free[other.node] -= dict(other.needs.asks)["cpu"] // 1000
            fitting = [name for name, cores in free.items() if cores >= dict(pod.needs.asks)["cpu"] // 1000]
            if fitting:
                pod.node = min(fitting, key=lambda name: (name in pod.avoided, -free[name], name))
                pod.bound_at = self.now
                self._index.hear_pod(None, pod.bound)
                self.started.setdefault(pod.row, (self.now - NOW).total_seconds())

    def _cycle(self) -> None:
        claims = self._claims.current
        snapshot = self._snapshot()
        for end in plan_taken_back(self.probes(), snapshot, {}):
            pod = next(pod for pod in self._pods if end.uid == pod.job.uid)
            self._pods.remove(pod)
            self._waiting.insert(0, pod.row)
        plan = plan_cycle(self._snapshot(), [self._candidate(row) for row in self._waiting])
        for one in plan.launches:
            wanted = one.pod.needs
            assert wanted is not None
            avoided = frozenset(claim.node for claim in claims if claim.task_id != one.task.id)
            length = self._chance.uniform(1, LONGEST)
            self._waiting.remove(one.task.id)
            self._pods.append(SimulatedPod(one.task.id, wanted, self.now, length, avoided))
        if self._with_claims:
            held = {id_: self._candidate(id_).pod for id_, hold in plan.holds.items()
                    if hold.reason is HoldReason.NO_ROOM_NOW and id_ == LARGE_ROW}  # fmt: skip
            self._claims.update(held, self, self._index.view(), self.now, {})

    def _snapshot(self) -> ClusterSnapshot:
        unplaced: dict[object, int] = {}
        for pod in self._pods:
            if not pod.node:
                kind = self._candidate(pod.row).pod
                unplaced[kind] = unplaced.get(kind, 0) + 1
        room = room_of(self._index.view(), unplaced, self._claims.current)  # type: ignore[arg-type]  # a dict of PodKind
        return a_snapshot(a_queue(), now=self.now, max_pending=self._probes, max_jobs=100, room=room)

    def _candidate(self, row: int) -> Candidate:
        offer = LARGE if row == LARGE_ROW else SMALL
        return Candidate(a_task(id=row), offer, JobsVerdict(Launch(1)))


def wait_of_large_row(seconds: int, *, with_claims: bool, probes: int, seed: int) -> float:
    """Seconds from its INSERT until the large row's Pod has a node; infinite if that takes longer than `seconds`."""
    simulation = Simulation(with_claims=with_claims, probes=probes, seed=seed)
    for _ in range(LONGEST):
        simulation.step()
    simulation.insert_large()
    for _ in range(seconds):
        simulation.step()
        if LARGE_ROW in simulation.started:
            return simulation.started[LARGE_ROW] - LONGEST
    return float("inf")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("probes", [0, 1])
def test_large_row_starts_within_its_guard_and_the_longest_run_of_the_small_ones(probes: int, seed: int) -> None:
    bound = GUARD.total_seconds() + LONGEST + 8  # a plan is made every five seconds
    assert wait_of_large_row(900, with_claims=True, probes=probes, seed=seed) <= bound


@pytest.mark.parametrize("probes", [0, 1])
def test_large_row_never_starts_without_a_claim(probes: int) -> None:
    assert wait_of_large_row(1800, with_claims=False, probes=probes, seed=1) == float("inf")
