"""The first Pods of a shape: few go out before one is seen, and no shape waits long for that."""

from dispatcher.admission.cycle import plan_cycle
from dispatcher.admission.demand import FIRST, PATIENCE, FirstPods, Patience
from dispatcher.admission.gates import Candidate
from dispatcher.model.launches import JobsVerdict, Offer
from tests.rig.builders import FIRST_LAUNCH, NOW, a_snapshot, a_task, later
from tests.unit.rooms import needs, unplaced

SMALL, LARGE = unplaced(needs("1"), "small"), unplaced(needs("2"), "large")
MADE = {"small": needs("3")}


def test_few_rows_of_an_unknown_shape_are_launched_in_a_cycle() -> None:
    rows = [
        Candidate(a_task(id=number), Offer("app:1", "new", "default"), JobsVerdict(FIRST_LAUNCH)) for number in range(9)
    ]
    done = plan_cycle(a_snapshot(first=FirstPods()), rows)
    assert len(done.launches) == FIRST
    assert {(str(hold.reason), hold.detail) for hold in done.holds.values()} == {
        ("NextCycle", "the first Pods of its shape show what it needs")
    }
    for known in (FirstPods(made={"new": needs("1")}), FirstPods(late=frozenset({"new"})), None):
        assert len(plan_cycle(a_snapshot(first=known), rows).launches) == 9


def test_launches_without_a_node_count_until_a_pod_of_the_shape_is_seen() -> None:
    found = Patience().look({SMALL: 7, LARGE: 4}, MADE, NOW)
    assert found == FirstPods(MADE, frozenset(), {"large": 4})
    assert [found.must_wait(shape) for shape in ("small", "large", "other")] == [False, False, False]
    assert found.with_launch("large").must_wait("large")
    assert found.with_launch("small") is found


def test_shape_whose_pods_are_not_seen_goes_on_after_a_while() -> None:
    patience = Patience()
    assert patience.look({LARGE: 9}, {}, NOW).must_wait("large")
    late = patience.look({LARGE: 9}, {}, NOW + PATIENCE)
    assert (late.late, late.must_wait("large")) == (frozenset({"large"}), False)
    assert patience.look({}, {}, later(60)) == FirstPods()
    assert patience.look({LARGE: 9}, {}, later(61)).must_wait("large"), "it is awaited anew"
