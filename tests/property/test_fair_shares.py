"""Fair shares over time: a simulation of rows that come, wait, run and end, with the real scan and the real cycle."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

import pytest

from dispatcher.admission.cycle import plan_cycle
from dispatcher.admission.gates import Candidate
from dispatcher.admission.heads import KnownRows
from dispatcher.admission.scan import Scan
from dispatcher.admission.snapshot import Allowance, plan_load
from dispatcher.model.launches import JobsVerdict, Launch, Offer
from dispatcher.model.tasks import IndexedRow, Kind, Queue
from dispatcher.model.verdicts import Hold
from tests.rig.builders import a_queue, a_snapshot, a_task, an_indexed_row
from tests.rig.indexing import RowIndex

OFFER = Offer("app:1", "small", "default")
CAP = 60
MINUTE = 60


class Rows(RowIndex):
    """Waiting rows, all of which fit."""

    async def kinds(self, ids: Sequence[int]) -> list[Kind]:
        return []

    def offer(self, kind: Kind) -> Offer | Hold:
        return OFFER

    def known_offer(self, digest: bytes) -> Offer | Hold | None:
        return OFFER

    def refused(self, row: IndexedRow) -> Hold | None:
        return None


class Simulation:
    """Rows in queues under one cap of Jobs. A cycle runs each second.

    started: (second, row) of each launch.
    running: the number of Jobs in flight of each queue, at the end of each second.
    """

    def __init__(self, *queues: Queue, cap: int = CAP, seed: int = 1) -> None:
        self.now = 0
        self.started: list[tuple[int, IndexedRow]] = []
        self.running: list[Counter[str]] = []
        self.inserted: dict[int, int] = {}
        self._queues = queues
        self._cap = cap
        self._chance = random.Random(seed)
        self._waiting: dict[int, IndexedRow] = {}
        self._ends: dict[int, tuple[IndexedRow, float]] = {}
        self._scan = Scan(100)

    def insert(self, count: int, queue: str, submitter: str = "a", priority: int = 100) -> list[int]:
        first = len(self.inserted) + 1
        for number in range(first, first + count):
            self._waiting[number] = an_indexed_row(number, queue=queue, submitted_by=submitter, priority=priority)
            self.inserted[number] = self.now
        return list(range(first, first + count))

    async def run(self, seconds: int, lengths: Mapping[str, tuple[int, int]]) -> None:
        """`lengths`: shortest and longest run of each queue's rows."""
        for _ in range(seconds):
            self.now += 1
            self._ends = {id_: end for id_, end in self._ends.items() if end[1] > self.now}
            await self._cycle(lengths)
            self.running.append(Counter(row.queue for row, _ in self._ends.values()))

    async def _cycle(self, lengths: Mapping[str, tuple[int, int]]) -> None:
        load = plan_load((row.queue, row.submitted_by) for row, _ in self._ends.values())
        snapshot = a_snapshot(*self._queues, max_jobs=self._cap, load=load, allowance=Allowance(1000, 100))
        index = Rows(list(self._waiting.values()))
        found = await self._scan.run(index, index, snapshot, KnownRows())
        rows = [self._waiting[id_] for id_ in found.ids]
        for one in plan_cycle(snapshot, [candidate_of(row) for row in rows]).launches:
            row = self._waiting.pop(one.task.id)
            self.started.append((self.now, row))
            self._ends[row.id] = row, self.now + self._chance.uniform(*lengths[row.queue])

    def starts(self, queue: str) -> list[tuple[int, int]]:
        """(id, second) of each launch of the queue."""
        return [(row.id, at) for at, row in self.started if row.queue == queue]


def candidate_of(row: IndexedRow) -> Candidate:
    task = a_task(id=row.id, queue=row.queue, submitted_by=row.submitted_by, priority=row.priority)
    return Candidate(task, OFFER, JobsVerdict(Launch(1)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "lengths",
    [
        {"a": (10, 30), "b": (10, 30), "c": (10, 30)},
        {"a": (1, 5), "b": (20, 90), "c": (5, 200)},
    ],
    ids=["alike", "short beside long"],
)
async def test_queue_with_waiting_rows_has_its_share_of_the_jobs_in_flight(lengths: dict[str, tuple[int, int]]) -> None:
    """In every minute, after the first Jobs have ended: at least 0.9 of the share that its weight gives."""
    weights = {"a": 1, "b": 2, "c": 3}
    simulation = Simulation(*(a_queue(name, weight=weight) for name, weight in weights.items()))
    simulation.insert(300, "a")  # first and alone, so that it has the whole cap
    await simulation.run(1, lengths)
    for _ in range(10):
        for name in weights:
            simulation.insert(300, name, priority=9 if name == "a" else 100)
        await simulation.run(MINUTE, lengths)
    minutes = [simulation.running[at : at + MINUTE] for at in range(4 * MINUTE, 10 * MINUTE, MINUTE)]
    for minute in minutes:
        for name, weight in weights.items():
            share = CAP * weight / sum(weights.values())
            assert fmean(second[name] for second in minute) >= 0.9 * share, name


async def test_idle_share_goes_to_the_other_queues() -> None:
    simulation = Simulation(a_queue("a", weight=1), a_queue("b", weight=1000))
    simulation.insert(1000, "a")
    await simulation.run(10, {"a": (100, 100), "b": (100, 100)})
    assert simulation.running[-1] == {"a": CAP}


async def test_rows_of_a_quiet_queue_start_in_the_first_cycle_with_room() -> None:
    """Beside thousands of rows of a better priority that came before."""
    simulation = Simulation(a_queue("noisy"), a_queue("quiet"))
    simulation.insert(5_000, "noisy", priority=0)
    lengths = {"noisy": (60, 60), "quiet": (60, 60)}
    await simulation.run(5, lengths)
    quiet = simulation.insert(10, "quiet", priority=1000)
    await simulation.run(MINUTE, lengths)
    room_at = 61  # the noisy Jobs of second 1 end
    assert simulation.starts("quiet") == [(id_, room_at) for id_ in quiet]


@pytest.mark.slow
async def test_equal_rows_of_a_steady_stream_wait_alike() -> None:
    """The longest wait is at most 2.5 times the mean."""
    simulation, lengths = Simulation(a_queue("a"), a_queue("b")), {"a": (5, 15), "b": (5, 15)}
    for _ in range(10 * MINUTE):
        simulation.insert(3, "a")
        simulation.insert(3, "b")
        await simulation.run(1, lengths)
    waits = [at - came for at, row in simulation.started if (came := simulation.inserted[row.id]) > 5 * MINUTE]
    assert max(waits) <= max(2.5 * fmean(waits), 2)


@pytest.mark.parametrize("is_fair", [True, False])
async def test_submitters_share_a_queue_if_it_says_so(is_fair: bool) -> None:
    simulation = Simulation(a_queue("a", fair_submitters=is_fair), cap=20)
    simulation.insert(2_000, "a", "noisy", priority=0)
    lengths = {"a": (10, 10)}
    await simulation.run(5, lengths)
    quiet = simulation.insert(30, "a", "quiet")
    await simulation.run(30, lengths)
    first = [row.submitted_by for at, row in simulation.started if at == 11]
    assert Counter(first) == ({"noisy": 10, "quiet": 10} if is_fair else {"noisy": 20})
    started = {id_ for id_, _ in simulation.starts("a")}
    assert started.issuperset(quiet) is is_fair


async def test_priorities_hold_inside_a_queue_and_between_submitters_of_equal_share() -> None:
    simulation = Simulation(a_queue("a", fair_submitters=True), cap=4)
    late, early = simulation.insert(2, "a", "x", priority=9), simulation.insert(2, "a", "y", priority=1)
    await simulation.run(1, {"a": (10, 10)})
    assert [row.id for _, row in simulation.started] == [early[0], late[0], early[1], late[1]]


def test_shares_are_counted_by_queue_and_submitter() -> None:
    """A submitter's Jobs in another queue do not count in this one."""
    load = plan_load([("a", "x")] * 3 + [("b", "y")] * 9)
    snapshot = a_snapshot(a_queue("a", fair_submitters=True), a_queue("b"), load=load)
    rows = [an_indexed_row(1, queue="a", submitted_by="x"), an_indexed_row(2, queue="a", submitted_by="y")]
    plan = plan_cycle(snapshot, [candidate_of(row) for row in rows])
    assert [one.task.id for one in plan.launches] == [2, 1]
