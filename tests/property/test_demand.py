"""Demand over hours: no shape is kept from the autoscaler, and a full cluster is quiet.

A simulated cluster in which no node ever has room. An autoscaler answers some shapes: a node comes for them, and is
full at once. Everything that decides is production's.
"""

import random
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from dispatcher.admission.demand import Demands
from dispatcher.admission.gates import wants_place, without_room
from dispatcher.admission.room import room_of
from dispatcher.model.cluster import Node
from dispatcher.model.launches import PodKind, Probe
from tests.rig.builders import NOW, a_job, a_pod, a_snapshot
from tests.unit.rooms import a_node, needs, unplaced, view_of

GRACE = 30
STEP = 5
CYCLES = 4
COMES = 50
"""Seconds from a Pod to its node."""
FULL = view_of([a_node(cpu="1")])


class World:
    """Shapes that always have rows. `answered`: those for which nodes come, by name. `limit`: nodes at most."""

    def __init__(
        self, shapes: Mapping[str, PodKind], answered: frozenset[str], seed: int, need: int = 50, limit: int = 10_000
    ) -> None:
        self.demands = Demands("auto", GRACE)
        self.first_asked: dict[str, float] = {}
        self.most: Counter[str] = Counter()
        self.writes: Counter[str] = Counter()
        self.nodes: list[Node] = []
        self.most_asking = 0
        self._shapes, self._answered, self._need, self._limit = shapes, answered, need, limit
        self._random = random.Random(seed)
        self._probes: dict[str, Probe] = {}
        self._number = 0

    def run(self, seconds: int, max_jobs: int = 1000) -> None:
        for second in range(0, seconds, STEP):
            self._step(NOW + timedelta(seconds=second), max_jobs)

    def waiting(self) -> Counter[str]:
        return Counter(probe.job.shape for probe in self._probes.values())

    def _step(self, now: datetime, max_jobs: int) -> None:
        young = [node for node in self.nodes if now - node.created_at < timedelta(minutes=15)]
        self.demands.update(list(self._probes.values()), young, {}, now)
        kinds = Counter(self._shapes[probe.job.shape] for probe in self._probes.values())
        snapshot = a_snapshot(
            now=now, max_pending=1000, max_jobs=max_jobs, room=room_of(FULL, kinds, demand=self.demands.current)
        )
        wanting = []
        for shape in self._random.sample(list(self._shapes), len(self._shapes)):
            pod = self._shapes[shape]
            for _ in range(self._need):
                assert snapshot.room is not None
                if without_room(0, pod, snapshot) is not None:
                    break
                self._launch(pod, now)
                snapshot = a_snapshot(
                    now=now, max_pending=1000, max_jobs=max_jobs, room=snapshot.room.with_launches(pod)
                )
            wanting += [pod] if wants_place(pod, snapshot) else []
        assert snapshot.room is not None
        self.most |= Counter(snapshot.room.waiting.by_shape)
        self.most_asking = max(self.most_asking, sum(snapshot.room.waiting.asking.values()))
        back: dict[str, Probe] = {}
        for _ in range(CYCLES):  # the Pods are there until the writes are done
            back |= {probe.job.uid: probe for probe, _ in self.demands.given_back(list(self._probes.values()), wanting)}
        for uid, probe in back.items():
            self.writes[probe.job.shape] += 2
            del self._probes[uid]
        self._answer(now)

    def _launch(self, pod: PodKind, now: datetime) -> None:
        self._number += 1
        self.first_asked.setdefault(pod.shape, (now - NOW).total_seconds())
        job = a_job(
            task_id=self._number, uid=f"job-{self._number}", name=f"job-{self._number}", created_at=now,
            shape=pod.shape, needs=pod.needs, submitted_by=pod.submitted_by,
        )  # fmt: skip
        made = a_pod(
            job, uid=f"pod-{self._number}", name=f"pod-{self._number}", created_at=now, unschedulable_since=now
        )
        self._probes[job.uid] = Probe(job, made)

    def _answer(self, now: datetime) -> None:
        """A node comes for each Pod that has waited so long, and has room for nothing else."""
        for uid, probe in list(self._probes.items()):
            is_due = now - probe.pod.created_at >= timedelta(seconds=COMES) and len(self.nodes) < self._limit
            if probe.job.shape in self._answered and is_due:
                self.nodes.append(a_node(f"new-{uid}", cpu="64", memory="64Gi", created_at=now))
                del self._probes[uid]


def shapes_of(teams: Mapping[str, int]) -> dict[str, PodKind]:
    """So many shapes of each team."""
    return {
        f"{team}-{number}": unplaced(needs(str(2 + number)), f"{team}-{number}", "default", team)
        for team, count in teams.items()
        for number in range(count)
    }


@pytest.mark.parametrize(
    "teams",
    [{"a": 1}, {"a": 12}, {"a": 12, "b": 1}, {"a": 7, "b": 12, "c": 1, "d": 4}, dict.fromkeys("abcdef", 5)],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_every_shape_asks_whatever_others_ask_for(teams: Mapping[str, int], seed: int) -> None:
    shapes = shapes_of(teams)
    world = World(shapes, frozenset(), seed)
    world.run(900)
    for shape, pod in shapes.items():
        assert world.first_asked[shape] <= 10 + GRACE * teams[pod.submitted_by], shape
    assert world.most_asking <= 10 + len(teams), "and one for each that had none"
    assert max(world.most.values()) == 1, "nothing came, so one Pod of a shape asks"


@pytest.mark.slow
@pytest.mark.parametrize("hostile", [1, 3, 12])
@pytest.mark.parametrize("seed", range(2))
def test_shape_that_is_answered_grows_beside_shapes_that_fit_nowhere(hostile: int, seed: int) -> None:
    shapes = shapes_of({"hostile": hostile, "good": 1})
    world = World(shapes, frozenset({"good-0"}), seed)
    world.run(300)
    assert world.first_asked["good-0"] == 0
    assert world.most["good-0"] >= 50, "its whole need went out"


@pytest.mark.parametrize("shapes", [1, 3, 12])
def test_full_cluster_that_never_grows_is_quiet(shapes: int) -> None:
    """One Pod of a shape waits, and hardly anything is written."""
    minutes = 120
    world = World(shapes_of({"a": shapes}), frozenset(), 1, need=100)
    world.run(60 * minutes)
    assert max(world.most.values()) == 1
    assert all(count / minutes <= 1 for count in world.writes.values())
    assert world.writes.total() == 0 or shapes > 3, "while there are places for all, none is given back"


def test_group_at_its_limit_has_hardly_a_pod_that_waits_a_quarter_of_an_hour_later() -> None:
    world = World(shapes_of({"a": 1}), frozenset({"a-0"}), 1, need=100, limit=20)
    world.run(COMES + 900 + 60)
    assert (len(world.nodes), world.most["a-0"] >= 100) == (20, True), "the whole need had gone out"
    assert world.waiting()["a-0"] <= 2
