"""What is learned of room in one cycle counts in the next, and a view that is too old teaches nothing."""

from collections.abc import Iterator
from typing import Any

from dispatcher.admission.claims import GUARD, REJECTIONS, Claims
from dispatcher.admission.demand import FIRST, PATIENCE, Demands
from dispatcher.admission.room_memory import RoomMemory
from dispatcher.admission.room_view import RoomView
from dispatcher.admission.windows import DOUBT
from dispatcher.model.cluster import ClusterView, Pod, PodEnd
from dispatcher.model.launches import PodRun, Probe
from tests.rig.builders import NOW, a_job, a_pod, ago, later
from tests.unit.rooms import a_node, needs, unplaced, view_of

JOB = a_job(shape="small", uid="job")
BLOCKED = a_pod(JOB, name="b", uid="b", node_name="", unschedulable_since=NOW, waiting_message="no free ports")
PROBE = Probe(JOB, BLOCKED, needs())
ROOMY = view_of([a_node()])
MOST = DOUBT.total_seconds()


class NoPods:
    def probes(self) -> Iterator[Probe]:
        return iter([])

    def runs(self) -> Iterator[PodRun]:
        return iter([])


def a_memory() -> RoomMemory:
    return RoomMemory(Demands("auto", 60), Claims())


def a_view(seconds: float = 0, *pods: Pod, **facts: Any) -> ClusterView:
    seen = {pod.name: pod for pod in pods or (BLOCKED,)}
    return ClusterView(later(seconds), {JOB.name: JOB}, seen, {}, made={"small": needs()}, **facts)


def after(memory: RoomMemory, *seconds: float, room: RoomView | None = ROOMY, **facts: Any) -> RoomMemory:
    """The memory after looks at these times."""
    for at in seconds:
        memory.look(a_view(at, **facts), room, [PROBE], {})
    return memory


def test_word_of_kube_scheduler_counts_against_the_estimate() -> None:
    assert after(a_memory(), 0, MOST).demands.current.contradicted.doubted == {"small": "no free ports"}


def test_old_view_and_a_cluster_without_nodes_of_ours_to_judge_put_nothing_in_doubt() -> None:
    assert after(a_memory(), 0, MOST, room=None).demands.current.contradicted.doubted == {}
    assert after(a_memory(), 0, MOST, stale="pods are 90 s old").demands.current.asked == {}


def test_pods_that_wait_are_demand_with_and_without_a_look_at_room() -> None:
    for room in (ROOMY, None):
        assert after(a_memory(), 0, room=room).demands.current.asked.keys() == {"small"}


def test_room_is_the_same_while_nothing_changes_and_takes_no_refusal_over() -> None:
    memory = a_memory()
    first = memory.room(ROOMY, {unplaced(needs()): 1})
    first.refusals[unplaced(needs())] = None
    again = memory.room(ROOMY, {unplaced(needs()): 1})
    assert (again.taken is first.taken, again.refusals) == (True, {})
    assert memory.room(ROOMY, {unplaced(needs()): 2}).taken != first.taken


def test_first_pod_of_a_shape_is_awaited_for_a_while() -> None:
    memory, launched = a_memory(), {unplaced(needs(), "new"): FIRST}
    assert memory.first_pods(launched, a_view()).must_wait("new")
    assert not memory.first_pods(launched, a_view(PATIENCE.total_seconds())).must_wait("new")


def test_clock_that_was_set_back_by_an_hour_begins_the_memory_anew() -> None:
    """Otherwise nothing that was learned would end for an hour: doubts, windows, demand, rests and waits."""
    memory, launched = after(a_memory(), 3600, 3600 + MOST), {unplaced(needs(), "new"): FIRST}
    assert memory.first_pods(launched, a_view(3600)).must_wait("new")
    after(memory, 3600 + MOST - 200)
    assert memory.demands.current.contradicted.doubted, "replicas of an API server differ by some minutes"
    after(memory, 0)
    demand = memory.demands.current
    assert (demand.contradicted.doubted, demand.asked["small"].known_at) == ({}, NOW)
    assert memory.first_pods(launched, a_view()).must_wait("new")
    assert not memory.first_pods(launched, a_view(PATIENCE.total_seconds())).must_wait("new")


def test_claimed_and_rejecting_nodes_are_known_to_the_next_launches() -> None:
    memory, late = a_memory(), GUARD.total_seconds()
    failed = [
        a_pod(
            JOB,
            name=f"r{n}",
            uid=f"r{n}",
            node_name="bad",
            phase="Failed",
            created_at=ago(n),
            end=PodEnd(reason="OutOfcpu"),
        )
        for n in range(REJECTIONS)
    ]
    memory.look(a_view(0, *failed, stale="too old"), ROOMY, [], {})
    assert list(memory.rejections.current.every) == ["bad"], "kubelets are believed also in an old view"
    memory.plan_claims({7: unplaced(needs())}, NoPods(), ROOMY, NOW, {})
    memory.plan_claims({7: unplaced(needs())}, NoPods(), ROOMY, later(late), {7: "n1"})
    assert memory.claims.nodes() == {"n1": 7}


def test_row_of_a_shape_in_doubt_claims_no_node() -> None:
    """A claim keeps a node from everybody, and kube-scheduler would not place the Pod there."""
    for seconds, claimed in ((MOST, {}), (0.0, {"n1": 7})):
        memory = after(a_memory(), 0, seconds)
        memory.plan_claims({7: unplaced(needs())}, NoPods(), ROOMY, ago(700), {7: "n1"})
        memory.plan_claims({7: unplaced(needs())}, NoPods(), ROOMY, NOW, {7: "n1"})
        assert memory.claims.nodes() == claimed
