"""Nodes in the picture of room: smaller by NodeReservations, avoided if a kubelet rejects Pods, and up to date."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from dispatcher.admission.claims import (
    LOOKED_AT_AGAIN,
    NONE_REJECTS,
    REJECTIONS,
    RejectingNodes,
    Rejections,
    rejecting_nodes,
)
from dispatcher.admission.gates import without_room
from dispatcher.admission.launch_inputs import OrderInputs, make_order
from dispatcher.admission.room import MOST_THRESHOLDS, ReservedRoom, Room, RoomIndex, room_of
from dispatcher.admission.room_view import KnownSizes
from dispatcher.model.caches import CacheHistory, Placement
from dispatcher.model.cluster import BoundPod, Pod, PodEnd, PriorityClass
from dispatcher.model.launches import Launch, Offer, PodKind
from dispatcher.model.needs import PodNeeds, Taint
from dispatcher.model.reservations import Reservation
from dispatcher.views.nodes import group_nodes
from tests.rig.builders import NOW, a_job, a_pod, a_request, a_snapshot, a_task, ago, later
from tests.unit.rooms import ANY_NODE, NO_NODE, a_bound_pod, a_node, amounts_of, needs, node_for, unplaced, view_of

ENDS_AT = 1000.0
OTHER = "podName builds/other"


def a_reservation(target: str = OTHER, cpu: str = "2", name: str = "builds/one", **facts: Any) -> Reservation:
    fields = {"uid": f"uid of {name}", "node": "n1", "ends_at": ENDS_AT, **facts}
    return Reservation(name=name, amounts=amounts_of({"cpu": cpu}), target=target, **fields)


def one_node_index() -> RoomIndex:
    """One node with 4 cores. Our Jobs are in the namespace `jobs`, and their names begin with `dispatcher-`."""
    index = RoomIndex(["ours"], 100, ReservedRoom("jobs", "dispatcher"))
    index.hear_node(None, a_node(cpu="4"))
    return index


def node_for_cpu(index: RoomIndex, cpu: str, now: float = 0, **facts: Any) -> str:
    return node_for(Room(index.view(now)), needs(cpu, **facts))


def test_reservation_takes_room_until_it_is_deleted() -> None:
    index = one_node_index()
    index.hear_reservation(None, one := a_reservation())
    assert (node_for_cpu(index, "2"), node_for_cpu(index, "3")) == ("n1", NO_NODE)
    index.hear_reservation(one, None)
    assert node_for_cpu(index, "4") == "n1"


def test_reservation_takes_room_beside_the_pods_of_the_node() -> None:
    index = one_node_index()
    index.hear_pod(None, a_bound_pod("n1", cpu="1"))
    index.hear_reservation(None, a_reservation(cpu="1", name="builds/a"))
    index.hear_reservation(None, a_reservation(cpu="1", name="builds/b"))
    assert (node_for_cpu(index, "1"), node_for_cpu(index, "2")) == ("n1", NO_NODE)
    index.hear_reservation(a_reservation(cpu="1", name="builds/a"), None)
    assert (node_for_cpu(index, "2"), node_for_cpu(index, "3")) == ("n1", NO_NODE)


def test_reservation_ends_at_its_time_and_a_later_time_makes_it_active_again() -> None:
    index = one_node_index()
    index.hear_reservation(None, one := a_reservation())
    assert node_for_cpu(index, "4", now=ENDS_AT - 1) == NO_NODE
    assert node_for_cpu(index, "4", now=ENDS_AT) == "n1"
    index.hear_reservation(one, a_reservation(ends_at=ENDS_AT + 100))
    assert node_for_cpu(index, "4", now=ENDS_AT) == NO_NODE
    assert node_for_cpu(index, "4", now=ENDS_AT + 100) == "n1"


def test_reservation_ends_when_its_target_has_a_node_even_before_its_status_says_so() -> None:
    index = one_node_index()
    index.hear_reservation(None, one := a_reservation())
    index.hear_pod(None, a_bound_pod("n1", cpu="2", keys=(OTHER,)))
    assert node_for_cpu(index, "2") == "n1"
    index.hear_reservation(one, renewed := a_reservation(message="landed soon"))
    assert node_for_cpu(index, "2") == "n1"
    index.hear_reservation(renewed, a_reservation(uid="made again"))
    assert node_for_cpu(index, "2") == NO_NODE


def test_landed_reservation_takes_nothing() -> None:
    index = one_node_index()
    index.hear_reservation(None, a_reservation(phase="Landed"))
    assert node_for_cpu(index, "4") == "n1"


def test_pod_without_a_node_ends_no_reservation() -> None:
    index = one_node_index()
    index.hear_reservation(None, a_reservation())
    index.hear_pod(None, a_bound_pod("", keys=(OTHER,)))
    index.hear_pod(None, a_bound_pod("", name="nominated", cpu="1", nominated="n1", keys=(OTHER,)))
    assert (node_for_cpu(index, "1"), node_for_cpu(index, "2")) == ("n1", NO_NODE)


def test_critical_pod_may_use_what_is_reserved() -> None:
    index = one_node_index()
    index.hear_priority_class(None, PriorityClass("system-node-critical", 2_000_001_000))
    index.hear_reservation(None, a_reservation())
    assert node_for_cpu(index, "4", priority_class="system-node-critical") == "n1"


def test_reservation_of_an_unknown_node_takes_nothing_until_the_node_comes() -> None:
    index = one_node_index()
    index.hear_reservation(None, a_reservation(node="n2"))
    assert node_for_cpu(index, "4") == "n1"
    index.hear_node(None, a_node("n2", cpu="4"))
    index.hear_pod(None, a_bound_pod("n1", cpu="4"))
    assert (node_for_cpu(index, "2"), node_for_cpu(index, "3")) == ("n2", NO_NODE)


@pytest.mark.parametrize(
    ("target", "is_held"),
    [
        ("taskId jobs/42", False),
        ("jobName jobs/dispatcher-42-0a1b2c3d-1", False),
        ("jobName jobs/dispatcher-42-0a1b2c3d-1r2", False),
        ("taskId jobs/43", True),
        ("taskId others/42", True),
        ("jobName jobs/other-42-0a1b2c3d-1", True),
        ("jobName jobs/dispatcher-soon", True),
        ("taskId jobs/", True),
    ],
)
def test_row_that_is_the_target_is_not_held_by_room(target: str, is_held: bool) -> None:
    index = one_node_index()
    index.hear_reservation(None, a_reservation(target, cpu="4"))
    snapshot = a_snapshot(max_pending=0, room=Room(index.view()))
    assert (without_room(42, unplaced(needs("4")), snapshot) is not None) is is_held


def test_view_stays_the_same_object_while_no_reservation_changes() -> None:
    index = one_node_index()
    index.hear_reservation(None, a_reservation())
    before = index.view(1)
    index.hear_pod(None, a_bound_pod(""))
    assert index.view(2) is before
    assert node_for(Room(before), PodNeeds(is_gated=True)) == ANY_NODE


def test_reservation_of_our_own_claim_takes_nothing() -> None:
    """The room gate keeps claimed nodes for their rows by itself."""
    index = one_node_index()
    index.hear_reservation(None, a_reservation("taskId jobs/42", cpu="4", name="jobs/dispatcher-claim-42"))
    assert node_for_cpu(index, "4") == "n1"
    assert index.view().targets == frozenset()


def rejected(number: int, node: str = "bad", seconds: float = 60, reason: str = "UnexpectedAdmissionError") -> Pod:
    end = PodEnd(reason=reason)
    return a_pod(
        name=f"p{number}", uid=f"p{number}", node_name=node, phase="Failed", end=end, created_at=ago(seconds + number)
    )


OURS = [a_job(uid=rejected(0).job_uid)]
ORIGIN = OURS[0].submitted_by, OURS[0].shape


def disrupted(number: int) -> Pod:
    """A Pod that somebody evicted before it began. Its kubelet writes that it failed, and no reason of its own."""
    return replace(rejected(number), end=PodEnd(disruption="EvictionByEvictionAPI"), is_disrupted=True)


def ran(node: str = "bad", seconds: float = 30, **facts: Any) -> Pod:
    return a_pod(name="ran", node_name=node, phase="Running", had_begun=True, created_at=ago(seconds), **facts)


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        ([rejected(n) for n in range(REJECTIONS)], {"bad": "UnexpectedAdmissionError (3 Pods)"}),
        ([rejected(n) for n in range(REJECTIONS - 1)], {}),
        ([rejected(n, seconds=596) for n in range(5)], {"bad": "UnexpectedAdmissionError (4 Pods)"}),
        ([rejected(n, seconds=600) for n in range(5)], {}),
        ([rejected(1, "a"), rejected(2, "b"), rejected(3, "c")], {}),
        ([*(rejected(n) for n in range(5)), ran()], {}),
        ([*(rejected(n) for n in range(5)), ran(seconds=90)], {"bad": "UnexpectedAdmissionError (5 Pods)"}),
        ([*(rejected(n) for n in range(5)), a_pod(node_name="bad", created_at=NOW)],
         {"bad": "UnexpectedAdmissionError (5 Pods)"}),
        ([*(rejected(n) for n in range(5)), ran("good")], {"bad": "UnexpectedAdmissionError (5 Pods)"}),
        ([rejected(n, reason="DeadlineExceeded") for n in range(5)], {}),
        ([disrupted(n) for n in range(5)], {}),
        ([rejected(n, reason="OutOfpods") for n in range(5)], {"bad": "OutOfpods (5 Pods)"}),
        ([rejected(n, node="") for n in range(5)], {}),
    ],
    ids=["three", "two", "old ones do not count", "all are old", "one each", "healed", "ran before", "has not begun",
         "another node", "run limit", "ended by somebody else", "any word of a kubelet", "no node"],
)  # fmt: skip
def test_node_that_rejects_the_newest_pods_is_found(pods: list[Pod], found: dict[str, str]) -> None:
    told = rejecting_nodes(pods, {OURS[0].uid: ORIGIN}, NOW)
    assert (told.every, told.avoided_by(ORIGIN)) == (found, found)


def test_container_that_failed_is_no_rejection() -> None:
    failed = a_pod(node_name="n", phase="Failed", had_begun=True, end=PodEnd(reason="Evicted"))
    assert not failed.is_rejected
    assert not a_pod(node_name="n", phase="Failed", end=PodEnd(exit_code=128, cause="StartError")).is_rejected


def test_equal_answer_is_the_same_object_and_time_alone_ends_it() -> None:
    pods = {pod.name: pod for pod in (rejected(n, seconds=500) for n in range(REJECTIONS))}
    rejections = Rejections()
    first = rejections.look(pods, OURS, NOW)
    assert first.every
    assert rejections.look(pods, OURS, NOW) is first
    assert rejections.look(again := dict(pods), OURS, NOW) is first
    assert rejections.look(again, OURS, later(LOOKED_AT_AGAIN.total_seconds() + 100)) == NONE_REJECTS


def test_each_rejected_pod_is_told_once_and_those_of_an_earlier_process_never() -> None:
    rejections = Rejections()
    for pods, told in (
        ([rejected(1)], []),
        ([rejected(1), rejected(2), rejected(3, "other")], ["bad", "other"]),
        ([rejected(2), rejected(3, "other"), ran()], []),
        ([rejected(4)], ["bad"]),
    ):
        rejections.look(by_name := {pod.name: pod for pod in pods}, OURS, NOW)
        assert sorted(rejections.told) == told
        rejections.look(by_name, OURS, NOW)
        assert rejections.told == ()


def test_pod_that_no_job_of_ours_has_made_says_nothing_of_its_node() -> None:
    pods = {pod.name: replace(pod, job_uid="made-up") for pod in (rejected(n) for n in range(REJECTIONS))}
    rejections, theirs = Rejections(), [replace(OURS[0], uid="made-up")]
    assert rejections.look(pods, OURS, NOW) == NONE_REJECTS
    assert rejections.look(dict(pods), theirs, NOW).every == {"bad": "UnexpectedAdmissionError (3 Pods)"}


def test_pods_that_a_kubelet_rejects_for_what_they_ask_close_no_node_for_others() -> None:
    """More cores than one socket has, or a sysctl that no node allows: each kubelet rejects the rows of one team."""
    numa, others = a_job(uid="numa", submitted_by="team_a"), a_job(uid="others", submitted_by="team_b")
    pods = [replace(rejected(n, reason="TopologyAffinityError"), job_uid="numa") for n in range(REJECTIONS)]
    ran_before = replace(ran(seconds=90), job_uid="others")
    found = Rejections().look({pod.name: pod for pod in (*pods, ran_before)}, [numa, others], NOW)
    assert found.avoided_by(("team_a", numa.shape)) == {"bad": "TopologyAffinityError (3 Pods)"}
    assert found.avoided_by(("team_b", others.shape)) == found.avoided_by(("team_a", "other")) == {}
    room = room_of(view_of([a_node("bad")]), {}, rejecting=found)
    kinds = [unplaced(needs(), shape, "q", who) for who, shape in (("team_a", numa.shape), ("team_b", numa.shape))]
    assert [room.has_room_for(pod) for pod in (*kinds, kinds[0])] == [False, True, False]
    assert [list(room.with_launches(pod).taken) for pod in kinds] == [[], ["bad"]]


def test_node_that_rejects_several_shapes_of_a_submitter_is_avoided_by_all_its_pods() -> None:
    """Each row may ask for other amounts, so few Pods are of one shape."""
    jobs = [a_job(uid=shape, shape=shape, submitted_by="team_a") for shape in "xyz"]
    pods = [replace(rejected(n), job_uid=job.uid) for n, job in enumerate(jobs)]
    for number, avoided in ((2, {}), (3, {"bad": "UnexpectedAdmissionError (3 Pods)"})):
        found = Rejections().look({pod.name: pod for pod in pods[:number]}, jobs, NOW)
        assert found.avoided_by(("team_a", "new")) == avoided
        assert found.avoided_by(("team_b", "x")) == {}


def test_pod_of_another_shape_heals_no_node_for_those_that_it_rejects() -> None:
    """The plugin of its devices has failed. Pods that ask for none run there."""
    devices, plain = a_job(uid="devices", shape="devices"), a_job(uid="plain", shape="plain")
    pods = [*(replace(rejected(n), job_uid="devices") for n in range(REJECTIONS)), replace(ran(), job_uid="plain")]
    found = Rejections().look({pod.name: pod for pod in pods}, [devices, plain], NOW)
    assert found.avoided_by((devices.submitted_by, "devices")) == {"bad": "UnexpectedAdmissionError (3 Pods)"}
    assert found.every == {}


BAD: Final = RejectingNodes({}, {ORIGIN: {"bad": "OutOfcpu (3 Pods)"}})


def test_room_of_such_a_node_counts_as_none_and_says_why() -> None:
    view, asked = view_of([a_node("bad", cpu="9"), a_node("good", cpu="1")]), needs("1")
    room, pod = room_of(view, {}, rejecting=BAD), PodKind("q", *ORIGIN, asked)
    assert room.has_room_for(pod)
    after = room.with_launches(pod)
    assert (after.has_room_for(pod), list(after.taken)) == (False, ["good"])
    assert {group.why: list(group.examples) for group in group_nodes(asked, room, 1, origin=ORIGIN)} == {
        "has room": ["good"], "its kubelet rejects such Pods: OutOfcpu (3 Pods)": ["bad"],
    }  # fmt: skip


def test_next_launch_of_a_rejected_row_avoids_its_node() -> None:
    """Also after one rejection, when others still get the node. The row's own claim is no hindrance."""
    plan = Placement(preferred=("bad", "good"))
    inputs = OrderInputs("db", None, lambda *_: plan, claimed={"mine": 42, "others": 9})
    launch = Launch(2, avoid=("bad",)), Offer("app:1", "small", "default")
    made = make_order(a_task(id=42), a_request(), launch, CacheHistory(), inputs).placement
    assert (made.preferred, made.avoided) == (("good",), ("bad", "others"))


def test_first_launch_avoids_a_node_that_rejects_such_pods() -> None:
    inputs = OrderInputs("db", None, lambda *_: Placement(), rejecting=BAD)
    for shape, avoided in ((ORIGIN[1], ("bad",)), ("other", ())):
        launch = Launch(1), Offer("app:1", shape, "default")
        task = a_task(submitted_by=ORIGIN[0])
        assert make_order(task, a_request(), launch, CacheHistory(), inputs).placement.avoided == avoided


NODES = [a_node(f"n{number:02}") for number in range(20)]


def an_index() -> RoomIndex:
    """20 nodes, of which all but `n00` are full. Its level was asked for, so changes update it."""
    index = RoomIndex(())
    for node in NODES:
        index.hear_node(None, node)
    for node in NODES[1:]:
        index.hear_pod(None, a_bound_pod(node.name, name=node.name, cpu="4", priority=100))
    assert node_in(index) == "n00"
    return index


FOUR_CORES = needs("4")


def node_in(index: RoomIndex, wanted: PodNeeds = FOUR_CORES) -> str:
    return node_for(Room(index.view()), wanted)


def test_pod_that_comes_takes_room_and_gives_it_back() -> None:
    index, pod = an_index(), a_bound_pod("n00")
    index.hear_pod(None, pod)
    assert node_in(index) == NO_NODE
    index.hear_pod(pod, None)
    assert node_in(index) == "n00"


def test_pod_that_moves_frees_its_old_node() -> None:
    """A nominated Pod is bound to another node after all."""
    index = an_index()
    index.hear_pod(None, nominated := a_bound_pod("", nominated="n00"))
    assert node_in(index) == NO_NODE
    index.hear_pod(nominated, a_bound_pod("n01"))
    assert node_in(index) == "n00"


def test_pod_without_any_node_changes_nothing() -> None:
    index = an_index()
    before = index.view()
    index.hear_pod(None, a_bound_pod(""))
    index.hear_pod(a_bound_pod(""), None)
    assert index.view() is before


def test_node_that_goes_takes_its_room_along_and_returns_with_its_pods() -> None:
    index = an_index()
    index.hear_node(NODES[0], None)
    assert node_in(index) == NO_NODE
    index.hear_pod(None, a_bound_pod("n00", cpu="3"))
    index.hear_node(None, NODES[0])
    assert (node_in(index), node_in(index, needs("1"))) == (NO_NODE, "n00")


def test_sizes_are_looked_at_again_only_if_a_node_changes_for_good() -> None:
    index, flapping = an_index(), a_node("n00", ready=False, taints=(Taint("node.kubernetes.io/not-ready"),))
    assert index.view().why_not(needs("5"))[0] is False
    known = index.view().sizes
    index.hear_node(NODES[0], flapping)
    assert index.view().sizes is known
    assert index.view().why_not(needs("5"))[0] is False
    index.hear_node(flapping, a_node("n00", cpu="5"))
    assert index.view().why_not(needs("5"))[0] is True


def test_resource_that_a_node_loses_is_not_there_any_more() -> None:
    index, gpu = an_index(), {"example.com/gpu": "1"}
    wanted, equipped = needs(more=gpu), a_node("n00", size=gpu)
    index.hear_node(NODES[0], equipped)
    assert node_in(index, wanted) == "n00"
    index.hear_node(equipped, NODES[0])
    assert node_in(index, wanted) == NO_NODE


def test_change_of_a_priority_class_counts_at_once() -> None:
    index, wanted = an_index(), needs("4", priority_class="high")
    index.hear_pod(None, a_bound_pod("n00", priority=5))
    index.hear_priority_class(None, before := PriorityClass("high", 3))
    assert node_in(index, wanted) == NO_NODE
    index.hear_priority_class(before, PriorityClass("high", 9))
    assert node_in(index, wanted) != NO_NODE
    index.hear_priority_class(PriorityClass("high", 9), None)
    assert node_in(index, wanted) == ANY_NODE, "a Pod of an unknown class is not judged"


@pytest.mark.parametrize("count", [1, MOST_THRESHOLDS + 5])
def test_few_levels_are_kept_however_many_priorities_are_asked_for(count: int) -> None:
    index = an_index()
    for number in range(count):
        index.hear_priority_class(None, PriorityClass(f"p{number}", number))
    for number in range(count):
        index.hear_pod(None, a_bound_pod("nowhere", name=f"p{number}"))
        assert node_in(index, needs("4", priority_class=f"p{number}")) == "n00"
    assert len(index.view().levels) <= MOST_THRESHOLDS + 1


def test_size_of_the_cluster_is_that_of_all_its_nodes() -> None:
    index = an_index()
    assert index.view().size == {name: 20 * amount for name, amount in NODES[0].size.items()}
    assert index.view().size == index.view().size
    index.hear_node(NODES[0], None)
    assert index.view().size == {name: 19 * amount for name, amount in NODES[0].size.items()}
    assert RoomIndex(()).view().size == {}


def test_sizes_are_remembered_for_a_bounded_number_of_needs() -> None:
    view = replace(an_index().view(), sizes=KnownSizes(most=3))
    for cores in range(5, 15):
        assert view.why_not(needs(str(cores)))[0] is False
        assert len(view.sizes.of) <= 3


def test_pods_of_several_priorities_come_and_go_on_their_own() -> None:
    index = RoomIndex(())
    index.hear_node(None, a_node())
    low, high, other = (a_bound_pod("n1", name=name, priority=at) for name, at in (("a", 0), ("b", 5), ("c", 5)))
    for pod in (low, high, other):
        index.hear_pod(None, pod)
    index.hear_pod(high, None)
    assert {at: asks["cpu"] for at, asks in index.view().asked["n1"].items()} == {0: 1000, 5: 1000}
    index.hear_pod(other, None)
    assert list(index.view().asked["n1"]) == [0]
    index.hear_pod(low, None)
    assert index.view().asked == {}


def test_resources_that_a_node_lacks_are_counted_when_it_gets_them() -> None:
    index = RoomIndex(())
    pod = BoundPod("x/big", "n1", {"cpu": 1000, "a.b/c": 3000})
    index.hear_pod(None, pod)
    index.hear_node(None, node := a_node())
    assert index.view().asked["n1"] == {0: {"cpu": 1000}}
    index.hear_node(node, a_node(size={"a.b/c": "4"}))
    assert index.view().asked["n1"] == {0: {"cpu": 1000, "a.b/c": 3000}}
