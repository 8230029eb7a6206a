"""Claims: nodes that are kept for rows which would starve beside smaller rows."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import groupby

import pytest

from dispatcher.admission.claims import (
    GUARD,
    MOST_CLAIMS,
    Claim,
    Claims,
    PodsWithoutDoubt,
    Waiter,
    is_turn_to_ask,
    plan_claims,
)
from dispatcher.admission.cycle import plan_taken_back
from dispatcher.admission.demand import AUTO, Demand
from dispatcher.admission.gates import without_room
from dispatcher.admission.room import room_of
from dispatcher.admission.room_view import RoomView
from dispatcher.model.cluster import Node
from dispatcher.model.launches import PodKind, PodRun, Probe
from dispatcher.model.needs import CORDON, PodNeeds, Taint
from dispatcher.model.verdicts import HoldReason
from tests.rig.builders import NOW, a_job, a_pod, a_snapshot, ago, later
from tests.unit.rooms import a_bound_pod, a_node, amounts_of, needs, unplaced, view_of

LONG = NOW - GUARD
LARGE = needs("4")
FULL = [a_bound_pod("n1", cpu="3"), a_bound_pod("n2", cpu="3", name="p2")]
TWO_NODES = view_of([a_node("n1"), a_node("n2")], FULL)


def a_waiter(task_id: int = 42, queue: str = "default", since: datetime = LONG, wanted: PodNeeds = LARGE) -> Waiter:
    return Waiter(task_id, queue, wanted, since)


def a_run(node: str, ends_at: datetime, cpu: str = "3") -> PodRun:
    return PodRun(node, amounts_of({"cpu": cpu, "memory": "1Gi", "pods": "1"}), ends_at)


def claimed(
    waiters: Iterable[Waiter],
    runs: Iterable[PodRun] = (a_run("n1", later(60)), a_run("n2", later(30))),
    view: RoomView = TWO_NODES,
    known: dict[int, str] | None = None,
) -> dict[int, str]:
    return {claim.task_id: claim.node for claim in plan_claims(known or {}, waiters, lambda: runs, view, NOW)}


def test_row_that_waited_for_long_claims_the_node_that_fits_it_soonest() -> None:
    assert claimed([a_waiter()]) == {42: "n2"}


def test_row_that_waited_for_a_while_claims_nothing() -> None:
    assert claimed([a_waiter(since=LONG + timedelta(seconds=1))]) == {}


def test_longest_waiting_row_of_a_queue_claims_and_no_other() -> None:
    assert claimed([a_waiter(2, since=LONG), a_waiter(1, since=LONG - GUARD)]) == {1: "n2"}


def test_rows_of_several_queues_claim_different_nodes_the_longest_waiting_first() -> None:
    waiters = [a_waiter(1, "a"), a_waiter(2, "b", since=LONG - GUARD), a_waiter(3, "c")]
    assert claimed(waiters) == {2: "n2", 1: "n1"}


def test_row_that_fits_nowhere_keeps_no_other_row_of_its_queue_from_a_claim() -> None:
    waiters = [a_waiter(1, since=LONG - GUARD, wanted=needs("99")), a_waiter(2)]
    assert claimed(waiters) == {2: "n2"}


def test_number_of_claims_is_bounded() -> None:
    nodes = [a_node(f"n{number}") for number in range(10)]
    runs = [a_run(node.name, later(30)) for node in nodes]
    view = view_of(nodes, [a_bound_pod(node.name, name=node.name, cpu="3") for node in nodes])
    waiters = [a_waiter(number, f"q{number}") for number in range(10)]
    found = claimed(waiters, runs, view)
    assert len(found) == len(set(found.values())) == MOST_CLAIMS
    assert claimed(waiters, runs, view, {7: "n7"}).keys() > {7}


def test_many_rows_that_no_node_will_fit_keep_no_other_row_from_a_claim_for_long() -> None:
    """One plan looks for a node for five rows. The rows take turns."""
    waiters = [a_waiter(number, f"q{number}", LONG - GUARD, needs("99")) for number in range(20)]
    runs = [a_run("n1", later(60))]
    plans = (plan_claims({}, [*waiters, a_waiter()], lambda: runs, TWO_NODES, later(5 * n)) for n in range(10))
    assert any(claims for claims in plans)


def test_small_pods_that_end_one_after_another_count_together() -> None:
    runs = [
        a_run("n1", later(60), "1"),
        a_run("n1", later(10), "1"),
        a_run("n1", later(90), "1"),
        a_run("n2", later(80)),
    ]
    assert claimed([a_waiter()], runs) == {42: "n2"}
    assert claimed([a_waiter()], [*runs, a_run("n1", later(20), "1")]) == {42: "n1"}


def test_node_that_other_peoples_pods_fill_is_not_claimed() -> None:
    assert claimed([a_waiter()], [a_run("n1", later(60), "1")]) == {}


@pytest.mark.parametrize(
    "node",
    [
        a_node("n2", cpu="3"),
        a_node("n2", taints=(CORDON,)),
        a_node("n2", taints=(Taint("team", "b"),)),
    ],
    ids=["too small", "cordoned", "tainted"],
)
def test_node_that_the_pod_may_not_have_is_not_claimed(node: Node) -> None:
    assert claimed([a_waiter()], view=view_of([a_node("n1"), node], FULL)) == {42: "n1"}
    assert claimed([a_waiter()], view=view_of([a_node("n1"), node], FULL), known={42: "n2"}) == {42: "n1"}


def test_pod_that_another_scheduler_places_claims_nothing() -> None:
    assert claimed([a_waiter(wanted=needs("4", scheduler="theirs"))]) == {}


def test_claim_stays_on_its_node_until_its_row_waits_no_more() -> None:
    assert claimed([a_waiter(since=NOW)], known={42: "n1"}) == {42: "n1"}
    assert claimed([], known={42: "n1"}) == {}
    assert claimed([a_waiter()], known={42: "gone"}) == {42: "n2"}
    assert claimed([a_waiter(since=NOW)], known={42: "gone"}) == {}


def test_claim_ends_when_other_peoples_pods_took_the_node() -> None:
    """Our Pods there are over, and the node does not fit the row."""
    assert claimed([a_waiter()], [a_run("n1", later(60))], known={42: "n2"}) == {42: "n1"}
    assert claimed([a_waiter()], [], known={42: "n2"}) == {}


def test_two_rows_never_keep_one_node() -> None:
    waiters = [a_waiter(1, "a"), a_waiter(2, "b")]
    assert claimed(waiters, known={1: "n1", 2: "n1"}) == {1: "n1", 2: "n2"}


# What a claim changes


def a_claim(node: str = "n1") -> Claim:
    return Claim(42, "default", LARGE, node)


def test_claimed_node_is_for_its_row_alone() -> None:
    claims = [a_claim()]
    room = room_of(TWO_NODES, {}, claims)
    assert room.has_room(needs("1"))
    room = room.with_launches(unplaced(needs("1")))
    assert list(room.taken) == ["n2"]
    assert not room.has_room(needs("1"))
    assert room.with_launches(unplaced(needs("1"))).waiting.total == 1
    hold = without_room(7, unplaced(needs("1")), a_snapshot(max_pending=9, room=room))
    assert hold is not None, "a probe would take the claimed node"
    assert hold.reason is HoldReason.NO_ROOM_NOW


def test_row_gets_its_claimed_node_as_soon_as_the_node_fits_it() -> None:
    waiting = a_snapshot(max_pending=0, room=room_of(TWO_NODES, {}, [a_claim()]))
    assert without_room(42, unplaced(LARGE), waiting) is not None
    freed = view_of([a_node("n1"), a_node("n2")], FULL[1:])
    ready = a_snapshot(max_pending=0, room=room_of(freed, {}, [a_claim()]))
    assert without_room(42, unplaced(LARGE), ready) is None
    assert without_room(43, unplaced(LARGE), ready) is not None


def test_pod_that_may_not_have_the_claimed_node_still_gets_its_probe() -> None:
    view = view_of([a_node("n1", labels={"pool": "a"}), a_node("n2")], FULL)
    elsewhere = needs("4", selector=(("pool", "b"),))
    snapshot = a_snapshot(max_pending=1, room=room_of(view, {}, [a_claim()]))
    assert without_room(7, unplaced(elsewhere), snapshot) is None


@pytest.mark.parametrize(("task_id", "wanted", "is_taken_back"), [
    (7, needs("1"), True),
    (42, LARGE, False),
    (7, needs("9"), False),
    (7, None, False),
])  # fmt: skip
def test_probe_that_could_take_the_claimed_node_is_taken_back(
    task_id: int, wanted: PodNeeds | None, is_taken_back: bool
) -> None:
    job = a_job(task_id=task_id, needs=wanted)
    snapshot = a_snapshot(room=room_of(TWO_NODES, {}, [a_claim()]))
    ends = plan_taken_back([Probe(job, a_pod(job))], snapshot, {})
    assert [end.kind for end in ends] == (["mark"] if is_taken_back else [])


# From cycle to cycle


class OurPods:
    """Our Pods: `waiting` since when, as probes of task 42."""

    def __init__(self, since: datetime | None = None) -> None:
        job = a_job(needs=LARGE)
        self._probes = [Probe(job, a_pod(job, unschedulable_since=since))] if since else []

    def probes(self) -> list[Probe]:
        return self._probes

    def runs(self) -> list[PodRun]:
        return [a_run("n1", later(60))]


HELD: dict[int, PodKind] = {42: unplaced(LARGE)}


def test_row_in_line_claims_after_the_guard_since_it_was_first_seen() -> None:
    claims = Claims()
    looks: list[tuple[int, dict[str, int]]] = [(seconds, {}) for seconds in range(0, 600, 54)]
    for seconds, expected in (*looks, (600, {"n1": 42}), (601, {"n1": 42})):
        claims.update(HELD, OurPods(), TWO_NODES, NOW + timedelta(seconds=seconds), {})
        assert claims.nodes() == expected
    claims.update({}, OurPods(), TWO_NODES, NOW, {})
    assert claims.nodes() == {}


def test_row_that_stops_waiting_begins_anew() -> None:
    claims = Claims()
    claims.update(HELD, OurPods(), TWO_NODES, NOW, {})
    claims.update({}, OurPods(), TWO_NODES, NOW, {})
    claims.update(HELD, OurPods(), TWO_NODES, NOW + GUARD, {})
    assert claims.nodes() == {}


def test_row_whose_pod_asks_and_is_taken_back_waits_on() -> None:
    """Rows that take turns as demand would never wait for ten minutes at one go."""
    claims, asks = Claims(), OurPods(since=later(300))
    for minute, (held, pods) in enumerate([(HELD, OurPods())] * 5 + [({}, asks), (HELD, OurPods())] * 3):
        assert claims.nodes() == {}, minute
        claims.update(held, pods, TWO_NODES, later(60 * minute), {})
    assert claims.nodes() == {"n1": 42}


def test_job_without_a_node_claims_by_the_time_of_its_pod_even_after_a_restart() -> None:
    claims = Claims()
    claims.update({}, OurPods(since=ago(599)), TWO_NODES, NOW, {})
    assert claims.nodes() == {}
    claims.update({}, OurPods(since=ago(599)), TWO_NODES, later(1), {})
    assert claims.nodes() == {}, "a plan is made every five seconds"
    claims.update({}, OurPods(since=ago(599)), TWO_NODES, later(5), {})
    assert claims.nodes() == {"n1": 42}


def test_pod_in_doubt_claims_no_node() -> None:
    """kube-scheduler places it on none: a volume is missing, a port is taken."""
    claims, pods = Claims(), OurPods(since=ago(700))
    (probe,) = pods.probes()
    claims.update({}, PodsWithoutDoubt(pods, {probe.job.shape}), TWO_NODES, NOW, {})
    assert claims.nodes() == {}
    claims.update({}, PodsWithoutDoubt(pods, ()), TWO_NODES, later(5), {})
    assert claims.nodes() == {"n1": 42}


def test_clock_that_went_back_stops_no_plan() -> None:
    claims = Claims()
    claims.update({}, OurPods(), TWO_NODES, later(600), {})
    claims.update({}, OurPods(since=ago(700)), TWO_NODES, NOW, {})
    assert claims.nodes() == {"n1": 42}


def test_rows_with_claims_do_not_take_each_others_pods_back() -> None:
    room = room_of(TWO_NODES, {}, [a_claim(), Claim(7, "other", LARGE, "n2")])
    assert [room.could_take_claimed(task, "large", LARGE) for task in (42, 7, 9)] == [False, False, True]


@pytest.mark.parametrize(
    ("minutes", "is_turn"),
    [(0, False), (2, True), (5, True), (6, False), (8, True), (10, False), (63, False), (64, True), (257, True)],
)
def test_pods_may_wait_beside_a_claim_from_time_to_time(minutes: int, is_turn: bool) -> None:
    """Without that an autoscaler would never see the rows of any team, until the claim ends."""
    assert is_turn_to_ask(timedelta(minutes=minutes)) is is_turn


def test_pause_between_turns_is_long_enough_for_a_claim_in_the_end() -> None:
    turns = [is_turn_to_ask(timedelta(minutes=minute)) for minute in range(1000)]
    pauses = [len(list(same)) for is_turn, same in groupby(turns) if not is_turn]
    assert pauses == [2, 2, 6, 14, 30, 62, *[126] * 6, 102]


def may_wait(claims: Claims, demand: Demand = AUTO) -> bool:
    return not room_of(TWO_NODES, {}, claims.current, demand).could_take_claimed(7, "small", needs("1"))


def test_pod_that_could_take_a_claimed_node_waits_in_its_turn_or_where_nodes_come() -> None:
    claims, pods = Claims(), OurPods(since=ago(700))
    found = []
    for minute in range(8):
        claims.update({}, pods, TWO_NODES, later(60 * minute), {})
        found.append(may_wait(claims))
    assert found == [False, False, True, True, True, True, False, False]
    assert may_wait(claims, Demand(grown=frozenset({"small"})))


def test_claim_that_comes_after_a_long_time_without_one_begins_with_a_pause() -> None:
    claims, pods = Claims(), OurPods(since=ago(700))
    claims.update({}, pods, TWO_NODES, NOW, {})
    claims.update({}, OurPods(), TWO_NODES, later(5), {})
    for seconds, expected in ((120, True), (240 + 601, False)):
        claims.update({}, pods, TWO_NODES, later(seconds), {})
        assert may_wait(claims) is expected


def test_claim_that_the_extender_enforces_holds_no_demand() -> None:
    claims = Claims(is_enforced=True)
    claims.update({}, OurPods(since=ago(700)), TWO_NODES, NOW, {})
    assert claims.nodes() == {"n1": 42}
    assert may_wait(claims)


def test_claim_of_an_earlier_process_is_kept_while_its_row_waits() -> None:
    claims = Claims()
    claims.update(HELD, OurPods(), TWO_NODES, NOW, {42: "n1", 9: "n2"})
    assert claims.nodes() == {"n1": 42}


def test_pod_of_which_nothing_is_known_claims_nothing() -> None:
    claims = Claims()
    for _ in range(2):
        claims.update({42: unplaced(None)}, OurPods(), TWO_NODES, NOW + GUARD, {})
    assert claims.nodes() == {}


def test_claim_lasts_when_its_node_fits_the_row_so_that_nothing_else_takes_it() -> None:
    freed = view_of([a_node("n1"), a_node("n2")], FULL[1:])
    assert claimed([a_waiter(since=NOW)], [], freed, {42: "n1"}) == {42: "n1"}
