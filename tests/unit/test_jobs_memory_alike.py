"""Refused rows hold those that are alike, and no others: of no other submitter, kind, cache key or placement."""

from typing import Any

import pytest

from dispatcher.jobs.memory import Memory
from dispatcher.model.launches import Order
from dispatcher.model.placement import Placement, Pool
from dispatcher.model.verdicts import Hold, HoldReason
from tests.builders import a_task, an_indexed_row, an_order

POISON = Hold(HoldReason.POISON, "422")
NINTH = an_order(task=a_task(id=9))


def refused(count: int, **asked: Any) -> Memory:
    """After so many refused rows of one submitter and kind, each parked itself."""
    memory = Memory()
    for number in range(count):
        memory.park(a_task(id=number), POISON)
        memory.refused(an_order(task=a_task(id=number), **asked), 0)
    return memory


def test_rows_rest_after_three_refusals_of_rows_alike() -> None:
    assert not refused(2).rests(NINTH, 0)
    memory = refused(3)
    assert memory.rests(NINTH, 0)
    held = Hold(HoldReason.POISON, "3 rows of this submitter, of this kind and placed alike were refused")
    assert memory.parked(an_indexed_row(9), 0) == held
    assert memory.parked(an_indexed_row(10), 0) is None, "a row that was not looked at has no reason yet"


@pytest.mark.parametrize(
    "other",
    [
        an_order(task=a_task(id=9, submitted_by="team_b")),
        an_order(task=a_task(id=9, kind=b"other")),
        an_order(task=a_task(id=9), cache_key="warm"),
        an_order(task=a_task(id=9), placement=Placement(preferred=("node-1",))),
        an_order(task=a_task(id=9), placement=Placement(pool=Pool("machine", "m1"))),
    ],
    ids=["submitter", "kind", "cache key", "history", "machine"],
)
def test_refusals_hold_no_rows_that_differ(other: Order) -> None:
    memory = refused(5)
    assert not memory.rests(other, 0)
    assert memory.parked(a_task(id=9), 0) is None


def test_rows_alike_are_tried_again_after_a_minute() -> None:
    memory = refused(3)
    assert memory.rests(NINTH, 0)
    assert memory.parked(an_indexed_row(9), 59) is not None
    assert memory.parked(an_indexed_row(9), 60) is None
    assert not memory.rests(NINTH, 60)
    for number in range(3):
        memory.refused(an_order(task=a_task(id=number)), 60)
    assert memory.rests(an_order(task=a_task(id=10)), 61)


def of_many_keys(count: int) -> Memory:
    """A submitter whose refused rows differ from each other, all within one second."""
    memory = Memory()
    for number in range(count):
        memory.refused(an_order(task=a_task(id=number), cache_key=f"key-{number}"), 0)
    return memory


def test_many_refused_rows_of_a_submitter_let_one_a_second_through() -> None:
    assert not of_many_keys(9).rests(NINTH, 0.5)
    memory = of_many_keys(10)
    assert memory.rests(NINTH, 0.5)
    assert not memory.rests(an_order(task=a_task(id=10)), 1)
    assert memory.rests(an_order(task=a_task(id=12)), 1), "one of a batch is enough"
    memory.refused(an_order(task=a_task(id=10)), 1)
    assert memory.rests(an_order(task=a_task(id=11), cache_key="other"), 1.5)
    assert memory.parked(an_indexed_row(9), 60) is not None, "a row that rests does so for a minute"


def test_many_refused_rows_hold_no_other_submitter_and_no_kind_that_was_taken() -> None:
    memory = of_many_keys(20)
    assert not memory.rests(an_order(task=a_task(id=9, submitted_by="team_b")), 0.5)
    good = an_order(task=a_task(id=9, kind=b"good"))
    assert memory.rests(good, 0.5)
    memory.accepted(good)
    assert not memory.rests(good, 0.5)
    memory.refused(good, 0.6)
    assert memory.rests(good, 0.7), "it was refused since"


def test_refusals_of_more_than_a_minute_ago_do_not_count() -> None:
    memory = of_many_keys(20)
    memory.refused(NINTH, 60)
    assert not memory.rests(an_order(task=a_task(id=10), cache_key="other"), 60.5)


def test_a_row_that_was_taken_clears_rows_alike_but_not_the_parked_ones() -> None:
    memory = refused(3)
    memory.accepted(an_order(task=a_task(id=7)))
    assert not memory.rests(NINTH, 0)
    assert memory.parked(an_indexed_row(0), 0) == POISON


def test_other_templates_give_every_parked_row_another_chance() -> None:
    memory = refused(3)
    assert memory.rests(NINTH, 0)
    memory.forget_rows()
    assert memory.parked(an_indexed_row(0), 0) is None
    assert memory.parked(an_indexed_row(9), 0) is None
    assert not memory.rests(NINTH, 0)
