"""The write rate, the pauses after failed calls, and the looks for a missing row, over any sequence of times."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.jobs.refusals import LONGEST_PAUSE_SECONDS, LONGEST_WISH_SECONDS, Breaker
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.runtime.clock import Bucket
from dispatcher.sweep.plan import Absences
from tests.property.profiles import FACT
from tests.rig.builders import NOW

CONFIRMATIONS = 3
CONFIRM_EVERY = timedelta(seconds=10)
HOLD = Hold(HoldReason.DISPATCHER_NOT_READY)
waits = st.sampled_from([0, 0.01, 0.3, 1, 4, 10, 40, 400])
steps = st.lists(st.tuples(waits, st.integers(0, 30), st.booleans()), max_size=30)


@FACT
@given(st.integers(1, 60), steps)
def test_bucket_keeps_writes_within_the_rate(rate: int, steps: list[tuple[float, int, bool]]) -> None:
    """Between two moments, at most the burst and the refill are taken. A sweep leaves half of the burst."""
    bucket, now = Bucket(rate, 0), 0.0
    taken: list[tuple[float, int]] = []
    for wait, wanted, is_sweep in steps:
        now += wait
        free = bucket.spare(now) if is_sweep else bucket.left(now)
        assert 0 <= free <= bucket.burst
        count = min(wanted, free)
        bucket.take(count)
        taken.append((now, count))
        assert not (is_sweep and count) or bucket.left(now) >= rate
    for first, (start, _) in enumerate(taken):
        for last in range(first, len(taken)):
            total = sum(count for _, count in taken[first : last + 1])
            assert total <= 2 * rate + (taken[last][0] - start) * rate + 1e-6


@FACT
@given(st.integers(1, 60), st.integers(0, 100), st.lists(waits, max_size=20))
def test_unused_bucket_only_fills(rate: int, taken: int, waits: list[float]) -> None:
    bucket, now, before = Bucket(rate, 0), 0.0, 0
    bucket.take(min(taken, bucket.left(0)))
    for wait in waits:
        now += wait
        assert bucket.left(now) >= before
        before = bucket.left(now)


moves = st.lists(st.tuples(waits, st.sampled_from(["trip", "trip", "ask", "reset"]), st.sampled_from([0, 1, 60, 9000])))


@FACT
@given(moves)
def test_breaker_pause_never_ends_early(moves: list[tuple[float, str, float]]) -> None:
    """A pause ends when its time is over, or after a success. Retry-After of the server counts, up to five minutes."""
    breaker, now, promised, has_failed = Breaker(), 0.0, 0.0, False
    for wait, move, asked in moves:
        now += wait
        if move == "reset":
            breaker.reset()
            promised, has_failed = now, False
        elif move == "trip":
            breaker.trip(HOLD, now, asked)
            promised, has_failed = max(promised, now + min(asked, LONGEST_WISH_SECONDS), now + 1e-9), True
        assert breaker.is_probing == has_failed
        if now < promised:
            assert breaker.hold(now) == HOLD
        assert breaker.hold(now + LONGEST_WISH_SECONDS + LONGEST_PAUSE_SECONDS) is None


looks = st.lists(st.tuples(st.sampled_from([0, 1, 9.9, 10, 25]), st.booleans()), max_size=20)


@FACT
@given(looks)
def test_row_is_gone_after_three_spaced_looks_that_miss_it(looks: list[tuple[float, bool]]) -> None:
    absences, now = Absences(), NOW
    counted: list[object] = []
    last = now - CONFIRM_EVERY
    for wait, is_there in looks:
        now += timedelta(seconds=wait)
        if is_there:
            absences.forget("uid")
            counted, last = [], now - CONFIRM_EVERY
            continue
        if now - last >= CONFIRM_EVERY or not counted:
            counted.append(now)
            last = now
        assert absences.confirm("uid", now) == (len(counted) >= CONFIRMATIONS)
