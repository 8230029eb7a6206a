"""The demand as people see it: shape by shape, the largest first."""

import msgspec
from msgspec.structs import replace

from dispatcher.admission.demand import Demand, DemandPods, DemandRecord
from dispatcher.admission.last_cycle import LastCycle
from dispatcher.admission.room import Room, room_of
from dispatcher.views.status import MOST_SHAPES, ShapeDemand, demand_of
from tests.rig.builders import NOW, a_picture, a_snapshot, ago
from tests.unit.rooms import needs, unplaced, view_of


def a_cycle(room: Room | None) -> LastCycle:
    return LastCycle(a_snapshot(room=room), a_picture(), {}, frozenset(), {}, {}, leads=True)


def test_demand_is_told_shape_by_shape_with_its_answer() -> None:
    asked = {"small": DemandRecord(NOW, NOW, ago(90), since=ago(60), refused="max size")}
    waiting = {
        unplaced(needs("1"), "small", "a"): 2, unplaced(needs("1"), "small", "b"): 3, unplaced(needs("9"), "large"): 1,
    }  # fmt: skip
    demand = Demand(grown=frozenset({"small"}), asked=asked)
    assert demand_of(a_cycle(room_of(view_of([]), waiting, demand=demand))) == [
        ShapeDemand(
            asks="cpu 1, memory 1Gi", pods=5, has_grown=True, since=ago(60),
            answer="the autoscaler says: max size; a Pod like it waits for a node since 11:59:00 UTC",
        ),
        ShapeDemand(asks="cpu 9, memory 1Gi", pods=1, has_grown=False, since=None, answer=""),
    ]  # fmt: skip


def test_where_room_is_not_judged_the_pods_that_wait_are_told_with_what_autoscalers_say() -> None:
    demand = Demand(asked={"large": DemandRecord(NOW, NOW, ago(90), since=ago(60), refused="max size")})
    snapshot = a_snapshot(stuck=DemandPods(demand, {unplaced(needs("9"), "large"): 2}))
    (found,) = demand_of(replace(a_cycle(None), snapshot=snapshot))
    assert (found.pods, found.answer.partition(";")[0]) == (2, "the autoscaler says: max size")


def test_number_of_shapes_is_bounded() -> None:
    waiting = {unplaced(needs("9"), f"shape-{number}"): 1 for number in range(50)}
    found = demand_of(a_cycle(room_of(view_of([]), waiting)))
    assert len(found) == MOST_SHAPES
    assert msgspec.json.encode(found)
