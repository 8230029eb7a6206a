"""Room: which node fits a Pod, what our Pods without a node take, and the words of a hold."""

from typing import Any

import pytest

from dispatcher.admission.room import YOUNG_SECONDS, Room, RoomIndex, room_of
from dispatcher.admission.room_view import nodes_to_find
from dispatcher.model.cluster import Node, PriorityClass
from dispatcher.model.needs import CORDON, PodNeeds, Requirement, SelectorTerm, Taint, Toleration
from tests.rig.builders import NOW
from tests.unit.rooms import ANY_NODE, NO_NODE, a_bound_pod, a_node, needs, node_for, room, unplaced, view_of


@pytest.mark.parametrize(
    ("nodes", "percentage", "found"),
    [(10, 0, 10), (10, 40, 10), (1000, 0, 420), (1000, 40, 400), (1000, 100, 1000), (6000, 0, 300), (6000, 40, 2400)],
)
def test_as_many_nodes_are_found_as_kube_scheduler_finds(nodes: int, percentage: int, found: int) -> None:
    """The cases of kube-scheduler's own test of numFeasibleNodesToFind."""
    assert nodes_to_find(nodes, percentage) == found


@pytest.mark.parametrize("nodes", [99, 100, 101, 150, 199, 5000])
def test_at_least_a_hundred_nodes_are_found_and_never_more_than_exist(nodes: int) -> None:
    assert min(100, nodes) <= nodes_to_find(nodes) <= nodes


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (needs("2"), True),
        (needs("2001m"), False),
        (needs("2", "6Gi"), True),
        (needs("2", "6145Mi"), False),
        (needs("0", "0"), True),
        (needs(more={"example.com/gpu": "1"}), False),
        (needs(more={"ephemeral-storage": "1Gi"}), False),
    ],
)
def test_pod_fits_if_every_resource_is_free(wanted: PodNeeds, fits: bool) -> None:
    pods = [a_bound_pod("n1"), a_bound_pod("n1", name="other")]
    assert node_for(room([a_node()], pods), wanted) == ("n1" if fits else NO_NODE)


def test_number_of_pods_is_a_resource() -> None:
    pods = [a_bound_pod("n1", name=str(number), cpu="0", memory="0") for number in range(10)]
    assert node_for(room([a_node()], pods[:9]), needs("0", "0")) == "n1"
    assert node_for(room([a_node()], pods), needs("0", "0")) == NO_NODE


def test_node_without_sizes_has_no_room() -> None:
    assert node_for(room([Node("bare")]), needs("0", "0")) == NO_NODE
    assert node_for(room([]), needs("0", "0")) == NO_NODE


def test_overcommitted_node_has_room_for_what_asks_for_none_of_it() -> None:
    assert node_for(room([a_node()], [a_bound_pod("n1", cpu="5")]), needs("0")) == "n1"


# Priorities


LOW, HIGH = PriorityClass("low", -5), PriorityClass("high", 1000)
POLITE = PriorityClass("polite", 1000, never_preempts=True)


@pytest.mark.parametrize(
    ("facts", "fits"),
    [
        ({}, False),
        ({"priority_class": "high"}, True),
        ({"priority_class": "low"}, False),
        ({"priority_class": "polite"}, False),
        ({"priority_class": "high", "never_preempts": True}, False),
    ],
)
def test_pods_that_can_be_preempted_use_no_room(facts: dict[str, Any], fits: bool) -> None:
    wanted, classes = needs("4", **facts), [LOW, HIGH, POLITE]
    assert node_for(room([a_node()], [a_bound_pod("n1")], classes), wanted) == ("n1" if fits else NO_NODE)


def test_pod_without_a_class_has_the_default_class() -> None:
    pods = [a_bound_pod("n1")]
    default = PriorityClass("usual", 10, is_default=True)
    assert node_for(room([a_node()], pods, [LOW, HIGH]), needs("4")) == NO_NODE
    assert node_for(room([a_node()], pods, [LOW, default]), needs("4")) == "n1"


def test_pod_that_preempts_others_uses_its_node_already() -> None:
    coming = a_bound_pod("", nominated="n1")
    assert node_for(room([a_node()], [coming]), needs("4")) == NO_NODE
    assert node_for(room([a_node()], [coming]), needs("3")) == "n1"


@pytest.mark.parametrize(
    "facts",
    [{"priority_class": "unknown"}, {"is_gated": True}, {"scheduler": "volcano"}],
    ids=str,
)
def test_pod_of_which_nothing_can_be_said_passes(facts: dict[str, Any]) -> None:
    assert node_for(room([]), needs("1000", **facts)) == ANY_NODE
    assert node_for(room([]), None) == ANY_NODE
    left = room([]).with_launches(unplaced(needs("1000", **facts)))
    assert (left.taken, left.waiting) == ({}, room([]).waiting)


@pytest.mark.parametrize("name", ["ours", "default-scheduler", "gke.io/optimize-utilization-scheduler"])
def test_own_scheduler_is_judged_like_the_default_one(name: str) -> None:
    """GKE writes a name of its own into each Pod, on Autopilot and where its profile optimize-utilization is on."""
    assert node_for(Room(view_of([a_node()], (), (), "ours")), needs("5", scheduler=name)) == NO_NODE


# Nodes that a Pod may have


@pytest.mark.parametrize(
    ("node", "facts", "fits"),
    [
        (a_node(taints=(CORDON,)), {}, False),
        (a_node(taints=(CORDON,)), {"tolerations": (Toleration(operator="Exists"),)}, True),
        (a_node(taints=(Taint("k", "v"),)), {}, False),
        (a_node(taints=(Taint("k", "v"),)), {"tolerations": (Toleration("k", value="v"),)}, True),
        (a_node(taints=(Taint("k", "v", "PreferNoSchedule"),)), {}, True),
        (a_node(labels={"a": "b"}), {"selector": (("a", "b"),)}, True),
        (a_node(), {"selector": (("a", "b"),)}, False),
        (a_node(labels={"a": "b"}), {"terms": (SelectorTerm((Requirement("a", "In", ("b",)),)),)}, True),
        (a_node(), {"terms": (SelectorTerm((Requirement("a", "In", ("b",)),)),)}, False),
    ],
)
def test_pod_gets_only_nodes_that_it_may_have(node: Node, facts: dict[str, Any], fits: bool) -> None:
    assert node_for(room([node]), needs(**facts)) == ("n1" if fits else NO_NODE)


# Our own launches


def test_launches_take_turns_on_the_nodes_with_room_the_best_one_first() -> None:
    left = room([a_node("small"), a_node("large", cpu="8")], [a_bound_pod("small")])
    for expected in ("large", "small", "large", "small", "large", "large", "large", NO_NODE):
        assert node_for(left, needs("1500m", "1Mi")) == expected
        left = left.with_launches(unplaced(needs("1500m", "1Mi")))
    each = {"cpu": 1500, "memory": 2**20 * 1000, "pods": 1000}
    assert left.taken["small"] == {name: 2 * amount for name, amount in each.items()}
    assert left.taken["large"] == {name: 5 * amount for name, amount in each.items()}


def test_question_about_room_changes_nothing() -> None:
    left = room([a_node("a"), a_node("b")])
    before = [node_for(left, needs()) for _ in range(3)]
    after = left.with_launches(unplaced(needs()))
    assert node_for(after, needs()) != before[0]
    assert [node_for(left, needs()) for _ in range(3)] == before == [before[0]] * 3


def test_launches_of_one_cycle_never_take_more_than_there_is() -> None:
    left, launched = room([a_node("a"), a_node("b")]), 0
    while node_for(left, needs("1500m")) != NO_NODE:
        left, launched = left.with_launches(unplaced(needs("1500m"))), launched + 1
    assert launched == 4
    assert node_for(left, needs("1")) != NO_NODE


def test_pods_without_room_wait_as_demand() -> None:
    small, large = unplaced(needs("4")), unplaced(needs("9"), "large", "r")
    left = room_of(view_of([a_node()]), {small: 2, large: 1, unplaced(None): 3}).waiting
    assert left.every == {small: 1, large: 1}
    assert (left.by_shape, left.by_queue) == ({"small": 1, "large": 1}, {("q", "small"): 1, ("r", "large"): 1})
    assert (left.asking, left.total) == ({"team_a": 2}, 2)


def a_young_node(name: str, *taints: str, **facts: Any) -> Node:
    return a_node(name, created_at=NOW, taints=tuple(Taint(key) for key in taints), **facts)


@pytest.mark.parametrize(
    "taint",
    [
        "node.kubernetes.io/not-ready",
        "startup-taint.cluster-autoscaler.kubernetes.io/agent",
        "karpenter.sh/unregistered",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cilium.io/agent-not-ready",
        "ebs.csi.aws.com/agent-not-ready",
    ],
)
def test_node_that_has_not_started_counts_as_room_to_come(taint: str) -> None:
    left = room_of(view_of([a_young_node("n1", taint)]), {unplaced(needs("1")): 5})
    assert left.waiting.total == 1, "four of them will have the node"
    assert not left.has_room(needs("1"))
    assert Room(view_of([a_young_node("n1", taint)])).has_room(needs("4"))
    assert not Room(view_of([a_young_node("n1", taint)])).has_room(needs("5"))


def test_pods_fill_the_nodes_to_come_one_by_one() -> None:
    nodes = [a_young_node(f"n{number}", "node.kubernetes.io/not-ready") for number in range(3)]
    left = room_of(view_of(nodes), {unplaced(needs("4")): 2, unplaced(needs("1"), "tiny"): 5})
    assert (left.waiting.every, sorted(left.taken)) == ({unplaced(needs("1"), "tiny"): 1}, ["n0", "n1", "n2"])
    assert [node.name for node in left.view.young_nodes()] == ["n0", "n1", "n2"]


@pytest.mark.parametrize(
    "taint", ["node.kubernetes.io/unschedulable", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "gpu"]
)
def test_node_that_goes_or_is_of_others_is_no_room_to_come(taint: str) -> None:
    assert not Room(view_of([a_young_node("n1", taint, "node.kubernetes.io/not-ready")])).has_room(needs("1"))


def test_hundred_nodes_of_one_moment_are_room_in_the_next_view() -> None:
    """The names are used again with other sizes, as in a group whose machines are replaced."""
    index = RoomIndex(())
    for cpu, fits in (("4", True), ("2", False), ("8", True)):
        for number in range(100):
            index.hear_node(None, a_node(f"n{number}", cpu=cpu))
        view = index.view()
        assert Room(view).has_room(needs("3")) is fits
        left = room_of(view, {unplaced(needs(cpu)): 101})
        assert left.waiting.total == 1
        for number in range(100):
            index.hear_node(a_node(f"n{number}", cpu=cpu), None)
        assert not Room(index.view()).has_room(needs("1"))


def test_node_that_never_started_is_no_room_after_a_while() -> None:
    index = RoomIndex(())
    index.hear_node(None, a_young_node("n1", "node.kubernetes.io/not-ready"))
    assert Room(index.view(NOW.timestamp() + YOUNG_SECONDS)).has_room(needs("1"))
    assert not Room(index.view(NOW.timestamp() + YOUNG_SECONDS + 1)).has_room(needs("1"))
    index.hear_node(None, a_node("n2", taints=(Taint("node.kubernetes.io/not-ready"),)))
    assert not Room(index.view(NOW.timestamp())).has_room(needs("1")), "its age is not known"


def test_search_goes_on_beyond_the_nodes_that_it_found_first() -> None:
    """The first 100 nodes with room are taken by our own launches."""
    nodes = [a_node(f"n{number:03}") for number in range(150)]
    left = room_of(view_of(nodes), {unplaced(needs("4")): 149})
    assert left.waiting.total == 0
    last = node_for(left, needs("4"))
    assert last not in {NO_NODE, *left.taken}
    full = left.with_launches(unplaced(needs("4")))
    assert node_for(full, needs("4")) == NO_NODE
    assert node_for(full, needs("1")) == NO_NODE
    assert node_for(full, PodNeeds()) != NO_NODE, "a Pod that asks for nothing"


def test_searches_begin_at_another_node_each_time() -> None:
    """All nodes are equal, and a search looks at 100 of 300."""
    index = RoomIndex([])
    nodes = [a_node(f"n{number:03}") for number in range(300)]
    chosen = set()
    for turn in range(9):
        for node in nodes if not turn else ():
            index.hear_node(None, node)
        index.hear_pod(None, a_bound_pod("nowhere", name=str(turn)))
        chosen.add(node_for(Room(index.view()), needs()))
    assert len(chosen) >= 3


# Words


def test_hold_says_that_nodes_are_large_enough_and_full() -> None:
    could_fit, words = room([a_node()], [a_bound_pod("n1")]).view.why_not(needs("4", "1Gi"))
    assert (could_fit, words) == (True, "no node has room for cpu 4, memory 1Gi now")


def test_hold_names_the_largest_node_if_none_is_large_enough() -> None:
    nodes = [a_node("small", cpu="2"), a_node("large", cpu="16", memory="64Gi"), a_node("other", memory="32Gi")]
    could_fit, words = room(nodes).view.why_not(needs("17500m", "1Gi"))
    assert not could_fit
    assert words == (
        "no node is large enough for cpu 17500m, memory 1Gi, even when empty; "
        "the largest, large, has cpu 16, memory 64Gi"
    )


def test_hold_says_that_there_is_no_node() -> None:
    assert room([]).view.why_not(needs()) == (False, "the cluster has no node")


def test_hold_says_that_no_node_may_be_had() -> None:
    could_fit, words = room([a_node()]).view.why_not(needs(selector=(("a", "b"),)))
    assert (could_fit, words) == (False, "none of 1 nodes may have it: taints, node selector or node affinity")


@pytest.mark.parametrize(
    "taint",
    [
        CORDON,
        Taint("node.kubernetes.io/not-ready"),
        Taint("node.cilium.io/agent-not-ready", "true"),
        Taint("ebs.csi.aws.com/agent-not-ready", effect="NoExecute"),
        Taint("karpenter.sh/unregistered", effect="NoExecute"),
    ],
    ids=str,
)
def test_taints_of_the_moment_or_of_the_start_make_no_shape_unfit_for_ever(taint: Taint) -> None:
    could_fit, _ = room([a_node(taints=(taint,))]).view.why_not(needs())
    assert could_fit


def test_node_that_was_large_enough_is_forgotten_when_it_is_gone() -> None:
    index = RoomIndex([])
    index.hear_node(None, a_node())
    assert index.view().why_not(needs("4"))[0]
    index.hear_node(a_node(), a_node(cpu="2"))
    assert not index.view().why_not(needs("4"))[0]
