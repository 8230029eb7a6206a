"""Waiting Pods that could not be notified are retried later, and do not delay others."""

from dispatcher.extender.waiting_pods import LONGEST_PAUSE_SECONDS, MOST_TRIES, RETRIES_AT_ONCE
from tests.unit.waiting import Waiting, any_node, no_node, not_bound


def test_pod_that_cannot_be_notified_is_given_up_after_some_tries() -> None:
    waiting = Waiting()
    waiting.note(1, "a")
    waiting.note(2, "a")
    waiting.pods.retry_later(waiting.ready(any_node)[0], waiting.now)
    assert waiting.ready_names(any_node) == ["team/p2"]
    for _ in range(MOST_TRIES - 1):
        waiting.now += LONGEST_PAUSE_SECONDS
        first, second = waiting.ready(any_node)
        assert (first.request.name, second.request.name) == ("team/p1", "team/p2")
        waiting.pods.retry_later(first, waiting.now)
    waiting.now += LONGEST_PAUSE_SECONDS
    assert waiting.ready_names(any_node) == ["team/p2"]


def test_pod_is_retried_after_its_pause_without_a_change() -> None:
    waiting = Waiting()
    waiting.note(1, "a")
    waiting.pods.retry_later(waiting.ready(any_node)[0], 0)
    assert waiting.pods.ready_to_retry(any_node, not_bound, 0.4) == []
    (late,) = waiting.pods.ready_to_retry(no_node, not_bound, 0.5)
    waiting.pods.forget(late)
    assert waiting.pods.ready_to_retry(any_node, not_bound, 99) == []


def test_pod_that_is_refused_again_loses_its_pause() -> None:
    waiting = Waiting()
    waiting.note(1, "a")
    waiting.pods.retry_later(waiting.ready(any_node)[0], 0)
    waiting.note(1, "b")
    assert waiting.pods.ready_to_retry(no_node, not_bound, 99) == []
    assert waiting.ready_names(lambda _, node: node == "b") == ["team/p1"]


def test_retried_pods_leave_room_for_others() -> None:
    waiting = Waiting()
    for number in range(2 * RETRIES_AT_ONCE):
        waiting.note(number, "a")
    for pod in waiting.ready(any_node):
        waiting.pods.retry_later(pod, 0)
    waiting.note(99, "a")
    waiting.now = 1
    ready = waiting.ready_names(any_node)
    assert (len(ready), ready[-1]) == (RETRIES_AT_ONCE + 1, "team/p99")
