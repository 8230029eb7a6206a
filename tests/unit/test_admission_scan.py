"""Which waiting rows the scan reads, and what it tells of those that it passes over. They hide no other rows."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from dispatcher.admission.demand import Demand, DemandPods, DemandRecord
from dispatcher.admission.heads import (
    FIRST_WINDOW,
    KINDS_A_LOOK,
    LEAST_ROOMLESS,
    MOST_NODES_SEARCHED,
    MOST_ROOMLESS,
    WIDEST_WINDOW,
    KnownRows,
    known_rows,
)
from dispatcher.admission.room import room_of
from dispatcher.admission.scan import ScanResult
from dispatcher.admission.snapshot import ClusterSnapshot, Load, PendingPods, plan_load
from dispatcher.model.jobs import LaunchGroup
from dispatcher.model.launches import Offer
from dispatcher.model.tasks import IndexedRow
from dispatcher.model.verdicts import Hold, HoldReason
from tests.rig.builders import NOW, a_queue, a_running_task, a_snapshot, a_task, ago, an_indexed_row, later
from tests.unit.rooms import a_bound_pod, a_node, needs, unplaced, view_of
from tests.unit.scanning import BAD, WANTED, KindJudge, Looking, Table, rows, scan

ONE_GROUP = frozenset({LaunchGroup("default", "default", "app:1", "team_a")})


# Rows that are read


async def test_empty_table_is_read_once() -> None:
    table = Table([])
    assert await scan(table) == ScanResult([], Counter(), wanting=[], unread=set(), whole={"default"}, behind=[])
    assert table.windows == [{"default": FIRST_WINDOW}]


async def test_head_of_a_queue_is_read_by_priority_up_to_the_wanted_number() -> None:
    table = Table([*rows(range(5, 40)), *rows([90], priority=0), *rows([80], priority=50)])
    assert (await scan(table)).ids == [90, 80, 5, 6, 7, 8, 9, 10, 11, 12]


async def test_due_rows_are_sorted_among_the_ready_ones() -> None:
    """Due rows come from another index, after the ready rows."""

    class TwoIndexes(Table):
        async def indexed_rows(self, windows: Mapping[str, int]) -> list[IndexedRow]:
            return list(reversed(await super().indexed_rows(windows)))

    assert (await scan(TwoIndexes([*rows([3, 4]), *rows([2], priority=1)]))).ids == [2, 3, 4]


async def test_known_rows_are_neither_read_nor_counted() -> None:
    found = await scan(Table(rows([1, 2, 3])), known={2: 1})
    assert (found.ids, found.held) == ([1, 3], {})


@pytest.mark.parametrize("is_fair", [True, False])
async def test_rows_with_jobs_hide_no_row_behind_them(is_fair: bool) -> None:
    """A row waits until its container starts, and with exit-code until the janitor has ended it. Many do at a time.

    Wide reads would find the rows behind them, but these have a pace: at times such a queue launched nothing.
    """
    table, snapshot = Table(rows([*range(1, 1001), 2001, 2002])), a_snapshot(a_queue(fair_submitters=is_fair))
    found = await scan(table, snapshot=snapshot, known=dict.fromkeys(range(1, 1001), 1))
    assert found.ids == [2001, 2002]
    assert len(table.windows) + len(table.of_submitters) == 1, "one read is enough"


def test_known_rows_that_wait_are_counted() -> None:
    """A row that a container holds is in no index of waiting rows."""
    resting = {1: a_task(id=1), 2: a_task(id=2, attempt=3), 3: a_running_task(id=3)}
    found = known_rows(resting, {2: a_task(id=2, attempt=4, submitted_by="other")})
    assert found == KnownRows({1: 1, 2: 4, 3: 1}, {("default", "team_a"): 1, ("default", "other"): 1})


async def test_every_queue_is_read() -> None:
    queues = (a_queue("a"), a_queue("b"), a_queue("empty"))
    table = Table([*rows([1, 2], queue="a"), *rows([3], queue="b")])
    assert sorted((await scan(table, snapshot=a_snapshot(*queues))).ids) == [1, 2, 3]


async def test_queue_with_fair_submitters_is_read_by_submitter() -> None:
    """The rows of one submitter would fill the first window, and hide those of the other."""
    table = Table([*rows(range(1, 1000), submitted_by="noisy"), *rows([2000, 2001], submitted_by="quiet")])
    load = plan_load([("default", "noisy")] * 3)
    found = await scan(table, snapshot=a_snapshot(a_queue(fair_submitters=True), load=load))
    assert found.ids[:3] == [2000, 2001, 1]
    assert (table.windows, table.of_submitters) == ([], [{"noisy": 100, "quiet": 100}])


async def test_queues_are_read_by_their_shares_and_in_turns() -> None:
    """Half of the places go by shares, the other half in turns. So rows that cannot be launched hide no queue."""
    queues = (a_queue("busy"), a_queue("idle", weight=1000))
    table = Table([*rows(range(100), queue="busy"), *rows(range(100, 200), queue="idle")])
    found = await scan(table, snapshot=a_snapshot(*queues, load=plan_load([("busy", "team_a")])))
    assert found.ids[:WANTED] == list(range(100, 110))
    assert found.ids[WANTED:] == list(range(10))


@pytest.mark.parametrize(
    "closed", [a_queue(max_jobs=1), a_queue(max_jobs=0), a_queue(paused_until=later(1))], ids=["full", "zero", "paused"]
)
async def test_full_or_paused_queue_is_not_read(closed: Any) -> None:
    table = Table([*rows([1]), *rows([2], queue="open")])
    snapshot = a_snapshot(closed, a_queue("open", paused_until=ago(1)), load=Load(1, {"default": 1}))
    assert (await scan(table, snapshot=snapshot)).ids == [2]
    assert table.windows == [{"open": FIRST_WINDOW}]


async def test_table_is_not_read_without_an_open_queue() -> None:
    table = Table(rows([1]))
    assert (await scan(table, snapshot=a_snapshot(a_queue(max_jobs=0)))).ids == []
    assert table.windows == []


async def test_scan_chooses_no_more_rows_than_the_queue_cap_leaves() -> None:
    snapshot = a_snapshot(a_queue(max_jobs=5), load=Load(2, {"default": 2}))
    assert (await scan(Table(rows(range(50))), snapshot=snapshot)).ids == [0, 1, 2]


async def test_idle_queue_has_its_whole_cap() -> None:
    assert (await scan(Table(rows(range(50))), snapshot=a_snapshot(a_queue(max_jobs=1)))).ids == [0]


async def test_idle_submitter_has_its_whole_cap() -> None:
    assert (await scan(Table(rows([1])), snapshot=a_snapshot(a_queue(max_jobs_per_submitter=1)))).ids == [1]


# Rows that are passed over


async def test_rows_of_a_denied_kind_are_passed_and_counted() -> None:
    table = Table([*rows(range(5), kind=b"bad"), *rows([9])])
    found = await scan(table, KindJudge({b"bad": BAD}))
    assert found.ids == [9]
    assert found.held == {("default", HoldReason.POLICY_DENIED): 5}


async def test_rows_that_the_api_server_refused_are_passed_and_counted() -> None:
    found = await scan(Table(rows([1, 2])), KindJudge({}, {1: Hold(HoldReason.POISON)}))
    assert (found.ids, found.held) == ([2], {("default", HoldReason.POISON): 1})


@pytest.mark.fault(59)
async def test_submitter_at_its_cap_hides_no_other_submitter() -> None:
    snapshot = a_snapshot(a_queue(max_jobs_per_submitter=1), load=plan_load([("default", "noisy")]))
    found = await scan(Table([*rows(range(50), submitted_by="noisy"), *rows([60])]), snapshot=snapshot)
    assert found.ids == [60]
    assert found.held == {("default", HoldReason.SUBMITTER_CAP): 50}


@pytest.mark.parametrize(
    ("snapshot", "ids"),
    [
        (a_snapshot(pending=PendingPods(2, {"small": 2})), []),
        (a_snapshot(pending=PendingPods(1, {"small": 1})), [1]),
        (a_snapshot(pending=PendingPods(2, {"large": 2})), [1]),
        (a_snapshot(a_queue(max_pending=2), pending=PendingPods(9, {"small": 9}, {("default", "small"): 2})), [1]),
        (a_snapshot(a_queue(max_pending=0), pending=PendingPods(1, {}, {("default", "small"): 1})), []),
        (a_snapshot(is_strict=True, pending=PendingPods(2, {"small": 2})), [1]),
    ],
    ids=[
        "stuck",
        "one may be",
        "another shape",
        "the queue's own bound",
        "the queue allows none",
        "strict: the gate's",
    ],
)
async def test_stuck_shape_hides_no_other_row(snapshot: ClusterSnapshot, ids: list[int]) -> None:
    assert (await scan(Table(rows([1])), snapshot=snapshot)).ids == ids


async def test_broken_image_hides_no_other_row() -> None:
    """ARCHITECTURE, promise 5: a broken image delays no other row."""
    group = frozenset({LaunchGroup("default", "default", "broken:1", "team_a")})
    table = Table([*rows(range(500), kind=b"broken"), *rows([900])])
    snapshot = a_snapshot(failing_groups=group, busy_groups=group)
    assert 900 in (await scan(table, KindJudge({b"broken": Offer("broken:1", "small", "default")}), snapshot)).ids


@pytest.mark.parametrize(
    "groups", [{"failing_groups": ONE_GROUP}, {"busy_groups": ONE_GROUP}], ids=["nothing runs", "all is well"]
)
async def test_image_is_passed_over_only_if_it_fails_and_is_busy(groups: dict[str, Any]) -> None:
    assert (await scan(Table(rows([1])), snapshot=a_snapshot(**groups))).ids == [1]


async def test_all_queues_together_give_at_most_twice_the_wanted_rows() -> None:
    """The queues take turns: the first row of each, then the second."""
    queues = tuple(a_queue(name) for name in "abc")
    table = Table([row for n, queue in enumerate(queues) for row in rows(range(n * 50, n * 50 + 50), queue=queue.name)])
    ids = (await scan(table, snapshot=a_snapshot(*queues))).ids
    assert len(ids) == 2 * WANTED
    assert list(ids[:6]) == [0, 50, 100, 1, 51, 101]


async def test_urgent_rows_of_one_queue_do_not_hide_another_queue() -> None:
    """ARCHITECTURE, promise 5: nothing starves. A hold of the urgent rows may be known only to the gates."""
    queues = (a_queue("a"), a_queue("b"), a_queue("c"))
    urgent = [*rows(range(50), queue="a", priority=0), *rows(range(50, 100), queue="b", priority=0)]
    found = await scan(Table([*urgent, *rows([900], queue="c")]), snapshot=a_snapshot(*queues))
    assert 900 in found.ids


# Width of the windows


@pytest.mark.museum("fetch window filled by parked rows")
async def test_good_row_behind_30000_denied_rows_is_found() -> None:
    table = Table([*rows(range(30_000), kind=b"bad"), *rows([90_000])])
    found = await scan(table, KindJudge({b"bad": BAD}))
    assert found.ids == [90_000]
    assert found.held == {("default", HoldReason.POLICY_DENIED): 30_000}
    assert table.windows == [{"default": 200}]
    assert [window["team_a"] for window in table.of_submitters] == [200, 1600, 12_800, WIDEST_WINDOW]


async def test_the_widest_window_is_the_last() -> None:
    table = Table(rows(range(WIDEST_WINDOW + 5), kind=b"bad"))
    judge = KindJudge({b"bad": BAD})
    looking = Looking(judge, WANTED)
    for seconds in (0, 10):
        assert (await looking.run(table, a_snapshot(now=later(seconds)), {})).ids == []
    widths = [window["team_a"] for window in table.of_submitters]
    assert widths == [200, 1600, 12_800, WIDEST_WINDOW, WIDEST_WINDOW]


async def test_width_of_a_window_is_kept_for_the_next_cycle_and_falls_later() -> None:
    table, judge = Table([*rows(range(1000), kind=b"bad"), *rows([9000])]), KindJudge({b"bad": BAD})
    looking = Looking(judge, WANTED)
    await looking.run(table, a_snapshot(), {})
    assert (await looking.run(table, a_snapshot(now=later(1)), {})).ids == [9000]
    assert [window["team_a"] for window in table.of_submitters] == [200, 1600, 1200]
    table.rows = rows([9000])
    for _ in range(3):
        assert (await looking.run(table, a_snapshot(), {})).ids == [9000]
    assert table.windows == [{"default": FIRST_WINDOW}] * 3


async def test_wider_windows_are_read_only_where_the_head_is_held() -> None:
    queues = (a_queue("bad"), a_queue("good"))
    table = Table([*rows(range(300), queue="bad", kind=b"bad"), *rows(range(300, 600), queue="good")])
    await scan(table, KindJudge({b"bad": BAD}), a_snapshot(*queues))
    assert table.windows == [{"bad": 200, "good": 200}]
    assert table.of_submitters == [{"team_a": 200}, {"team_a": 1600}]


async def test_queue_with_a_small_cap_and_a_long_backlog_is_read_once() -> None:
    table = Table(rows(range(2000)))
    await scan(table, snapshot=a_snapshot(a_queue(max_jobs=1)))
    assert table.windows == [{"default": FIRST_WINDOW}]


# Kinds


async def test_a_kind_is_judged_once_by_one_of_its_rows() -> None:
    table, judge = Table([*rows(range(50)), *rows(range(50, 60), kind=b"bad")]), KindJudge({b"bad": BAD})
    looking = Looking(judge, WANTED)
    for _ in range(3):
        await looking.run(table, a_snapshot(), {})
    assert len(table.judged) == 2


async def test_new_kinds_above_the_limit_wait_for_the_next_look() -> None:
    many = [an_indexed_row(number, kind=b"%d" % number) for number in range(KINDS_A_LOOK + 5)]
    table, judge = Table(many), KindJudge({b"%d" % number: BAD for number in range(KINDS_A_LOOK)})
    looking = Looking(judge, WANTED)
    first = await looking.run(table, a_snapshot(), {})
    assert len(table.judged) == KINDS_A_LOOK
    assert first.held[("default", HoldReason.NEXT_CYCLE)] == 5
    second = await looking.run(table, a_snapshot(now=later(1)), {})
    assert second.ids == list(range(KINDS_A_LOOK, KINDS_A_LOOK + 5))


@pytest.mark.fault(41)
async def test_rows_that_all_ask_for_other_amounts_cost_a_bounded_number_of_searches() -> None:
    """A hostile submitter: each of its 200 rows fits nowhere, and each asks for another amount."""
    kinds = {str(number).encode(): needs(str(100 + number)) for number in range(1, 201)}
    hostile = [an_indexed_row(int(kind), kind=kind, submitted_by="hostile") for kind in kinds]
    table = Table([*hostile, an_indexed_row(900, kind=b"good")])
    offers = {kind: Offer("app:1", f"s{kind!r}", "default", wanted) for kind, wanted in kinds.items()}
    offers[b"good"] = Offer("app:1", "small", "default", needs("1"))
    room = room_of(view_of([a_node()]), {})
    found = await scan(table, KindJudge(offers), a_snapshot(max_pending=0, room=room))
    assert found.ids == [900]
    assert found.held["default", HoldReason.NO_ROOM_NOW] == MOST_ROOMLESS
    assert found.held["default", HoldReason.IN_LINE] >= 200 - MOST_ROOMLESS - 1
    assert len(room.witness) <= MOST_ROOMLESS + 1


@pytest.mark.fault(41)
async def test_searches_for_one_login_in_many_queues_are_bounded_and_leave_some_to_others() -> None:
    queues, nodes = 30, 4000
    kinds = {
        f"{queue} {n}".encode(): (f"q{queue:02}", needs(str(100 + n))) for queue in range(queues) for n in range(50)
    }
    offers = {kind: Offer("app:1", repr(kind), "default", wanted) for kind, (_, wanted) in kinds.items()}
    offers[b"good"] = Offer("app:1", "small", "default", needs("1"))
    hostile = [
        an_indexed_row(row, kind=kind, queue=queue, submitted_by="hostile")
        for row, (kind, (queue, _)) in enumerate(kinds.items())
    ]
    ids = range(10_000, 10_004)
    others = [an_indexed_row(ids[n], queue="z", kind=kind) for n, kind in enumerate((b"0 1", b"0 2", b"0 3", b"good"))]
    room = room_of(view_of([a_node(f"n{n}") for n in range(nodes)]), {})
    names = [f"q{n:02}" for n in range(queues)]
    snapshot = a_snapshot(*(a_queue(name) for name in (*names, "z")), max_pending=0, room=room)
    found = await scan(Table([*hostile, *others]), KindJudge(offers), snapshot)
    assert found.ids == [ids[-1]]
    searched = [found.held[name, HoldReason.NO_ROOM_NOW] for name in names]
    assert (searched[0], searched[-1]) == (MOST_ROOMLESS, LEAST_ROOMLESS)
    assert sum(searched) * nodes < 2 * MOST_NODES_SEARCHED


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
