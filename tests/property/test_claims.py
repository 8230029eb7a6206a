"""A large row beside an endless stream of small ones: a simulation of nodes, kube-scheduler and cycles."""

import random
from datetime import timedelta

import pytest

from dispatcher.admission.claims import GUARD, Claims
from dispatcher.admission.cycle import plan_cycle, plan_taken_back
from dispatcher.admission.gates import Candidate
from dispatcher.admission.snapshot import ClusterSnapshot
from dispatcher.model.launches import JobsVerdict, Launch, Offer, PodRun, Probe
from dispatcher.model.verdicts import HoldReason
from tests.property.simulated_nodes import SimulatedNodes, SimulatedPod
from tests.rig.builders import a_pod, a_queue, a_snapshot, a_task
from tests.unit.rooms import a_node, needs

NODES, CORES = 4, 4
SMALL, LARGE = Offer("app:1", "small", "default", needs("1")), Offer("app:1", "large", "default", needs("4"))
LONGEST = 90
"""Seconds that a small Pod runs at most."""
LARGE_ROW = 1


class Simulation:
    """Rows of one queue on full nodes. The large row comes when the stream of small ones has filled them."""

    def __init__(self, *, with_claims: bool, probes: int, seed: int) -> None:
        self.nodes = SimulatedNodes(a_node(f"n{number}", cpu=str(CORES), memory="64Gi") for number in range(NODES))
        self._chance = random.Random(seed)
        self._claims = Claims()
        self._with_claims = with_claims
        self._probes = probes
        self._waiting: list[int] = []
        self._next = LARGE_ROW + 1

    # What Claims asks

    def probes(self) -> list[Probe]:
        return [
            Probe(pod.job, a_pod(pod.job, uid=pod.job.uid, node_name="", unschedulable_since=pod.launched_at))
            for pod in self.nodes.waiting
        ]

    def runs(self) -> list[PodRun]:
        return [
            PodRun(pod.node, dict(pod.needs.asks), pod.bound_at + timedelta(seconds=LONGEST))
            for pod in self.nodes.running
        ]

    # One second

    def step(self) -> None:
        while len(self._waiting) < 3 * NODES * CORES:  # the stream never ends
            self._waiting.append(self._next)
            self._next += 1
        self.nodes.step()
        self._cycle()
        self.nodes.place()

    def insert_large(self) -> None:
        self._waiting.append(LARGE_ROW)

    def _cycle(self) -> None:
        claims = self._claims.current
        for end in plan_taken_back(self.probes(), self._snapshot(), {}):
            pod = next(pod for pod in self.nodes.waiting if end.uid == pod.job.uid)
            self.nodes.remove(pod)
            self._waiting.insert(0, pod.row)
        plan = plan_cycle(self._snapshot(), [candidate_of(row) for row in self._waiting])
        for one in plan.launches:
            avoided = frozenset(claim.node for claim in claims if claim.task_id != one.task.id)
            length = self._chance.uniform(1, LONGEST)
            self._waiting.remove(one.task.id)
            self.nodes.add(SimulatedPod(one.task.id, one.pod, self.nodes.now, length, avoided))
        if self._with_claims:
            held = {id_: candidate_of(id_).pod for id_, hold in plan.holds.items()
                    if hold.reason is HoldReason.NO_ROOM_NOW and id_ == LARGE_ROW}  # fmt: skip
            self._claims.update(held, self, self.nodes.room().view, self.nodes.now, {})

    def _snapshot(self) -> ClusterSnapshot:
        room = self.nodes.room(self._claims.current)
        return a_snapshot(a_queue(), now=self.nodes.now, max_pending=self._probes, max_jobs=100, room=room)


def candidate_of(row: int) -> Candidate:
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
        if LARGE_ROW in simulation.nodes.placed:
            return simulation.nodes.placed[LARGE_ROW] - LONGEST
    return float("inf")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("probes", [0, 1])
def test_large_row_starts_within_its_guard_and_the_longest_run_of_the_small_ones(probes: int, seed: int) -> None:
    bound = GUARD.total_seconds() + LONGEST + 8  # a plan is made every five seconds
    assert wait_of_large_row(900, with_claims=True, probes=probes, seed=seed) <= bound


@pytest.mark.slow
@pytest.mark.parametrize("probes", [0, 1])
def test_large_row_never_starts_without_a_claim(probes: int) -> None:
    assert wait_of_large_row(1800, with_claims=False, probes=probes, seed=1) == float("inf")
