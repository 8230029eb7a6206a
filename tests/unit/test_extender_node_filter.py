"""The node filter: keys and exemptions of Pods, doubt, and preemption."""

import pytest

from dispatcher.extender.book import UNCERTAIN
from dispatcher.extender.nodes import ClusterFacts, NotListed, unreserved_filter
from dispatcher.extender.wire import ExtenderPod, MetaPod, MetaVictims
from dispatcher.model.cluster import BoundPod
from dispatcher.model.reservations import Reservation, key_of, keys_of
from tests.unit.a_node_filter import CPU, NODES, a_node_filter, a_pod

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


def test_cluster_facts_are_certain_by_default() -> None:
    facts = ClusterFacts()
    assert (facts.is_synced(), facts.is_certain(), facts.now(), list(facts.bound_pods())) == (True, True, 0, [])
    assert (facts.fault(), facts.knows_reservations(), facts.elapsed()) == ("", True, 0)


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
