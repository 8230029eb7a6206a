"""Requests of Pods, counted as kube-scheduler does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.resources import (
    Written,
    add_to,
    added,
    amounts,
    asked_by,
    highest,
    less,
    milli_of,
    remembered,
    take_from,
)

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


def test_a_pod_requests_the_sum_of_its_containers_and_one_pod() -> None:
    assert asked_by(((ONE, TWO), (), (), ())) == {"cpu": 3000, "memory": 1_024_000, "pods": 1000}


def test_an_init_container_counts_where_it_requests_more() -> None:
    assert asked_by(((ONE,), ((TWO, False),), (), ())) == {"cpu": 2000, "memory": 1_024_000, "pods": 1000}
    assert asked_by(((TWO,), ((ONE, False),), (), ())) == {"cpu": 2000, "memory": 1_024_000, "pods": 1000}


def test_a_sidecar_counts_with_all_that_starts_after_it() -> None:
    assert asked_by(((ONE,), ((ONE, True),), (), ()))["cpu"] == 2000
    assert asked_by(((ONE,), ((ONE, True), (TWO, False)), (), ()))["cpu"] == 3000
    assert asked_by(((ONE,), ((TWO, False), (ONE, True)), (), ()))["cpu"] == 2000


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
