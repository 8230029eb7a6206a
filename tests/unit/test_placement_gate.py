"""Who passes the gate: by what a Pod is, by what is known, and by whom it would push aside."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dispatcher.placement.gate import UNCERTAIN, Gate, Known, NotSynced, closed_to_nobody, yes
from dispatcher.placement.reservations import REFUSED, Holds
from dispatcher.placement.wire import MetaPod, MetaVictims, Pod
from dispatcher.room import Bound, NodeSize, Reservation, Rooms, key_of, keys_of
from tests.builders import NOW

CPU = REFUSED.format("cpu")
NODES = {"a": None, "b": None}
TARGETS: dict[str, tuple[str, object]] = {
    "its name": ("podName", "p"), "its UID": ("uid", "u"), "the UID of its Job": ("uid", "j"),
    "its Job": ("jobName", "job-1"), "its row": ("taskId", 7),
}  # fmt: skip


def a_pod(cpu: str = "3", *, priority: int | None = None, **meta: Any) -> Pod:
    metadata = {
        "name": "p", "namespace": "team", "uid": "u", "ownerReferences": [{"kind": "Job", "uid": "j"}],
        "labels": {"batch.kubernetes.io/job-name": "job-1", "job-name": "job-1", "dispatcher.internal/task-id": "7"},
    }  # fmt: skip
    spec = {"containers": [{"resources": {"requests": {"cpu": cpu}}}], "priority": priority}
    return msgspec.json.decode(msgspec.json.encode({"metadata": metadata | meta, "spec": spec}), type=Pod)


def a_gate(target: str = key_of("podName", "team", "other"), bound: tuple[Bound, ...] = (), **known: bool) -> Gate:
    """Two nodes of four cores; two are held on `a` until in a minute."""
    holds = Holds(Rooms())
    for name in NODES:
        holds.hear_node(None, NodeSize(name, NOW, {"cpu": 4000, "pods": 110_000}))
    for pod in bound:
        holds.hear_pod(None, pod)
    ends_at = (NOW + timedelta(minutes=1)).timestamp()
    holds.hear_reservation(None, Reservation("team/r", "r", "a", {"cpu": 2000}, target, ends_at))
    said: dict[str, Callable[[], bool]] = {key: lambda value=value: value for key, value in known.items()}  # type: ignore[misc]  # each its own
    return Gate(holds, Known(**said, now=NOW.timestamp, bound=lambda: bound))


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


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(ownerReferences=[{"kind": "DaemonSet", "uid": "d"}]),
        a_pod(ownerReferences=[{"kind": "Node", "uid": "n"}]),
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


def test_a_pod_below_the_critical_ones_does_not() -> None:
    assert a_gate().refusals(a_pod(priority=1_999_999_999), NODES) == {"a": CPU}


def test_what_is_not_known_for_certain_is_not_given_away() -> None:
    assert a_gate(is_certain=False).refusals(a_pod("1"), NODES) == {"a": UNCERTAIN}
    assert a_gate(is_certain=False).spared(a_pod("1"), {"a": MetaVictims(), "b": MetaVictims()}).keys() == {"b"}


def test_a_pod_that_cannot_be_read_is_kept_from_what_is_held() -> None:
    assert a_gate().refusals(None, NODES) == {"a": UNCERTAIN}


@pytest.mark.parametrize("question", ["refusals", "spared", "look"])
def test_before_everything_is_listed_nobody_can_say(question: str) -> None:
    with pytest.raises(NotSynced):
        getattr(a_gate(is_synced=False), question)(a_pod(), {})


def test_what_is_not_said_to_be_unknown_is_known() -> None:
    assert (Known().is_synced(), Known().is_certain(), Known().now(), list(Known().bound())) == (True, True, 0, [])


def test_without_reservations_it_is_open() -> None:
    assert closed_to_nobody().refusals(a_pod(), NODES) == {}
    assert closed_to_nobody().spared(None, {"a": MetaVictims()}) == {"a": MetaVictims()}


# Preemption


def a_victim(uid: str, cpu: int, node: str = "a") -> Bound:
    return Bound(f"team/{uid}", node, {"cpu": cpu, "pods": 1000}, keys_of("team", uid, uid, {}, ()))


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


# Another try


def test_who_was_turned_away_may_try_again_once_a_hold_is_over() -> None:
    gate, seconds = a_gate_with_clock()
    gate.refusals(a_pod(), NODES)
    assert gate.who_could() == []
    seconds[0] += 60
    assert gate.who_could() == ["team/p"]
    gate.told("team/p")
    assert gate.who_could() == []


def test_who_was_turned_away_in_doubt_may_try_again_once_there_is_none() -> None:
    doubt = [True]
    gate, _ = a_gate_with_clock(is_certain=lambda: not doubt[0])
    gate.refusals(a_pod("1"), NODES)
    assert gate.who_could() == []
    doubt[0] = False
    assert gate.who_could() == ["team/p"]


def a_gate_with_clock(is_certain: Callable[[], bool] = yes) -> tuple[Gate, list[float]]:
    """As `a_gate`; its clock stands still."""
    seconds = [NOW.timestamp()]
    gate = a_gate()
    known = Known(is_certain=is_certain, now=lambda: seconds[0])
    return Gate(gate._holds, known), seconds
