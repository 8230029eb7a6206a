"""What the scan tells of the rows that it passes over."""

from collections import Counter
from typing import Any

import pytest

from dispatcher.admission.demand import Demand, DemandPods, DemandRecord
from dispatcher.admission.room import room_of
from dispatcher.admission.snapshot import plan_load
from dispatcher.model.launches import Offer
from dispatcher.model.verdicts import Hold, HoldReason
from tests.rig.builders import NOW, a_queue, a_snapshot, an_indexed_row
from tests.unit.rooms import a_bound_pod, a_node, needs, unplaced, view_of
from tests.unit.scanning import BAD, WANTED, KindJudge, Looking, Table, rows, scan


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"load": plan_load([("default", "team_a")])}, HoldReason.SUBMITTER_CAP),
        ({"not_ready": Hold(HoldReason.DISPATCHER_NOT_READY, "Forbidden: create jobs")}, "DispatcherNotReady"),
        ({}, HoldReason.NO_ROOM_NOW),
    ],
)
async def test_scan_tells_the_first_hold_in_the_order_of_the_gates(changes: dict[str, Any], reason: HoldReason) -> None:
    offers = {b"large": Offer("app:1", "large", "default", needs("4"))}
    table = Table([an_indexed_row(1, kind=b"large"), an_indexed_row(2, kind=b"large")])
    room = room_of(view_of([a_node()], [a_bound_pod("n1", cpu="2")]), {})
    snapshot = a_snapshot(a_queue(max_jobs_per_submitter=1), max_pending=0, room=room, **changes)
    found = await scan(table, KindJudge(offers), snapshot)
    assert found.held == {("default", reason): 2}
    assert [(row.id, hold.reason) for row, hold in found.told] == [(1, reason), (2, reason)]


async def test_scan_tells_before_any_cap_that_a_row_never_fits() -> None:
    offers = {b"huge": Offer("app:1", "huge", "default", needs("9"))}
    known = Demand(asked={"huge": DemandRecord(NOW, NOW, NOW)}, resting=frozenset({"huge"}))
    room = room_of(view_of([a_node()]), {}, demand=known)
    full = {"load": plan_load([("default", "team_a")]), "room": room}
    snapshot = a_snapshot(a_queue(max_jobs_per_submitter=1), **full)
    found = await scan(Table([an_indexed_row(1, kind=b"huge")]), KindJudge(offers), snapshot)
    assert [hold.reason for _, hold in found.told] == [HoldReason.NEVER_FITS]


@pytest.mark.parametrize(("max_jobs", "others"), [(5, []), (6, [1])], ids=["no place is left", "one place is left"])
async def test_scan_without_a_look_at_room_puts_rows_that_would_only_wait_last(
    max_jobs: int, others: list[int]
) -> None:
    """Five Pods of a shape wait for a node. Their places are given back for a row of another shape alone."""
    offers = {b"huge": Offer("app:1", "huge", "default"), b"small": Offer("app:1", "small", "default")}
    rows_ = [an_indexed_row(number, kind=b"huge") for number in range(1, 300)]
    rows_.append(an_indexed_row(900, kind=b"small", submitted_by="team_b"))
    load, five = plan_load([("default", "team_a")] * 5), {unplaced(needs("9"), "huge", "default"): 5}
    stuck = {"stuck": DemandPods(every=five), "stuck_shapes": frozenset({"huge"})}
    looking, table = Looking(KindJudge(offers), WANTED), Table(rows_)
    await looking.run(table, snapshot := a_snapshot(load=load, max_jobs=max_jobs, **stuck), {})
    found = await looking.run(table, snapshot, {})
    assert found.ids[: 1 + len(others)] == [900, *others]
    assert bool(others) is (found.ids != [900])


async def test_scan_tells_the_holds_of_the_first_rows_of_each_queue_and_submitter() -> None:
    """The rows of one submitter take no places of another's."""
    bad = [row for number in range(2000) for row in rows([number], kind=b"bad", submitted_by=f"team_{number % 3 // 2}")]
    found = await scan(Table(bad), KindJudge({b"bad": BAD}), a_snapshot(a_queue(), a_queue("other")))
    assert Counter(row.submitted_by for row, _ in found.told) == {"team_0": 50, "team_1": 50}
    assert {hold for _, hold in found.told} == {BAD}


@pytest.mark.parametrize("is_fair", [False, True])
async def test_scan_tells_the_first_row_of_each_queue_that_waits_for_room(*, is_fair: bool) -> None:
    """A row that never fits, and a row that is launched, stand before it."""
    kinds = {b"huge": needs("9"), b"small": needs("1"), b"large": needs("4")}
    offers = {kind: Offer("app:1", f"s{kind!r}", "default", wanted) for kind, wanted in kinds.items()}
    rows_ = [an_indexed_row(1, kind=b"huge"), an_indexed_row(2, kind=b"small")]
    rows_ += [an_indexed_row(number, kind=b"large", submitted_by=f"team_{number % 2}") for number in (4, 3)]
    room = room_of(view_of([a_node()], [a_bound_pod("n1", cpu="2")]), {})
    snapshot = a_snapshot(a_queue(fair_submitters=is_fair), max_pending=0, room=room)
    found = await scan(Table(rows_), KindJudge(offers), snapshot)
    assert {task_id: pod.needs for task_id, pod in found.roomless.items()} == {3: needs("4")}


@pytest.mark.parametrize(("count", "is_whole"), [(0, True), (WANTED, True), (2 * WANTED + 1, False), (200, False)])
async def test_scan_tells_which_queues_it_has_read_completely(count: int, *, is_whole: bool) -> None:
    """A full window may hide rows, and rows that are not chosen are not judged."""
    found = await scan(Table(rows(range(count))), snapshot=a_snapshot(a_queue(max_jobs=150)))
    assert ("default" in found.whole) is is_whole


async def test_queue_that_is_read_by_submitter_or_not_at_all_is_not_read_completely() -> None:
    queues = a_queue("fair", fair_submitters=True), a_queue("full", max_jobs=0), a_queue()
    assert (await scan(Table([]), snapshot=a_snapshot(*queues))).whole == {"default"}


async def test_scan_names_the_shapes_that_find_no_place_to_ask_for_a_node() -> None:
    waiting = {unplaced(needs(str(number)), f"shape-{number}", "default", "team_a"): 1 for number in (5, 6, 7)}
    room = room_of(view_of([a_node()]), waiting)
    offers = {
        name: Offer("app:1", name.decode(), "default", needs(cpu)) for name, cpu in ((b"large", "9"), (b"small", "1"))
    }
    table = Table([*rows([1], kind=b"large"), *rows([2], kind=b"small")])
    found = await scan(table, KindJudge(offers), a_snapshot(room=room))
    assert [pod.shape for pod in found.wanting] == ["large"]


async def test_shapes_with_equal_needs_ask_each_for_itself() -> None:
    """Two templates differ by a label alone."""
    waiting = {unplaced(needs(str(number)), f"shape-{number}", "default", "team_a"): 1 for number in (5, 6, 7)}
    offers = {name: Offer("app:1", name.decode(), "default", needs("9")) for name in (b"one", b"two")}
    table = Table([*rows([1], kind=b"one"), *rows([2], kind=b"two")])
    found = await scan(table, KindJudge(offers), a_snapshot(room=room_of(view_of([a_node()]), waiting)))
    assert [pod.shape for pod in found.wanting] == ["one", "two"]


async def test_scan_names_the_first_row_of_each_submitter_behind_pods_like_its_own() -> None:
    room = room_of(view_of([a_node(cpu="2")]), {unplaced(needs("4"), "large", "default", "team_c"): 1})
    offers = {b"large": Offer("app:1", "large", "default", needs("4"))}
    many = {bytes([n]): Offer("app:1", f"shape-{n}", "default", needs(str(9 + n))) for n in range(50)}
    table = Table([*rows([1, 2], kind=b"large", priority=3), *rows([3], kind=b"large", submitted_by="team_b")])
    found = await scan(table, KindJudge(offers), a_snapshot(room=room))
    behind = [(one.pod.submitted_by, one.pod.shape, one.priority) for one in found.behind]
    assert sorted(behind) == [("team_a", "large", 3), ("team_b", "large", 100)]
    assert (await scan(table, KindJudge(offers), a_snapshot(room=room, is_strict=True))).behind == []
    waiting = {unplaced(one.needs, one.shape, "default", "team_c"): 1 for one in many.values()}
    hostile = [an_indexed_row(100 + n, kind=bytes([n]), submitted_by="hostile") for n in range(50)]
    crowded = a_snapshot(room=room_of(view_of([a_node(cpu="2")]), waiting))
    assert len((await scan(Table(hostile), KindJudge(many), crowded)).behind) == 3, "it hides nobody else's rows"
