"""Who was turned away at the gate tries again when it may, and is told why it waits."""

from dispatcher.extender.node_filter import NodeFilter
from dispatcher.extender.wire import MetaPod, MetaVictims
from dispatcher.model.notices import Notice
from dispatcher.model.reservations import Reservation, key_of
from dispatcher.reservations.pod_request import PodRequest
from tests.unit.a_node_filter import CPU, NODES, ONE_NODE, a_gate, a_gate_with_clock, a_pod

# Another try


def test_who_was_waiting_before_we_began_tries_again() -> None:
    gate, seconds = a_gate_with_clock()
    assert gate.ready_to_retry() == []
    gate.was_waiting(PodRequest("team/old", (), {}, uid="o"))
    (attempt,) = gate.ready_to_retry()
    assert attempt.request.name == "team/old"
    gate.put_off(attempt)
    assert gate.ready_to_retry() == []
    seconds[0] += 1
    assert [one.request.name for one in gate.ready_to_retry()] == ["team/old"]


def test_who_may_not_push_aside_tries_again_when_it_may() -> None:
    gate, seconds = a_gate_with_clock()
    assert gate.ready_to_retry() == []
    assert gate.spared(a_pod("3"), {"a": MetaVictims([MetaPod("v1")])}) == {}
    assert gate.ready_to_retry() == []
    seconds[0] += 60
    assert [one.request.name for one in gate.ready_to_retry()] == ["team/p"]


def test_who_passes_in_doubt_counts_when_it_is_over() -> None:
    doubt = [True]
    gate, _ = a_gate_with_clock(is_certain=lambda: not doubt[0])
    assert gate.refusals(a_pod("3", name="early", uid="e"), {"b": None}) == {}
    held = Reservation("team/s", "s", "b", {"cpu": 1000}, key_of("podName", "team", "other"), float("inf"))
    gate._book.hear_reservation(None, held)
    doubt[0] = False
    assert gate.refusals(a_pod("1"), {"b": None}) == {"b": CPU}


def test_in_doubt_nobody_is_told_to_try_again() -> None:
    doubt = [False]
    gate, seconds = a_gate_with_clock(is_certain=lambda: not doubt[0])
    gate.refusals(a_pod(), NODES)
    doubt[0] = True
    seconds[0] += 60
    assert gate.ready_to_retry() == []
    doubt[0] = False
    assert [attempt.request.name for attempt in gate.ready_to_retry()] == ["team/p"]
    assert gate.is_looking


def test_who_was_turned_away_may_try_again_once_a_hold_is_over() -> None:
    gate, seconds = a_gate_with_clock()
    gate.refusals(a_pod(), NODES)
    assert gate.ready_to_retry() == []
    seconds[0] += 60
    (attempt,) = gate.ready_to_retry()
    assert attempt.request.name == "team/p"
    gate.told(attempt)
    assert gate.ready_to_retry() == []


def test_who_was_turned_away_in_doubt_may_try_again_once_there_is_none() -> None:
    doubt = [True]
    gate, _ = a_gate_with_clock(is_certain=lambda: not doubt[0])
    doubt[0] = False
    assert gate.ready_to_retry() == []
    doubt[0] = True
    gate.refusals(a_pod("3"), NODES)
    doubt[0] = False  # before anybody looked
    assert [attempt.request.name for attempt in gate.ready_to_retry()] == ["team/p"]


# What is told


def test_pod_and_reservation_are_told_of_each_other_once_until_the_pod_was_let_try_again() -> None:
    gate = a_gate()
    for _ in range(2):
        gate.refusals(a_pod(), ONE_NODE)
        assert [(one.kind, one.name, one.uid, one.reason, one.words) for one in gate._notices.due(10)] == [
            ("Pod", "team/p", "u", "Refused", f"{CPU}: by NodeReservation team/r on node a"),
            ("NodeReservation", "team/r", "r", "Refused", "Pod team/p was kept from node a"),
        ]
    heard(gate)
    gate.refusals(a_pod(), ONE_NODE)
    assert heard(gate) == []
    gate.told(gate._waiting._attempts["team/p"])
    gate.refusals(a_pod(), ONE_NODE)
    assert len(heard(gate)) == 2


def test_a_pod_is_told_once_no_other_node_is_left() -> None:
    gate = a_gate()
    gate.refusals(a_pod(), NODES)
    gate.refusals(a_pod(), ONE_NODE)
    assert len(heard(gate)) == 2


def test_who_may_have_another_node_is_not_told_of_this_one() -> None:
    gate = a_gate()
    gate.refusals(a_pod(), NODES)
    assert heard(gate) == []


def test_a_reservation_of_another_resource_is_not_blamed() -> None:
    gate = a_gate()
    other = Reservation("team/memory", "m", "a", {"memory": 1}, key_of("podName", "team", "other"), float("inf"))
    gate._book.hear_reservation(None, other)
    gate.refusals(a_pod(), ONE_NODE)
    assert [one.name for one in heard(gate)] == ["team/p", "team/r"]


def test_nobody_is_told_of_a_doubt() -> None:
    gate = a_gate(is_certain=False)
    gate.refusals(a_pod(), ONE_NODE)
    assert heard(gate) == []


def test_who_was_let_through_hears_nothing() -> None:
    gate = a_gate()
    gate.refusals(a_pod("2"), ONE_NODE)
    assert heard(gate) == []


def heard(gate: NodeFilter) -> list[Notice]:
    found = list(gate._notices.due(10))
    for one in found:
        gate._notices.told(one)
    return found
