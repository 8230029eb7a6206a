"""The first page shows everything that its model has, each value below its heading."""

from typing import Any

import pytest
from msgspec.structs import replace

from dispatcher.model.verdicts import HoldReason
from dispatcher.views.answers import ApiRequest
from dispatcher.views.first_page import NodeCell, OverviewPage, Problem, QueueHour
from dispatcher.views.server import Pages
from dispatcher.views.status import InstallationIdentity, QueueStatus
from tests.rig.builders import NOW, ago, later
from tests.unit.page_tree import Element, read

PAGES = Pages(InstallationIdentity("dispatcher", "1", "jobs", "me"), "/proxy")
NIGHTLY = QueueStatus(
    queue="nightly", waiting=1300, reasons={HoldReason.QUEUE_CAP: 325, HoldReason.NO_ROOM_NOW: 975},
    oldest_wait_seconds=7384, in_flight=1234, max_jobs=5678, weight=9, share=0.37, paused_until=later(60),
    paused_since=ago(60), note="maps of the night", starts_per_minute=2.5, ends_per_minute=1111,
)  # fmt: skip
QUIET = QueueStatus(
    queue="quiet", waiting=0, reasons={}, oldest_wait_seconds=None, in_flight=0, max_jobs=None, weight=1, share=0,
    paused_until=None, paused_since=None, note=None, starts_per_minute=0, ends_per_minute=0,
)  # fmt: skip
LAST_HOUR = "Last hour: starts, ends"
HOUR = QueueHour([None, 2.0, 4.0], [None, 1.0, 1.0], [None, 30.0, 60.0], 30.0)
CELLS = [NodeCell("n1", 1, 0.0, 0), NodeCell("n2", 1, 0.626, 0), NodeCell("n3", 1, 1.0, 1), NodeCell("n4", 1, None, 0)]
FULL = OverviewPage(
    installation="dispatcher", version="1", jobs_namespace="jobs", replica="me", leads=True, as_of=ago(3),
    counted_at=ago(11), unhealthy={}, not_ready=None, slowed=[], in_flight=1234, max_jobs=5000,
    queues=[NIGHTLY, QUIET, replace(QUIET, queue="other")], parked=2, parked_rows=[],
    problems=[Problem("2 rows wait", "look at the messages", "/failures"), Problem("odd estimates", "rely on none")],
    busiest=["nightly", "quiet"], hours={"nightly": HOUR}, counted_since=ago(1800), nodes=CELLS,
)  # fmt: skip


def shown(**changes: Any) -> Element:
    return read(PAGES.write("overview.html", replace(FULL, **changes), ApiRequest(), "/api/v1/status"))


def nightly(**changes: Any) -> dict[str, Element]:
    return shown(queues=[replace(NIGHTLY, **changes)]).section("queues").rows()[0]


def test_parts_of_the_page_have_their_headings() -> None:
    page = shown()
    assert [one.words for one in page.the("main").every("h1")] == ["Overview"]
    assert [one.words for one in page.the("main").every("h2")] == ["2 problems", "Queues", "Nodes"]
    assert {one.attributes["aria-labelledby"] for one in page.every("section")} <= page.ids()


def test_problems_come_first_with_their_next_steps() -> None:
    part = shown().the("main").every("section")[0]
    assert part.the("h2").words == "2 problems"
    assert [one.words for one in part.every("li")] == [
        "! 2 rows wait look at the messages",
        "! odd estimates rely on none",
    ]
    assert part.the("ul").links == ["/proxy/failures"]
    figures = ["/proxy/tasks?status=processing", "/proxy/tasks?status=waiting", "/proxy/failures", "/proxy/about"]
    assert part.links[1:] == figures
    assert shown(problems=[]).section("problems").the("h2").words == "No problems"
    assert shown(problems=FULL.problems[:1]).section("problems").the("h2").words == "1 problem"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "1,234 of 5,000 Jobs 1,300 rows wait 2 need somebody leads"),
        ({"parked": 1, "leads": False, "queues": [replace(NIGHTLY, waiting=1)]},
         "1,234 of 5,000 Jobs 1 row waits 1 needs somebody does not lead"),
    ],
)  # fmt: skip
def test_figures_of_the_installation_are_told(changes: dict[str, Any], told: str) -> None:
    assert told in shown(**changes).section("problems").words


@pytest.mark.parametrize(
    ("heading", "told"),
    [
        ("Waiting", "1,300"), ("Jobs", "1,234"), ("Cap", "5,678"), ("Share", "37%"), ("Weight", "9"),
        ("Oldest wait", "2 h 3 min"), ("Starts/min", "2.5"), ("Ends/min", "1,111"),
        ("Queue", "nightly paused maps of the night"),
    ],
)  # fmt: skip
def test_queue_has_its_value_below_each_heading(heading: str, told: str) -> None:
    assert nightly()[heading].words == told


def test_queue_that_has_no_cap_and_no_waiting_row_says_so() -> None:
    row = shown().section("queues").rows()[1]
    told = {name: row[name].words for name in ("Queue", "Waiting, by reason", "Cap", "Oldest wait", LAST_HOUR)}
    assert told == {
        "Queue": "quiet", "Waiting, by reason": "nothing waits", "Cap": "—", "Oldest wait": "—", LAST_HOUR: ""
    }  # fmt: skip
    assert row["Waiting, by reason"].every("svg") == []


def test_numbers_sort_by_their_values() -> None:
    row = nightly()
    assert (row["Share"].attributes["data-value"], row["Oldest wait"].attributes["data-value"]) == ("0.37", "7384")


def test_bar_of_waiting_rows_is_as_wide_as_each_reason_and_leads_to_its_rows() -> None:
    cell = nightly()["Waiting, by reason"]
    bar = [(one.attributes["class"], one.attributes["x"], one.attributes["width"]) for one in cell.every("rect")]
    assert bar == [("fill-cluster n0", "0.0", "75.0"), ("fill-operator n1", "75.0", "25.0")]
    assert [one.words for one in cell.every("a")] == ["NoRoomNow 975", "QueueCap 325"]
    assert cell.links == [f"/proxy/tasks?queue=nightly&reason={reason}" for reason in ("NoRoomNow", "QueueCap")]
    assert nightly()["Queue"].links == ["/proxy/queues/nightly"]


def test_starts_and_ends_of_the_last_hour_are_drawn_with_the_time_since_when_they_are_known() -> None:
    drawn = nightly()[LAST_HOUR].the("svg")
    assert drawn.attributes["aria-label"] == "starts and ends a minute in the last hour, at most 4"
    starts, ends = drawn.every("path")
    assert (starts.attributes["d"], ends.attributes["d"]) == ("M0 100V100h1V50h1V0h1V100z", "M1 75h1V75h1")
    assert drawn.attributes["viewbox"] == "0 0 3 100"
    (note,) = [one for one in shown().section("queues").every("p") if "begin" in one.words]
    assert note.moments == [ago(11), ago(1800)]
    assert "begin" not in shown(counted_since=None).section("queues").words


def test_page_tells_its_age_and_who_answers() -> None:
    (age,) = [one for one in shown().every("p") if one.words.startswith("Told by")]
    assert (age.moments, "Told by me" in age.words, age.links) == ([ago(3)], True, ["/proxy/api/v1/status"])


def test_further_queues_are_named() -> None:
    others = shown().section("queues").the("details")
    assert (others.the("summary").words, others.links) == ("1 further queues, with fewer rows", ["/proxy/queues/other"])
    assert "more" not in others.words
    assert shown(queues=[NIGHTLY]).section("queues").every("details") == []
    many = [replace(QUIET, queue=f"q{number}") for number in range(1234)]
    others = shown(queues=many, busiest=[]).section("queues").the("details")
    assert "and 1,184 more: all of them as JSON" in others.words
    assert others.links[-2:] == ["/proxy/queues/q49", "/proxy/api/v1/queues"]


def test_strip_of_nodes_tells_how_full_each_is_by_a_colour_and_a_number() -> None:
    cells = shown().section("nodes").the("ol").every("li")
    assert [(one.attributes["class"], one.words) for one in cells] == [
        ("heat0", "0"), ("heat3", "63"), ("heat4 closed", "✕"), ("unknown", "?")
    ]  # fmt: skip
    assert [one.the("a").attributes["title"] for one in cells] == [
        "n1: 0% used", "n2: 63% used", "n3: 100% used, 1 closed", "n4: — used"
    ]  # fmt: skip
    assert "Each cell is a node:" in shown().section("nodes").words


def test_cell_of_many_nodes_names_the_first_and_counts_the_closed() -> None:
    part = shown(nodes=[NodeCell("n1", 25, 0.5, 3)]).section("nodes")
    cell = part.the("li")
    assert (cell.the("a").attributes["title"], cell.words) == ("n1 and 24 more: 50% used, 3 closed", "50")
    assert "Each cell is some nodes:" in part.words


def test_page_without_a_queue_or_a_node_says_what_to_do() -> None:
    page = shown(queues=[], busiest=[], nodes=[])
    assert "Insert the first row" in page.section("queues").words
    assert "DISPATCHER_CHECK_ROOM is false" in page.section("nodes").words


@pytest.mark.parametrize("reason", HoldReason)
def test_rows_of_each_reason_are_counted_by_its_name(reason: HoldReason) -> None:
    cell = nightly(waiting=5, reasons={reason: 5})["Waiting, by reason"]
    assert (cell.words, cell.links) == (f"{reason} 5", [f"/proxy/tasks?queue=nightly&reason={reason}"])
    assert len(cell.every("rect")) == 1


def test_moments_are_exact_where_one_points_at_them() -> None:
    (since,) = [
        one for one in shown(counted_since=NOW).section("queues").every("time") if "12:00:00" in one.attributes["title"]
    ]
    assert since.attributes["title"] == "2026-03-14 12:00:00 UTC"
