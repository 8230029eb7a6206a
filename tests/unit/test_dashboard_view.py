"""The first page: problems first, then nodes in cells."""

import pytest
from msgspec.structs import replace

from dispatcher.model.cluster import Node
from dispatcher.model.needs import Taint
from dispatcher.model.reasons import ReasonInWords
from dispatcher.model.verdicts import HoldReason
from dispatcher.views.first_page import MOST_BUSY, MOST_CELLS, EstimateRecord, NodeCell, QueueHour, cells, overview_page
from dispatcher.views.status import InstallationStatus
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
        ({"not_ready": ReasonInWords(HoldReason.DISPATCHER_NOT_READY, "no leader")},
         "nothing is launched now: no leader"),
        ({"parked": 1}, "1 row waits until somebody"), ({"parked": 1200}, "1,200 rows wait until somebody"),
        ({"slowed": ["quota is used up"]}, "launches are slowed: quota is used up"),
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
