"""Points of nodes for a Pod: BlueKing CI's plugin, floored to whole tens, and what it must not take over from it."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.extender.score import LOOK_EVERY, Score, read_wish, score, score_in_time
from dispatcher.extender.wire import Pod
from dispatcher.model.capacity import Room
from dispatcher.model.identity import HISTORY_NODES, REAL_RESOURCES
from dispatcher.model.quantity import parse_quantity
from tests.builders import NOW

OLD = NOW - timedelta(days=9)
ASKED = {"cpu": "1000m", "memory": "1Gi"}
LIMITS = {"cpu": "4000m", "memory": "4Gi"}
REAL = (("3000m", "3000Mi"), ("2500m", "2000Mi"), ("2000m", "1500Mi"))
MIB = 2**20 * 1000
"""Of rooms, which count in thousandths."""
Uses = Iterable[tuple[object, object]]


def container(requests: object = ASKED, limits: object = LIMITS) -> dict[str, object]:
    return {"name": "task", "resources": {"requests": requests, "limits": limits}}


def read(pod: object) -> Pod:
    return msgspec.json.decode(msgspec.json.encode(pod), type=Pod)


def a_pod(*containers: object, history: Iterable[str] = (), uses: Uses | None = REAL, **more: Any) -> Pod:
    """`uses`: None, no annotation. `more`: what else its metadata say."""
    notes = {HISTORY_NODES: json.dumps([*history])}
    if uses is not None:
        notes[REAL_RESOURCES] = json.dumps([{"cpu": cpu, "memory": memory} for cpu, memory in uses])
    return read({"metadata": {"annotations": notes, **more}, "spec": {"containers": containers or (container(),)}})


def a_room(cpu: str = "5000m", memory: str = "8Gi", created_at: datetime = OLD) -> Room:
    milli_cpu, milli_bytes = (int(parse_quantity(amount) * 1000) for amount in (cpu, memory))
    return Room(milli_cpu, milli_bytes, created_at)


def points(pod: Pod, **rooms: Room | None) -> list[int]:
    """Of each of these nodes, None: one that nobody knows."""
    known = {name: room for name, room in rooms.items() if room is not None}
    return list(score(read_wish(pod), known, list(rooms)).totals().values())


# The golden cases of the reference


@pytest.mark.parametrize(
    ("cpu", "memory", "warm", "floor"),
    [
        pytest.param("5000m", "8Gi", (), 7, id="70 and 70"),
        pytest.param("4000m", "4Gi", (), 6, id="60 and 60: equal to the limit"),
        pytest.param("2600m", "2500Mi", (), 5, id="50 and 50"),
        pytest.param("1500m", "1200Mi", (), 1, id="10 and 10"),
        pytest.param("5000m", "1200Mi", (), 4, id="70 and 10"),
        pytest.param("5000m", "4Gi", (), 6, id="70 and 60, floored"),
        pytest.param("2600m", "2500Mi", ("a",), 8, id="50 and 50, and the newest node"),
        pytest.param("5000m", "8Gi", ("a",), 10, id="70 and 70, and the newest node"),
    ],
)
def test_a_golden_case_with_known_use(cpu: str, memory: str, warm: tuple[str, ...], floor: int) -> None:
    assert points(a_pod(history=warm), a=a_room(cpu, memory)) == [floor]


@pytest.mark.parametrize("cpu", ["0", "1500m", "5000m"])
@pytest.mark.parametrize(
    ("warm", "gained"),
    [(("a",), 3), (("x", "a"), 2), (("x", "y", "a"), 1), (("x", "y", "z", "a"), 0), (("x", "y"), 0), ((), 0)],
)
@pytest.mark.parametrize("uses", [None, ()])
def test_a_golden_case_without_known_use(cpu: str, warm: tuple[str, ...], gained: int, uses: Uses | None) -> None:
    assert points(a_pod(history=warm, uses=uses), a=a_room(cpu)) == [gained]


# The rule beneath them


def plugin_tier(free: int, asked: int, limit: int, uses: list[int]) -> int:
    """As it is written down of the plugin."""
    if free > limit:
        return 70
    fitting = [number for number, use in enumerate(uses) if asked < use <= free]
    return (60, 50, 40, 30, 20)[fitting[0]] if fitting else 10


amounts = st.integers(1, 60)
"""Few enough that they often meet."""
ranked = st.lists(amounts, min_size=1, max_size=5).map(lambda uses: sorted(uses, reverse=True))


@given(st.data(), ranked, st.integers(0, 4))
def test_points_are_the_plugins_hundredths_floored(data: st.DataObject, cpus: list[int], place: int) -> None:
    memories = data.draw(st.lists(amounts, min_size=len(cpus), max_size=len(cpus)))
    free, asked, limit = (data.draw(st.tuples(amounts, amounts)) for _ in range(3))
    written = [{"cpu": f"{cpu}m", "memory": f"{memory}Mi"} for cpu, memory in (asked, limit)]
    uses = [(f"{cpu}m", f"{memory}Mi") for cpu, memory in zip(cpus, memories, strict=True)]
    history = [*"wxyz"[:place], "a"]
    tiers = [
        plugin_tier(free[side], asked[side], limit[side], side_uses) for side, side_uses in enumerate((cpus, memories))
    ]
    hundredths = (30, 20, 10, 0, 0)[place] + sum(tiers) // 2
    pod = a_pod(container(*written), history=history, uses=uses)
    assert points(pod, a=a_room(f"{free[0]}m", f"{free[1]}Mi")) == [hundredths // 10]


@pytest.mark.parametrize(
    ("use", "gained"), [(("3000m", ""), 1), (("3000m", "x"), 1), (("", "3000Mi"), 3), (("-1", "3000Mi"), 3)]
)
def test_a_side_of_a_use_that_is_not_known_leaves_the_other(use: tuple[str, str], gained: int) -> None:
    """cpu: free is less than any use of it."""
    assert points(a_pod(uses=[use]), a=a_room("1500m", "4Gi")) == [gained]


def test_only_five_uses_count() -> None:
    six = [(f"{cpu}m", "1Mi") for cpu in (3900, 3800, 3700, 3600, 3500, 1001)]
    assert points(a_pod(uses=six), a=a_room("3500m", "1Mi"), b=a_room("3499m", "1Mi")) == [1, 1]
    assert points(a_pod(uses=six), a=a_room("3500m", "8Gi"), b=a_room("3499m", "8Gi")) == [4, 4]
    assert points(a_pod(uses=six[1:]), a=a_room("1001m", "8Gi")) == [4]


def test_what_is_asked_for_is_that_of_all_containers_and_of_those_before_them() -> None:
    two = a_pod(container(), container(limits={"cpu": "1", "memory": "1Mi"}), uses=[("2000m", "1Mi")])
    assert points(two, a=a_room("4000m", "8Gi")) == [4], "2000m is asked for, so a use of it says nothing"
    more = a_pod(container(), container(limits={"cpu": "1", "memory": "1Mi"}), uses=[("2001m", "1Mi")])
    assert points(more, a=a_room("4000m", "8Gi")) == [6]


def test_a_container_that_asks_for_nothing_is_taken_for_a_small_one() -> None:
    """As kube-scheduler does where it weighs nodes: 100m and 200Mi each."""
    bare = container(requests=None)
    for use, gained in (("200m", 4), ("201m", 6)):
        assert points(a_pod(bare, bare, uses=[(use, "1Mi")]), a=a_room("1", "9Gi")) == [gained]
    for use, gained in (("400Mi", 4), ("401Mi", 6)):
        assert points(a_pod(bare, bare, uses=[("1m", use)]), a=a_room("9", "1Gi")) == [gained]


def test_one_of_two_containers_that_asks_for_nothing_is_small_beside_the_other() -> None:
    for use, gained in (("1100m", 4), ("1101m", 6)):
        pod = a_pod(container(), container(requests={}), uses=[(use, "1Mi")])
        assert points(pod, a=a_room("4", "9Gi")) == [gained]


def test_a_limit_is_that_of_all_containers() -> None:
    assert points(a_pod(container(), container()), a=a_room("8000m", "8Gi"), b=a_room("8001m", "9Gi")) == [6, 7]


@pytest.mark.parametrize("limits", [None, {}, {"cpu": "1Ki1", "memory": ""}, {"pods": "1"}])
def test_a_pod_without_limits_is_scored_by_its_real_use(limits: object) -> None:
    """It may take all there is: no node is roomy enough to stop looking at what it took before."""
    nodes = {"a": a_room("99", "99Gi"), "b": a_room("2600m", "2500Mi"), "c": a_room("1500m", "1200Mi")}
    assert points(a_pod(container(limits=limits)), **nodes) == [6, 5, 1]
    assert points(a_pod(container(), container(requests={}, limits=limits)), **nodes) == [6, 5, 1]


# Nodes that are not known, or not what they were


@pytest.mark.parametrize(
    ("known", "neutral"),
    [(["5000m"], 4), (["5000m", "1500m"], 1), (["5000m", "1500m", "2500m"], 3), (["5000m"] * 3 + ["0"] * 2, 4)],
)
def test_a_node_of_unknown_room_gets_the_lower_median_of_the_others(known: list[str], neutral: int) -> None:
    rooms = {f"n{number}": a_room(cpu, "0") for number, cpu in enumerate(known)}
    first, *others, last = points(a_pod(), new=None, **rooms, other=None)
    assert (first, last) == (neutral, neutral)
    assert sorted(others)[(len(others) - 1) // 2] == neutral


def test_where_no_room_is_known_all_nodes_are_alike() -> None:
    assert points(a_pod(), a=None, b=None) == [0, 0]


def test_a_node_of_unknown_room_can_still_be_warm() -> None:
    assert points(a_pod(history=["a"]), a=None, b=a_room()) == [10, 7]
    assert points(a_pod(history=["b", "a"], uses=None), a=None, b=a_room(), c=None) == [2, 3, 0]


def test_what_a_node_gets_by_the_median_is_not_told_as_its_own() -> None:
    found = score(read_wish(a_pod(history=["b"])), {"a": a_room()}, ["a", "b"])
    assert found.terms("a") == {"history": 0, "load": 7}
    assert found.terms("b") == {"history": 3, "load": None}


@pytest.mark.parametrize(("after", "gained"), [(-1, 3), (0, 3), (0.001, 0), (3600, 0)])
def test_a_node_that_is_younger_than_the_pod_is_another_and_cold(after: float, gained: int) -> None:
    pod = a_pod(history=["a"], uses=None, creationTimestamp=NOW.isoformat())
    assert points(pod, a=a_room(created_at=NOW + timedelta(seconds=after))) == [gained]


def test_a_young_node_has_its_room_all_the_same() -> None:
    pod = a_pod(history=["a"], creationTimestamp=OLD.isoformat())
    assert points(pod, a=a_room(created_at=NOW)) == [7]


@pytest.mark.parametrize("more", [{}, {"creationTimestamp": None}])
def test_a_pod_that_is_yet_to_be_created_is_younger_than_all(more: dict[str, object]) -> None:
    """People ask about such."""
    assert points(a_pod(history=["a"], uses=None, **more), a=a_room(created_at=NOW)) == [3]


# Pods that cannot be read well


def a_noted(**notes: str) -> Pod:
    named = {"history": HISTORY_NODES, "real": REAL_RESOURCES}
    annotations = {named[name]: note for name, note in notes.items()}
    return read({"metadata": {"annotations": annotations}, "spec": {"containers": [container()]}})


DEEP = '[{"x":' + "[" * 100_000


@pytest.mark.parametrize("note", ["", "x", "{}", "5", "null", '["a"', "[5]", "[null]", "[" * 100_000, DEEP, "\0"])
def test_a_note_that_is_no_array_is_a_fault_and_the_other_counts(note: str) -> None:
    history, real = json.dumps(["a"]), json.dumps([{"cpu": "3000m", "memory": "3000Mi"}])
    assert read_wish(a_noted(history=note, real=real)).faults == ("history-nodes",)
    assert points(a_noted(history=note, real=real), a=a_room()) == [7]
    assert read_wish(a_noted(history=history, real=note)).faults == ("real-resources",)
    assert points(a_noted(history=history, real=note), a=a_room()) == [3]
    assert read_wish(a_noted(history=note, real=note)).faults == ("history-nodes", "real-resources")


def test_notes_that_can_be_read_are_no_fault() -> None:
    assert read_wish(a_pod(history=["a"])).faults == ()
    assert read_wish(read({})).faults == ()


odd = st.one_of(st.text(max_size=9), st.from_regex(r"[-+]?[0-9.]{1,20}([numkMGTPEi]{0,2}|e-?[0-9]{1,3})"))
"""Quantities, and what looks like some."""


@given(st.lists(st.dictionaries(st.sampled_from(["cpu", "memory"]), odd)), st.tuples(odd, odd), st.text())
def test_whatever_a_pod_says_of_itself_it_gets_whole_points_in_range(
    uses: list[dict[str, str]], sides: tuple[str, str], note: str
) -> None:
    amounts = dict(zip(("cpu", "memory"), sides, strict=True))
    notes = {HISTORY_NODES: json.dumps(["a", note]), REAL_RESOURCES: json.dumps(uses) if uses else note}
    spec = {"containers": [container(amounts, amounts)], "initContainers": [container(amounts)], "overhead": amounts}
    pod = read({"metadata": {"annotations": notes}, "spec": spec})
    for gained in points(pod, a=a_room(), b=a_room("-1", "0"), c=None):
        assert type(gained) is int
        assert 0 <= gained <= 10


# Many nodes, little time


def test_points_come_in_the_order_of_the_names() -> None:
    rooms = {"a": a_room("1500m", "1200Mi"), "b": a_room(), "c": a_room("2600m", "2500Mi")}
    for names in (["c", "a", "b"], ["b", "c", "a"], []):
        told = dict(zip("abc", (1, 7, 5), strict=True))
        assert list(score(read_wish(a_pod()), rooms, names).totals().items()) == [(name, told[name]) for name in names]


def test_in_time_they_are_as_without_haste() -> None:
    names = [f"n{number}" for number in range(2 * LOOK_EVERY + 1)]
    rooms = {name: Room(number * 10, number * 10 * MIB, OLD) for number, name in enumerate(names) if number % 3}
    wish = read_wish(a_pod(history=[names[-1], "other", names[0]]))
    assert score_in_time(wish, rooms, names, lambda: False) == score(wish, rooms, names)
    assert score_in_time(wish, rooms, [], lambda: False) == Score({}, {})


@pytest.mark.parametrize("looks_in_time", [0, 1, 2])
def test_too_late_nobody_has_any(looks_in_time: int) -> None:
    names = [f"n{number}" for number in range(2 * LOOK_EVERY + 1)]
    answers = iter([False] * looks_in_time + [True])
    assert score_in_time(read_wish(a_pod()), {}, names, lambda: next(answers)) is None
