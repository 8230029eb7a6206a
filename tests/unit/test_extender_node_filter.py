"""The node filter: keys and exemptions of Pods, doubt, preemption, and the retries and notices of refused Pods."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dispatcher.extender.assumed_pods import PodRequest
from dispatcher.extender.book import UNCERTAIN, ReservationBook
from dispatcher.extender.hold_index import REFUSED
from dispatcher.extender.nodes import NodeFilter, NotListed
from dispatcher.extender.wire import ExtenderPod, MetaPod, MetaVictims
from dispatcher.model.cluster import BoundPod, Node, NodeCapacities
from dispatcher.model.jobs import Notice, Notices
from dispatcher.model.reservations import Reservation, key_of, keys_of
from tests.rig.builders import NOW
from tests.rig.unreserved import always, certain_facts, unreserved_filter

CPU = REFUSED.format("cpu")
NODES = {"a": None, "b": None}
ONE_NODE = {"a": None}


def a_pod(cpu: str = "3", *, priority: int | None = None, **meta: Any) -> ExtenderPod:
    metadata = {
        "name": "p", "namespace": "team", "uid": "u", "ownerReferences": [{"kind": "Job", "uid": "j"}],
        "labels": {"batch.kubernetes.io/job-name": "job-1", "job-name": "job-1", "dispatcher.internal/task-id": "7"},
    }  # fmt: skip
    spec = {"containers": [{"resources": {"requests": {"cpu": cpu}}}], "priority": priority}
    return msgspec.json.decode(msgspec.json.encode({"metadata": metadata | meta, "spec": spec}), type=ExtenderPod)


def a_node_filter(
    target: str = key_of("podName", "team", "other"), bound: tuple[BoundPod, ...] = (), **facts: bool
) -> NodeFilter:
    """Two nodes of four cores. On node `a` two cores are reserved for a minute."""
    book = ReservationBook(NodeCapacities())
    for name in NODES:
        book.hear_node(None, Node(name, NOW, {"cpu": 4000, "pods": 110_000}))
    for pod in bound:
        book.hear_pod(None, pod)
    ends_at = (NOW + timedelta(minutes=1)).timestamp()
    book.hear_reservation(None, Reservation("team/r", "r", "a", {"cpu": 2000}, target, ends_at))
    answers = {name: lambda answer=answer: answer for name, answer in facts.items()}
    return NodeFilter(book, certain_facts(now=NOW.timestamp, bound_pods=lambda: bound, **answers), Notices())


def a_node_filter_with_clock(is_certain: Callable[[], bool] = always) -> tuple[NodeFilter, list[float]]:
    """As `a_node_filter`, with its clock: a list of one number, which tests change."""
    seconds = [NOW.timestamp()]
    facts = certain_facts(is_certain=is_certain, now=lambda: seconds[0], elapsed=lambda: seconds[0])
    return NodeFilter(a_node_filter()._book, facts, Notices()), seconds


TARGETS: dict[str, tuple[str, object]] = {
    "its name": ("podName", "p"), "its UID": ("uid", "u"), "the UID of its Job": ("uid", "j"),
    "its Job": ("jobName", "job-1"), "its row": ("taskId", 7),
}  # fmt: skip


def test_pod_without_a_reservation_is_refused_the_reserved_node() -> None:
    assert a_node_filter().filter_nodes(a_pod(), NODES) == {"a": CPU}
    assert a_node_filter().filter_nodes(a_pod("2"), NODES) == {}


@pytest.mark.parametrize(("kind", "value"), TARGETS.values(), ids=TARGETS)
def test_target_is_found_by(kind: str, value: object) -> None:
    assert a_node_filter(key_of(kind, "team", value)).filter_nodes(a_pod(), NODES) == {}


@pytest.mark.parametrize(("kind", "value"), TARGETS.values(), ids=TARGETS)
def test_target_of_another_namespace_is_not_the_pod(kind: str, value: object) -> None:
    assert a_node_filter(key_of(kind, "others", value)).filter_nodes(a_pod(), NODES) == {"a": CPU}


def test_pod_without_owner_has_keys_of_name_and_uid() -> None:
    assert keys_of("team", "p", "u", {}, ()) == ("podName team/p", "uid team/u")


def test_owner_that_is_listed_twice_makes_one_key() -> None:
    """With two equal keys its reservation would count twice."""
    assert keys_of("team", "p", "u", {}, ("j", "j")) == ("podName team/p", "uid team/u", "uid team/j")


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(ownerReferences=[{"apiVersion": "apps/v1", "kind": "DaemonSet", "uid": "d", "controller": True}]),
        a_pod(ownerReferences=[{"apiVersion": "v1", "kind": "Node", "uid": "n", "controller": True}]),
        a_pod(priority=2_000_000_000),
    ],
    ids=["of a DaemonSet", "of its node", "critical"],
)
@pytest.mark.parametrize("is_certain", [True, False])
def test_exempt_pod_passes(pod: ExtenderPod, is_certain: bool) -> None:
    node_filter = a_node_filter(is_certain=is_certain)
    assert node_filter.filter_nodes(pod, NODES) == {}
    assert node_filter.filter_victims(pod, {"a": MetaVictims([])}) == {"a": MetaVictims([])}
    assert node_filter.explain(pod, NODES) == {}


@pytest.mark.parametrize(
    "owner",
    [{"apiVersion": "example.com/v1", "kind": "Node", "controller": True}, {"apiVersion": "v1", "kind": "Node"}],
    ids=["of another group", "not its controller"],
)
def test_pod_with_a_similar_owner_is_not_exempt(owner: dict[str, object]) -> None:
    assert a_node_filter().filter_nodes(a_pod(ownerReferences=[{"uid": "n", **owner}]), NODES) == {"a": CPU}


def test_pod_below_critical_priority_is_not_exempt() -> None:
    assert a_node_filter().filter_nodes(a_pod(priority=1_999_999_999), NODES) == {"a": CPU}


def test_reserved_nodes_are_refused_in_doubt() -> None:
    assert a_node_filter(is_certain=False).filter_nodes(a_pod("1"), NODES) == {"a": UNCERTAIN}
    assert a_node_filter(is_certain=False).filter_victims(
        a_pod("1"), {"a": MetaVictims(), "b": MetaVictims()}
    ).keys() == {"b"}


def test_target_passes_in_doubt_where_all_reservations_are_its_own() -> None:
    node_filter = a_node_filter(key_of("taskId", "team", 7), is_certain=False)
    assert node_filter.filter_nodes(a_pod(), NODES) == {}
    assert node_filter.filter_victims(a_pod(), {"a": MetaVictims()}).keys() == {"a"}
    assert node_filter.explain(a_pod(), NODES) == {}
    more = Reservation("team/s", "s", "a", {"cpu": 1}, key_of("podName", "team", "other"), float("inf"))
    node_filter._book.hear_reservation(None, more)
    assert node_filter.filter_nodes(a_pod(), NODES) == {"a": UNCERTAIN}


def test_target_is_refused_while_reservations_are_in_doubt() -> None:
    node_filter = a_node_filter(key_of("taskId", "team", 7), is_certain=False, knows_reservations=False)
    assert node_filter.filter_nodes(a_pod(), NODES) == {"a": UNCERTAIN}
    assert node_filter.filter_victims(a_pod(), {"a": MetaVictims()}) == {}
    assert node_filter.explain(a_pod(), NODES).keys() == {"a"}


def test_unreadable_pod_is_refused_reserved_nodes() -> None:
    assert a_node_filter().filter_nodes(None, NODES) == {"a": UNCERTAIN}


@pytest.mark.parametrize("question", ["filter_nodes", "filter_victims", "explain"])
def test_questions_before_the_first_lists_raise_not_listed(question: str) -> None:
    with pytest.raises(NotListed, match=r"are not all listed yet: $"):
        getattr(a_node_filter(is_synced=False), question)(a_pod(), {})


def test_filter_without_reservations_refuses_nothing() -> None:
    assert unreserved_filter().filter_nodes(a_pod(), NODES) == {}
    assert unreserved_filter().filter_victims(None, {"a": MetaVictims()}) == {"a": MetaVictims()}


# Preemption


def a_victim(uid: str, cpu: int, node: str = "a") -> BoundPod:
    return BoundPod(f"team/{uid}", node, {"cpu": cpu, "pods": 1000}, keys_of("team", uid, uid, {}, ()))


def test_node_whose_victims_free_too_little_is_left_out() -> None:
    node_filter = a_node_filter(bound=(a_victim("v1", 1500), a_victim("v2", 500), a_victim("v3", 4000, "b")))
    both = MetaVictims([MetaPod("v1"), MetaPod("v2")])
    assert node_filter.filter_victims(a_pod("2"), {"a": both, "b": both}) == {"a": both, "b": both}
    assert node_filter.filter_victims(a_pod("2"), {"a": MetaVictims([MetaPod("v1")])}) == {}
    assert node_filter.filter_victims(a_pod("3"), {"a": both, "b": both}) == {"b": both}


def test_unknown_victims_free_nothing() -> None:
    node_filter = a_node_filter(bound=(a_victim("v1", 2000),))
    assert node_filter.filter_victims(
        a_pod("1"), {"a": MetaVictims([MetaPod("gone")]), "b": MetaVictims(None)}
    ).keys() == {"b"}


def test_own_reservation_does_not_prevent_preemption() -> None:
    node_filter = a_node_filter(key_of("taskId", "team", 7), bound=(a_victim("v1", 4000),))
    assert node_filter.filter_victims(a_pod("4"), {"a": MetaVictims([MetaPod("v1")])}).keys() == {"a"}


# For people


def test_explain_names_the_reservation_and_assumes_no_pod() -> None:
    node_filter = a_node_filter()
    for _ in range(2):
        assert node_filter.explain(a_pod(), NODES) == {"a": {"verdict": "refused", "reservations": ["team/r"]}}
    assert node_filter.explain(a_pod("2"), NODES) == {}
    assert node_filter.filter_nodes(a_pod("2", name="other", uid="o"), NODES) == {}


def test_explain_tells_of_doubt() -> None:
    doubtful = {"verdict": "refused", "reservations": [], "doubt": UNCERTAIN}
    assert a_node_filter(is_certain=False).explain(a_pod("1"), NODES) == {"a": doubtful}


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


@pytest.mark.parametrize(
    ("pod", "nodes", "is_certain"),
    [(a_pod(), NODES, True), (a_pod(), ONE_NODE, False), (a_pod("2"), ONE_NODE, True)],
    ids=["another node is left", "refused in doubt", "passes"],
)
def test_pod_that_may_get_a_node_is_not_notified(pod: ExtenderPod, nodes: dict[str, None], is_certain: bool) -> None:
    node_filter = a_node_filter(is_certain=is_certain)
    node_filter.filter_nodes(pod, nodes)
    assert take_notices(node_filter) == []


def test_reservation_of_another_resource_is_not_notified() -> None:
    node_filter = a_node_filter()
    other = Reservation("team/memory", "m", "a", {"memory": 1}, key_of("podName", "team", "other"), float("inf"))
    node_filter._book.hear_reservation(None, other)
    node_filter.filter_nodes(a_pod(), ONE_NODE)
    assert [one.name for one in take_notices(node_filter)] == ["team/p", "team/r"]


def take_notices(node_filter: NodeFilter) -> list[Notice]:
    found = list(node_filter._notices.due(10))
    for one in found:
        node_filter._notices.told(one)
    return found
