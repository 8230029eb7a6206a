"""Quantities, requests of Pods, and free capacity of nodes, as Kubernetes and kube-scheduler count them."""

import contextlib
from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.admission.room_view import SortedAmounts
from dispatcher.model.cluster import BoundPod, FreeCapacity, Node, NodeCapacities
from dispatcher.model.resources import (
    TENS,
    TWOS,
    Amounts,
    Written,
    add_to,
    added,
    amounts,
    asked_by,
    highest,
    less,
    milli_of,
    parse_quantity,
    remembered,
    take_from,
)
from tests.rig.builders import NOW

LARGE = {"cpu": 8000, "memory": 1000, "pods": 110_000}
SMALL = {"cpu": 1000, "memory": 100, "pods": 1000}


def a_size(name: str = "a", size: Amounts = LARGE, age: float = 0) -> Node:
    return Node(name, NOW - timedelta(seconds=age), size)


def a_bound(node: str = "a", asks: Amounts = SMALL, name: str = "default/x") -> BoundPod:
    return BoundPod(name, node, asks)


def rooms_of(*heard: Node | BoundPod) -> NodeCapacities:
    rooms = NodeCapacities()
    for one in heard:
        if isinstance(one, Node):
            rooms.hear_node(None, one)
        else:
            rooms.hear_pod(None, one)
    return rooms


def test_a_node_without_allocatable_amounts_has_no_capacity() -> None:
    assert rooms_of(a_size(size={}), a_size("b", {"cpu": 5}), a_bound()).of == {
        "a": FreeCapacity(-1000, -100, NOW),
        "b": FreeCapacity(5, 0, NOW),
    }


@pytest.mark.parametrize("after", [None, a_bound(asks={"cpu": 500}), a_bound("b")])
def test_a_pod_that_goes_shrinks_or_moves_frees_its_capacity(after: BoundPod | None) -> None:
    rooms = rooms_of(a_size(), a_size("b"), a_bound())
    rooms.hear_pod(a_bound(), after)
    taken = after.asks if after is not None and after.node == "a" else {}
    assert rooms.of["a"] == FreeCapacity(8000 - taken.get("cpu", 0), 1000 - taken.get("memory", 0), NOW)
    assert rooms.of["b"] == (FreeCapacity(7000, 900, NOW) if after == a_bound("b") else FreeCapacity(8000, 1000, NOW))


def test_a_removal_of_unknown_nodes_and_pods_changes_nothing() -> None:
    rooms = rooms_of(a_size())
    rooms.hear_node(None, None)
    rooms.hear_node(a_size("b"), None)
    rooms.hear_pod(None, None)
    assert rooms.of == {"a": FreeCapacity(8000, 1000, NOW)}


# Changes in any order

SIZES: st.SearchStrategy[dict[str, int]] = st.builds(dict, cpu=st.integers(0, 9), memory=st.integers(0, 9))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from("ab"), st.none() | SIZES),
        st.tuples(st.just("pod"), st.sampled_from("xyz"), st.none() | st.tuples(st.sampled_from("ab"), SIZES)),
    ),
    max_size=30,
)


def counted(nodes: Mapping[str, Node], pods: Mapping[str, BoundPod]) -> dict[str, FreeCapacity]:
    """From scratch."""
    asked = {
        name: {what: sum(pod.asks[what] for pod in pods.values() if pod.node == name) for what in ("cpu", "memory")}
        for name in nodes
    }
    return {
        name: FreeCapacity(
            node.size["cpu"] - asked[name]["cpu"], node.size["memory"] - asked[name]["memory"], node.created_at
        )
        for name, node in nodes.items()
    }


@given(steps)
def test_free_capacity_after_any_changes_equals_a_fresh_count(steps: list[tuple[str, str, object]]) -> None:
    rooms, nodes, pods = NodeCapacities(), dict[str, Node](), dict[str, BoundPod]()
    for kind, name, told in steps:
        if kind == "node":
            size = a_size(name, told, age=len(nodes)) if isinstance(told, dict) else None
            rooms.hear_node(nodes.pop(name, None), size)
            nodes |= {name: size} if size else {}
        else:
            bound = BoundPod(name, *told) if isinstance(told, tuple) else None
            rooms.hear_pod(pods.pop(name, None), bound)
            pods |= {name: bound} if bound else {}
        assert rooms.of == counted(nodes, pods)


def test_compacting_does_not_change_free_capacity() -> None:
    rooms = NodeCapacities()
    for name in ("a", "b"):
        rooms.hear_node(None, Node(name, NOW, {"cpu": 4000, "memory": 10**12}))
    rooms.hear_pod(None, BoundPod("jobs/p", "a", {"cpu": 1000}))
    before, seen = dict(rooms.of), rooms.of
    rooms.compact()
    assert rooms.of is seen
    assert rooms.of == before
    rooms.hear_pod(BoundPod("jobs/p", "a", {"cpu": 1000}), None)
    assert rooms.of["a"].cpu == 4000


ONE = (("cpu", "1"),)
TWO = (("cpu", "2"), ("memory", "1Ki"))


@pytest.mark.parametrize(
    ("written", "milli"),
    [("1", 1000), ("1500m", 1500), ("0.5", 500), ("1e3", 1_000_000), ("1Ki", 1_024_000), ("-1", -1000), ("1n", 1)],
)
def test_quantities_are_whole_thousandths_rounded_up(written: str, milli: int) -> None:
    assert milli_of(written) == milli


def test_milli_of_rejects_text_that_is_no_quantity() -> None:
    with pytest.raises(ValueError, match="1Ki1"):
        milli_of("1Ki1")


def test_amounts_leave_out_text_that_is_no_quantity() -> None:
    assert amounts([("cpu", "1"), ("memory", "a lot")]) == {"cpu": 1000}


def test_a_request_for_the_whole_pod_replaces_those_of_containers() -> None:
    assert asked_by(((TWO,), ((TWO, False),), ONE, (("cpu", "1500m"),)))["cpu"] == 2500
    assert asked_by(((TWO,), (), (), (("cpu", "1500m"),)))["memory"] == 1_024_000


def test_overhead_is_added_at_the_end() -> None:
    assert asked_by(((ONE,), ((TWO, False),), ONE, ()))["cpu"] == 3000


def test_sums_and_differences_go_by_name() -> None:
    assert added({"cpu": 1}, {"cpu": 2, "gpu": 1}) == {"cpu": 3, "gpu": 1}
    assert less({"cpu": 3, "memory": 1}, {"cpu": 1, "gpu": 7}) == {"cpu": 2, "memory": 1}
    assert highest({"cpu": 3}, {"cpu": 1, "gpu": 7}) == {"cpu": 3, "gpu": 7}


def test_a_pod_with_many_requests_is_counted_but_not_cached() -> None:
    before = remembered.cache_info().currsize
    assert asked_by(((ONE,) * 9, (), (), ()))["cpu"] == 9000
    many = tuple((f"example.org/{number}", "1") for number in range(9))
    assert asked_by(((many,), (), (), ()))["example.org/8"] == 1000
    assert remembered.cache_info().currsize == before


Requests = st.lists(
    st.dictionaries(st.sampled_from(["cpu", "memory", "a/b"]), st.integers(0, 9).map(str), max_size=3)
    .map(lambda one: tuple(one.items())),
    max_size=5,
)  # fmt: skip


@given(Requests, Requests, st.lists(st.booleans(), min_size=5, max_size=5))
def test_sum_of_a_pod_follows_the_rule_of_kubernetes_step_by_step(
    containers: list[Written], init_containers: list[Written], are_sidecars: list[bool]
) -> None:
    """The rule as it is written down in the module, with a whole sum for each step."""
    sidecars, peak = dict[str, int](), dict[str, int]()
    first = list(zip(init_containers, are_sidecars, strict=False))
    for one, is_sidecar in first:
        together = added(sidecars, amounts(one))
        sidecars = together if is_sidecar else sidecars
        peak = highest(peak, together)
    total = sidecars
    for one in containers:
        total = added(total, amounts(one))
    wanted = {name: amount for name, amount in highest(total, peak).items() if amount} | {"pods": 1000}
    assert asked_by((tuple(containers), tuple(first), (), ())) == wanted


def test_sum_that_is_changed_in_place_forgets_what_is_gone() -> None:
    total = {"cpu": 1}
    add_to(total, {"cpu": 2, "gpu": 0, "a/b": 5})
    take_from(total, {"cpu": 1, "gpu": 0, "a/b": 5})
    take_from(total, {"gpu": 0, "never": 7})
    assert total == {"cpu": 2}


NAMES = st.sampled_from("abcdef")
AMOUNTS = st.integers(-3, 3)


@given(st.lists(st.tuples(NAMES, AMOUNTS | st.none())), AMOUNTS)
def test_names_below_a_limit_are_found_after_any_changes(changes: list[tuple[str, int | None]], limit: int) -> None:
    amounts, known = SortedAmounts(), dict[str, int]()
    for name, amount in changes:
        if amount is None:
            amounts.drop(name)
            known.pop(name, None)
        else:
            amounts.put(name, amount)
            known[name] = amount
    assert sorted(amounts.names_below(limit)) == sorted(name for name, amount in known.items() if amount < limit)
    assert len(amounts) == len(known)


# The forms that apimachinery's own tests use: every suffix, exponents, fractions, and "things written by trolls".
VALUES = {
    "0": 0, "0Ki": 0, "1": 1, "9": 9, "128974848": 128974848,
    "5n": Fraction(5, 10**9), "4u": Fraction(4, 10**6), "3m": Fraction(3, 1000), "128974848000m": 128974848,
    "8k": 8_000, "7M": 7 * 10**6, "129M": 129 * 10**6, "6G": 6 * 10**9, "40T": 40 * 10**12, "2P": 2 * 10**15,
    "1E": 10**18, "9E": 9 * 10**18, "12E": 2**63 - 1,
    "8Ki": 8 * 2**10, "123Mi": 128974848, "6Gi": 6 * 2**30, "100Ti": 100 * 2**40, "4Pi": 4 * 2**50, "3Ei": 3 * 2**60,
    "1e3": 1000, "1E-3": Fraction(1, 1000), "129e6": 129 * 10**6, "1E6": 10**6, "1.3E+6": 1_300_000, "1e14": 10**14,
    "0.5": Fraction(1, 2), "0.5e-2": Fraction(5, 1000), "100.035k": 100_035, "10.035M": 10_035_000,
    "0.5Mi": 2**19, "0.025Ti": Fraction(2**40, 40), "-1.025Ti": Fraction(-41 * 2**40, 40),
    "1e999": 2**63 - 1, "-1e999": 1 - 2**63, "9" * 36: 2**63 - 1, "9" * 5000: 2**63 - 1, "1e" + "9" * 5000: 2**63 - 1,
    "0e999": 0, "1e-999": Fraction(1, 10**9), "0." + "0" * 5000 + "1": Fraction(1, 10**9), "1e00000000005": 10**5,
    "0" * 5000 + "7": 7, "0.1" + "0" * 5000: Fraction(1, 10), "1" + "0" * 70 + "n": 2**63 - 1,
    "1" + "0" * 70 + "e-70": 1, f"0.{'0' * 70}1e71": 1,
    ".001": Fraction(1, 1000), ".0001k": Fraction(1, 10), "1.": 1, "1.G": 10**9, "+2": 2, "-3Ki": -3072, "007": 7,
}  # fmt: skip

NOT_QUANTITIES = [
    "", " ", ".", "+", "-", "m", "Ki", " 1", "1 ", "1 Gi", "1\n", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i",
    "1i", "-3.01i", "-3.01e-", "1e", "1e3k", "1K", "1ki", "1mi", "1g", "--1", "+-1", "1,5", "1_000", "0x10", "inf",
    "nan", "1/2", "½", "٣", "1٣Mi", "\uff11",
]  # fmt: skip
"""Only the ten ASCII digits are digits."""


@pytest.mark.parametrize(("written", "value"), VALUES.items())
def test_a_quantity_has_the_value_that_kubernetes_gives_it(written: str, value: Fraction | int) -> None:
    assert parse_quantity(written) == value


@pytest.mark.parametrize("written", NOT_QUANTITIES)
def test_text_that_kubernetes_refuses_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        parse_quantity(written)


def test_the_message_shows_the_value_cut_short() -> None:
    with pytest.raises(ValueError, match=r'^"x{40}" is not') as fault:
        parse_quantity("x" * 5000)
    assert len(str(fault.value)) < 120


SUFFIXES = {name: Fraction(10) ** power for name, power in TENS.items()} | {
    name: Fraction(2) ** power for name, power in TWOS.items()
}


@given(st.integers(-(10**18), 10**18), st.sampled_from(sorted(SUFFIXES)))
def test_a_suffix_multiplies_exactly(number: int, suffix: str) -> None:
    assert parse_quantity(f"{number}{suffix}") == max(1 - 2**63, min(number * SUFFIXES[suffix], 2**63 - 1))


@given(st.integers(0, 10**12), st.integers(0, 10**9 - 1))
def test_fractions_are_never_rounded(whole: int, billionths: int) -> None:
    assert parse_quantity(f"{whole}.{billionths:09}") == whole + Fraction(billionths, 10**9)


@given(st.text(alphabet="0123456789.+-eEnumkMGTPKi \n", max_size=12))
def test_any_text_is_a_bounded_value_or_a_value_error(written: str) -> None:
    with contextlib.suppress(ValueError):
        assert abs(parse_quantity(written)) < 2**63
