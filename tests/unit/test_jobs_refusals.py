"""Refused rows hold similar rows, and no rows of another submitter, kind, cache key or placement."""

from typing import Any

import pytest

from dispatcher.jobs.refusals import MOST_REMEMBERED, Refusals
from dispatcher.model.caches import Placement, Pool
from dispatcher.model.launches import LaunchSpec
from dispatcher.model.verdicts import Hold, HoldReason
from tests.rig.builders import a_task, an_indexed_row, an_order

POISON = Hold(HoldReason.POISON, "422")
NINTH = an_order(task=a_task(id=9))


def refused(count: int, **asked: Any) -> Refusals:
    """The refusals after `count` refused rows of one submitter and kind. Each of these rows is parked."""
    refusals = Refusals()
    for number in range(count):
        refusals.park(a_task(id=number), POISON)
        refusals.refused(an_order(task=a_task(id=number), **asked), 0)
    return refusals


def test_rows_are_held_after_three_refusals_of_similar_rows() -> None:
    assert not refused(2).rests(NINTH, 0)
    refusals = refused(3)
    assert refusals.rests(NINTH, 0)
    held = Hold(HoldReason.POISON, "3 rows of this submitter, of this kind and placed alike were refused")
    assert refusals.rows().hold(an_indexed_row(9), 0) == held
    assert refusals.rows().hold(an_indexed_row(10), 0) is None, "a row that was not looked at has no reason yet"


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
def test_refusals_hold_no_rows_that_differ(other: LaunchSpec) -> None:
    refusals = refused(5)
    assert not refusals.rests(other, 0)
    assert refusals.rows().hold(a_task(id=9), 0) is None


def test_similar_rows_are_tried_again_after_a_minute() -> None:
    refusals = refused(3)
    assert refusals.rests(NINTH, 0)
    assert refusals.rows().hold(an_indexed_row(9), 59) is not None
    assert refusals.rows().hold(an_indexed_row(9), 60) is None
    assert not refusals.rests(NINTH, 60)
    for number in range(3):
        refusals.refused(an_order(task=a_task(id=number)), 60)
    assert refusals.rests(an_order(task=a_task(id=10)), 61)


def of_many_keys(count: int) -> Refusals:
    """The refusals after `count` rows of one submitter with different cache keys, all refused at second 0."""
    refusals = Refusals()
    for number in range(count):
        refusals.refused(an_order(task=a_task(id=number), cache_key=f"key-{number}"), 0)
    return refusals


def test_many_refused_rows_of_a_submitter_let_one_a_second_through() -> None:
    assert not of_many_keys(9).rests(NINTH, 0.5)
    refusals = of_many_keys(10)
    assert refusals.rests(NINTH, 0.5)
    assert not refusals.rests(an_order(task=a_task(id=10)), 1)
    assert refusals.rests(an_order(task=a_task(id=12)), 1), "one of a batch is enough"
    refusals.refused(an_order(task=a_task(id=10)), 1)
    assert refusals.rests(an_order(task=a_task(id=11), cache_key="other"), 1.5)
    assert refusals.rows().hold(an_indexed_row(9), 60) is not None, "a row that rests does so for a minute"


def test_many_refused_rows_hold_no_other_submitter_and_no_accepted_kind() -> None:
    refusals = of_many_keys(20)
    assert not refusals.rests(an_order(task=a_task(id=9, submitted_by="team_b")), 0.5)
    good = an_order(task=a_task(id=9, kind=b"good"))
    assert refusals.rests(good, 0.5)
    refusals.accepted(good)
    assert not refusals.rests(good, 0.5)
    refusals.refused(good, 0.6)
    assert refusals.rests(good, 0.7), "it was refused since"


def test_refusals_of_more_than_a_minute_ago_do_not_count() -> None:
    refusals = of_many_keys(20)
    refusals.refused(NINTH, 60)
    assert not refusals.rests(an_order(task=a_task(id=10), cache_key="other"), 60.5)


def test_accepted_row_releases_similar_rows_but_no_parked_rows() -> None:
    refusals = refused(3)
    refusals.accepted(an_order(task=a_task(id=7)))
    assert not refusals.rests(NINTH, 0)
    assert refusals.rows().hold(an_indexed_row(0), 0) == POISON


def test_forgetting_releases_all_held_rows() -> None:
    refusals = refused(3)
    assert refusals.rests(NINTH, 0)
    refusals.forget()
    assert refusals.rows().hold(an_indexed_row(0), 0) is None
    assert refusals.rows().hold(an_indexed_row(9), 0) is None
    assert not refusals.rests(NINTH, 0)


@pytest.mark.fault(17)
@pytest.mark.museum("422 retried forever")
def test_parked_row_stays_parked_in_its_attempt_alone() -> None:
    refusals = Refusals()
    collision = Hold(HoldReason.NAME_COLLISION, "taken")
    refusals.park(a_task(), collision)
    assert refusals.rows().hold(a_task(), 0) == refusals.rows().hold(an_indexed_row(42), 0) == collision
    assert refusals.rows().hold(a_task(attempt=2), 0) is None
    assert refusals.rows().hold(a_task(id=43), 0) is None


def test_refusals_forget_the_oldest_of_too_many_parked_rows() -> None:
    refusals = Refusals()
    hold = Hold(HoldReason.POLICY_DENIED)
    task = a_task(id=0)
    refusals.park(task, hold)
    for number in range(1, MOST_REMEMBERED):
        refusals.park(a_task(id=number), hold)
    assert refusals.rows().hold(task, 0) == hold
    refusals.park(a_task(id=MOST_REMEMBERED), hold)
    assert refusals.rows().hold(task, 0) is None
    assert refusals.rows().hold(a_task(id=1), 0) == refusals.rows().hold(a_task(id=MOST_REMEMBERED), 0) == hold


def test_rests_that_are_over_are_forgotten() -> None:
    refusals = Refusals()
    for number in range(100):
        refusals.rest(a_task(id=number), POISON, number)
    assert len(refusals.rows(50).resting) == 49
    assert refusals.rows(50).hold(a_task(id=60), 50) == POISON
    assert len(refusals.rows(1000).resting) == 0
