"""Windows of demand: they follow kube-scheduler where it contradicts the estimate, and stay one where it does not."""

import random
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from dispatcher.admission.demand import FELL_BACK, Demand, DemandRecord, Demands
from dispatcher.admission.gates import without_room
from dispatcher.admission.room import Room, room_of
from dispatcher.admission.room_view import RoomView
from dispatcher.admission.windows import AGREES, DOUBT, Contradictions, PodsInView, Windows, contradicts
from dispatcher.model.cluster import Pod, PodEnd
from dispatcher.model.launches import Probe
from dispatcher.model.needs import PodNeeds, Taint
from dispatcher.model.reservations import Reservation
from dispatcher.model.verdicts import HoldReason
from tests.rig.builders import NOW, a_job, a_pod, a_snapshot, later
from tests.unit.rooms import a_bound_pod, a_node, needs, unplaced, view_of

DEVICE = needs(more={"example.com/device": "1"})
BLIND = view_of([a_node(cpu="1000")])
"""A node that could take many of the Pods, but for a device that it does not tell."""
STEP = 0.1


class Cluster:
    """A cluster with so many places for the shape, and kube-scheduler, which binds each Pod after a time of its own.

    pods: all Pods, by name. most_beyond: the most Pods that waited beyond the places at one moment.
    """

    def __init__(self, places: int, latency: tuple[float, float], seed: int = 1) -> None:
        self.pods: dict[str, Pod] = {}
        self.most_beyond = 0
        self._places, self._latency = places, latency
        self._random = random.Random(seed)
        self._binds_at: dict[str, float] = {}
        self._ends_at: dict[str, float] = {}

    def launch(self, count: int, seconds: float) -> None:
        for _ in range(count):
            name = f"p{len(self._binds_at)}"
            self.pods = {**self.pods, name: a_pod(name=name, uid=name, node_name="", created_at=later(seconds))}
            self._binds_at[name] = seconds + self._random.uniform(*self._latency)

    def turn(self, seconds: float, runs: float | None = None) -> None:
        """Binds what is due while there are places. The others are Unschedulable. Ends what has run for long enough."""
        changed = dict(self.pods)
        for name in [name for name, ends in self._ends_at.items() if ends <= seconds]:
            del changed[name], self._ends_at[name]
        for name in self.waiting():
            if self._binds_at[name] > seconds:
                continue
            if len(self._ends_at) < self._places:
                self._ends_at[name] = seconds + runs if runs else float("inf")
                changed[name] = a_pod(name=name, uid=name, node_name="n1", scheduled_at=later(seconds))
            elif changed[name].unschedulable_since is None:
                changed[name] = a_pod(name=name, uid=name, node_name="", unschedulable_since=later(seconds))
        self.most_beyond = max(self.most_beyond, len(self.waiting()) + len(self._ends_at) - self._places)
        if changed != self.pods:
            self.pods = changed

    def take_back(self, most: int) -> None:
        for name in self.waiting()[most:]:
            self.pods = {other: pod for other, pod in self.pods.items() if other != name}

    def waiting(self) -> list[str]:
        return [name for name, pod in self.pods.items() if not pod.node_name]

    def bound(self) -> int:
        return len(self.pods) - len(self.waiting())


def fill(cluster: Cluster, windows: Windows, room: RoomView, seconds: float, runs: float | None = None) -> list[int]:
    """Launches as many as the window allows in each tenth of a second. Returns the bound Pods after each."""
    bound = []
    for tick in range(int(seconds / STEP)):
        at = tick * STEP
        cluster.turn(at, runs)
        size = windows.look(
            PodsInView(cluster.pods, {"small": DEVICE}), room, Room(room).has_room, later(at)
        ).sizes.get("small", 1)
        cluster.take_back(max(size, 1)) if cluster.most_beyond > 0 else None
        cluster.launch(min(5, size - len(cluster.waiting())), at)
        bound.append(cluster.bound())
    return bound


@pytest.mark.parametrize(("latency", "most"), [((0.2, 0.2), 12), ((0.2, 1.2), 14), ((0.2, 3.2), 20)])
def test_places_that_the_estimate_does_not_see_are_filled_by_doubling(latency: tuple[float, float], most: int) -> None:
    bound = fill(Cluster(400, latency), Windows(), BLIND, most)
    assert bound[-1] == 400


def test_full_cluster_has_one_pod_without_a_node_again_within_a_minute() -> None:
    cluster, windows = Cluster(100, (0.2, 0.5)), Windows()
    fill(cluster, windows, BLIND, 75)
    assert (cluster.bound(), len(cluster.waiting()), windows.found.sizes) == (100, 1, {"small": 1})
    assert cluster.most_beyond <= 128


def test_right_estimate_keeps_every_window_at_one() -> None:
    room = view_of([a_node(cpu="1000", size={"example.com/device": "1000"})])
    windows = Windows()
    fill(Cluster(100, (0.2, 0.5)), windows, room, 30)
    assert windows.found == AGREES


WAITS = a_pod(name="w", uid="w", node_name="")
RUNS = a_pod(name="w", uid="w", node_name="n1", scheduled_at=NOW)
STUCK = a_pod(name="s", uid="s", node_name="", unschedulable_since=NOW)


def looked(*moments: tuple[float, list[Pod]], room: RoomView = BLIND, asks: PodNeeds = DEVICE) -> Contradictions:
    """What was found after looks at these Pods, each at its second."""
    windows = Windows()
    for seconds, pods in moments:
        windows.look(
            PodsInView({pod.name: pod for pod in pods}, {"small": asks}), room, Room(room).has_room, later(seconds)
        )
    return windows.found


def looks(*moments: tuple[float, list[Pod]]) -> Mapping[str, int]:
    return looked(*moments).sizes


def test_window_does_not_double_while_kube_scheduler_calls_a_pod_unschedulable() -> None:
    assert looks((0, [WAITS]), (1, [RUNS])) == {"small": 2}
    assert looks((0, [WAITS]), (1, [RUNS, STUCK])) == {}


def test_window_halves_only_when_nothing_was_bound_for_the_patience() -> None:
    grown = [(0.0, [WAITS]), (1.0, [RUNS])]
    assert looks(*grown, (5.9, [RUNS, STUCK])) == {"small": 2}
    assert looks(*grown, (6.0, [RUNS, STUCK])) == {"small": 1}
    other = a_pod(name="o", uid="o", node_name="n1", scheduled_at=later(4))
    assert looks(*grown, (8.9, [RUNS, STUCK, other])) == {"small": 2}


def test_window_halves_in_a_busy_cluster_when_the_estimate_was_right_for_a_minute() -> None:
    """Pods are bound all the time, to nodes that our count knows."""
    pods = [replace(STUCK, name=f"s{n}", uid=f"s{n}", node_name="") for n in range(4)]
    begun = [(0.0, [WAITS]), (1.0, [RUNS])]  # against our count
    for late, size in ((58, 2), (63, 1)):
        binds = [(second, [*pods, bound(f"b{second}", second)]) for second in range(2, late)]
        assert looks(*begun, *binds) == {"small": size}
    against = [
        (second, [pods[0], replace(WAITS, name=f"w{second}"), bound(f"w{second - 1}", second, "n1")])
        for second in range(2, 90)
    ]
    assert looks(*begun, *against) == {"small": 2}


def bound(name: str, seconds: float, node: str = "n9") -> Pod:
    return a_pod(name=name, uid=name, node_name=node, scheduled_at=later(seconds))


def test_unused_window_closes() -> None:
    grown = [(0.0, [WAITS]), (1.0, [RUNS])]
    assert looks(*grown, (600, [RUNS])) == {"small": 2}
    assert looks(*grown, (602, [RUNS])) == {}


def test_pods_that_have_ended_or_are_deleted_wait_for_nothing() -> None:
    going = a_pod(name="w", uid="w", node_name="", deleting=True)
    ended = a_pod(name="w", uid="w", node_name="", phase="Failed")
    for pod in (going, ended):
        assert looks((0, [pod]), (1, [RUNS])) == {}


def test_equal_sizes_are_the_same_object() -> None:
    windows = Windows()
    first, has_room = windows.look(PodsInView({"w": WAITS}, {}), BLIND, lambda _: False, NOW), Room(BLIND).has_room
    assert windows.look(PodsInView({"w": WAITS}, {}), BLIND, has_room, later(2)) is first


FULL = a_bound_pod("n1", cpu="4")
CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


@pytest.mark.parametrize(
    ("room", "asks", "pod", "is_wrong"),
    [
        (BLIND, DEVICE, RUNS, True),
        (BLIND, None, RUNS, False),
        (BLIND, needs(), RUNS, False),
        (BLIND, DEVICE, a_pod(node_name="unknown"), False),
        (BLIND, DEVICE, a_pod(node_name="n1", phase="Failed", end=PodEnd(reason="OutOfcpu")), False),
        (BLIND, needs(more={"example.com/device": "1"}, scheduler="volcano"), RUNS, False),
        (view_of([a_node()], [FULL]), needs(), RUNS, False),
        (view_of([a_node()], [FULL, a_bound_pod("n1", name="q")]), needs(), RUNS, True),
        (view_of([a_node(taints=(Taint("team", "b", "NoSchedule"),))]), needs(), RUNS, True),
        (view_of([a_node(taints=(CORDON,))]), needs(), RUNS, False),
    ],
    ids=["a device that the node does not tell", "nothing is known of the Pod", "room", "an unknown node", "rejected",
         "another scheduler", "just full", "overfull", "a taint", "cordoned since"],
)  # fmt: skip
def test_pod_contradicts_the_estimate_by_its_node(
    room: RoomView, asks: PodNeeds | None, pod: Pod, is_wrong: bool
) -> None:
    assert contradicts([pod], asks, room) is is_wrong


def test_node_that_is_reserved_contradicts_nothing() -> None:
    reserved = Reservation("team/r", "r", "n1", {"cpu": 2000}, "x", later(60).timestamp())
    over = view_of([a_node()], [FULL, a_bound_pod("n1", name="q")])
    assert not contradicts([RUNS], needs(), replace(over, reservations=[reserved]))


def a_probe(number: int) -> Probe:
    job = a_job(task_id=number, name=f"job-{number}", uid=f"uid-{number}", created_at=later(number), shape="small")
    return Probe(job, a_pod(job, node_name="", unschedulable_since=NOW), DEVICE)


def demand(windows: Mapping[str, int], probes: int, at: datetime = NOW) -> Demands:
    demands = Demands("one", 30)
    demands.update([a_probe(number) for number in range(probes)], [], {}, at, Contradictions(windows))
    return demands


@pytest.mark.parametrize(
    ("sizes", "waiting", "may_wait"),
    [([], 1, False), ([1], 1, False), ([4], 3, True), ([4], 4, False)],
    ids=("never contradicted", "one again", "has places", "full"),
)
def test_window_says_how_many_pods_ask_whatever_the_mode(sizes: list[int], waiting: int, may_wait: bool) -> None:
    pod = unplaced(DEVICE)
    contradicted = Contradictions(dict.fromkeys([pod.shape], sizes[0]) if sizes else {})
    one = Demand("one", asked={pod.shape: DemandRecord(NOW, NOW, NOW)}, contradicted=contradicted)
    room = room_of(BLIND, {pod: waiting}, demand=one)
    hold = without_room(1, pod, a_snapshot(room=room, max_pending=1000))
    assert (hold is None) is may_wait
    if hold is not None:
        assert hold.reason is (HoldReason.NO_ROOM_NOW if sizes else HoldReason.NEVER_FITS)
        assert ("kube-scheduler has nodes for it that our count does not see" in hold.detail) is bool(sizes)


@pytest.mark.parametrize(("setting", "most"), [(0, 0), (1, 1), (3, 3), (1000, 8)])
def test_no_window_is_larger_than_max_pending(setting: int, most: int) -> None:
    pod = unplaced(DEVICE)
    large = Demand("one", contradicted=Contradictions({pod.shape: 8}))
    for waiting in range(10):
        snapshot = a_snapshot(room=room_of(BLIND, {pod: waiting}, demand=large), max_pending=setting)
        assert (without_room(1, pod, snapshot) is None) is (waiting < most)


def test_eviction_changes_no_window() -> None:
    """The Pod of an evicted row is gone, and its next one waits like any other."""
    cluster, windows = Cluster(100, (0.2, 0.5)), Windows()
    fill(cluster, windows, BLIND, 75)
    before, gone = windows.found, next(name for name, pod in cluster.pods.items() if pod.node_name)
    left = {name: pod for name, pod in cluster.pods.items() if name != gone}
    again = a_pod(name="again", uid="again", node_name="", created_at=later(75))
    for at, pods in enumerate((left, {**left, "again": again})):
        assert windows.look(PodsInView(pods, {"small": DEVICE}), BLIND, Room(BLIND).has_room, later(75 + at)) is before


def test_pods_that_had_their_nodes_before_a_restart_contradict_the_estimate() -> None:
    """A full pool of devices is no pool that is too small. A Pod that has ended tells nothing any more."""
    waits = a_pod(name="new", uid="new", node_name="", unschedulable_since=NOW)
    runs = a_pod(name="old", uid="old", node_name="n1")
    more = [replace(waits, name=f"new-{number}") for number in range(4)]
    ended = replace(runs, phase="Succeeded")
    for pods, size in (([waits, runs], 1), ([waits, runs, *more], 8), ([waits], None), ([waits, ended], None)):
        found = Windows().look(
            PodsInView({pod.name: pod for pod in pods}, {"small": DEVICE}), BLIND, lambda _: False, NOW
        )
        assert found.sizes.get("small") == size, pods


def test_pods_beyond_a_window_that_has_halved_are_taken_back_at_once() -> None:
    back = demand({"small": 2}, 5).given_back([a_probe(number) for number in range(5)], [])
    assert [(probe.job.name, why) for probe, why in back] == [(f"job-{number}", FELL_BACK) for number in (2, 3, 4)]
    assert demand({}, 5).given_back([a_probe(number) for number in range(5)], []) == []


def test_windows_change_between_the_looks_of_demand() -> None:
    demands = demand({}, 1)
    demands.update([a_probe(0)], [], {}, NOW + timedelta(seconds=0.1), Contradictions({"small": 2}))
    assert demands.current.most("small", 1000) == 2


ROOMY = view_of([a_node(cpu="1000")])
BLOCKED = a_pod(name="b", uid="b", node_name="", unschedulable_since=NOW, waiting_message="no free ports")


def ports(*moments: tuple[float, list[Pod]], room: RoomView = ROOMY) -> Contradictions:
    return looked(*moments, room=room, asks=needs())


def test_shape_is_in_doubt_when_our_count_alone_has_had_room_for_long() -> None:
    most = DOUBT.total_seconds()
    assert ports((0, [BLOCKED]), (most - 0.1, [BLOCKED])) == AGREES
    assert ports((0, [BLOCKED]), (most, [BLOCKED])) == Contradictions({"small": 1}, {"small": "no free ports"})


@pytest.mark.parametrize(
    "moments",
    [
        [(0, [BLOCKED]), (10, [RUNS]), (20, [BLOCKED])],
        [(0, [BLOCKED]), (20, [BLOCKED, a_pod(name="o", uid="o", node_name="n1", scheduled_at=later(9))])],
        [(0, [nominated := replace(BLOCKED, nominated_node="n1")]), (20, [nominated])],
        [(0, [WAITS]), (20, [WAITS])],
    ],
    ids=["it got a node between", "others of its shape get nodes", "others are preempted for it", "not looked at yet"],
)
def test_shape_is_not_in_doubt_while_kube_scheduler_works(moments: list[tuple[float, list[Pod]]]) -> None:
    assert ports(*moments).doubted == {}


def test_full_cluster_puts_no_shape_in_doubt() -> None:
    full = view_of([a_node()], [FULL])
    assert ports((0, [BLOCKED]), (60, [BLOCKED]), room=full) == AGREES


def test_shape_in_doubt_grows_by_its_window_and_is_trusted_again_in_the_end() -> None:
    doubt: list[tuple[float, list[Pod]]] = [(0, [BLOCKED]), (20, [BLOCKED])]
    bound = replace(BLOCKED, node_name="n1", unschedulable_since=None, scheduled_at=later(30))
    assert ports(*doubt, (30, [bound])) == Contradictions({"small": 2}, {"small": "no free ports"})
    assert ports(*doubt, (30, [bound]), (630, [bound])) == AGREES


def test_doubt_lasts_as_long_as_kube_scheduler_finds_no_node_and_has_its_newest_words() -> None:
    other = replace(BLOCKED, waiting_message="no free volume")
    doubt: list[tuple[float, list[Pod]]] = [(0, [BLOCKED]), (20, [BLOCKED]), (500, [other])]
    assert ports(*doubt, (1000, [WAITS])) == Contradictions({"small": 1}, {"small": "no free volume"})
    assert ports(*doubt, (1101, [WAITS])).doubted == {}


def test_doubt_ends_where_the_cluster_is_full() -> None:
    """kube-scheduler was away for a while. Then it and our count agree that no node has room."""
    windows, full = Windows(), view_of([a_node()], [FULL])
    for seconds, room in ((0, ROOMY), (20, ROOMY), (300, full), (621, full)):
        windows.look(PodsInView({"b": BLOCKED}, {"small": needs()}), room, Room(room).has_room, later(seconds))
    assert windows.found.doubted == {}


def test_pod_of_nobody_puts_no_shape_in_doubt() -> None:
    """Anybody who may create Pods in the namespace can give one our labels."""
    windows = Windows()
    for seconds in (0, 20, 60):
        seen = PodsInView({"b": BLOCKED}, {"small": needs()}, asking=frozenset())
        windows.look(seen, ROOMY, Room(ROOMY).has_room, later(seconds))
    assert windows.found == AGREES


def test_clock_that_went_back_stops_no_comparison() -> None:
    windows = Windows()
    for seconds in (600, 0, 20):
        windows.look(PodsInView({"b": BLOCKED}, {"small": needs()}), ROOMY, Room(ROOMY).has_room, later(seconds))
    assert windows.found.doubted == {"small": "no free ports"}


def test_shape_in_doubt_takes_no_room_and_waits_as_demand() -> None:
    blocked, other = unplaced(needs("3"), "blocked"), unplaced(needs("3"), "other", "default", "team_b")
    one_place = view_of([a_node()])
    doubt = Demand(contradicted=Contradictions({"blocked": 1}, {"blocked": "no free ports"}))
    room = room_of(one_place, {blocked: 1}, demand=doubt)
    snapshot = a_snapshot(room=room, max_pending=1000)
    assert without_room(1, other, snapshot) is None
    hold = without_room(2, blocked, snapshot)
    assert hold is not None
    assert hold.reason is HoldReason.NO_ROOM_NOW
    assert hold.detail == "kube-scheduler finds no node for it, where our count has room: no free ports"
    trusted = room_of(one_place, {blocked: 1})
    assert (trusted.has_room_for(other), room.has_room_for(other)) == (False, True)
