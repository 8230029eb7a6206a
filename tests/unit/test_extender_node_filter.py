"""Who passes the gate: by what a Pod is, by what is known, and by whom it would push aside."""

import pytest

from dispatcher.extender.node_filter import ClusterFacts, NotListed, unreserved_filter
from dispatcher.extender.wire import MetaPod, MetaVictims, Pod
from dispatcher.model.capacity import BoundPod
from dispatcher.model.reservations import Reservation, key_of, keys_of
from dispatcher.reservations.book import UNCERTAIN
from tests.unit.a_node_filter import CPU, NODES, a_gate, a_pod

TARGETS: dict[str, tuple[str, object]] = {
    "its name": ("podName", "p"), "its UID": ("uid", "u"), "the UID of its Job": ("uid", "j"),
    "its Job": ("jobName", "job-1"), "its row": ("taskId", 7),
}  # fmt: skip


def test_a_stranger_is_refused_the_node() -> None:
    assert a_gate().refusals(a_pod(), NODES) == {"a": CPU}
    assert a_gate().refusals(a_pod("2"), NODES) == {}


@pytest.mark.parametrize(("kind", "value"), TARGETS.values(), ids=TARGETS)
def test_a_pod_is_known_by(kind: str, value: object) -> None:
    assert a_gate(key_of(kind, "team", value)).refusals(a_pod(), NODES) == {}


@pytest.mark.parametrize(("kind", "value"), TARGETS.values(), ids=TARGETS)
def test_of_another_namespace_it_is_another(kind: str, value: object) -> None:
    assert a_gate(key_of(kind, "others", value)).refusals(a_pod(), NODES) == {"a": CPU}


def test_a_pod_that_belongs_to_nothing_is_known_by_its_name_and_uid() -> None:
    assert keys_of("team", "p", "u", {}, ()) == ("podName team/p", "uid team/u")


def test_what_owns_a_pod_twice_is_one_owner() -> None:
    """Its hold would count twice, too."""
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
def test_what_a_node_cannot_do_without_passes(pod: Pod, is_certain: bool) -> None:
    gate = a_gate(is_certain=is_certain)
    assert gate.refusals(pod, NODES) == {}
    assert gate.spared(pod, {"a": MetaVictims([])}) == {"a": MetaVictims([])}
    assert gate.look(pod, NODES) == {}


@pytest.mark.parametrize(
    "owner",
    [{"apiVersion": "example.com/v1", "kind": "Node", "controller": True}, {"apiVersion": "v1", "kind": "Node"}],
    ids=["of another group", "not its controller"],
)
def test_what_only_looks_like_that_does_not(owner: dict[str, object]) -> None:
    assert a_gate().refusals(a_pod(ownerReferences=[{"uid": "n", **owner}]), NODES) == {"a": CPU}


def test_a_pod_below_the_critical_ones_does_not() -> None:
    assert a_gate().refusals(a_pod(priority=1_999_999_999), NODES) == {"a": CPU}


def test_what_is_not_known_for_certain_is_not_given_away() -> None:
    assert a_gate(is_certain=False).refusals(a_pod("1"), NODES) == {"a": UNCERTAIN}
    assert a_gate(is_certain=False).spared(a_pod("1"), {"a": MetaVictims(), "b": MetaVictims()}).keys() == {"b"}


def test_in_doubt_a_target_may_have_the_node_where_all_that_is_held_is_its_own() -> None:
    gate = a_gate(key_of("taskId", "team", 7), is_certain=False)
    assert gate.refusals(a_pod(), NODES) == {}
    assert gate.spared(a_pod(), {"a": MetaVictims()}).keys() == {"a"}
    assert gate.look(a_pod(), NODES) == {}
    more = Reservation("team/s", "s", "a", {"cpu": 1}, key_of("podName", "team", "other"), float("inf"))
    gate._book.hear_reservation(None, more)
    assert gate.refusals(a_pod(), NODES) == {"a": UNCERTAIN}


def test_when_others_may_have_a_hold_there_that_is_not_known_it_may_not() -> None:
    gate = a_gate(key_of("taskId", "team", 7), is_certain=False, is_certain_of_holds=False)
    assert gate.refusals(a_pod(), NODES) == {"a": UNCERTAIN}
    assert gate.spared(a_pod(), {"a": MetaVictims()}) == {}
    assert gate.look(a_pod(), NODES).keys() == {"a"}


def test_a_pod_that_cannot_be_read_is_kept_from_what_is_held() -> None:
    assert a_gate().refusals(None, NODES) == {"a": UNCERTAIN}


@pytest.mark.parametrize("question", ["refusals", "spared", "look"])
def test_before_everything_is_listed_nobody_can_say(question: str) -> None:
    with pytest.raises(NotListed, match=r"are not all listed yet: $"):
        getattr(a_gate(is_synced=False), question)(a_pod(), {})


def test_what_is_not_said_to_be_unknown_is_known() -> None:
    known = ClusterFacts()
    assert (known.is_synced(), known.is_certain(), known.now(), list(known.bound())) == (True, True, 0, [])
    assert (known.fault(), known.is_certain_of_holds(), known.elapsed()) == ("", True, 0)


def test_without_reservations_it_is_open() -> None:
    assert unreserved_filter().refusals(a_pod(), NODES) == {}
    assert unreserved_filter().spared(None, {"a": MetaVictims()}) == {"a": MetaVictims()}


# Preemption


def a_victim(uid: str, cpu: int, node: str = "a") -> BoundPod:
    return BoundPod(f"team/{uid}", node, {"cpu": cpu, "pods": 1000}, keys_of("team", uid, uid, {}, ()))


def test_a_node_whose_victims_would_not_make_enough_room_is_left_alone() -> None:
    gate = a_gate(bound=(a_victim("v1", 1500), a_victim("v2", 500), a_victim("v3", 4000, "b")))
    both = MetaVictims([MetaPod("v1"), MetaPod("v2")])
    assert gate.spared(a_pod("2"), {"a": both, "b": both}) == {"a": both, "b": both}
    assert gate.spared(a_pod("2"), {"a": MetaVictims([MetaPod("v1")])}) == {}
    assert gate.spared(a_pod("3"), {"a": both, "b": both}) == {"b": both}


def test_victims_that_nobody_knows_make_no_room() -> None:
    gate = a_gate(bound=(a_victim("v1", 2000),))
    assert gate.spared(a_pod("1"), {"a": MetaVictims([MetaPod("gone")]), "b": MetaVictims(None)}).keys() == {"b"}


def test_its_own_hold_does_not_keep_it_from_pushing_aside() -> None:
    gate = a_gate(key_of("taskId", "team", 7), bound=(a_victim("v1", 4000),))
    assert gate.spared(a_pod("4"), {"a": MetaVictims([MetaPod("v1")])}).keys() == {"a"}


# For people


def test_people_are_told_which_reservation_refuses_and_it_costs_nobody_anything() -> None:
    gate = a_gate()
    for _ in range(2):
        assert gate.look(a_pod(), NODES) == {"a": {"verdict": "refused", "reservations": ["team/r"]}}
    assert gate.look(a_pod("2"), NODES) == {}
    assert gate.refusals(a_pod("2", name="other", uid="o"), NODES) == {}


def test_people_are_told_of_a_doubt() -> None:
    doubtful = {"verdict": "refused", "reservations": [], "doubt": UNCERTAIN}
    assert a_gate(is_certain=False).look(a_pod("1"), NODES) == {"a": doubtful}
