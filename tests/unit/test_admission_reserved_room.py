"""NodeReservations make nodes smaller for all Pods but their targets."""

from typing import Any

import pytest

from dispatcher.admission.gates import without_room
from dispatcher.admission.room import ReservedRoom, Room, RoomIndex
from dispatcher.model.cluster import PriorityClass
from dispatcher.model.needs import PodNeeds
from dispatcher.model.reservations import Reservation
from tests.rig.builders import a_snapshot
from tests.unit.rooms import ANY_NODE, NO_NODE, a_bound_pod, a_node, amounts_of, needs, node_for, unplaced

ENDS_AT = 1000.0
OTHER = "podName builds/other"


def a_reservation(target: str = OTHER, cpu: str = "2", name: str = "builds/one", **facts: Any) -> Reservation:
    fields = {"uid": f"uid of {name}", "node": "n1", "ends_at": ENDS_AT, **facts}
    return Reservation(name=name, amounts=amounts_of({"cpu": cpu}), target=target, **fields)


def an_index() -> RoomIndex:
    """One node with 4 cores. Our Jobs are in the namespace `jobs`, and their names begin with `dispatcher-`."""
    index = RoomIndex(["ours"], 100, ReservedRoom("jobs", "dispatcher"))
    index.hear_node(None, a_node(cpu="4"))
    return index


def node_in(index: RoomIndex, cpu: str, now: float = 0, **facts: Any) -> str:
    return node_for(Room(index.view(now)), needs(cpu, **facts))


def test_reservation_takes_room_until_it_is_deleted() -> None:
    index = an_index()
    index.hear_reservation(None, one := a_reservation())
    assert (node_in(index, "2"), node_in(index, "3")) == ("n1", NO_NODE)
    index.hear_reservation(one, None)
    assert node_in(index, "4") == "n1"


def test_reservation_takes_room_beside_the_pods_of_the_node() -> None:
    index = an_index()
    index.hear_pod(None, a_bound_pod("n1", cpu="1"))
    index.hear_reservation(None, a_reservation(cpu="1", name="builds/a"))
    index.hear_reservation(None, a_reservation(cpu="1", name="builds/b"))
    assert (node_in(index, "1"), node_in(index, "2")) == ("n1", NO_NODE)
    index.hear_reservation(a_reservation(cpu="1", name="builds/a"), None)
    assert (node_in(index, "2"), node_in(index, "3")) == ("n1", NO_NODE)


def test_reservation_ends_at_its_time_and_a_later_time_makes_it_active_again() -> None:
    index = an_index()
    index.hear_reservation(None, one := a_reservation())
    assert node_in(index, "4", now=ENDS_AT - 1) == NO_NODE
    assert node_in(index, "4", now=ENDS_AT) == "n1"
    index.hear_reservation(one, a_reservation(ends_at=ENDS_AT + 100))
    assert node_in(index, "4", now=ENDS_AT) == NO_NODE
    assert node_in(index, "4", now=ENDS_AT + 100) == "n1"


def test_reservation_ends_when_its_target_has_a_node_even_before_its_status_says_so() -> None:
    index = an_index()
    index.hear_reservation(None, one := a_reservation())
    index.hear_pod(None, a_bound_pod("n1", cpu="2", keys=(OTHER,)))
    assert node_in(index, "2") == "n1"
    index.hear_reservation(one, renewed := a_reservation(message="landed soon"))
    assert node_in(index, "2") == "n1"
    index.hear_reservation(renewed, a_reservation(uid="made again"))
    assert node_in(index, "2") == NO_NODE


def test_landed_reservation_takes_nothing() -> None:
    index = an_index()
    index.hear_reservation(None, a_reservation(phase="Landed"))
    assert node_in(index, "4") == "n1"


def test_pod_without_a_node_ends_no_reservation() -> None:
    index = an_index()
    index.hear_reservation(None, a_reservation())
    index.hear_pod(None, a_bound_pod("", keys=(OTHER,)))
    index.hear_pod(None, a_bound_pod("", name="nominated", cpu="1", nominated="n1", keys=(OTHER,)))
    assert (node_in(index, "1"), node_in(index, "2")) == ("n1", NO_NODE)


def test_critical_pod_may_use_what_is_reserved() -> None:
    index = an_index()
    index.hear_priority_class(None, PriorityClass("system-node-critical", 2_000_001_000))
    index.hear_reservation(None, a_reservation())
    assert node_in(index, "4", priority_class="system-node-critical") == "n1"


def test_reservation_of_an_unknown_node_takes_nothing_until_the_node_comes() -> None:
    index = an_index()
    index.hear_reservation(None, a_reservation(node="n2"))
    assert node_in(index, "4") == "n1"
    index.hear_node(None, a_node("n2", cpu="4"))
    index.hear_pod(None, a_bound_pod("n1", cpu="4"))
    assert (node_in(index, "2"), node_in(index, "3")) == ("n2", NO_NODE)


@pytest.mark.parametrize(
    ("target", "is_held"),
    [
        ("taskId jobs/42", False),
        ("jobName jobs/dispatcher-42-0a1b2c3d-1", False),
        ("jobName jobs/dispatcher-42-0a1b2c3d-1r2", False),
        ("taskId jobs/43", True),
        ("taskId others/42", True),
        ("jobName jobs/other-42-0a1b2c3d-1", True),
        ("jobName jobs/dispatcher-soon", True),
        ("taskId jobs/", True),
    ],
)
def test_row_that_is_the_target_is_not_held_by_room(target: str, is_held: bool) -> None:
    index = an_index()
    index.hear_reservation(None, a_reservation(target, cpu="4"))
    snapshot = a_snapshot(max_pending=0, room=Room(index.view()))
    assert (without_room(42, unplaced(needs("4")), snapshot) is not None) is is_held


def test_view_stays_the_same_object_while_no_reservation_changes() -> None:
    index = an_index()
    index.hear_reservation(None, a_reservation())
    before = index.view(1)
    index.hear_pod(None, a_bound_pod(""))
    assert index.view(2) is before
    assert node_for(Room(before), PodNeeds(is_gated=True)) == ANY_NODE


def test_reservation_of_our_own_claim_takes_nothing() -> None:
    """The room gate keeps claimed nodes for their rows by itself."""
    index = an_index()
    index.hear_reservation(None, a_reservation("taskId jobs/42", cpu="4", name="jobs/dispatcher-claim-42"))
    assert node_in(index, "4") == "n1"
    assert index.view().targets == frozenset()
