"""Assumed Pods, and the sum of their requests."""

from dispatcher.extender.assumed_pods import ASSUMED_TICKS, MOST_NAMES, AssumedPods, PodRequest, PossibleNodes


def a_pod_request(name: str, cpu: int = 1) -> PodRequest:
    return PodRequest(name, (), {"cpu": cpu})


def assumed_pods(**counts: bool) -> AssumedPods:
    """Pods that request one core each."""
    assumed = AssumedPods()
    for name, one in counts.items():
        assumed.assume(a_pod_request(name), PossibleNodes(), is_counted=one)
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
    assumed.assume(a_pod_request("b"), PossibleNodes(), is_counted=True)
    ticks = [assumed.tick() for _ in range(ASSUMED_TICKS)]
    assert ticks[-2:] == [["a"], ["b"]]
    assert assumed.total == {}


def test_requests_for_a_node_leave_out_pods_that_cannot_go_there() -> None:
    assumed = AssumedPods()
    assumed.assume(a_pod_request("a"), PossibleNodes(["n", "m"], ["n"]), is_counted=True)
    assumed.assume(a_pod_request("b"), PossibleNodes(["n"]), is_counted=True)
    assumed.assume(a_pod_request("c"), PossibleNodes(["n", "m"]), is_counted=False)
    assumed.assume(a_pod_request("d"), PossibleNodes(), is_counted=True)
    assert request_names(assumed, "n") == ["b", "d"]
    assert request_names(assumed, "m") == ["a", "d"]
    assert request_names(assumed, "n", "b") == ["d"]


def test_names_beyond_the_bound_are_dropped_offered_ones_first() -> None:
    """A Pod without names counts on every node. A forgotten Pod frees its names."""
    assumed, half = AssumedPods(), [f"n{number}" for number in range(MOST_NAMES // 2)]
    assumed.assume(a_pod_request("first"), PossibleNodes(half, ["n"]), is_counted=True)
    assumed.assume(a_pod_request("second"), PossibleNodes(half, ["n"]), is_counted=True)
    assumed.assume(a_pod_request("third"), PossibleNodes((), half), is_counted=True)
    assert request_names(assumed, "elsewhere") == ["second", "third"]
    assert request_names(assumed, "n") == ["third"]
    assert request_names(assumed, "n1") == ["first", "second", "third"]
    assumed.forget("first")
    assumed.assume(a_pod_request("fourth"), PossibleNodes(half, ["n"]), is_counted=True)
    assert request_names(assumed, "elsewhere") == ["second", "third"]
