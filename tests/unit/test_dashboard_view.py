"""The first page, the last hour of each queue, and numbers, times and amounts as people read them."""

import sys
import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.model.cluster import Node
from dispatcher.model.needs import Taint
from dispatcher.model.reasons import ReasonInWords
from dispatcher.model.tasks import QueueCount
from dispatcher.model.verdicts import HoldReason
from dispatcher.views.first_page import (
    ENOUGH_MINUTES,
    MINUTES,
    MOST_BUSY,
    MOST_CELLS,
    MOST_QUEUES,
    EstimateRecord,
    LastHour,
    NodeCell,
    QueueHour,
    cells,
    overview_page,
)
from dispatcher.views.launches import duration
from dispatcher.views.node_room import NodeRoom
from dispatcher.views.status import InstallationStatus
from dispatcher.views.words import (
    MOST_ROWS,
    amount,
    brief,
    columns,
    exact,
    filled,
    free_part,
    highest,
    instant,
    number,
    percent,
    query,
    relative,
    resources,
    some,
    stacked,
    steps,
)
from tests.rig.builders import NOW, later
from tests.unit.page_facts import FINE, QUEUE

NONE_TOLD = EstimateRecord()
SIZE = {"cpu": 1000, "memory": 1000}


def told(status: InstallationStatus, usual: float | None = None, estimates: EstimateRecord = NONE_TOLD) -> str:
    hours = {"default": QueueHour([], [], [], usual)}
    page = overview_page(status, hours.get, NOW, [], estimates)
    return "; ".join(f"{problem.what} > {problem.next_step} > {problem.page}" for problem in page.problems)


def no_hour(_: str) -> None:
    """Nobody counted."""


def test_busiest_queues_have_a_row_of_their_own() -> None:
    quiet = [replace(QUEUE, queue=f"quiet-{number:03}", waiting=0) for number in range(1000)]
    busy = [replace(QUEUE, queue="runs", waiting=0, in_flight=1), replace(QUEUE, queue="waits", waiting=5)]
    hour = QueueHour([], [], [], None)
    page = overview_page(replace(FINE, queues=[*quiet, *busy]), lambda _: hour, NOW, [], NONE_TOLD)
    assert page.busiest[:3] == ["waits", "runs", "quiet-000"]
    assert len(page.busiest) == len(page.hours) == MOST_BUSY
    assert len(page.queues) == 1002


def test_page_has_all_that_the_status_has() -> None:
    page = overview_page(FINE, no_hour, None, [], EstimateRecord())
    assert {name: getattr(page, name) for name in FINE.__struct_fields__} == {
        name: getattr(FINE, name) for name in FINE.__struct_fields__
    }
    assert (page.problems, page.hours, page.counted_since, page.nodes) == ([], {}, None, [])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"unhealthy": {"database": "away"}}, "not ready: database: away > mend it"),
        ({"unhealthy": {"rights": "create events"}},
         "rights: create events > mend it: launches go on meanwhile > /about"),
        ({"not_ready": ReasonInWords(HoldReason.DISPATCHER_NOT_READY, "no leader")},
         "nothing is launched now: no leader"),
        ({"parked": 1}, "1 row waits until somebody"), ({"parked": 1200}, "1,200 rows wait until somebody"),
        ({"slowed": ["quota is used up"]},
         "launches are slowed: quota is used up > look at the rows that wait > /tasks?status=waiting"),
        ({"templates_differ": ["template a differs"]}, "template a differs > give dispatcher and janitor the same"),
    ],
)  # fmt: skip
def test_problem_is_named_with_its_next_step(changed: dict[str, object], words: str) -> None:
    assert told(FINE) == ""
    assert told(replace(FINE, **changed)).startswith(words)


def test_one_cause_is_told_once() -> None:
    cause = ReasonInWords(HoldReason.DISPATCHER_NOT_READY, "database: away")
    assert told(replace(FINE, unhealthy={"database": "away"}, not_ready=cause)).count("away") == 1


@pytest.mark.parametrize(
    ("usual", "changed", "is_told"),
    [
        (300.0, {}, True), (301.0, {}, False), (None, {}, False), (0.0, {}, True),
        (0.0, {"oldest_wait_seconds": 300.0}, False), (0.0, {"oldest_wait_seconds": None}, False),
        (0.0, {"paused_until": later(1)}, False), (0.0, {"queue": "without-hour"}, False),
    ],
)  # fmt: skip
def test_wait_is_a_problem_if_it_is_long_and_unusual(
    usual: float | None, changed: dict[str, object], is_told: bool
) -> None:
    found = told(replace(FINE, queues=[replace(QUEUE, **changed)]), usual)
    assert bool(found) == is_told
    assert "10 min" in found or not is_told


def test_usual_wait_of_seconds_is_told_in_seconds() -> None:
    found = told(replace(FINE, queues=[replace(QUEUE, oldest_wait_seconds=93_700.0)]), 20.0)
    assert found.startswith("the oldest row of queue default waits for 1 d 2 h, where 20 s are usual > ")


@pytest.mark.parametrize(
    ("record", "words"),
    [(EstimateRecord(9, 5, 6), "11 of 20 estimates"), (EstimateRecord(10, 5, 5), ""), (EstimateRecord(0, 9, 10), "")],
)
def test_estimates_that_are_mostly_wrong_are_a_problem(record: EstimateRecord, words: str) -> None:
    assert told(FINE, estimates=record).startswith(words)


def test_cell_tells_the_larger_part_that_is_used_and_who_takes_no_pod() -> None:
    nodes = [
        (Node("a", size=SIZE), {"cpu": 250, "memory": 900}), (Node("b", size=SIZE, ready=False), {"cpu": -5}),
        (Node("c", size=SIZE, taints=(Taint("x", "", "NoSchedule"),)), SIZE), (Node("d"), {}),
    ]  # fmt: skip
    assert list(cells(nodes)) == [
        NodeCell("a", 1, 0.75, 0), NodeCell("b", 1, 1.0, 1), NodeCell("c", 1, 0.0, 1), NodeCell("d", 1, None, 0)
    ]  # fmt: skip


def test_many_nodes_share_a_bounded_number_of_cells() -> None:
    found = list(cells([(Node(f"n{number:05}", size=SIZE), SIZE) for number in range(5001)]))
    assert len(found) <= MOST_CELLS
    assert sum(cell.count for cell in found) == 5001


START = NOW.replace(second=0, microsecond=0)


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


def a_count(queue: str = "default", starts: int = 5, ends: int = 10, waits_since: datetime | None = None) -> QueueCount:
    return QueueCount(queue, oldest=waits_since, starts=starts, ends=ends)


def of_default(hour: LastHour) -> QueueHour:
    found = hour.hour("default")
    assert found is not None
    return found


def test_minute_keeps_its_last_count() -> None:
    hour = LastHour()
    hour.note(at(0), [a_count(starts=5)])
    hour.note(at(0.5), [a_count(starts=15, waits_since=at(-1))])
    found = of_default(hour)
    assert (found.starts[-1], found.ends[-1], found.waits[-1]) == (3, 2, 90)
    assert found.starts[:-1] == [None] * (MINUTES - 1)
    assert hour.since == at(0)


def test_minute_that_nobody_counted_is_not_known() -> None:
    hour = LastHour()
    for minute in (0, 3):
        hour.note(at(minute), [a_count()])
    assert of_default(hour).starts[-4:] == [1, None, None, 1]


def test_count_of_more_than_an_hour_ago_is_forgotten() -> None:
    hour = LastHour()
    hour.note(at(0), [a_count(starts=500)])
    hour.note(at(MINUTES * 5 + 1), [a_count()])
    assert of_default(hour).starts == [None] * (MINUTES - 1) + [1]
    assert hour.since == at(MINUTES * 4 + 1)


def test_whole_hour_is_known_after_an_hour() -> None:
    hour = LastHour()
    for minute in range(MINUTES + 7):
        hour.note(at(minute), [a_count(starts=5 * minute)])
    assert of_default(hour).starts == list(range(7, MINUTES + 7))


def test_clock_that_is_set_back_begins_anew() -> None:
    hour = LastHour()
    hour.note(at(10), [a_count("old")])
    hour.note(at(-10), [a_count("new")])
    assert (hour.hour("old"), hour.hour("new") is None) == (None, False)
    assert hour.since == at(-10)


def test_usual_wait_is_the_median_of_enough_minutes() -> None:
    hour = LastHour()
    for minute in range(ENOUGH_MINUTES - 1):
        hour.note(at(minute), [a_count(waits_since=at(minute - 2))])
    assert of_default(hour).usual_wait is None
    hour.note(at(ENOUGH_MINUTES), [a_count(waits_since=at(-100))])
    assert of_default(hour).usual_wait == 120


def test_queue_that_is_gone_is_forgotten_and_very_many_queues_are_not_all_kept() -> None:
    hour = LastHour()
    hour.note(at(0), [a_count("gone")])
    names = [f"q{number}" for number in range(MOST_QUEUES + 5)]
    hour.note(at(1), [a_count(name) for name in names])
    assert sum(hour.hour(name) is not None for name in names) == MOST_QUEUES
    assert hour.hour("gone") is None


@pytest.mark.parametrize("queues", [MOST_QUEUES, 5 * MOST_QUEUES])
def test_last_hour_of_very_many_queues_takes_at_most_one_mebibyte(queues: int) -> None:
    """Names of queues have 63 bytes at most. The count's own objects are made before, and are not the hour's."""
    rounds = [
        [a_count(f"{number:063}", starts=number + minute, waits_since=at(-1)) for number in range(queues)]
        for minute in range(2)
    ]
    tracemalloc.start()
    try:
        hour = LastHour()
        for minute in range(2 * MINUTES):
            hour.note(at(minute), rounds[minute % 2])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    names = sum(sys.getsizeof(one.queue) for one in rounds[0][:MOST_QUEUES])
    assert hour.hour(f"{MOST_QUEUES - 1:063}") is not None
    assert kept + names <= 2**20


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, "—"), (float("inf"), "—"),
        (0, "0 s"), (-5, "0 s"), (0.44, "0.4 s"), (9, "9 s"), (59.6, "1 min"), (61, "1 min 1 s"),
        (3600, "1 h"),
        (3601, "1 h"), (7384, "2 h 3 min"), (86_400 * 1234 + 3600, "1,234 d 1 h"),
    ],
)  # fmt: skip
def test_duration_has_its_two_largest_units(seconds: float | None, told: str) -> None:
    assert duration(seconds) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "now"), (0.9, "now"), (5, "5 s ago"), (-5, "in 5 s"), (90, "1 min 30 s ago"), (-7200, "in 2 h")],
)
def test_relative_time_tells_its_direction(seconds: float, told: str) -> None:
    assert relative(NOW - timedelta(seconds=seconds), NOW) == told


def test_exact_time_tells_seconds_and_zone() -> None:
    assert exact(NOW) == f"{NOW:%Y-%m-%d %H:%M:%S} UTC"


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, "—"), (0, "0"), (9007199254740993, "9,007,199,254,740,993"), (1234.56, "1,234.6"), (0.0, "0")],
)
def test_whole_number_is_exact(value: float | None, told: str) -> None:
    assert number(value) == told


@pytest.mark.parametrize(("part", "told"), [
    (None, "—"), (0, "0%"), (0.001, "< 1%"), (0.01, "1%"), (0.5, "50%"), (0.99, "99%"), (0.9999, "> 99%"), (1, "100%"),
])  # fmt: skip
def test_small_part_is_not_nothing_and_a_large_one_is_not_the_whole(part: float | None, told: str) -> None:
    assert percent(part) == told


class Filter(Struct):
    queue: str | None = None
    after: int | None = None


def test_query_keeps_what_is_given_and_escapes_it() -> None:
    assert query({}) == query(Filter()) == query({"queue": ""}) == ""
    assert query({"queue": "a&b=<"}, after=3) == "?queue=a%26b%3D%3C&after=3"
    assert query(Filter("a", 9), after=None) == "?queue=a"


def test_stacked_bar_is_as_wide_as_its_parts_together() -> None:
    parts = stacked({"small": 1, "large": 3})
    assert [(part.name, part.start, part.width) for part in parts] == [("large", 0, 75), ("small", 75, 25)]
    assert stacked({}) == []
    assert [part.width for part in stacked({"none": 0})] == [0]


def test_columns_are_as_high_as_their_share_of_the_highest() -> None:
    assert columns([None, 2, 0, 4]) == "M0 100V100h1V50h1V100h1V0h1V100z"
    assert columns([1, 1000]).startswith("M0 100V99h1"), "a column that is there can be seen"
    assert (columns([]), columns([None, 0])) == ("M0 100V100z", "M0 100V100h1V100h1V100z")


def test_line_has_gaps_where_nobody_counted() -> None:
    assert steps([None, 2, 0, None, 4]) == "M1 50h1V100h1M4 0h1"
    assert (steps([]), steps([None, 0])) == ("", "M1 100h1")


def test_columns_and_line_are_drawn_by_one_measure() -> None:
    most = highest([1, None], [4])
    assert (most, highest(), highest([None])) == (4, 0, 0)
    assert columns([1, None], most) == "M0 100V75h1V100h1V100z"
    assert steps([4], most) == "M0 0h1"
    assert columns([0], 0) == "M0 100V100h1V100z"


@pytest.mark.parametrize(
    ("number_of_rows", "share", "left"),
    [(0, 1, 0), (7, 1, 7), (7, 0.5, 3), (7, 0.001, 1), (500, 1, MOST_ROWS), (500, 0.25, MOST_ROWS // 4)],
)
def test_some_rows_are_a_share_and_one_at_least(number_of_rows: int, share: float, left: int) -> None:
    rows = range(number_of_rows)
    assert list(some(rows, share)) == list(rows)[:left]


@pytest.mark.parametrize(("text", "told"), [("short", "short"), ("<" * 10, "<" * 4 + "…"), ("x" * 30, "x" * 20 + "…")])
def test_brief_text_is_cut_by_its_size_on_a_page(text: str, told: str) -> None:
    assert brief(text, 20) == told


def test_instant_has_three_digits_of_a_second() -> None:
    moment = datetime(2026, 3, 14, 11, 2, 3, 123456, tzinfo=UTC)
    assert (instant(moment), instant(moment.replace(microsecond=0))) == (
        "2026-03-14T11:02:03.123+00:00", "2026-03-14T11:02:03.000+00:00",
    )  # fmt: skip


NODE = NodeRoom(
    name="n1", ready=True, cordoned=False, taints=(), size={"cpu": "4", "pods": "10", "gpu": "0"}, others={"cpu": "1"},
    ours={"cpu": "500m"}, coming={"cpu": "500m"}, reserved={"cpu": "1"}, free={"cpu": "1"}, kept_for=None, rejects="",
)  # fmt: skip


@pytest.mark.parametrize(
    ("quantity", "resource", "told"),
    [
        ("1500m", "cpu", "1.5"), ("1", "cpu", "1"), ("1m", "cpu", "0.001"), ("16069292Ki", "memory", "15.32Gi"),
        ("1Gi", "memory", "1Gi"), ("100", "memory", "100"), ("12345", "pods", "12,345"), (None, "cpu", "0"),
        ("3Ti", "ephemeral-storage", "3Ti"), ("2Mi", "hugepages-2Mi", "2Mi"),
    ],
)  # fmt: skip
def test_amount_is_rounded_and_has_a_unit(quantity: str | None, resource: str, told: str) -> None:
    assert amount(quantity, resource) == told


def test_resources_of_which_a_node_has_any_are_listed() -> None:
    assert resources(NODE.size) == ["pods"]


def test_bar_of_a_resource_has_a_part_for_others_ours_and_holds() -> None:
    assert [(part.name, part.start, part.width) for part in filled(NODE, "cpu")] == [
        ("others", 0, 25), ("ours", 25, 12.5), ("held", 37.5, 37.5)
    ]  # fmt: skip


def test_bar_of_an_over_asked_node_ends_at_its_size() -> None:
    parts = filled(replace(NODE, others={"cpu": "9"}), "cpu")
    assert [(part.name, part.width) for part in parts] == [("others", 100)]


def test_bar_of_a_resource_that_the_node_lacks_is_empty() -> None:
    assert filled(NODE, "gpu") == filled(NODE, "memory") == []
    assert (free_part(NODE, "memory"), free_part(NODE, "cpu")) == (0, 0.25)
