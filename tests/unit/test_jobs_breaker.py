"""The breaker: pauses that answers of the API server ask for."""

import pytest

from dispatcher.jobs.memory import LONGEST_PAUSE_SECONDS, Breaker
from dispatcher.model.verdicts import Hold, HoldReason

STOP = Hold(HoldReason.DISPATCHER_NOT_READY, "ApiThrottled")
OTHER = Hold(HoldReason.DISPATCHER_NOT_READY, "Forbidden")


def pause_of(breaker: Breaker, now: float) -> float:
    """Length of the pause from `now`, in seconds, to the millisecond."""
    return next(step / 1000 for step in range(200_000) if breaker.hold(now + step / 1000) is None)


def test_new_breaker_holds_nothing() -> None:
    breaker = Breaker()
    assert breaker.hold(0) is None
    assert not breaker.is_probing


def test_pause_doubles_with_each_failure_up_to_30_seconds() -> None:
    breaker, now, pauses = Breaker(), 100.0, []
    for _ in range(9):
        breaker.trip(STOP, now)
        pauses.append(pause_of(breaker, now))
        now += pauses[-1]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_failures_without_end_keep_the_longest_pause() -> None:
    breaker = Breaker()
    for number in range(3000):
        breaker.trip(STOP, number * 100.0)
    assert pause_of(breaker, 299_900) == LONGEST_PAUSE_SECONDS


def test_failures_during_a_pause_count_once() -> None:
    breaker = Breaker()
    for number in range(16):
        breaker.trip(STOP, 100 + number / 1000)
    assert breaker.hold(100.499) == STOP
    assert breaker.hold(100.5) is None
    breaker.trip(STOP, 101)
    assert pause_of(breaker, 101) == 1


@pytest.mark.fault(19)
def test_server_may_ask_for_a_longer_pause_but_not_for_a_shorter_one() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100, 7)
    assert pause_of(breaker, 100) == 7
    breaker.trip(STOP, 101, 1)
    assert pause_of(breaker, 101) == 6
    breaker.trip(STOP, 102, 9)
    assert pause_of(breaker, 102) == 9
    breaker.trip(STOP, 200, 0.001)
    assert pause_of(breaker, 200) == 1


def test_newest_answer_is_the_reason() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100)
    breaker.trip(OTHER, 100.1)
    assert breaker.hold(100.2) == OTHER


@pytest.mark.fault(19, 23)
def test_breaker_probes_after_a_pause_until_a_success() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100)
    assert (breaker.hold(101), breaker.is_probing) == (None, True)
    breaker.reset()
    assert (breaker.hold(101), breaker.is_probing) == (None, False)


def test_success_resets_the_length_of_the_pause() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100)
    breaker.trip(STOP, 101)
    breaker.reset()
    breaker.trip(STOP, 102)
    assert pause_of(breaker, 102) == 0.5


def test_success_ends_a_pause_at_once() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100, 60)
    breaker.reset()
    assert breaker.hold(100.1) is None


def test_retry_after_of_a_day_pauses_for_5_minutes() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 0, at_least=86_400)
    assert breaker.hold(299) == STOP
    assert breaker.hold(301) is None
