"""A reservation refuses other Pods, and ends."""

import pytest

from dispatcher.extender.assumed_pods import PodRequest
from dispatcher.extender.hold_index import REFUSED
from dispatcher.model.cluster import Node
from dispatcher.model.reservations import key_of
from tests.rig.builders import NOW
from tests.unit.a_reservation_book import CPU, END, MEMORY, OURS, SIZE, Cluster, a_pod_request, a_reservation, bound

# Others and the target


def test_node_is_smaller_for_others_and_not_for_the_target() -> None:
    cluster = Cluster(a_reservation())
    assert cluster.refused(a_pod_request(3000)) == {"a": CPU}
    assert cluster.refused(a_pod_request(3000, OURS)) == {}


def test_pod_that_fits_into_the_unreserved_amount_passes() -> None:
    assert Cluster(a_reservation()).refused(a_pod_request(1900)) == {}
    assert Cluster(a_reservation()).refused(a_pod_request(1901)) == {"a": CPU}


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


def test_pod_that_requests_no_reserved_resource_passes() -> None:
    full = Cluster(a_reservation(amounts={"cpu": 5000}))
    assert full.refused(a_pod_request(0, also={"memory": 8000})) == {}


def test_only_reserved_resources_are_compared() -> None:
    cluster = Cluster(a_reservation(amounts={"memory": 6000}))
    assert cluster.refused(a_pod_request(99_000, also={"memory": 2000})) == {}
    assert cluster.refused(a_pod_request(1, also={"memory": 2001})) == {"a": MEMORY}


def test_resource_that_the_node_lacks_can_be_reserved() -> None:
    cluster = Cluster(a_reservation(amounts={"example.com/gpu": 1000}))
    assert cluster.refused(a_pod_request(1, also={"example.com/gpu": 1000})) == {"a": REFUSED.format("example.com/gpu")}


def test_reservations_of_one_node_add_up_for_other_targets() -> None:
    theirs = key_of("taskId", "team", 7)
    cluster = Cluster(a_reservation(), a_reservation("team/s", target=theirs, amounts={"cpu": 1000}))
    assert cluster.refused(a_pod_request(901)) == {"a": CPU}
    assert cluster.refused(a_pod_request(2901, OURS)) == {"a": CPU}
    assert cluster.refused(a_pod_request(2900, OURS)) == {}
    assert cluster.refused(a_pod_request(3900, OURS, theirs)) == {}


def test_landing_ends_all_reservations_of_the_target() -> None:
    cluster = Cluster(a_reservation(), a_reservation("team/s", node="b"))
    assert cluster.refused(a_pod_request()) == {"a": CPU, "b": CPU}
    cluster.bind(a_pod_request(100, OURS, name="team/ours"), "c")
    assert cluster.refused(a_pod_request()) == {}


def test_overcommitted_node_refuses_every_request_of_a_reserved_resource() -> None:
    cluster = Cluster(a_reservation())
    cluster.bind(a_pod_request(3000, name="team/other"), "a")
    assert cluster.refused(a_pod_request(1)) == {"a": CPU}
    assert cluster.refused(a_pod_request(900, OURS)) == {}


def test_exempt_pod_passes_and_is_assumed() -> None:
    cluster = Cluster(a_reservation())
    assert cluster.refused(PodRequest("kube-system/d", (), {"cpu": 3000}, is_exempt=True)) == {}
    assert cluster.refused(a_pod_request(500)) == {"a": CPU}


# Ends


def test_reservation_ends_at_its_end_time() -> None:
    cluster = Cluster(a_reservation())
    assert cluster.refused(a_pod_request(), END - 0.001) == {"a": CPU}
    assert cluster.refused(a_pod_request(), END) == {}


def test_reservation_with_a_later_end_lasts_longer() -> None:
    cluster = Cluster(a_reservation())
    cluster.book.hear_reservation(a_reservation(), a_reservation(ends_at=END + 5))
    assert cluster.refused(a_pod_request(), END) == {"a": CPU}
    assert cluster.refused(a_pod_request(), END + 5) == {}


def test_reservation_that_shrinks_reserves_less() -> None:
    cluster = Cluster(a_reservation())
    cluster.book.hear_reservation(a_reservation(), a_reservation(amounts={"cpu": 900}))
    assert cluster.refused(a_pod_request(3000)) == {}


def test_reservation_that_changes_its_resources_frees_the_old_ones() -> None:
    cluster = Cluster(a_reservation())
    cluster.book.hear_reservation(a_reservation(), a_reservation(amounts={"memory": 8000}))
    assert cluster.refused(a_pod_request(3900)) == {}
    assert cluster.refused(a_pod_request(1, also={"memory": 1})) == {"a": MEMORY}


def test_reservation_ends_with_its_object() -> None:
    cluster = Cluster(a_reservation())
    cluster.book.hear_reservation(a_reservation(), None)
    assert cluster.refused(a_pod_request()) == {}


@pytest.mark.parametrize("is_bound_first", [True, False])
def test_reservation_for_a_bound_target_reserves_nothing(is_bound_first: bool) -> None:
    cluster = Cluster(*() if is_bound_first else (a_reservation(),))
    cluster.bind(a_pod_request(100, OURS, name="team/ours"), "b")
    if is_bound_first:
        cluster.book.hear_reservation(None, a_reservation())
    assert cluster.refused(a_pod_request()) == {}


def test_landed_reservation_stays_landed_when_the_pod_is_gone() -> None:
    cluster, ours = Cluster(a_reservation()), a_pod_request(100, OURS, name="team/ours")
    cluster.bind(ours, "b")
    cluster.book.hear_pod(bound(ours, "b"), None)
    cluster.book.hear_reservation(a_reservation(), a_reservation(ends_at=END + 1))
    assert cluster.refused(a_pod_request()) == {}


def test_new_object_of_the_same_name_reserves_again() -> None:
    cluster, ours = Cluster(a_reservation()), a_pod_request(100, OURS, name="team/ours")
    cluster.bind(ours, "b")
    cluster.book.hear_pod(bound(ours, "b"), None)
    cluster.book.hear_reservation(a_reservation(), a_reservation(uid="another"))
    assert cluster.refused(a_pod_request()) == {"a": CPU}


def test_reservation_with_status_landed_reserves_nothing() -> None:
    assert Cluster(a_reservation(phase="Landed")).refused(a_pod_request()) == {}


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


def test_one_of_two_reservations_for_a_target_can_go() -> None:
    cluster = Cluster(a_reservation(), a_reservation("team/s", node="b"))
    cluster.book.hear_reservation(a_reservation("team/s", node="b"), None)
    assert cluster.refused(a_pod_request(3000)) == {"a": CPU}
    assert cluster.refused(a_pod_request(3000, OURS)) == {}


def test_target_of_an_ended_reservation_is_refused_like_others() -> None:
    theirs = key_of("taskId", "team", 7)
    cluster = Cluster(a_reservation(ends_at=5.0), a_reservation("team/s", target=theirs))
    assert cluster.refused(a_pod_request(3000, OURS), 5) == {"a": CPU}


def test_target_is_bound_as_long_as_one_of_its_pods_is() -> None:
    cluster = Cluster()
    one, other = a_pod_request(100, OURS, name="team/one"), a_pod_request(100, OURS, name="team/other")
    cluster.bind(one, "b")
    cluster.bind(other, "b")
    cluster.book.hear_pod(bound(one, "b"), None)
    cluster.book.hear_reservation(None, a_reservation())
    assert cluster.refused(a_pod_request()) == {}


# Nodes


def test_node_that_is_gone_and_back_keeps_its_reservation() -> None:
    cluster, size = Cluster(a_reservation()), Node("a", NOW, SIZE)
    cluster.book.hear_node(size, None)
    cluster.book.hear_node(None, size)
    assert cluster.refused(a_pod_request()) == {"a": CPU}


def test_reservation_on_a_missing_node_refuses_no_other_node() -> None:
    assert Cluster(a_reservation(node="nowhere")).refused(a_pod_request()) == {}


def test_node_that_grows_has_room_for_both() -> None:
    cluster = Cluster(a_reservation())
    cluster.book.hear_node(Node("a", NOW, SIZE), Node("a", NOW, {**SIZE, "cpu": 5000}))
    assert cluster.refused(a_pod_request(3000)) == {}


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
