"""The told reason of a row is true, in any mix of caps, pauses, templates, Jobs, quotas and nodes."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.admission.cycle import plan_cycle
from dispatcher.admission.last_cycle import LastCycle, RowReason, candidate_of, tell
from dispatcher.admission.room import Room
from dispatcher.model.cluster import Quota, Quotas
from dispatcher.model.jobs import Job
from dispatcher.model.launches import JobsVerdict, Launch, Offer
from dispatcher.model.tasks import Kind, Task
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views.explanation import what_holds
from tests.property.drawn import SEED, draw_candidate, draw_cycles
from tests.property.profiles import amount
from tests.property.truth import check_reason
from tests.rig.builders import NOW, a_last_cycle, a_snapshot, a_task
from tests.unit.rooms import a_bound_pod, a_node, needs, room

SIZES = ("1", "2", "4", "16")
CYCLES = amount(gate=500, whole=3_000, nightly=30_000)


class Offers:
    """The offer of each row; its id is its kind."""

    def __init__(self, by_kind: Mapping[bytes, Offer | Hold]) -> None:
        self._by_kind = by_kind

    def offer(self, kind: Kind) -> Offer | Hold:
        return self._by_kind[kind.digest]

    def known_offer(self, digest: bytes) -> Offer | Hold | None:
        return self._by_kind.get(digest)


class Verdicts(Struct, frozen=True):
    """The picture of a cycle, as verdicts by row. `all_jobs`: verdicts that are not a first launch, by task."""

    offers: Any
    all_jobs: Sequence[tuple[int, JobsVerdict]] = ()
    jobs: Mapping[int, Sequence[Job]] = {}
    creates: object = None
    cluster: Any = None

    def offer(self, kind: Kind) -> Offer | Hold:
        found: Offer | Hold = self.offers.offer(kind)
        return found

    def known_offer(self, digest: bytes) -> Offer | Hold | None:
        found: Offer | Hold | None = self.offers.known_offer(digest)
        return found

    def tried_at(self, task_id: int) -> float:
        return float("-inf")

    def judge_row(self, task: Task) -> JobsVerdict:
        return dict(self.all_jobs).get(task.id, JobsVerdict(Launch(1)))

    def jobs_of(self, task: Task) -> Sequence[Job]:
        return ()


def draw_room(chance: Random) -> Room | None:
    if chance.random() < 0.5:
        return None
    nodes = [a_node(f"n{number}", cpu=chance.choice(SIZES)) for number in range(chance.randint(0, 4))]
    return room(nodes, [a_bound_pod(node.name, name=f"p-{node.name}", cpu=chance.choice("012")) for node in nodes])


def judged_cycles(count: int) -> Iterator[tuple[str, LastCycle, list[Task]]]:
    """Cycles, and the rows that each of them judged. Each row asks for some cores. No create is repeated."""
    chance = Random(SEED)
    for drawn in draw_cycles(count):
        rows = [one for one in drawn.candidates if isinstance(one.jobs.verdict, Launch | Hold)]
        asking = {one.task.id: with_needs(one.offer, chance.choice(SIZES)) for one in rows}
        tasks = [replace(one.task, kind=str(one.task.id).encode()) for one in rows]
        picture = Verdicts(
            Offers({task.kind: asking[task.id] for task in tasks}),
            [(one.task.id, one.jobs) for one in rows if not one.is_repeat],
        )
        quota = Quota("q", {"requests.cpu": chance.randint(0, 9) * 1000}, {})
        quotas = Quotas((quota,) if chance.random() < 0.3 else ())
        snapshot = replace(drawn.snapshot, room=draw_room(chance), quotas=quotas)
        plan = plan_cycle(snapshot, [candidate_of(task, picture) for task in tasks])
        by_id = {task.id: task for task in tasks}
        told = tell([(by_id[id_], hold) for id_, hold in plan.holds.items()], {}, snapshot.now)
        launched = frozenset(one.task.id for one in plan.launches)
        yield drawn.number, a_last_cycle(plan.after, picture, told, launched=launched), tasks


def with_needs(offer: Offer | Hold, cpu: str) -> Offer | Hold:
    return offer if isinstance(offer, Hold) else replace(offer, needs=needs(cpu))


def test_reason_of_every_row_is_the_one_that_holds_it() -> None:
    for number, cycle, tasks in judged_cycles(CYCLES):
        assert cycle.launched.isdisjoint(cycle.told), number
        assert cycle.launched | cycle.told.keys() == {task.id for task in tasks}, number
        for task in tasks:
            check_reason(cycle, task, number)


def test_row_behind_the_judged_ones_is_told_what_would_hold_it() -> None:
    """The reason of a row that no cycle judged is true: without it, the row would go on."""
    chance = Random(SEED)
    for number, cycle, tasks in judged_cycles(CYCLES):
        for id_ in range(10_000, 10_003) if tasks else ():
            row = draw_candidate(chance, id_).task
            check_reason(cycle, replace(row, kind=chance.choice(tasks).kind), number)


@pytest.mark.parametrize("reason", [HoldReason.PAUSED, HoldReason.QUEUE_CAP, HoldReason.NO_ROOM_NOW])
def test_law_finds_a_lie(reason: HoldReason) -> None:
    """Otherwise the other tests would prove nothing. The row is told one reason, and another one holds it, too."""
    picture = Verdicts(Offers({b"kind": Offer("app:1", "small", "default")}))
    snapshot = a_snapshot(not_ready=Hold(HoldReason.DISPATCHER_NOT_READY, "no leader"))
    told = {42: RowReason("default", 1, Hold(reason), NOW)}
    cycle = a_last_cycle(snapshot, picture, told)
    check_reason(cycle, a_task())
    hidden = replace(cycle, told={})
    assert [hold.reason for hold in what_holds(a_task(), hidden) or ()] == [HoldReason.DISPATCHER_NOT_READY]
