"""Whoever cannot be told is told later, and keeps no other waiting."""

from dispatcher.reservations.waiting_pods import LATE_AT_ONCE, LONGEST_PAUSE_SECONDS, MOST_TRIES
from tests.unit.waiting import Kept, anything, nobody, nothing


def test_one_that_cannot_be_told_lets_the_others_be_told_and_is_given_up_in_the_end() -> None:
    kept = Kept()
    kept.note(1, "a")
    kept.note(2, "a")
    kept.all.put_off(kept.attempts(anything)[0], kept.now)
    assert kept.could(anything) == ["team/p2"]
    for _ in range(MOST_TRIES - 1):
        kept.now += LONGEST_PAUSE_SECONDS
        first, second = kept.attempts(anything)
        assert (first.request.name, second.request.name) == ("team/p1", "team/p2")
        kept.all.put_off(first, kept.now)
    kept.now += LONGEST_PAUSE_SECONDS
    assert kept.could(anything) == ["team/p2"]


def test_one_that_was_put_off_is_told_when_its_time_has_come_though_nothing_has_changed() -> None:
    kept = Kept()
    kept.note(1, "a")
    kept.all.put_off(kept.attempts(anything)[0], 0)
    assert kept.all.ready_to_retry(anything, nobody, 0.4) == []
    (late,) = kept.all.ready_to_retry(nothing, nobody, 0.5)
    kept.all.forget(late)
    assert kept.all.ready_to_retry(anything, nobody, 99) == []


def test_one_that_was_put_off_and_turned_away_anew_is_judged_anew() -> None:
    kept = Kept()
    kept.note(1, "a")
    kept.all.put_off(kept.attempts(anything)[0], 0)
    kept.note(1, "b")
    assert kept.all.ready_to_retry(nothing, nobody, 99) == []
    assert kept.could(lambda _, node: node == "b") == ["team/p1"]


def test_those_that_were_put_off_leave_room_for_the_others() -> None:
    kept = Kept()
    for number in range(2 * LATE_AT_ONCE):
        kept.note(number, "a")
    for attempt in kept.attempts(anything):
        kept.all.put_off(attempt, 0)
    kept.note(99, "a")
    kept.now = 1
    told = kept.could(anything)
    assert (len(told), told[-1]) == (LATE_AT_ONCE + 1, "team/p99")
