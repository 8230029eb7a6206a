"""Waiting Pods, which of them are ready for a retry now or later, and assumed Pods with the sum of their requests."""

from collections.abc import Callable

import pytest

from dispatcher.extender.assumed_pods import ASSUMED_TICKS, AssumedPods, PodRequest, PossibleNodes
from dispatcher.extender.assumed_pods import MOST_NAMES as MOST_ASSUMED_NAMES
from dispatcher.extender.waiting_pods import (
    LONGEST_PAUSE_SECONDS,
    MOST,
    MOST_NAMES,
    MOST_TRIES,
    NEAREST,
    NODES_AT_ONCE,
    PODS_AT_ONCE,
    RETRIES_AT_ONCE,
    WaitingPod,
    WaitingPods,
)


def a_pod_request(number: int, uid: str = "u") -> PodRequest:
    return PodRequest(f"team/p{number}", (), {}, uid=uid)


def not_bound(_: PodRequest) -> bool:
    return False


class Waiting:
    """The waiting Pods under test, and a clock."""

    def __init__(self) -> None:
        self.pods = WaitingPods()
        self._changes = 0
        self.now = 0.0

    def note(self, number: int, *refused: str, **more: bool) -> bool:
        return self.pods.note(a_pod_request(number), dict.fromkeys(refused, "why"), everywhere=True, **more)

    def ready(
        self,
        may_have: Callable[[PodRequest, str], bool],
        *gained: str,
        is_bound: Callable[[PodRequest], bool] = not_bound,
    ) -> list[WaitingPod]:
        """The Pods that are ready after a change."""
        self._changes += 1
        self.pods.hear(self._changes, gained)
        return self.pods.ready_to_retry(may_have, is_bound, self.now)

    def ready_names(self, may_have: Callable[[PodRequest, str], bool], *gained: str) -> list[str]:
        return [pod.request.name for pod in self.ready(may_have, *gained)]


def any_node(*_: object) -> bool:
    return True


def no_node(*_: object) -> bool:
    return False


def test_pod_that_may_have_a_node_is_returned_until_it_is_forgotten() -> None:
    waiting = Waiting()
    waiting.note(1, "a", "b")
    waiting.note(2, "c")
    for _ in range(2):
        (found,) = waiting.ready(lambda _, node: node == "b")
        assert found.request.name == "team/p1"
    waiting.pods.forget(found)
    assert waiting.ready_names(any_node) == ["team/p2"]


def test_pod_that_passed_the_last_time_does_not_wait() -> None:
    waiting = Waiting()
    waiting.note(1, "a")
    waiting.note(1)
    assert waiting.ready_names(any_node) == []


def test_pod_that_was_refused_again_is_not_forgotten() -> None:
    waiting = Waiting()
    waiting.note(1, "a")
    (pod,) = waiting.ready(any_node)
    waiting.note(1, "b")
    waiting.pods.forget(pod)
    waiting.pods.retry_later(pod, 0)
    assert waiting.ready_names(lambda _, node: node == "b") == ["team/p1"]


def test_bound_pod_is_forgotten() -> None:
    waiting = Waiting()
    waiting.note(1, "a")
    assert waiting.ready(any_node, is_bound=lambda _: True) == []
    assert waiting.ready_names(any_node) == []


def test_new_pod_of_the_same_name_is_newly_refused() -> None:
    waiting = Waiting()
    assert waiting.note(1, "a")
    assert not waiting.note(1, "a")
    assert waiting.pods.note(a_pod_request(1, "another"), {"a": "why"}, everywhere=True)


def test_nearest_nodes_and_gained_nodes_are_checked() -> None:
    waiting, nodes = Waiting(), [f"n{number}" for number in range(NEAREST + 1)]
    waiting.note(1, *nodes)
    assert waiting.ready_names(lambda _, node: node == nodes[0]) == []
    assert waiting.ready_names(lambda _, node: node == nodes[0], nodes[0]) == ["team/p1"]
    assert waiting.ready_names(lambda _, node: node == nodes[1]) == ["team/p1"]


def test_gain_of_another_node_does_not_matter() -> None:
    waiting = Waiting()
    waiting.note(1, "a")
    assert waiting.ready_names(lambda _, node: node == "b", "b") == []


def test_every_pod_is_checked_for_a_gained_node() -> None:
    waiting, nodes = Waiting(), [f"n{number}" for number in range(NEAREST + 1)]
    for number in range(PODS_AT_ONCE + 1):
        waiting.note(number, *nodes)
    assert (
        waiting.ready_names(lambda request, node: (request.name, node) == (f"team/p{PODS_AT_ONCE}", "n0"), "n0") == []
    )
    found = waiting.pods.ready_to_retry(
        lambda request, node: (request.name, node) == (f"team/p{PODS_AT_ONCE}", "n0"), not_bound, 0
    )
    assert [one.request.name for one in found] == [f"team/p{PODS_AT_ONCE}"]


def test_pods_beyond_the_bound_of_names_keep_their_nearest_nodes() -> None:
    waiting, nodes = Waiting(), [f"n{number}" for number in range(MOST_NAMES)]
    waiting.note(1, *nodes)
    waiting.note(2, *nodes)
    assert waiting.ready_names(lambda _, node: node == nodes[0], nodes[0]) == ["team/p1"]
    waiting.pods.note(a_pod_request(1), {})
    waiting.note(3, *nodes[:20])
    assert waiting.ready_names(lambda _, node: node == nodes[0], nodes[0]) == ["team/p3"]


def test_oldest_pod_is_forgotten_beyond_the_bound() -> None:
    waiting = Waiting()
    for number in range(MOST + 1):
        waiting.note(number, "a")
    assert waiting.ready_names(any_node)[0] == "team/p1"


def test_pod_refused_in_doubt_is_always_retried() -> None:
    waiting = Waiting()
    waiting.note(1, "a", in_doubt=True)
    assert waiting.ready_names(no_node) == ["team/p1"]
    waiting.note(1, "a")
    assert waiting.ready_names(no_node) == []


def test_preempting_pod_is_retried_after_any_gain_of_its_nodes() -> None:
    waiting = Waiting()
    waiting.note(1, "a")
    waiting.pods.note_preemption(a_pod_request(1), ["b"])
    waiting.pods.note_preemption(a_pod_request(2), [])
    assert waiting.ready_names(no_node, "c") == []
    assert waiting.ready_names(no_node, "b") == ["team/p1"]
    assert waiting.ready_names(no_node, "a") == ["team/p1"]


@pytest.mark.parametrize("number", [0, PODS_AT_ONCE, 3 * PODS_AT_ONCE - 1])
def test_every_pod_is_checked(number: int) -> None:
    waiting = Waiting()
    for one in range(3 * PODS_AT_ONCE):
        waiting.note(one, "a")
    waiting.pods.hear(99, ())
    found = list[str]()
    for _ in range(4):
        for pod in waiting.pods.ready_to_retry(lambda request, _: request.name == f"team/p{number}", not_bound, 0):
            found.append(pod.request.name)
            waiting.pods.forget(pod)
    assert found == [f"team/p{number}"]


def test_no_pod_is_checked_again_before_a_change() -> None:
    waiting = Waiting()
    waiting.note(1, "a")
    assert waiting.ready_names(no_node) == []
    assert waiting.pods.ready_to_retry(any_node, not_bound, 0) == []
    assert waiting.ready_names(any_node) == ["team/p1"]


def test_change_during_a_round_has_checked_pods_checked_again() -> None:
    waiting = Waiting()
    for number in range(PODS_AT_ONCE + 1):
        waiting.note(number, *[f"n{node}" for node in range(NEAREST + 1)])
    assert waiting.ready_names(no_node, "n0") == []
    assert waiting.pods.is_checking
    (found,) = waiting.ready(lambda request, node: (request.name, node) == ("team/p0", "n0"), "n0")
    assert found.request.name == "team/p0"
    waiting.pods.forget(found)
    waiting.pods.ready_to_retry(no_node, not_bound, 0)
    assert not waiting.pods.is_checking


def test_change_without_a_gain_has_checked_pods_checked_again() -> None:
    """For instance when an assumed Pod is forgotten."""
    waiting = Waiting()
    for number in range(PODS_AT_ONCE + 1):
        waiting.note(number, "a")
    assert waiting.ready_names(no_node) == []
    assert waiting.ready_names(lambda request, _: request.name == "team/p0") == ["team/p0"]


def test_new_pods_are_checked_after_all_earlier_ones_are_gone() -> None:
    waiting = Waiting()
    waiting.note(1, "a")
    waiting.pods.forget(waiting.ready(any_node)[0])
    waiting.note(2, "a")
    waiting.note(3, "a")
    assert waiting.ready_names(any_node) == ["team/p2", "team/p3"]


def test_nodes_checked_in_one_go_are_bounded() -> None:
    looks, waiting, nodes = [0], Waiting(), [f"n{number}" for number in range(NODES_AT_ONCE // 2)]
    for number in range(10):
        waiting.note(number, *nodes)

    def count(*_: object) -> bool:
        looks[0] += 1
        return False

    assert waiting.ready(count, *nodes) == []
    assert NODES_AT_ONCE < looks[0] < 2 * NODES_AT_ONCE
    assert waiting.pods.is_checking


def test_nearest_nodes_of_each_reason_are_checked() -> None:
    """Ten nodes that lack memory must not hide one that lacks cpu only."""
    waiting = Waiting()
    lacking = {"worst": "cpu", "almost": "cpu"} | {f"n{number}": "memory" for number in range(NEAREST)}
    waiting.pods.note(a_pod_request(1), lacking)
    assert waiting.ready_names(lambda _, node: node == "almost") == ["team/p1"]


def test_refused_preemption_keeps_the_nearest_nodes() -> None:
    waiting = Waiting()
    waiting.note(1, "a")
    waiting.pods.note_preemption(a_pod_request(1), ["b"])
    assert waiting.ready_names(lambda _, node: node == "a") == ["team/p1"]


def test_first_refusal_on_every_node_is_new() -> None:
    waiting = Waiting()
    assert not waiting.pods.note(a_pod_request(1), {"a": "why"})
    assert waiting.pods.note(a_pod_request(1), {"a": "why", "b": "why"}, everywhere=True)
    assert not waiting.pods.note(a_pod_request(1), {"a": "why", "b": "why"}, everywhere=True)


def test_pod_without_offered_nodes_does_not_wait() -> None:
    assert not Waiting().pods.note(a_pod_request(1), {}, everywhere=True)


def test_refused_preemption_keeps_turn_and_doubt() -> None:
    waiting = Waiting()
    waiting.note(1, "a", in_doubt=True)
    waiting.note(2, "a")
    waiting.pods.hear(99, ())
    for number in (1, 2):
        waiting.pods.note_preemption(a_pod_request(number), ["b"])
    found = waiting.pods.ready_to_retry(lambda request, node: (request.name, node) == ("team/p2", "a"), not_bound, 0)
    assert [one.request.name for one in found] == ["team/p1", "team/p2"]


def an_assumed_request(name: str, cpu: int = 1) -> PodRequest:
    return PodRequest(name, (), {"cpu": cpu})


def assumed_pods(**counts: bool) -> AssumedPods:
    """Pods that request one core each."""
    assumed = AssumedPods()
    for name, one in counts.items():
        assumed.assume(an_assumed_request(name), PossibleNodes(), is_counted=one)
    return assumed


def request_names(assumed: AssumedPods, node: str, other_than: str = "nobody") -> list[str]:
    return [one.name for one in assumed.requests_for_node(node, other_than)]


def test_uncounted_pods_count_once_a_reservation_appears() -> None:
    assumed = assumed_pods(a=True, b=False)
    assert assumed.total == {"cpu": 1}
    assumed.count_every_pod()
    assumed.count_every_pod()
    assert assumed.total == {"cpu": 2}


def test_total_without_a_pod_leaves_out_its_request() -> None:
    assumed = assumed_pods(a=True, b=True, c=False)
    assert [assumed.total_without(name)["cpu"] for name in ("a", "b", "c", "d")] == [1, 1, 2, 2]


def test_forgotten_pod_does_not_count() -> None:
    assumed = assumed_pods(a=True, b=False)
    assert assumed.forget("b")
    assert assumed.total == {"cpu": 1}
    assert assumed.forget("a")
    assert assumed.total == {}
    assert not assumed.forget("a")


def test_pods_are_forgotten_in_their_order() -> None:
    assumed = assumed_pods(a=True)
    assert assumed.tick() == []
    assumed.assume(an_assumed_request("b"), PossibleNodes(), is_counted=True)
    ticks = [assumed.tick() for _ in range(ASSUMED_TICKS)]
    assert ticks[-2:] == [["a"], ["b"]]
    assert assumed.total == {}


def test_requests_for_a_node_leave_out_pods_that_cannot_go_there() -> None:
    assumed = AssumedPods()
    assumed.assume(an_assumed_request("a"), PossibleNodes(["n", "m"], ["n"]), is_counted=True)
    assumed.assume(an_assumed_request("b"), PossibleNodes(["n"]), is_counted=True)
    assumed.assume(an_assumed_request("c"), PossibleNodes(["n", "m"]), is_counted=False)
    assumed.assume(an_assumed_request("d"), PossibleNodes(), is_counted=True)
    assert request_names(assumed, "n") == ["b", "d"]
    assert request_names(assumed, "m") == ["a", "d"]
    assert request_names(assumed, "n", "b") == ["d"]


def test_names_beyond_the_bound_are_dropped_offered_ones_first() -> None:
    """A Pod without names counts on every node. A forgotten Pod frees its names."""
    assumed, half = AssumedPods(), [f"n{number}" for number in range(MOST_ASSUMED_NAMES // 2)]
    assumed.assume(an_assumed_request("first"), PossibleNodes(half, ["n"]), is_counted=True)
    assumed.assume(an_assumed_request("second"), PossibleNodes(half, ["n"]), is_counted=True)
    assumed.assume(an_assumed_request("third"), PossibleNodes((), half), is_counted=True)
    assert request_names(assumed, "elsewhere") == ["second", "third"]
    assert request_names(assumed, "n") == ["third"]
    assert request_names(assumed, "n1") == ["first", "second", "third"]
    assumed.forget("first")
    assumed.assume(an_assumed_request("fourth"), PossibleNodes(half, ["n"]), is_counted=True)
    assert request_names(assumed, "elsewhere") == ["second", "third"]


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
