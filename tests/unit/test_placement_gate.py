"""Who passes the gate: by what a Pod is, by what is known, and by whom it would push aside."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dispatcher.notices import Notice, Notices
from dispatcher.placement.gate import Gate, Known, NotSynced, closed_to_nobody, yes
from dispatcher.placement.reservations import REFUSED, UNCERTAIN, Asker, Holds
from dispatcher.placement.wire import MetaPod, MetaVictims, Pod
from dispatcher.room import Bound, NodeSize, Reservation, Rooms, key_of, keys_of
from tests.builders import NOW

CPU = REFUSED.format("cpu")
NODES = {"a": None, "b": None}
ONE_NODE = {"a": None}
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
    is_synced, is_certain = known.get("is_synced", True), known.get("is_certain", True)
    return Gate(holds, Known(lambda: is_synced, lambda: is_certain, NOW.timestamp, lambda: bound), Notices())


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


def test_a_pod_that_cannot_be_read_is_kept_from_what_is_held() -> None:
    assert a_gate().refusals(None, NODES) == {"a": UNCERTAIN}


@pytest.mark.parametrize("question", ["refusals", "spared", "look"])
def test_before_everything_is_listed_nobody_can_say(question: str) -> None:
    with pytest.raises(NotSynced, match=r"are not all listed yet: $"):
        getattr(a_gate(is_synced=False), question)(a_pod(), {})


def test_what_is_not_said_to_be_unknown_is_known() -> None:
    known = Known()
    assert (known.is_synced(), known.is_certain(), known.now(), list(known.bound())) == (True, True, 0, [])
    assert known.fault() == ""


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


def test_people_are_told_of_a_doubt() -> None:
    doubtful = {"verdict": "refused", "reservations": [], "doubt": UNCERTAIN}
    assert a_gate(is_certain=False).look(a_pod("1"), NODES) == {"a": doubtful}


# Another try


def test_who_was_waiting_before_we_began_tries_again() -> None:
    gate, _ = a_gate_with_clock()
    assert gate.who_could() == []
    gate.was_waiting(Asker("team/old", (), {}, uid="o"))
    (attempt,) = gate.who_could()
    assert attempt.asker.name == "team/old"
    gate.put_off(attempt)
    assert [one.asker.name for one in gate.who_could()] == ["team/old"]


def test_who_may_not_push_aside_tries_again_when_it_may() -> None:
    gate, seconds = a_gate_with_clock()
    assert gate.spared(a_pod("3"), {"a": MetaVictims([MetaPod("v1")])}) == {}
    assert gate.who_could() == []
    seconds[0] += 60
    assert [one.asker.name for one in gate.who_could()] == ["team/p"]


def test_who_passes_in_doubt_counts_when_it_is_over() -> None:
    doubt = [True]
    gate, _ = a_gate_with_clock(is_certain=lambda: not doubt[0])
    assert gate.refusals(a_pod("3", name="early", uid="e"), {"b": None}) == {}
    held = Reservation("team/s", "s", "b", {"cpu": 1000}, key_of("podName", "team", "other"), float("inf"))
    gate._holds.hear_reservation(None, held)
    doubt[0] = False
    assert gate.refusals(a_pod("1"), {"b": None}) == {"b": CPU}


def test_who_was_turned_away_may_try_again_once_a_hold_is_over() -> None:
    gate, seconds = a_gate_with_clock()
    gate.refusals(a_pod(), NODES)
    assert gate.who_could() == []
    seconds[0] += 60
    (attempt,) = gate.who_could()
    assert attempt.asker.name == "team/p"
    gate.told(attempt)
    assert gate.who_could() == []


def test_who_was_turned_away_in_doubt_may_try_again_once_there_is_none() -> None:
    doubt = [True]
    gate, _ = a_gate_with_clock(is_certain=lambda: not doubt[0])
    doubt[0] = False
    assert gate.who_could() == []
    doubt[0] = True
    gate.refusals(a_pod("3"), NODES)
    assert gate.who_could() == []
    doubt[0] = False
    assert [attempt.asker.name for attempt in gate.who_could()] == ["team/p"]


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
    gate.told(gate._turned_away._attempts["team/p"])
    gate.refusals(a_pod(), ONE_NODE)
    assert len(heard(gate)) == 2


def test_who_may_have_another_node_is_not_told_of_this_one() -> None:
    gate = a_gate()
    gate.refusals(a_pod(), NODES)
    assert heard(gate) == []


def test_a_reservation_of_another_resource_is_not_blamed() -> None:
    gate = a_gate()
    other = Reservation("team/memory", "m", "a", {"memory": 1}, key_of("podName", "team", "other"), float("inf"))
    gate._holds.hear_reservation(None, other)
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


def heard(gate: Gate) -> list[Notice]:
    found = list(gate._notices.due(10))
    for one in found:
        gate._notices.told(one)
    return found


def a_gate_with_clock(is_certain: Callable[[], bool] = yes) -> tuple[Gate, list[float]]:
    """As `a_gate`; its clock stands still."""
    seconds = [NOW.timestamp()]
    gate = a_gate()
    known = Known(is_certain=is_certain, now=lambda: seconds[0])
    return Gate(gate._holds, known, Notices()), seconds
