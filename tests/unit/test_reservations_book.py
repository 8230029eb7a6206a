"""Reservations: what is kept of them, in which order nodes are refused, and what they say of each other.

`tests/property/test_reservations.py` compares which Pods they refuse, and when they end, with a simple model.
"""

from collections.abc import Mapping
from types import MappingProxyType

from dispatcher.extender.assumed_pods import ASSUMED_TICKS, PodRequest
from dispatcher.extender.book import ReservationBook
from dispatcher.extender.hold_index import REFUSED
from dispatcher.model.cluster import BoundPod, Node, NodeCapacities
from dispatcher.model.reservations import Reservation, key_of
from tests.rig.builders import NOW

SIZE = {"cpu": 3900, "memory": 8000, "pods": 110_000}
END = 1000.0
CPU, MEMORY = REFUSED.format("cpu"), REFUSED.format("memory")
OURS, THEIRS = key_of("jobName", "team", "ours"), key_of("taskId", "team", 7)


def a_reservation(name: str = "team/r", *, node: str = "a", **more: object) -> Reservation:
    fields: dict[str, object] = {"amounts": {"cpu": 2000}, "target": OURS, "ends_at": END, "uid": name} | more
    return Reservation(name=name, node=node, **fields)  # type: ignore[arg-type]  # each test names what it is about


def a_pod_request(
    cpu: int = 3000, *keys: str, name: str = "team/p", also: Mapping[str, int] = MappingProxyType({})
) -> PodRequest:
    return PodRequest(name, keys, {"cpu": cpu, "pods": 1000, **also})


def bound(request: PodRequest, node: str) -> BoundPod:
    return BoundPod(request.name, node, request.asks, tuple(request.keys))


class Cluster:
    """Nodes of 3900m cpu, and the reservations on them."""

    def __init__(self, *reservations: Reservation, nodes: str = "abc", size: Mapping[str, int] = SIZE) -> None:
        self.book = ReservationBook(NodeCapacities())
        self.nodes = tuple(nodes)
        for name in nodes:
            self.book.hear_node(None, Node(name, NOW, size))
        for one in reservations:
            self.book.hear_reservation(None, one)

    def refused(self, request: PodRequest, now: float = 0) -> dict[str, str]:
        return self.book.filter_nodes(request, self.nodes, now)

    def bind(self, request: PodRequest, node: str) -> None:
        self.book.hear_pod(None, bound(request, node))

    def tick(self, times: int) -> None:
        for _ in range(times):
            self.book.tick()


# Others and the target


def test_transcript_of_the_original_plugin() -> None:
    """Three nodes of 3900m, 2000m reserved on one: three Pods of 3000m, the target, and one Pod of 1500m after it."""
    cluster = Cluster(a_reservation())
    others = [a_pod_request(3000, name=f"team/other-{number}") for number in range(3)]
    for other, node in zip(others, "bc", strict=False):
        assert cluster.refused(other) == {"a": CPU}
        cluster.bind(other, node)
    assert cluster.refused(others[2])["a"] == CPU
    target = a_pod_request(2000, OURS, name="team/target")
    assert "a" not in cluster.refused(target)
    cluster.bind(target, "a")
    assert cluster.refused(a_pod_request(1500, name="team/later")) == {}


def test_resource_that_the_node_lacks_can_be_reserved() -> None:
    cluster = Cluster(a_reservation(amounts={"example.com/gpu": 1000}))
    assert cluster.refused(a_pod_request(1, also={"example.com/gpu": 1000})) == {"a": REFUSED.format("example.com/gpu")}


def test_changed_end_times_do_not_pile_up() -> None:
    cluster, before = Cluster(a_reservation()), a_reservation()
    for number in range(200):
        after = a_reservation(ends_at=END + number + 1)
        cluster.book.hear_reservation(before, after)
        before = after
    assert len(cluster.book._lifecycle._ends) < 50
    assert cluster.refused(a_pod_request(), END + 199) == {"a": CPU}
    assert cluster.refused(a_pod_request(), END + 200) == {}


def test_ended_reservation_leaves_no_state() -> None:
    book = Cluster(a_reservation(amounts={"cpu": 1, "example.com/gpu": 1000}), nodes="").book
    book.hear_reservation(a_reservation(amounts={"cpu": 1, "example.com/gpu": 1000}), None)
    lifecycle, index = book._lifecycle, book._index
    assert not index.has_shared_node
    assert (index._by_node, index._reserved, index._unreserved) == ({}, {}, {})
    assert (lifecycle._reservations, lifecycle._by_target) == ({}, {})


def test_reservation_without_amounts_ends_like_any_other() -> None:
    """For instance because its amounts could not be read. The target has another reservation on the node."""
    book, empty = Cluster(a_reservation(), nodes="a").book, a_reservation("team/s", amounts={})
    book.hear_reservation(None, empty)
    book.hear_reservation(a_reservation(), None)
    book.hear_reservation(empty, None)
    assert (book._index._by_node, book._index._reserved_for, book._index.has_shared_node) == ({}, {}, False)


def test_reservations_for_one_target_name_each_other() -> None:
    cluster, second = Cluster(a_reservation()), a_reservation("team/s", node="b")
    cluster.book.hear_reservation(None, second)
    messages = {one.name: status.message for one, status in cluster.book.reports.due(0)}
    assert messages == {"team/r": "held for the same target: team/s", "team/s": "held for the same target: team/r"}
    cluster.book.hear_reservation(a_reservation(), a_reservation(phase="Active", message=messages["team/r"]))
    cluster.book.hear_reservation(second, None)
    assert [status.message for _, status in cluster.book.reports.due(0)] == [""]


def test_no_pod_is_forgotten_while_the_process_is_stopped() -> None:
    """The process did not hear of bindings in that time, either."""
    cluster = Cluster(a_reservation(), nodes="a")
    cluster.refused(a_pod_request(1900, name="team/first"))
    assert cluster.refused(a_pod_request(1900), END / 2) == {"a": CPU}


def test_assumed_pods_are_known_some_ticks_after_the_start() -> None:
    cluster = Cluster()
    cluster.tick(ASSUMED_TICKS - 1)
    assert not cluster.book.knows_assumed_pods
    cluster.tick(1)
    assert cluster.book.knows_assumed_pods


# Nodes with reservations for several targets


def test_own_node_is_the_last_of_the_refused_ones() -> None:
    """However little is unreserved there, and however much on the other refused nodes."""
    full = [a_reservation(f"team/{node}", node=node, target="nobody", amounts={"cpu": 3000}) for node in "bc"]
    cluster = Cluster(a_reservation(), a_reservation("team/s", target=THEIRS, amounts={"cpu": 1900}), *full)
    assert list(cluster.refused(a_pod_request(2001, OURS, name="team/ours"))) == ["b", "c", "a"]


def test_refused_node_has_the_place_of_its_last_missing_resource() -> None:
    """The place of its first missing resource does not count. The last nodes of the order are checked for retries."""
    reservations = [
        a_reservation("team/r", amounts={"cpu": 3900, "memory": 1}),
        a_reservation("team/s", node="b", amounts={"cpu": 1, "memory": 8000}),
    ]
    cluster = Cluster(*reservations, nodes="ab")
    request = a_pod_request(3900, name="team/other", also={"memory": 8000})
    assert list(cluster.refused(request).items()) == [("b", MEMORY), ("a", MEMORY)]


def test_new_reservation_makes_its_node_a_gained_one() -> None:
    cluster = Cluster()
    cluster.book.take_gained()
    cluster.book.hear_reservation(None, a_reservation())
    assert list(cluster.book.take_gained()) == ["a"]


def test_target_may_have_all_of_a_resource_reserved_for_it_alone() -> None:
    of_memory = a_reservation("team/s", target=THEIRS, amounts={"memory": 8000})
    cluster = Cluster(a_reservation(), of_memory, nodes="a")
    assert cluster.refused(a_pod_request(1900, name="team/other")) == {}
    assert cluster.refused(a_pod_request(3900, OURS, name="team/ours")) == {}


# Statuses


def test_status_write_of_our_own_changes_nothing() -> None:
    """Uncounted assumed Pods stay uncounted, too."""
    cluster = Cluster(a_reservation())
    cluster.refused(a_pod_request(3900, name="team/big"))
    changes = cluster.book.changes
    cluster.book.hear_reservation(a_reservation(), a_reservation(phase="Active", message="x"))
    assert cluster.book.reports.phases["Active"] == 1
    assert cluster.refused(a_pod_request(1900)) == {}
    assert cluster.book.changes == changes


def test_pod_that_has_ended_does_not_land_a_later_reservation() -> None:
    """A Pod of an earlier run is not bound any more. The reservation is for the next Pod."""
    cluster, earlier = Cluster(), a_pod_request(100, OURS, name="team/earlier")
    cluster.bind(earlier, "b")
    cluster.book.hear_pod(bound(earlier, "b"), None)
    cluster.book.hear_reservation(None, a_reservation())
    assert cluster.refused(a_pod_request()) == {"a": CPU}


def test_one_of_two_reservations_on_a_node_can_end() -> None:
    cluster = Cluster(a_reservation(), a_reservation("team/s", amounts={"cpu": 500, "memory": 8000}))
    cluster.book.hear_reservation(a_reservation(), None)
    assert cluster.refused(a_pod_request(3401)) == {"a": CPU}
    assert cluster.refused(a_pod_request(3400)) == {}
    assert cluster.refused(a_pod_request(0, also={"memory": 1})) == {"a": MEMORY}


def test_target_is_bound_as_long_as_one_of_its_pods_is() -> None:
    cluster = Cluster()
    one, other = a_pod_request(100, OURS, name="team/one"), a_pod_request(100, OURS, name="team/other")
    cluster.bind(one, "b")
    cluster.bind(other, "b")
    cluster.book.hear_pod(bound(one, "b"), None)
    cluster.book.hear_reservation(None, a_reservation())
    assert cluster.refused(a_pod_request()) == {}
