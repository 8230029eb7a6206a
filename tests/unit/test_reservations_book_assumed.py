"""Reservations and assumed Pods: these passed filter, and are not bound yet."""

from dispatcher.extender.assumed_pods import ASSUMED_TICKS
from tests.unit.a_reservation_book import CPU, END, MEMORY, OURS, THEIRS, Cluster, a_pod_request, a_reservation


def test_burst_cannot_take_a_reservation() -> None:
    cluster = Cluster(a_reservation(), nodes="a")
    passed = [number for number in range(10) if not cluster.refused(a_pod_request(500, name=f"team/p{number}"))]
    assert passed == [0, 1, 2]


def test_bound_pod_counts_on_its_node_only() -> None:
    cluster = Cluster(a_reservation(), a_reservation("team/s", node="b"), nodes="ab")
    first = a_pod_request(1900, name="team/first")
    assert cluster.refused(first) == {}
    assert cluster.refused(a_pod_request(1)) == {"a": CPU, "b": CPU}
    cluster.bind(first, "a")
    assert cluster.refused(a_pod_request(1900)) == {"a": CPU}


def test_pod_that_is_filtered_again_counts_once() -> None:
    cluster = Cluster(a_reservation(), nodes="a")
    for _ in range(3):
        assert cluster.refused(a_pod_request(1900)) == {}


def test_pod_that_is_never_bound_is_forgotten() -> None:
    cluster = Cluster(a_reservation(), nodes="a")
    cluster.refused(a_pod_request(1900, name="team/first"))
    cluster.tick(ASSUMED_TICKS - 1)
    assert cluster.refused(a_pod_request(1900)) == {"a": CPU}
    cluster.tick(1)
    assert cluster.refused(a_pod_request(1900)) == {}


def test_no_pod_is_forgotten_while_the_process_is_stopped() -> None:
    """The process did not hear of bindings in that time, either."""
    cluster = Cluster(a_reservation(), nodes="a")
    cluster.refused(a_pod_request(1900, name="team/first"))
    assert cluster.refused(a_pod_request(1900), END / 2) == {"a": CPU}


def test_pod_assumed_before_the_first_reservation_counts() -> None:
    cluster = Cluster(nodes="a")
    cluster.refused(a_pod_request(1900, name="team/first"))
    cluster.book.hear_reservation(None, a_reservation())
    assert cluster.refused(a_pod_request(1)) == {"a": CPU}


def test_assumed_pods_are_known_some_ticks_after_the_start() -> None:
    cluster = Cluster()
    cluster.tick(ASSUMED_TICKS - 1)
    assert not cluster.book.knows_assumed_pods
    cluster.tick(1)
    assert cluster.book.knows_assumed_pods


def test_pod_refused_all_reserved_nodes_does_not_count() -> None:
    cluster = Cluster(a_reservation())
    cluster.refused(a_pod_request(3900, name="team/big"))
    assert cluster.refused(a_pod_request(1900)) == {}


def test_target_always_passes_where_all_reservations_are_its_own() -> None:
    """kube-scheduler knows the Pods that go there, and no other target has a reservation to lose."""
    cluster = Cluster(a_reservation(), a_reservation("team/s", node="b", target=THEIRS, amounts={"cpu": 100}))
    for number in range(3):
        assert cluster.refused(a_pod_request(500, name=f"team/other-{number}")) == {}
    assert cluster.refused(a_pod_request(3900, OURS, name="team/ours")) == {"b": CPU}


# Nodes with reservations for several targets


def test_two_targets_of_one_node_both_pass() -> None:
    cluster = Cluster(a_reservation(), a_reservation("team/s", target=THEIRS, amounts={"cpu": 1900}), nodes="a")
    assert cluster.refused(a_pod_request(2000, OURS, name="team/ours")) == {}
    assert cluster.refused(a_pod_request(1901, THEIRS, name="team/theirs")) == {"a": CPU}
    assert cluster.refused(a_pod_request(1900, THEIRS, name="team/theirs")) == {}


def test_request_beyond_the_own_reservation_counts_for_others() -> None:
    cluster = Cluster(a_reservation(amounts={"cpu": 1000}), a_reservation("team/s", target=THEIRS), nodes="a")
    assert cluster.refused(a_pod_request(1500, OURS, name="team/ours")) == {}
    assert cluster.refused(a_pod_request(2401, THEIRS, name="team/theirs")) == {"a": CPU}
    assert cluster.refused(a_pod_request(2400, THEIRS, name="team/theirs")) == {}


def test_reservation_serves_one_pod_of_its_target() -> None:
    """For instance two Pods of one row: the second would take what is reserved for another target."""
    cluster = Cluster(a_reservation(), a_reservation("team/s", target=THEIRS, amounts={"cpu": 1900}), nodes="a")
    assert cluster.refused(a_pod_request(2000, OURS, name="team/one")) == {}
    assert cluster.refused(a_pod_request(2000, OURS, name="team/other")) == {"a": CPU}
    assert cluster.refused(a_pod_request(1900, THEIRS, name="team/theirs")) == {}


def test_target_counts_only_pods_that_may_go_to_its_node() -> None:
    cluster = Cluster(a_reservation(), a_reservation("team/s", target=THEIRS, amounts={"cpu": 1000}))
    for number in range(5):
        assert cluster.book.filter_nodes(a_pod_request(500, name=f"team/elsewhere-{number}"), ["b", "c"], 0) == {}
    assert cluster.refused(a_pod_request(2900, OURS, name="team/ours")) == {}
    assert cluster.book.filter_nodes(a_pod_request(500, name="team/here"), ["a", "b"], 0) == {"a": CPU}
    cluster.tick(ASSUMED_TICKS)
    assert cluster.book.filter_nodes(a_pod_request(500, name="team/here"), ["a", "b"], 0) == {}
    assert cluster.refused(a_pod_request(2900, OURS, name="team/ours")) == {"a": CPU}
    assert cluster.refused(a_pod_request(2400, OURS, name="team/ours")) == {}


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
