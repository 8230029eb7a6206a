"""The write rate (docs/settings.md, KUBE_WRITES_PER_SECOND): the burst is twice the rate; creates before sweeps."""

import pytest

from dispatcher.runtime.clock import Bucket


def test_twice_the_rate_can_be_taken_at_once() -> None:
    bucket = Bucket(50, now=0)
    assert bucket.left(now=0) == 100
    bucket.take(100)
    assert bucket.left(now=0) == 0


@pytest.mark.parametrize(
    ("seconds", "tokens"), [(0, 0), (0.01, 0), (0.03, 1), (0.5, 25), (1, 50), (2, 100), (9999, 100)]
)
def test_tokens_come_back_at_the_rate_up_to_the_burst(seconds: float, tokens: int) -> None:
    bucket = Bucket(50, now=1000)
    bucket.take(100)
    assert bucket.left(now=1000 + seconds) == tokens


def test_frequent_looks_lose_no_part_of_a_token() -> None:
    bucket = Bucket(1, now=0)
    bucket.take(2)
    assert [bucket.left(now=step / 4) for step in range(1, 9)] == [0, 0, 0, 1, 1, 1, 1, 2]


@pytest.mark.fault(52)
def test_a_sweep_may_take_only_the_upper_half() -> None:
    bucket = Bucket(50, now=0)
    assert bucket.spare(now=0) == 50
    bucket.take(40)
    assert (bucket.left(now=0), bucket.spare(now=0)) == (60, 10)
    bucket.take(40)
    assert (bucket.left(now=0), bucket.spare(now=0)) == (20, 0)


def test_even_the_slowest_rate_leaves_something_to_a_sweep() -> None:
    bucket = Bucket(1, now=0)
    assert (bucket.left(now=0), bucket.spare(now=0)) == (2, 1)


def test_tokens_taken_beyond_the_level_are_paid_back_first() -> None:
    bucket = Bucket(10, now=0)
    bucket.take(25)
    assert bucket.left(now=0.4) < 1
    assert bucket.left(now=0.65) == 1
