"""Rows in line: in a full cluster only Pods of those wait that have less of it."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from dispatcher.admission.demand import AUTO, Demand, DemandRecord
from dispatcher.admission.gates import wants_place, without_room
from dispatcher.admission.room import room_of
from dispatcher.admission.scan import rows_in_line
from dispatcher.admission.snapshot import ClusterSnapshot, InLine, RowInLine, plan_shares
from dispatcher.admission.windows import Contradictions
from dispatcher.model.launches import PodKind
from dispatcher.model.needs import PodNeeds, Toleration
from dispatcher.model.verdicts import HoldReason
from tests.rig.builders import NOW, a_queue, a_snapshot, later
from tests.unit.rooms import a_bound_pod, a_node, needs, unplaced, view_of
from tests.unit.scanning import WANTED, KindJudge, Looking, Table, rows

EIGHT = view_of([a_node(f"n{n}") for n in range(8)], [a_bound_pod(f"n{n}") for n in range(8)])
FULL_NODE = view_of([a_node()], [a_bound_pod("n1")])


class CountedRows(list[RowInLine]):
    """`compared`: how many rows were compared."""

    compared = 0

    def __iter__(self) -> Iterator[RowInLine]:
        for row in super().__iter__():
            self.compared += 1
            yield row


def behind(other: PodKind, snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The snapshot, with a row in line that asks for this Pod."""
    return replace(snapshot, in_line=InLine([snapshot.row_in_line(other)]))


COMES, BLIND = Demand(grown=frozenset({"mine"})), Demand(contradicted=Contradictions({"mine": 1}))
GPU = {"nvidia.com/gpu": "1"}
TOLERATES = (Toleration("nvidia.com/gpu", "Exists"),)
AT_NODES = (Toleration("node.kubernetes.io/not-ready", "Exists", effect="NoExecute"),)


@pytest.mark.parametrize(
    ("mine", "of_another", "is_held"),
    [
        (needs("4"), needs("4"), True),
        (needs("4"), needs("4100m"), True),
        (needs("4"), needs("9"), False),  # what becomes free for mine is of no use for it
        (needs("4"), needs("1"), True),
        (needs("4", selector=(("pool", "a"),)), needs("4"), True),
        (needs("4"), needs("4", selector=(("pool", "a"),)), False),
        (needs("4"), needs("4", terms=()), False),
        (needs("4", tolerations=TOLERATES), needs("4"), False),
        (needs("4", tolerations=AT_NODES), needs("4"), True),  # the API server puts it into each Pod
        (needs("4"), needs("4", more=GPU), False),
        (needs("4", more=GPU), needs("4"), True),
        (needs("4"), needs("4", scheduler="volcano"), False),
        (needs("4", scheduler="default-scheduler"), needs("4"), True),  # the same: of the other one no Pod was seen yet
    ],
)
def test_pod_waits_only_if_no_queue_with_less_waits_for_such_a_place(
    mine: PodNeeds, of_another: PodNeeds, is_held: bool
) -> None:
    """kube-scheduler gives a place to the Pod that waits longest. So weights would mean nothing between shapes."""
    nodes = view_of([a_node(cpu="16", memory="64Gi", pods="10")], [a_bound_pod("n1", cpu="16")])
    shares = plan_shares({unplaced(needs("1"), "runs", "rich"): 15}, nodes.size)
    row, other = unplaced(mine, "mine", "rich"), unplaced(of_another, "other", "poor")
    queues = a_queue("rich"), a_queue("poor")
    room = room_of(nodes, {})
    found = [
        without_room(42, row, behind(other, a_snapshot(*queues, room=each, shares=shares)))
        for each in (room, *(room_of(nodes, {}, demand=demand) for demand in (COMES, BLIND)))
    ]
    assert [hold is not None and "has less of the cluster" in hold.detail for hold in found] == [is_held, False, False]
    assert without_room(42, other, behind(row, a_snapshot(*queues, room=room, shares=shares))) is None


@pytest.mark.parametrize(
    "demand",
    [
        Demand(grown=frozenset({"other"})),
        Demand(resting=frozenset({"other"})),
        Demand(contradicted=Contradictions(doubted={"other": "a volume is missing"})),
    ],
)
def test_row_whose_demand_has_its_answer_holds_no_pod_of_others(demand: Demand) -> None:
    row, other = unplaced(needs("4"), "mine", "rich"), unplaced(needs("4"), "other", "poor")
    shares = plan_shares({unplaced(needs("1"), "runs", "rich"): 3}, FULL_NODE.size)
    held, passed = (
        without_room(42, row, behind(other, a_snapshot(room=room_of(FULL_NODE, {}, demand=one), shares=shares)))
        for one in (AUTO, demand)
    )
    assert held is not None
    assert passed is None


def test_queue_gets_no_more_for_rows_of_several_shapes() -> None:
    """One Pod of each shape may wait. Those that wait are as good as placed: kube-scheduler places them next."""
    row, other = unplaced(needs("4"), "second", "many"), unplaced(needs("4"), "other", "one")
    shares = plan_shares({unplaced(needs("4"), "runs", "many"): 2, unplaced(needs("4"), "runs", "one"): 3}, EIGHT.size)
    queues = a_queue("many"), a_queue("one")
    found = [
        without_room(42, row, behind(other, a_snapshot(*queues, room=room_of(EIGHT, waiting), shares=shares)))
        for waiting in ({}, {unplaced(needs("4"), "first", "many"): 2}, {unplaced(needs("9"), "large", "many"): 2})
    ]
    assert [hold is not None for hold in found] == [False, True, False]


@pytest.mark.parametrize(
    ("of_many", "of_few", "is_held"), [(7, 2, False), (6, 2, True), (5, 2, True), (10, 3, False), (9, 3, True)]
)
def test_queue_of_small_weight_has_no_advantage_where_shares_are_even(of_many: int, of_few: int, is_held: bool) -> None:
    """Weights of 3 and 1. With 6 and 2 Pods the next place is one of the large queue. With 7 and 2 both may wait."""
    few, many = unplaced(needs("4"), "few", "few"), unplaced(needs("4"), "many", "many")
    runs = {unplaced(needs("4"), "runs", "many"): of_many, unplaced(needs("4"), "runs", "few"): of_few}
    queues, room = (a_queue("many", weight=3), a_queue("few")), room_of(EIGHT, {})
    snapshot = a_snapshot(*queues, room=room, shares=plan_shares(runs, EIGHT.size))
    assert (without_room(42, few, behind(many, snapshot)) is not None) is is_held


def test_row_that_has_room_holds_no_pod_of_others() -> None:
    """It needs no Pod that waits."""
    nodes = view_of([a_node(cpu="16", memory="64Gi", pods="10")], [a_bound_pod("n1", cpu="13")])
    row, other = unplaced(needs("4"), "mine", "rich"), unplaced(needs("3"), "other", "poor")
    shares = plan_shares({unplaced(needs("1"), "runs", "rich"): 13}, nodes.size)
    assert without_room(42, row, behind(other, a_snapshot(room=room_of(nodes, {}), shares=shares))) is None


@pytest.mark.parametrize(("count", "cap", "in_line"), [(1, None, False), (2, None, True), (2, 1, False)])
async def test_kind_of_pod_is_in_line_as_long_as_room_decides_about_a_row(
    count: int, cap: int | None, in_line: bool
) -> None:
    """There is room for one Pod. It may be the last place: the second row waits for the next one."""
    nodes, looks = view_of([a_node(cpu="4")]), Looking(KindJudge({}), WANTED)
    snapshot = a_snapshot(a_queue(max_jobs_per_submitter=cap), room=room_of(nodes, {}))
    await looks.run(Table(rows(range(count))), snapshot, {})
    assert [one.pod.queue for one in looks.in_line.rows] == ["default"] * in_line


@pytest.mark.parametrize("is_fair", [True, False])
def test_submitters_of_a_fair_queue_wait_in_the_order_of_their_shares(is_fair: bool) -> None:
    row, other = unplaced(needs("4"), "mine", "q", "rich"), unplaced(needs("4"), "other", "q", "poor")
    shares = plan_shares({unplaced(needs("1"), "runs", "q", "rich"): 3}, FULL_NODE.size)
    queue = a_queue("q", fair_submitters=is_fair)
    snapshot = behind(other, a_snapshot(queue, room=room_of(FULL_NODE, {}), shares=shares))
    assert (without_room(42, row, snapshot) is not None) is is_fair


def test_comparison_ends_with_the_first_row_that_has_less() -> None:
    """One login can have 50 amounts in each of 50 queues. All of them are compared in each scan of a full cluster."""
    queues = [f"q{n}" for n in range(50)]
    runs = {unplaced(needs("1m"), "runs", queue): n for n, queue in enumerate(reversed(queues))}
    snapshot = a_snapshot(*map(a_queue, queues), room=room_of(EIGHT, {}), shares=plan_shares(runs, EIGHT.size))
    found = {(queue, "team_a"): [unplaced(needs("4"), queue, queue)] for queue in queues}
    line = rows_in_line(found, [], InLine(), snapshot)
    rows = CountedRows(line.rows)
    held = [without_room(42, own[0], replace(snapshot, in_line=InLine(rows))) for own in found.values()]
    assert (sum(hold is not None for hold in held), rows.compared) == (49, 49 + 50), "one has less than all others"


def test_row_that_fits_nowhere_is_told_the_words_of_kube_scheduler_also_behind_others() -> None:
    row, other = unplaced(needs("5"), "mine", "rich"), unplaced(needs("4"), "other", "poor")
    asked = {"mine": DemandRecord(NOW, NOW, NOW, words="0/1 nodes are available: 1 Insufficient cpu.")}
    shares = plan_shares({unplaced(needs("1"), "runs", "rich"): 3}, FULL_NODE.size)
    snapshot = a_snapshot(room=room_of(FULL_NODE, {}, demand=Demand(asked=asked)), shares=shares)
    hold = without_room(42, row, behind(other, snapshot))
    assert hold is not None
    assert (hold.reason, "1 Insufficient cpu" in hold.detail) == (HoldReason.NEVER_FITS, True)


def test_row_that_never_gets_a_node_keeps_no_other_from_asking_for_ever() -> None:
    """Its volume is missing, or its ports are taken: nothing that the room knows. An autoscaler must see the others."""
    row, other = unplaced(needs("4"), "mine", "rich"), unplaced(needs("4"), "other", "poor")
    shares = plan_shares({unplaced(needs("1"), "runs", "rich"): 3}, FULL_NODE.size)
    line, found = InLine(), list[bool]()
    for seconds, waiting in ((0, {}), (179, {}), (180, {}), (181, {row: 1}), (360, {row: 1}), (361, {row: 1})):
        snapshot = a_snapshot(room=room_of(FULL_NODE, waiting), shares=shares, now=later(seconds), max_pending=9)
        third = unplaced(needs("4"), "third", "rich")  # another kind of Pod of the same submitter
        line = rows_in_line({("rich", "team_a"): [row, third], ("poor", "team_a"): [other]}, [], line, snapshot)
        found.append(without_room(42, third, replace(snapshot, in_line=line)) is not None)
    assert found == [True, True, False, True, True, False], "a Pod that waits in vain keeps no turn for itself"


def test_pods_that_nodes_come_for_take_no_turn_of_other_kinds_of_pods() -> None:
    row, key = unplaced(needs("4"), "mine", "rich"), ("rich", "team_a")
    room = room_of(FULL_NODE, {unplaced(needs("4"), "comes", "rich"): 9}, demand=Demand(grown=frozenset({"comes"})))
    first = rows_in_line({key: [row]}, [], InLine(), a_snapshot(room=room))
    assert rows_in_line({key: [row]}, [], first, a_snapshot(room=room, now=later(9))).since == first.since


def test_row_behind_another_queue_takes_no_place_of_shapes() -> None:
    """It would only take the place of a third one."""
    asking = {unplaced(needs(str(100 + n)), f"shape-{n}", "third", f"login-{n}"): 1 for n in range(25)}
    row, other = unplaced(needs("4"), "mine", "rich"), unplaced(needs("4"), "other", "poor")
    shares = plan_shares({unplaced(needs("1"), "runs", "rich"): 3}, FULL_NODE.size)
    snapshot = a_snapshot(room=room_of(FULL_NODE, asking), shares=shares)
    assert wants_place(row, snapshot)
    assert not wants_place(row, behind(other, snapshot))
