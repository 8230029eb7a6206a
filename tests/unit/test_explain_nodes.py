"""Why each node has no room for a Pod, what uses it, when it is free again, and how many Pods of one size fit."""

from collections.abc import Iterable
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dispatcher.admission.room import ReservedRoom, Room, RoomAllocation, RoomIndex
from dispatcher.model.cluster import Node, Pod, PriorityClass
from dispatcher.model.jobs import Job, Phase
from dispatcher.model.needs import CORDON, PodNeeds, Taint
from dispatcher.model.reservations import Reservation
from dispatcher.model.resources import milli_of
from dispatcher.views.node_room import (
    KeptCaches,
    NodePageInputs,
    NodesPage,
    WantedNodes,
    WarmKeys,
    names_of,
    nodes_page,
)
from dispatcher.views.nodes import (
    FitSummary,
    PodLimit,
    fits_at,
    fitting_of,
    free_nodes,
    group_nodes,
    limits_by_node,
    needs_of,
)
from tests.rig.builders import NOW, a_cluster, a_job, a_last_cycle, a_picture, a_pod, a_snapshot, ago, later
from tests.unit.rooms import a_bound_pod, a_node, amounts_of, needs, room, unplaced


def told(wanted: PodNeeds, place: Room) -> list[tuple[int, str]]:
    return [(group.count, group.why) for group in group_nodes(wanted, place, 42)]


def test_each_node_has_one_answer() -> None:
    nodes = [
        a_node("small", cpu="2"),
        a_node("full", cpu="8"),
        a_node("free", cpu="8"),
        a_node("closed", cpu="8", taints=(CORDON,)),
        a_node("private", cpu="8", taints=(Taint("team", "b"),)),
        a_node("lost", cpu="8", taints=(Taint("node.kubernetes.io/not-ready"),)),
    ]
    place = room(nodes, [a_bound_pod("full", cpu="7")])
    assert sorted(told(needs("4"), place)) == [
        (1, "cordoned"),
        (1, "full: cpu 1 < 4"),
        (1, "has room"),
        (1, "not usable now: not-ready"),
        (1, "tainted: team"),
        (1, "too small: cpu 2 < 4"),
    ]


def test_a_node_that_is_not_selected_says_so_before_all_else() -> None:
    assert told(needs("1", selector=(("disk", "ssd"),)), room([a_node(taints=(CORDON,))])) == [
        (1, "not allowed by node selector or node affinity")
    ]


def test_nodes_with_one_answer_are_one_group_with_the_best_amount_and_three_names() -> None:
    nodes = [a_node(f"n{number}", cpu=str(number)) for number in range(1, 6)]
    (group,) = group_nodes(needs("8"), room(nodes), 42)
    assert (group.count, group.why, list(group.examples)) == (5, "too small: cpu 5 < 8", ["n1", "n2", "n3"])


def test_the_largest_group_comes_first() -> None:
    nodes = [a_node("big", cpu="8"), *(a_node(f"n{number}", cpu="1") for number in range(3))]
    assert told(needs("4"), room(nodes)) == [(3, "too small: cpu 1 < 4"), (1, "has room")]


def test_room_that_our_own_launches_take_is_not_free() -> None:
    place = room([a_node(cpu="4")]).with_launches(unplaced(needs("3")))
    assert told(needs("2"), place) == [(1, "full: cpu 1 < 2")]


def test_a_claimed_node_is_kept_for_its_row() -> None:
    place = replace(room([a_node("n1")]), closed={"n1": 7})
    assert told(needs("1"), place) == [(1, "kept for a row that has waited longer")]
    assert [group.why for group in group_nodes(needs("1"), place, 7)] == ["has room"]


def test_a_resource_that_a_node_does_not_have_is_none_of_it() -> None:
    assert told(needs("1", more={"nvidia.com/gpu": "1"}), room([a_node()])) == [(1, "too small: nvidia.com/gpu 0 < 1")]


def test_beyond_ten_groups_the_rest_is_one_group() -> None:
    nodes = [Node(f"n{number}", taints=(Taint(f"team-{number}"),)) for number in range(13)]
    found = told(needs("1"), room(nodes))
    assert (len(found), found[-1]) == (11, (3, "other answers"))


def test_pod_that_is_not_judged_has_no_groups() -> None:
    assert told(needs("1", scheduler="another"), room([a_node()])) == []


def test_nodes_are_told_by_name_with_what_is_free() -> None:
    place = room([a_node("b", cpu="4"), a_node("a", cpu="2")], [a_bound_pod("b", cpu="1")])
    assert [(node.name, free["cpu"]) for node, free in free_nodes(place)] == [("a", 2000), ("b", 3000)]


SMALL = needs("1", "1Gi")


def page(place: Room, jobs: Iterable[Job] = (), pods: Iterable[Pod] = (), **asked: Any) -> NodesPage:
    warm, caches = asked.pop("warm", None), asked.pop("caches", {})
    wanted = WantedNodes(**asked)
    cycle = a_last_cycle(a_snapshot(room=place), a_picture(jobs, a_cluster(pods)))
    size = needs_of(wanted.cpu, wanted.memory)
    fitting = fitting_of(size, place, wanted.cpu, wanted.memory) if size else None
    return nodes_page(names_of(place, wanted), wanted, cycle, place, NodePageInputs(fitting, warm, caches))


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


def fits(place: Room, cpu: str | None = "1", memory: str | None = None) -> FitSummary:
    asked = needs_of(cpu, memory)
    assert asked is not None
    return fitting_of(asked, place, cpu, memory).told


def test_pods_that_fit_are_counted_on_each_node_and_in_all() -> None:
    found = fits(room([a_node("a", cpu="4"), a_node("b", cpu="9", pods="5"), a_node("c", cpu="1")]), "2")
    assert (found.pods, found.nodes) == (6, 2)
    assert [(one.name, one.pods) for one in found.most] == [("b", 4), ("a", 2)]
    assert [(group.count, group.why) for group in found.answers] == [(2, "has room"), (1, "too small: cpu 1 < 2")]


def test_number_of_pods_of_a_node_is_a_bound_too() -> None:
    assert fits(room([a_node(cpu="64", pods="5")])).pods == 5


def test_memory_alone_is_a_size() -> None:
    assert fits(room([a_node(memory="8Gi")]), None, "3Gi").pods == 2


def test_nodes_that_take_no_pod_tell_why() -> None:
    nodes = [a_node("a", taints=(CORDON,)), a_node("b", taints=(Taint("team"),)), a_node("kept"), a_node("full")]
    place = replace(room(nodes, [a_bound_pod("full", cpu="4")]), closed={"kept": 7})
    found = fits(place)
    assert found.pods == 0
    assert {group.why for group in found.answers} == {
        "cordoned", "tainted: team", "kept for a row that has waited longer", "full: cpu 0 < 1",
    }  # fmt: skip


def test_launches_under_way_have_taken_their_room() -> None:
    place = room([a_node(cpu="4")]).with_launches(unplaced(needs("3")))
    assert fits(place).pods == 1
    assert [group.why for group in fits(place, "2").answers] == ["full: cpu 1 < 2"]


def test_pods_of_a_lower_priority_could_be_preempted() -> None:
    place = room([a_node(cpu="4")], [a_bound_pod("n1", cpu="4", priority=-1)], [PriorityClass("default", 0, True)])
    assert fits(place).pods == 4


def test_only_the_nodes_with_the_most_room_are_named() -> None:
    found = fits(room([a_node(f"n{number:02}") for number in range(30)]))
    assert (found.nodes, len(found.most), found.most[0].name) == (30, 20, "n00")


def test_a_question_leaves_nothing_in_the_room() -> None:
    place = room([a_node()])
    fits(place)
    assert (place.witness, place.view.found, place.view.reasons) == ({}, {}, {})


def test_no_size_is_no_question() -> None:
    assert needs_of(None, None) is None


@pytest.mark.parametrize(
    ("cpu", "memory", "words"),
    [
        ("x", None, 'cpu: "x" is not a Kubernetes quantity'),
        ("0", None, 'cpu: "0" is no size of a Pod: give more than 0, and 9E at most'),
        ("1", "-1Gi", 'memory: "-1Gi" is no size'),
        ("1e99", None, 'cpu: "1e99" is no size'),
        ("<script>", None, 'cpu: "<script>" is not'),
        (None, "9" * 40, "memory: "),
    ],
)
def test_a_size_that_is_none_is_refused_with_field_value_and_rule(cpu: str | None, memory: str, words: str) -> None:
    with pytest.raises(ValueError, match="^" + words.replace("(", "\\(")):
        needs_of(cpu, memory)


SIZES = st.integers(1, 12).map(str)


@given(st.lists(st.tuples(SIZES, SIZES, st.booleans()), max_size=6), st.lists(SIZES, max_size=6), SIZES)
def test_as_many_pods_fit_as_the_gate_admits(nodes: list[tuple[str, str, bool]], taken: list[str], cpu: str) -> None:
    made = [
        a_node(f"n{at}", cpu=size, memory=f"{memory}Gi", taints=(CORDON,) if is_closed else ())
        for at, (size, memory, is_closed) in enumerate(nodes)
    ]
    place = room(made)
    for one in taken:
        place = place.with_launches(unplaced(needs(one, "1Gi")))
    asked = needs_of(cpu, "1Gi")
    assert asked is not None
    admitted = RoomAllocation(place, unplaced(asked), asked, place.view.level(0)).place(10_000)
    assert fitting_of(asked, place, cpu, "1Gi").told.pods == admitted
    assert dict(asked.asks)["cpu"] == Fraction(cpu) * 1000


CORE = {"cpu": 1000}


def test_pod_fits_after_so_many_ends_as_it_needs() -> None:
    limits = [PodLimit(later(60), CORE), PodLimit(later(120), CORE), PodLimit(later(180), CORE)]
    free = {**dict(needs("1").asks), "cpu": 1000}
    found: list[datetime | None] = [fits_at(needs(cpu), free, limits) for cpu in ("2", "3", "4", "5")]
    assert found == [later(60), later(120), later(180), None]


def test_pods_that_run_with_a_limit_are_counted_by_node_in_the_order_of_their_ends() -> None:
    jobs = [
        a_job(uid="slow", limit_seconds=600, needs=needs("1")),
        a_job(uid="quick", limit_seconds=60, needs=needs("2")),
        a_job(uid="late", limit_seconds=5, needs=needs("1")),
        a_job(uid="unlimited", needs=needs("1")),
        a_job(uid="unknown", limit_seconds=60),
        a_job(uid="urgent", limit_seconds=60, needs=replace(needs("1"), priority_class="urgent")),
        a_job(uid="over", limit_seconds=60, needs=needs("1"), phase=Phase.COMPLETE),
    ]
    pods = [a_pod(job_uid=job.uid, node_name="n1", scheduled_at=ago(10), phase="Running") for job in jobs]
    pods += [a_pod(job_uid="slow", phase="Failed", node_name="n2"), a_pod(job_uid="slow", node_name="")]
    found = limits_by_node(jobs, a_cluster(pods), "", NOW)
    assert list(found) == ["n1"]
    assert [(one.ends_at, one.asks["cpu"]) for one in found["n1"]] == [
        (NOW, 1000),
        (later(50), 2000),
        (later(590), 1000),
    ]


def test_group_of_full_nodes_tells_the_first_of_their_ends() -> None:
    nodes = [a_node("a", cpu="4"), a_node("b", cpu="4"), a_node("c", cpu="4"), a_node("small", cpu="1")]
    place = room(nodes, [a_bound_pod(name, cpu="4") for name in ("a", "b", "c")])
    limits = {"a": [PodLimit(later(90), CORE)], "b": [PodLimit(later(60), CORE)], "small": [PodLimit(later(1), CORE)]}
    full, small = group_nodes(needs("1"), place, 42, limits), group_nodes(needs("2"), place, 42, limits)
    assert [(group.why, group.until) for group in full] == [("full: cpu 0 < 1", later(60)), ("has room", None)]
    assert [(group.why, group.until) for group in small] == [("full: cpu 0 < 2", None), ("too small: cpu 1 < 2", None)]
