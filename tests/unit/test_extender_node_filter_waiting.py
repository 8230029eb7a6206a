"""Pods that the node filter refused: when they are retried, and which notices say why they wait."""

from dispatcher.extender.assumed_pods import PodRequest
from dispatcher.extender.nodes import NodeFilter
from dispatcher.extender.wire import MetaPod, MetaVictims
from dispatcher.model.notices import Notice
from dispatcher.model.reservations import Reservation, key_of
from tests.unit.a_node_filter import CPU, NODES, ONE_NODE, a_node_filter, a_node_filter_with_clock, a_pod

# Retries


def test_pod_refused_by_an_earlier_process_is_retried() -> None:
    node_filter, seconds = a_node_filter_with_clock()
    assert node_filter.ready_to_retry() == []
    node_filter.note_earlier_refusal(PodRequest("team/old", (), {}, uid="o"))
    (pod,) = node_filter.ready_to_retry()
    assert pod.request.name == "team/old"
    node_filter.retry_later(pod)
    assert node_filter.ready_to_retry() == []
    seconds[0] += 1
    assert [one.request.name for one in node_filter.ready_to_retry()] == ["team/old"]


def test_pod_refused_by_preempt_is_retried_when_the_reservation_ends() -> None:
    node_filter, seconds = a_node_filter_with_clock()
    assert node_filter.ready_to_retry() == []
    assert node_filter.filter_victims(a_pod("3"), {"a": MetaVictims([MetaPod("v1")])}) == {}
    assert node_filter.ready_to_retry() == []
    seconds[0] += 60
    assert [one.request.name for one in node_filter.ready_to_retry()] == ["team/p"]


def test_pod_that_passed_in_doubt_is_assumed_afterwards() -> None:
    doubt = [True]
    node_filter, _ = a_node_filter_with_clock(is_certain=lambda: not doubt[0])
    assert node_filter.filter_nodes(a_pod("3", name="early", uid="e"), {"b": None}) == {}
    reservation = Reservation("team/s", "s", "b", {"cpu": 1000}, key_of("podName", "team", "other"), float("inf"))
    node_filter._book.hear_reservation(None, reservation)
    doubt[0] = False
    assert node_filter.filter_nodes(a_pod("1"), {"b": None}) == {"b": CPU}


def test_no_pod_is_retried_in_doubt() -> None:
    doubt = [False]
    node_filter, seconds = a_node_filter_with_clock(is_certain=lambda: not doubt[0])
    node_filter.filter_nodes(a_pod(), NODES)
    doubt[0] = True
    seconds[0] += 60
    assert node_filter.ready_to_retry() == []
    doubt[0] = False
    assert [pod.request.name for pod in node_filter.ready_to_retry()] == ["team/p"]
    assert node_filter.is_checking


def test_refused_pod_is_retried_when_the_reservation_ends() -> None:
    node_filter, seconds = a_node_filter_with_clock()
    node_filter.filter_nodes(a_pod(), NODES)
    assert node_filter.ready_to_retry() == []
    seconds[0] += 60
    (pod,) = node_filter.ready_to_retry()
    assert pod.request.name == "team/p"
    node_filter.forget(pod)
    assert node_filter.ready_to_retry() == []


def test_pod_refused_in_doubt_is_retried_when_the_doubt_ends() -> None:
    doubt = [True]
    node_filter, _ = a_node_filter_with_clock(is_certain=lambda: not doubt[0])
    doubt[0] = False
    assert node_filter.ready_to_retry() == []
    doubt[0] = True
    node_filter.filter_nodes(a_pod("3"), NODES)
    doubt[0] = False  # before any retry was asked for
    assert [pod.request.name for pod in node_filter.ready_to_retry()] == ["team/p"]


# Notices


def test_refusal_is_notified_once_until_the_pod_is_retried() -> None:
    node_filter = a_node_filter()
    for _ in range(2):
        node_filter.filter_nodes(a_pod(), ONE_NODE)
        assert [(one.kind, one.name, one.uid, one.reason, one.words) for one in node_filter._notices.due(10)] == [
            ("Pod", "team/p", "u", "Refused", f"{CPU}: by NodeReservation team/r on node a"),
            ("NodeReservation", "team/r", "r", "Refused", "Pod team/p was kept from node a"),
        ]
    take_notices(node_filter)
    node_filter.filter_nodes(a_pod(), ONE_NODE)
    assert take_notices(node_filter) == []
    node_filter.forget(node_filter._waiting._pods["team/p"])
    node_filter.filter_nodes(a_pod(), ONE_NODE)
    assert len(take_notices(node_filter)) == 2


def test_pod_is_notified_when_no_other_node_is_left() -> None:
    node_filter = a_node_filter()
    node_filter.filter_nodes(a_pod(), NODES)
    node_filter.filter_nodes(a_pod(), ONE_NODE)
    assert len(take_notices(node_filter)) == 2


def test_pod_with_another_node_left_is_not_notified() -> None:
    node_filter = a_node_filter()
    node_filter.filter_nodes(a_pod(), NODES)
    assert take_notices(node_filter) == []


def test_reservation_of_another_resource_is_not_notified() -> None:
    node_filter = a_node_filter()
    other = Reservation("team/memory", "m", "a", {"memory": 1}, key_of("podName", "team", "other"), float("inf"))
    node_filter._book.hear_reservation(None, other)
    node_filter.filter_nodes(a_pod(), ONE_NODE)
    assert [one.name for one in take_notices(node_filter)] == ["team/p", "team/r"]


def test_refusal_in_doubt_is_not_notified() -> None:
    node_filter = a_node_filter(is_certain=False)
    node_filter.filter_nodes(a_pod(), ONE_NODE)
    assert take_notices(node_filter) == []


def test_pod_that_passes_is_not_notified() -> None:
    node_filter = a_node_filter()
    node_filter.filter_nodes(a_pod("2"), ONE_NODE)
    assert take_notices(node_filter) == []


def take_notices(node_filter: NodeFilter) -> list[Notice]:
    found = list(node_filter._notices.due(10))
    for one in found:
        node_filter._notices.told(one)
    return found
