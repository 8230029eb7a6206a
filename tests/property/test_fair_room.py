"""Fair shares of nodes that are full: a simulation of rows that wait for room, with the real scan and cycle."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

import pytest
from msgspec import Struct

from dispatcher.admission.cycle import plan_cycle
from dispatcher.admission.gates import Candidate
from dispatcher.admission.heads import KnownRows
from dispatcher.admission.scan import Scan
from dispatcher.admission.snapshot import Allowance, dominant, plan_load, plan_shares
from dispatcher.model.launches import JobsVerdict, Launch, Offer
from dispatcher.model.needs import PodNeeds
from dispatcher.model.resources import added
from dispatcher.model.tasks import IndexedRow, Kind
from dispatcher.model.verdicts import Hold
from tests.property.simulated_nodes import SimulatedNodes, SimulatedPod
from tests.rig.builders import a_queue, a_snapshot, a_task, an_indexed_row
from tests.rig.indexing import RowIndex
from tests.unit.rooms import a_node, needs

NODES, CORES, GIB = 10, 8, 16
SIZE = {"cpu": NODES * CORES * 1000, "memory": NODES * GIB * 2**30 * 1000}
MINUTE = 60
ENOUGH = 300
"""Rows that wait in each queue at any time."""


class Load(Struct, frozen=True):
    """The rows of a queue. `shortest`, `longest`: seconds of a run. `shapes`: how many there are, almost alike."""

    weight: int
    needs: PodNeeds
    shortest: int
    longest: int
    shapes: int = 1

    def offer(self, number: int) -> Offer:
        asks = added(dict(self.needs.asks), {"memory": 1000 * (number % self.shapes)})
        wanted = PodNeeds(tuple(sorted(asks.items())))
        return Offer("app:1", str(wanted.asks), "default", wanted)


class Rows(RowIndex):
    """Waiting rows; each queue has shapes of its own."""

    def __init__(self, rows: Sequence[IndexedRow], loads: Mapping[str, Load]) -> None:
        super().__init__(rows)
        self._offers = {row.kind: loads[row.queue].offer(row.id) for row in rows}

    async def kinds(self, ids: Sequence[int]) -> list[Kind]:
        return []

    def offer(self, kind: Kind) -> Offer | Hold:
        raise AssertionError("every kind is known")

    def known_offer(self, digest: bytes) -> Offer | Hold | None:
        return self._offers[digest]

    def refused(self, row: IndexedRow) -> Hold | None:
        return None


class Simulation:
    """Queues that always have rows, on nodes that are always full. A cycle runs each second."""

    def __init__(self, loads: Mapping[str, Load], seed: int) -> None:
        self.nodes = SimulatedNodes(a_node(f"n{n}", cpu=str(CORES), memory=f"{GIB}Gi", pods="50") for n in range(NODES))
        self._loads = loads
        self._chance = random.Random(seed)
        self._queues = [a_queue(name, weight=load.weight) for name, load in loads.items()]
        self._waiting: dict[int, IndexedRow] = {}
        self._next = 1
        self._scan = Scan(100)

    async def step(self) -> None:
        for name in self._loads:
            self._insert(name)
        self.nodes.step()
        await self._cycle()
        self.nodes.place()

    def shares(self) -> dict[str, float]:
        """Each queue's largest share of a resource, over its weight."""
        held: dict[str, Mapping[str, int]] = {name: {} for name in self._loads}
        for pod in self.nodes.running:
            held[pod.kind.queue] = added(held[pod.kind.queue], dict(pod.needs.asks))
        return {name: dominant(asks, SIZE) / self._loads[name].weight for name, asks in held.items()}

    def _insert(self, queue: str) -> None:
        missing = ENOUGH - sum(row.queue == queue for row in self._waiting.values())
        for _ in range(missing):
            self._waiting[self._next] = an_indexed_row(self._next, queue=queue, kind=self._kind(queue, self._next))
            self._next += 1

    async def _cycle(self) -> None:
        load = plan_load((pod.kind.queue, pod.kind.submitted_by) for pod in self.nodes.pods)
        snapshot = a_snapshot(
            *self._queues, now=self.nodes.now, max_pending=1, max_jobs=1000,
            load=load, allowance=Allowance(1000, 100), room=self.nodes.room(), in_line=self._scan.in_line,
            shares=plan_shares(Counter(pod.kind for pod in self.nodes.running), SIZE),
        )  # fmt: skip
        index = Rows(list(self._waiting.values()), self._loads)
        found = await self._scan.run(index, index, snapshot, KnownRows())
        for one in plan_cycle(snapshot, [self._candidate(id_) for id_ in found.ids]).launches:
            row = self._waiting.pop(one.task.id)
            length = self._chance.uniform(self._loads[row.queue].shortest, self._loads[row.queue].longest)
            self.nodes.add(SimulatedPod(row.id, one.pod, self.nodes.now, length))

    def _candidate(self, id_: int) -> Candidate:
        row = self._waiting[id_]
        task = a_task(id=row.id, queue=row.queue, submitted_by=row.submitted_by)
        return Candidate(task, self._loads[row.queue].offer(id_), JobsVerdict(Launch(1)))

    def _kind(self, queue: str, number: int) -> bytes:
        return f"{queue} {number % self._loads[queue].shapes}".encode()


MIXES = {
    "alike": {"a": Load(1, needs("1"), 10, 30), "b": Load(2, needs("1"), 10, 30), "c": Load(3, needs("1"), 10, 30)},
    "short beside long": {
        "a": Load(1, needs("1"), 1, 5), "b": Load(2, needs("1"), 20, 90), "c": Load(3, needs("1"), 5, 200),
    },
    "memory beside cores": {"a": Load(1, needs("1", "512Mi"), 10, 40), "b": Load(1, needs("500m", "3Gi"), 10, 40)},
    "many shapes beside one": {"a": Load(1, needs("1"), 40, 80, shapes=3), "b": Load(3, needs("1"), 40, 80)},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
async def test_queue_with_rows_that_fit_has_its_share_of_full_nodes_in_every_minute(mix: str) -> None:
    """At least 0.9 of what its weight gives, after the Pods of the first rows have ended."""
    loads = MIXES[mix]
    simulation, minutes = Simulation(loads, seed=1), list[dict[str, float]]()
    for _ in range(4 * MINUTE):
        await simulation.step()
    for _ in range(4):
        seconds = []
        for _ in range(MINUTE):
            await simulation.step()
            seconds.append(simulation.shares())
        minutes.append({name: fmean(one[name] for one in seconds) for name in loads})
    for shares in minutes:
        fair = sum(share * loads[name].weight for name, share in shares.items()) / sum(
            load.weight for load in loads.values()
        )
        assert min(shares.values()) >= 0.9 * fair, shares
