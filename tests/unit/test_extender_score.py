"""Points of nodes for a Pod: the rule of BlueKing CI's plugin, floored to whole tens, and where we differ from it."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.extender.nodes import NODES_BETWEEN_LOOKS, Score, read_preferences, score, score_in_time
from dispatcher.extender.wire import ExtenderPod
from dispatcher.model.cluster import FreeCapacity
from dispatcher.model.launches import HISTORY_NODES, REAL_RESOURCES
from dispatcher.model.resources import parse_quantity
from tests.rig.builders import NOW

OLD = NOW - timedelta(days=9)
ASKED = {"cpu": "1000m", "memory": "1Gi"}
LIMITS = {"cpu": "4000m", "memory": "4Gi"}
REAL = (("3000m", "3000Mi"), ("2500m", "2000Mi"), ("2000m", "1500Mi"))
MIB = 2**20 * 1000
"""Memory of a node, in thousandths of a byte."""
Uses = Iterable[tuple[object, object]]


def container(requests: object = ASKED, limits: object = LIMITS) -> dict[str, object]:
    return {"name": "task", "resources": {"requests": requests, "limits": limits}}


def read(pod: object) -> ExtenderPod:
    return msgspec.json.decode(msgspec.json.encode(pod), type=ExtenderPod)


def a_pod(*containers: object, history: Iterable[str] = (), uses: Uses | None = REAL, **more: Any) -> ExtenderPod:
    """`uses`: None for no annotation. `more`: other fields of the metadata."""
    notes = {HISTORY_NODES: json.dumps([*history])}
    if uses is not None:
        notes[REAL_RESOURCES] = json.dumps([{"cpu": cpu, "memory": memory} for cpu, memory in uses])
    return read({"metadata": {"annotations": notes, **more}, "spec": {"containers": containers or (container(),)}})


def a_node(cpu: str = "5000m", memory: str = "8Gi", created_at: datetime = OLD) -> FreeCapacity:
    milli_cpu, milli_bytes = (int(parse_quantity(amount) * 1000) for amount in (cpu, memory))
    return FreeCapacity(milli_cpu, milli_bytes, created_at)


def points(pod: ExtenderPod, **free: FreeCapacity | None) -> list[int]:
    """The points of each node. A node that is None has unknown capacity."""
    known = {name: node for name, node in free.items() if node is not None}
    return list(score(read_preferences(pod), known, list(free)).totals().values())


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
    assert points(a_pod(history=warm), a=a_node(cpu, memory)) == [floor]


@pytest.mark.parametrize("cpu", ["0", "1500m", "5000m"])
@pytest.mark.parametrize(
    ("warm", "gained"),
    [(("a",), 3), (("x", "a"), 2), (("x", "y", "a"), 1), (("x", "y", "z", "a"), 0), (("x", "y"), 0), ((), 0)],
)
@pytest.mark.parametrize("uses", [None, ()])
def test_a_golden_case_without_known_use(cpu: str, warm: tuple[str, ...], gained: int, uses: Uses | None) -> None:
    assert points(a_pod(history=warm, uses=uses), a=a_node(cpu)) == [gained]


# The rule of the golden cases


def plugin_tier(free: int, asked: int, limit: int, uses: list[int]) -> int:
    """The rule as the plugin's description has it."""
    if free > limit:
        return 70
    fitting = [number for number, use in enumerate(uses) if asked < use <= free]
    return (60, 50, 40, 30, 20)[fitting[0]] if fitting else 10


amounts = st.integers(1, 60)
"""Few enough that many are equal."""
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
    assert points(pod, a=a_node(f"{free[0]}m", f"{free[1]}Mi")) == [hundredths // 10]


@pytest.mark.parametrize(
    ("use", "gained"), [(("3000m", ""), 1), (("3000m", "x"), 1), (("", "3000Mi"), 3), (("-1", "3000Mi"), 3)]
)
def test_unknown_amount_of_a_use_leaves_the_other_amount(use: tuple[str, str], gained: int) -> None:
    """The free cpu is less than every use of it."""
    assert points(a_pod(uses=[use]), a=a_node("1500m", "4Gi")) == [gained]


def test_only_five_uses_count() -> None:
    six = [(f"{cpu}m", "1Mi") for cpu in (3900, 3800, 3700, 3600, 3500, 1001)]
    assert points(a_pod(uses=six), a=a_node("3500m", "1Mi"), b=a_node("3499m", "1Mi")) == [1, 1]
    assert points(a_pod(uses=six), a=a_node("3500m", "8Gi"), b=a_node("3499m", "8Gi")) == [4, 4]
    assert points(a_pod(uses=six[1:]), a=a_node("1001m", "8Gi")) == [4]


def test_requests_of_all_containers_add_up() -> None:
    two = a_pod(container(), container(limits={"cpu": "1", "memory": "1Mi"}), uses=[("2000m", "1Mi")])
    assert points(two, a=a_node("4000m", "8Gi")) == [4], "a use that equals the request of 2000m does not count"
    more = a_pod(container(), container(limits={"cpu": "1", "memory": "1Mi"}), uses=[("2001m", "1Mi")])
    assert points(more, a=a_node("4000m", "8Gi")) == [6]


def test_container_without_requests_counts_as_a_small_one() -> None:
    """kube-scheduler assumes the same where it scores nodes: 100m and 200Mi for each container."""
    bare = container(requests=None)
    for use, gained in (("200m", 4), ("201m", 6)):
        assert points(a_pod(bare, bare, uses=[(use, "1Mi")]), a=a_node("1", "9Gi")) == [gained]
    for use, gained in (("400Mi", 4), ("401Mi", 6)):
        assert points(a_pod(bare, bare, uses=[("1m", use)]), a=a_node("9", "1Gi")) == [gained]


def test_container_without_requests_adds_a_small_request_to_the_other() -> None:
    for use, gained in (("1100m", 4), ("1101m", 6)):
        pod = a_pod(container(), container(requests={}), uses=[(use, "1Mi")])
        assert points(pod, a=a_node("4", "9Gi")) == [gained]


def test_limits_of_all_containers_add_up() -> None:
    assert points(a_pod(container(), container()), a=a_node("8000m", "8Gi"), b=a_node("8001m", "9Gi")) == [6, 7]


@pytest.mark.parametrize("limits", [None, {}, {"cpu": "1Ki1", "memory": ""}, {"pods": "1"}])
def test_a_pod_without_limits_is_scored_by_its_real_use(limits: object) -> None:
    """Such a Pod may use everything, so no node gets the points of a limit that fits."""
    nodes = {"a": a_node("99", "99Gi"), "b": a_node("2600m", "2500Mi"), "c": a_node("1500m", "1200Mi")}
    assert points(a_pod(container(limits=limits)), **nodes) == [6, 5, 1]
    assert points(a_pod(container(), container(requests={}, limits=limits)), **nodes) == [6, 5, 1]


# Nodes of unknown capacity, and nodes that were replaced


@pytest.mark.parametrize(
    ("known", "neutral"),
    [(["5000m"], 4), (["5000m", "1500m"], 1), (["5000m", "1500m", "2500m"], 3), (["5000m"] * 3 + ["0"] * 2, 4)],
)
def test_node_of_unknown_capacity_gets_the_low_median_of_the_others(known: list[str], neutral: int) -> None:
    free = {f"n{number}": a_node(cpu, "0") for number, cpu in enumerate(known)}
    first, *others, last = points(a_pod(), new=None, **free, other=None)
    assert (first, last) == (neutral, neutral)
    assert sorted(others)[(len(others) - 1) // 2] == neutral


def test_nodes_of_unknown_capacity_alone_get_no_points() -> None:
    assert points(a_pod(), a=None, b=None) == [0, 0]


def test_node_of_unknown_capacity_gets_history_points() -> None:
    assert points(a_pod(history=["a"]), a=None, b=a_node()) == [10, 7]
    assert points(a_pod(history=["b", "a"], uses=None), a=None, b=a_node(), c=None) == [2, 3, 0]


def test_load_of_unknown_capacity_is_explained_as_none() -> None:
    found = score(read_preferences(a_pod(history=["b"])), {"a": a_node()}, ["a", "b"])
    assert found.terms("a") == {"history": 0, "load": 7}
    assert found.terms("b") == {"history": 3, "load": None}


@pytest.mark.parametrize(("after", "gained"), [(-1, 3), (0, 3), (0.001, 0), (3600, 0)])
def test_node_younger_than_the_pod_gets_no_history_points(after: float, gained: int) -> None:
    pod = a_pod(history=["a"], uses=None, creationTimestamp=NOW.isoformat())
    assert points(pod, a=a_node(created_at=NOW + timedelta(seconds=after))) == [gained]


def test_young_node_gets_load_points() -> None:
    pod = a_pod(history=["a"], creationTimestamp=OLD.isoformat())
    assert points(pod, a=a_node(created_at=NOW)) == [7]


@pytest.mark.parametrize("more", [{}, {"creationTimestamp": None}])
def test_pod_without_creation_time_is_younger_than_every_node(more: dict[str, object]) -> None:
    """People ask `explain` about Pods that are not created yet."""
    assert points(a_pod(history=["a"], uses=None, **more), a=a_node(created_at=NOW)) == [3]


# Pods with unreadable annotations


def a_noted(**notes: str) -> ExtenderPod:
    named = {"history": HISTORY_NODES, "real": REAL_RESOURCES}
    annotations = {named[name]: note for name, note in notes.items()}
    return read({"metadata": {"annotations": annotations}, "spec": {"containers": [container()]}})


DEEP = '[{"x":' + "[" * 100_000


@pytest.mark.parametrize("note", ["", "x", "{}", "5", "null", '["a"', "[5]", "[null]", "[" * 100_000, DEEP, "\0"])
def test_annotation_that_is_no_array_is_a_fault_and_the_other_counts(note: str) -> None:
    history, real = json.dumps(["a"]), json.dumps([{"cpu": "3000m", "memory": "3000Mi"}])
    assert read_preferences(a_noted(history=note, real=real)).faults == ("history-nodes",)
    assert points(a_noted(history=note, real=real), a=a_node()) == [7]
    assert read_preferences(a_noted(history=history, real=note)).faults == ("real-resources",)
    assert points(a_noted(history=history, real=note), a=a_node()) == [3]
    assert read_preferences(a_noted(history=note, real=note)).faults == ("history-nodes", "real-resources")


def test_readable_annotations_are_no_fault() -> None:
    assert read_preferences(a_pod(history=["a"])).faults == ()
    assert read_preferences(read({})).faults == ()


odd = st.one_of(st.text(max_size=9), st.from_regex(r"[-+]?[0-9.]{1,20}([numkMGTPEi]{0,2}|e-?[0-9]{1,3})"))
"""Quantities, and texts that look like quantities."""


@given(st.lists(st.dictionaries(st.sampled_from(["cpu", "memory"]), odd)), st.tuples(odd, odd), st.text())
def test_points_are_whole_and_in_range_for_any_pod(
    uses: list[dict[str, str]], sides: tuple[str, str], note: str
) -> None:
    amounts = dict(zip(("cpu", "memory"), sides, strict=True))
    notes = {HISTORY_NODES: json.dumps(["a", note]), REAL_RESOURCES: json.dumps(uses) if uses else note}
    spec = {"containers": [container(amounts, amounts)], "initContainers": [container(amounts)], "overhead": amounts}
    pod = read({"metadata": {"annotations": notes}, "spec": spec})
    for gained in points(pod, a=a_node(), b=a_node("-1", "0"), c=None):
        assert type(gained) is int
        assert 0 <= gained <= 10


# Many nodes, little time


def test_points_come_in_the_order_of_the_names() -> None:
    free = {"a": a_node("1500m", "1200Mi"), "b": a_node(), "c": a_node("2600m", "2500Mi")}
    for names in (["c", "a", "b"], ["b", "c", "a"], []):
        expected = dict(zip("abc", (1, 7, 5), strict=True))
        assert list(score(read_preferences(a_pod()), free, names).totals().items()) == [
            (name, expected[name]) for name in names
        ]


def test_score_in_time_equals_score() -> None:
    names = [f"n{number}" for number in range(2 * NODES_BETWEEN_LOOKS + 1)]
    free = {name: FreeCapacity(number * 10, number * 10 * MIB, OLD) for number, name in enumerate(names) if number % 3}
    wanted = read_preferences(a_pod(history=[names[-1], "other", names[0]]))
    assert score_in_time(wanted, free, names, lambda: False) == score(wanted, free, names)
    assert score_in_time(wanted, free, [], lambda: False) == Score({}, {})


@pytest.mark.parametrize("looks_in_time", [0, 1, 2])
def test_score_that_is_too_late_is_none(looks_in_time: int) -> None:
    names = [f"n{number}" for number in range(2 * NODES_BETWEEN_LOOKS + 1)]
    answers = iter([False] * looks_in_time + [True])
    assert score_in_time(read_preferences(a_pod()), {}, names, lambda: next(answers)) is None
