"""A page of nodes: what the room of each is used for, and where the next page begins."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from dispatcher.admission.last_cycle import LastCycle
from dispatcher.admission.room import ReservedRoom, Room, RoomIndex
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job
from dispatcher.model.needs import CORDON, Taint
from dispatcher.model.reservations import Reservation
from dispatcher.model.resources import milli_of
from dispatcher.views.node_room import KeptCaches, Known, NodesPage, WantedNodes, WarmKeys, names_of, nodes_page
from dispatcher.views.nodes import fitting_of, needs_of
from tests.rig.builders import NOW, a_cluster, a_job, a_picture, a_pod, a_snapshot
from tests.unit.rooms import a_bound_pod, a_node, amounts_of, needs, room, unplaced

SMALL = needs("1", "1Gi")


def page(place: Room, jobs: Iterable[Job] = (), pods: Iterable[Pod] = (), **asked: Any) -> NodesPage:
    warm, caches = asked.pop("warm", None), asked.pop("caches", {})
    wanted = WantedNodes(**asked)
    cycle = LastCycle(
        a_snapshot(room=place), a_picture(jobs, a_cluster(pods)), {}, frozenset(), {}, {}, leads=True
    )  # fmt: skip
    size = needs_of(wanted.cpu, wanted.memory)
    fitting = fitting_of(size, place, wanted.cpu, wanted.memory) if size else None
    return nodes_page(names_of(place, wanted), wanted, cycle, place, Known(fitting, warm, caches))


def a_reservation(node: str = "n1", **changes: Any) -> Reservation:
    held = Reservation("jobs/r", "uid-r", node, amounts_of({"cpu": "1"}), "podName jobs/x", NOW.timestamp() + 60)
    return replace(held, **changes)


def reserved(*reservations: Reservation) -> Room:
    index = RoomIndex(["ours"], 100, ReservedRoom("jobs", "dispatcher"))
    index.hear_node(None, a_node(cpu="8"))
    for one in reservations:
        index.hear_reservation(None, one)
    return Room(index.view(NOW.timestamp()))


def test_size_is_the_sum_of_what_others_ours_launches_reservations_and_nobody_have() -> None:
    jobs = [a_job(needs=SMALL)]
    index = RoomIndex(["ours"], 100, ReservedRoom("jobs", "dispatcher"))
    index.hear_node(None, a_node(cpu="8", memory="16Gi"))
    index.hear_pod(None, a_bound_pod("n1", name="theirs", cpu="2", memory="4Gi", priority=5))
    index.hear_pod(None, a_bound_pod("n1", name="ours"))
    index.hear_reservation(None, a_reservation())
    place = Room(index.view(NOW.timestamp())).with_launches(unplaced(needs("500m", "1Gi")))
    (node,) = page(place, jobs, [a_pod(jobs[0], node_name="n1")]).nodes
    assert (node.size["cpu"], node.others["cpu"], node.ours["cpu"]) == ("8", "2", "1")
    assert (node.coming["cpu"], node.reserved["cpu"], node.free["cpu"]) == ("500m", "1", "3500m")
    for resource, size in node.size.items():
        parts = (node.others, node.ours, node.coming, node.reserved, node.free)
        assert sum(milli_of(part.get(resource, "0")) for part in parts) == milli_of(size)


def test_a_node_tells_what_keeps_pods_away_and_whom_it_is_kept_for() -> None:
    taints = (CORDON, Taint("team", "b"), Taint("soft", effect="PreferNoSchedule"))
    place = replace(room([a_node("a"), a_node("b", ready=False, taints=taints)]), closed={"b": 7})
    first, second = page(place).nodes
    assert (first.name, first.ready, first.cordoned, first.taints, first.kept_for) == ("a", True, False, [], None)
    assert (second.ready, second.cordoned, second.taints, second.kept_for) == (False, True, ["team"], 7)


def test_node_that_is_over_asked_has_nothing_free_and_no_part_below_nothing() -> None:
    jobs = [a_job(needs=needs("3"))]
    (node,) = page(room([a_node(cpu="1")], [a_bound_pod("n1", cpu="2")]), jobs, [a_pod(jobs[0], node_name="n1")]).nodes
    assert (node.free["cpu"], node.others.get("cpu"), node.ours["cpu"]) == ("0", None, "3")


def test_pods_that_ended_or_whose_needs_are_not_known_are_not_counted_as_ours() -> None:
    jobs = [a_job(needs=SMALL), a_job(2, needs=None), a_job(3, needs=SMALL), a_job(4, needs=SMALL)]
    pods = [
        a_pod(jobs[0], node_name="n1", phase="Succeeded"),
        a_pod(jobs[1], node_name="n1"),
        a_pod(jobs[2], node_name="", nominated_node="n1"),
        a_pod(jobs[3], node_name="elsewhere"),
    ]
    (node,) = page(room([a_node()]), jobs, pods).nodes
    assert node.ours == {"cpu": "1", "memory": "1Gi", "pods": "1"}


def test_reservations_are_told_with_target_amounts_and_end() -> None:
    found = page(reserved(a_reservation(), a_reservation("gone", name="jobs/s", uid="s")))
    (held,) = found.nodes[0].reservations
    assert (held.name, held.target, held.amounts) == ("jobs/r", "podName jobs/x", {"cpu": "1"})
    assert (held.ends_at - NOW).total_seconds() == 60
    assert found.reservations_are_watched


def test_reservation_until_the_end_of_all_times_is_told() -> None:
    last = datetime.max.replace(tzinfo=UTC).timestamp()
    (held,) = page(reserved(a_reservation(ends_at=last))).nodes[0].reservations
    assert held.ends_at == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def test_reservations_that_nobody_enforces_are_not_watched() -> None:
    assert not page(room([a_node()])).reservations_are_watched


def test_pages_follow_each_other_by_name_and_tell_the_total() -> None:
    place = room([a_node(f"n{number:02}") for number in range(7)])
    found = page(place, limit=3)
    names = [node.name for node in found.nodes]
    while found.next_after:
        found = page(place, after=found.next_after, limit=3)
        assert found.total == 7
        names += [node.name for node in found.nodes]
    assert names == [f"n{number:02}" for number in range(7)]


def test_the_last_full_page_has_no_next_one() -> None:
    assert page(room([a_node("a"), a_node("b")]), limit=2).next_after is None


def test_a_page_behind_the_last_node_is_empty() -> None:
    found = page(room([a_node("a")]), after="b")
    assert (found.nodes, found.total, found.next_after) == ([], 1, None)


def test_warm_keys_are_told_by_queue_and_unknown_without_the_database() -> None:
    place = room([a_node("a"), a_node("b")])
    found = page(place, warm=WarmKeys(2000, {"a": {"maps": 3}}))
    assert ([node.warm for node in found.nodes], found.warm_ends) == ([{"maps": 3}, {}], 2000)
    assert page(place).warm_ends is None


def test_caches_are_those_that_the_keeper_of_the_node_tells() -> None:
    kept = KeptCaches(12, 3 * 2**30, is_whole=False)
    found = page(room([a_node("a"), a_node("b")]), caches={"a": kept})
    assert [node.caches for node in found.nodes] == [kept, None]


def test_each_node_tells_how_many_pods_of_the_asked_size_fit() -> None:
    found = page(room([a_node("a", cpu="4"), a_node("b", cpu="1")]), cpu="2")
    assert ([node.fits for node in found.nodes], found.fits and found.fits.pods) == ([2, 0], 2)
    assert [node.fits for node in page(room([a_node("a")])).nodes] == [None]


def test_page_may_start_with_a_node() -> None:
    place = room([a_node(name) for name in "abcd"])
    assert [one.name for one in page(place, start="b", limit=2).nodes] == ["b", "c"]
    assert [one.name for one in page(place, start="b", after="c").nodes] == ["d"]
    assert [one.name for one in page(place, start="bb", limit=1).nodes] == ["c"]
