"""Cycles, drawn by a seed, and requests to the extender."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.admission.gates import Candidate
from dispatcher.admission.snapshot import Allowance, ClusterSnapshot, Load, PendingPods, plan_load
from dispatcher.model.jobs import Job, LaunchGroup
from dispatcher.model.launches import JobsVerdict, Launch, Offer
from dispatcher.model.tasks import Queue
from dispatcher.model.verdicts import Hold, HoldReason
from tests.contract.bodies import CONTAINER, POD, asking, node, whole
from tests.property.profiles import seed_of
from tests.rig.builders import a_job, a_queue, a_snapshot, a_task, ago, later

QUEUES = ("a", "b", "undeclared")
SHAPES = ("small", "large")
IMAGES = ("app:1", "app:2")
VERDICTS: Sequence[Launch | Hold | None] = (
    *(Launch(1),) * 9, *(Launch(2, is_repeat=True),) * 2, None,
    *map(Hold, (HoldReason.LAUNCHED, HoldReason.BACKOFF, HoldReason.FINISHING, HoldReason.POISON)),
)  # fmt: skip
GROUPS = [LaunchGroup(queue, "default", image, team) for queue in QUEUES for image in IMAGES for team in "xy"]
HOLDERS = [(queue, team) for queue in QUEUES for team in "xy"]
SHAPES_OF_QUEUES = [(queue, shape) for queue in QUEUES for shape in SHAPES]
SELDOM = [*[None] * 8, ago(5), later(60)]
JOB = a_job()
T = TypeVar("T")
SEED = seed_of("CYCLE_SEED")
RICH = POD | {
    "spec": {
        "containers": [CONTAINER, {"name": "other", "resources": {"requests": {"cpu": "50m"}}}],
        "initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"memory": "64Mi"}}}],
        "overhead": {"cpu": "10m"},
        "nodeSelector": None,
    },
    "status": {"phase": "Pending", "conditions": []},
}
META = {"a": {"Pods": [{"UID": "u1"}, {"UID": "u2"}], "NumPDBViolations": 1}, "b": {"Pods": [], "NumPDBViolations": 0}}
VICTIM = {"metadata": {"uid": "u1", "name": "x", "creationTimestamp": None, "annotations": {"x": "y"}}}
GOOD = [
    asking(RICH, NodeNames=["a", "c", "x", "b"]).decode(),
    asking(POD, NodeNames=["a", "b"]).decode(),
    whole(node("a"), node("b", annotations={"x": "y"}), node("x", creationTimestamp=None)).decode(),
    json.dumps({"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": META}),
    json.dumps({"Pod": POD, "NodeNameToVictims": {"a": {"Pods": [VICTIM]}}, "NodeNameToMetaVictims": None}),
]


class DrawnCycle(Struct):
    """What a cycle is decided from.

    number: the seed, and its place in the walk.
    in_flight: Jobs that exist before the cycle. The snapshot only has their counts.
    """

    number: str
    snapshot: ClusterSnapshot
    candidates: list[Candidate]
    in_flight: list[Job]


def draw_cycles(count: int) -> Iterator[DrawnCycle]:
    """Full cycles: most rows could be launched, and each thing that holds rows is there in a part of the cycles.

    Examples of hypothesis are small, and most of them hold every row. So they compare few orders of launches.
    """
    chance = Random(SEED)
    for number in range(count):
        held_by = [(draw_queue(chance), chance.choice("xy")) for _ in range(chance.randint(0, 6))]
        in_flight = [replace(JOB, queue=queue, submitted_by=team) for queue, team in held_by]
        snapshot, candidates = draw_snapshot(chance, held_by), draw_candidates(chance)
        yield DrawnCycle(f"CYCLE_SEED={SEED}, cycle {number}", snapshot, candidates, in_flight)


def draw_candidates(chance: Random) -> list[Candidate]:
    """Up to 16 rows, in any order."""
    ids = chance.sample(range(16), chance.randint(0, 16))
    return [draw_candidate(chance, id_) for id_ in ids]


def draw_candidate(chance: Random, id_: int) -> Candidate:
    task = a_task(
        id=id_, queue=draw_queue(chance), submitted_by=chance.choice("xy"), priority=chance.randint(0, 2),
        run_at=chance.choice(SELDOM),
    )  # fmt: skip
    good = Offer(chance.choice(IMAGES), chance.choice(SHAPES), "default")
    offer = chance.choice([good] * 15 + [Hold(HoldReason.POLICY_DENIED)])
    tried_at = chance.choice([float("-inf"), 1.0, 2.0])
    return Candidate(task, offer, JobsVerdict(chance.choice(VERDICTS)), tried_at)


def draw_snapshot(chance: Random, in_flight: Sequence[tuple[str, str]]) -> ClusterSnapshot:
    """`in_flight`: (queue, submitter) of each Job."""

    def seldom() -> bool:
        return chance.random() < 0.1

    def counts(keys: Sequence[T], most: int) -> dict[T, int]:
        return {key: chance.randint(0, most) for key in keys if seldom()}

    not_ready = Hold(HoldReason.DISPATCHER_NOT_READY) if seldom() else None
    launched_at = {holder: ago(chance.uniform(0, 3)) for holder in HOLDERS if chance.random() < 0.5}
    return a_snapshot(
        *[draw_declared(chance, name) for name in QUEUES[:2]],
        max_jobs=chance.randint(0, 30), max_pending=chance.randint(0, 5), is_strict=seldom(), load=plan_load(in_flight),
        held=Load(by_submitter=counts(HOLDERS, 3)), launched_at=launched_at if chance.random() < 0.3 else None,
        pending=PendingPods(chance.choice([0, 0, 1]), counts(SHAPES, 5), counts(SHAPES_OF_QUEUES, 5)),
        allowance=Allowance(chance.randint(0, 30), chance.randint(0, 30)), not_ready=not_ready,
        is_blind=not_ready is not None and chance.random() < 0.5, is_probing=seldom(),
        quota=Hold(HoldReason.QUOTA_EXCEEDED) if seldom() else None, stuck_shapes=frozenset(counts(SHAPES, 1)),
        failing_groups=frozenset(group for group in GROUPS if seldom()),
        busy_groups=frozenset(group for group in GROUPS if chance.random() < 0.5),
    )  # fmt: skip


def draw_declared(chance: Random, name: str) -> Queue:
    return a_queue(
        name, max_jobs=chance.choice([None, chance.randint(0, 12)]), weight=chance.randint(1, 3),
        max_jobs_per_submitter=chance.choice([None, chance.randint(0, 8)]), fair_submitters=chance.random() < 0.5,
        max_pending=chance.choice([None, chance.randint(0, 5)]), paused_until=chance.choice(SELDOM),
    )  # fmt: skip


def draw_queue(chance: Random) -> str:
    return chance.choice(QUEUES[:2] * 8 + QUEUES[2:])
