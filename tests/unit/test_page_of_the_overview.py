"""The first page and the lists of rows show everything that their models have, each value below its heading."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.model.history import BatchStatus, ListedRow
from dispatcher.model.reasons import ADVICE
from dispatcher.model.verdicts import PARKED, HoldReason
from dispatcher.views.answers import ApiRequest
from dispatcher.views.failures import FailureGroup, FailuresPage
from dispatcher.views.first_page import NodeCell, OverviewPage, Problem, QueueHour
from dispatcher.views.rows import BatchesPage, RowsPage
from dispatcher.views.server import Pages
from dispatcher.views.status import InstallationIdentity, QueueStatus
from tests.rig.builders import NOW, ago, later
from tests.unit.page_facts import PAGES, QUIET
from tests.unit.page_tree import Element, read

NIGHTLY = QueueStatus(
    queue="nightly", waiting=1300, reasons={HoldReason.QUEUE_CAP: 325, HoldReason.NO_ROOM_NOW: 975},
    oldest_wait_seconds=7384, in_flight=1234, max_jobs=5678, weight=9, share=0.37, paused_until=later(60),
    paused_since=ago(60), note="maps of the night", starts_per_minute=2.5, ends_per_minute=1111,
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


def test_starts_and_ends_are_drawn_with_the_time_since_when_they_are_known() -> None:
    drawn = nightly()[LAST_HOUR].the("svg")
    assert drawn.attributes["aria-label"] == "starts and ends a minute in the last hour, at most 4"
    starts, ends = drawn.every("path")
    assert (starts.attributes["d"], ends.attributes["d"]) == ("M0 100V100h1V50h1V0h1V100z", "M1 75h1V75h1")
    assert ends.attributes["class"] == "ends"
    assert drawn.attributes["viewbox"] == "0 0 3 100"
    (note,) = [one for one in shown().section("queues").every("p") if "begin" in one.words]
    assert note.moments == [ago(11), ago(1800)]
    assert "begin" not in shown(counted_since=None).section("queues").words


def test_page_tells_its_age_and_who_answers() -> None:
    (age,) = [one for one in shown().every("p") if one.words.startswith("Told by")]
    assert (age.moments, "Told by me" in age.words, age.links) == ([ago(3)], True, ["/proxy/api/v1/status"])


def test_page_of_a_replica_that_does_not_lead_says_what_it_does_not_know() -> None:
    pages = Pages(InstallationIdentity("dispatcher", "1", "jobs", "me"), "/proxy", lambda: False)
    page = read(pages.write("overview.html", FULL, ApiRequest(), "/api/v1/status"))
    (age,) = [one for one in page.every("p") if one.words.startswith("Told by")]
    assert "Told by me, which does not know what the API server refuses: ask the leader" in age.words
    assert age.links == ["/proxy/about", "/proxy/api/v1/status"]


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


ROW = ListedRow(
    task=77, queue="nightly", status="waiting", attempt=2, priority=-7, template="tiles", submitted_by="team_b",
    created_at=ago(90), run_at=None, started_at=None, finished_at=ago(30), reason=HoldReason.NO_ROOM_NOW,
    message="the nodes are full: of cpu", error=None, batch="april", progress=0.42, note="half of it",
)  # fmt: skip
GROUP = FailureGroup(
    key="a" * 32, status="failed", reason=None, template="tiles", image="app:1", message="no file <number>",
    example="no file 77", count=1234, first_seen=ago(7200), last_seen=ago(60), by_hour=[0, 2, 4], tasks=[77, 66],
)  # fmt: skip
FAILURES = FailuresPage(
    as_of=NOW, leads=True, groups=[GROUP], groups_left_out=0, failed=1234, failed_since=ago(86400), parked=0,
    parked_left_out=0,
)  # fmt: skip
BATCH = BatchStatus(
    queue="nightly", submitted_by="team_b", batch="april", tasks=1000, by_status={"waiting": 250, "failed": 750},
    first_started_at=ago(900), last_finished_at=ago(60), is_whole=True,
)  # fmt: skip


def list_shown(template: str, page: Struct, query: Mapping[str, str] = {}) -> Element:
    return read(PAGES.write(template, page, ApiRequest(query=query), "/api/v1/status"))


def tasks(query: Mapping[str, str] = {}, **changes: Any) -> Element:
    return list_shown("tasks.html", replace(RowsPage(NOW, NOW, [ROW], None, 1), **changes), query)


@pytest.mark.parametrize(
    ("changes", "query", "told"),
    [
        ({}, {}, "1 row matches, the newest first."),
        ({"matching": 9999}, {}, "9,999 rows match, the newest first."),
        ({"matching": 10_000, "more_match": True}, {}, "10,000+ rows match, the newest first."),
        ({"matching": 5}, {"after": "9"}, "From here on 5 rows match, the newest first."),
        ({"looked_to": 5}, {}, "Rows older than 5 were not looked at."),
        ({}, {"reason": "Poison"}, "Rows behind those that the last cycle judged have the reason of their queue."),
    ],
)
def test_number_of_rows_that_match_is_told(changes: dict[str, Any], query: dict[str, str], told: str) -> None:
    words = tasks(query, **changes).the("main").words
    assert told in words
    assert ("+" in words) is changes.get("more_match", False)


def test_list_names_the_time_of_its_reasons_if_it_has_some() -> None:
    (note,) = [one for one in tasks(judged_at=ago(3)).the("main").every("p") if "the newest first" in one.words]
    assert ("Reasons as of" in note.words, note.moments) == (True, [ago(3)])
    without = tasks(tasks=[replace(ROW, reason=None)]).the("main").words
    assert "Reasons as of" not in without


def test_row_of_the_list_has_its_value_below_each_heading() -> None:
    (row,) = tasks().the("main").rows()
    assert {name: cell.words for name, cell in row.items() if name not in {"Created", "Ended"}} == {
        "Task": "77", "Queue": "nightly", "State": "○ waiting 42%", "Template": "tiles", "Submitter": "team_b",
        "Why it waits, or what it reported": "NoRoomNow the nodes are full: of cpu half of it",
        "Batch": "april", "Priority": "-7", "Attempt": "2",
    }  # fmt: skip
    assert (row["Created"].moments, row["Ended"].moments) == ([ago(90)], [ago(30)])
    assert (row["Task"].links, row["Queue"].links) == (["/proxy/tasks/77"], ["/proxy/queues/nightly"])
    assert row["Batch"].links == ["/proxy/batches?queue=nightly&submitted_by=team_b&batch=april"]
    failed = replace(ROW, status="failed", reason=None, message=None, error="no disk", note=None, progress=None)
    (row,) = tasks(tasks=[failed]).the("main").rows()
    assert (row["State"].words, row["Why it waits, or what it reported"].words) == ("✕ failed", "no disk")


@pytest.mark.parametrize("reason", HoldReason)
def test_list_of_rows_tells_each_reason_and_can_be_asked_for_it(reason: HoldReason) -> None:
    page = tasks({"reason": reason}, tasks=[replace(ROW, reason=reason)])
    told = page.the("main").rows()[0]["Why it waits, or what it reported"].every("span")[0]
    assert (told.words, told.attributes["class"]) == (reason, f"reason turn-{ADVICE[reason].whose_turn}")
    assert [one.words for one in page.every("option", selected="")] == [reason]


def test_filters_are_kept_from_page_to_page() -> None:
    page = tasks({"queue": "nightly", "group": "a" * 32, "after": "99"}, next_after=77)
    assert page.the("a", rel="next").attributes["href"] == f"/proxy/tasks?queue=nightly&group={'a' * 32}&after=77"
    assert page.the("a", rel="first").attributes["href"] == f"/proxy/tasks?queue=nightly&group={'a' * 32}"
    assert page.the("input", name="queue").attributes["value"] == "nightly"


def failures(**changes: Any) -> Element:
    return list_shown("failures.html", replace(FAILURES, **changes)).the("main")


def test_group_of_failures_has_its_value_below_each_heading() -> None:
    (row,) = failures().rows()
    assert [row[name].words for name in ("Rows", "Template", "Image", "Newest rows")] == [
        "1,234",
        "tiles",
        "app:1",
        "77 66",
    ]
    assert row["What is wrong"].words == "✕ failed no file <number> the newest one no file 77"
    assert (row["First"].moments, row["Last"].moments) == ([ago(7200)], [ago(60)])
    assert row["Rows"].links == [f"/proxy/tasks?group={'a' * 32}"]
    assert row["Newest rows"].links == ["/proxy/tasks/77", "/proxy/tasks/66"]
    sorts = {name: cell.attributes["data-value"] for name, cell in row.items() if "data-value" in cell.attributes}
    first, last = (str(moment.timestamp()) for moment in (GROUP.first_seen, GROUP.last_seen))
    assert sorts == {"Rows": "1234", "Last 24 h": "1234", "First": first, "Last": last}


def test_hours_of_a_group_are_drawn_and_told() -> None:
    drawn = failures().rows()[0]["Last 24 h"].the("svg")
    assert drawn.the("path").attributes["d"] == "M0 100V100h1V50h1V0h1V100z"
    assert (drawn.attributes["aria-label"], drawn.attributes["role"]) == ("rows by hour: 0, 2, 4", "img")


@pytest.mark.parametrize("reason", sorted(PARKED))
def test_group_of_parked_rows_tells_its_reason(reason: HoldReason) -> None:
    group = replace(GROUP, status="parked", reason=reason, image="", message="words", example="words")
    (row,) = failures(groups=[group]).rows()
    assert (row["What is wrong"].words, row["Image"].words) == (f"! parked {reason} words", "—")
    assert row["What is wrong"].every("span", title=ADVICE[reason].meaning) != []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "1,234 rows failed since"), ({"failed": 1}, "1 row failed since"), ({"parked": 1}, "1 row is parked"),
        ({"parked": 5000, "parked_left_out": 3000}, "5,000 rows are parked; 3,000 of them are in no group below"),
        ({"failed": 3000}, "earlier ones were not read"), ({"groups_left_out": 7}, "7 smaller ones are left out"),
        ({"groups": []}, "No row has failed in the last day, and none is parked."),
    ],
)  # fmt: skip
def test_page_of_failures_tells_how_much_of_them_it_has(changes: dict[str, Any], told: str) -> None:
    assert told in failures(**changes).words
    assert ago(86400) in failures(**changes).moments


def batches(*found: BatchStatus, **changes: Any) -> Element:
    page = replace(BatchesPage(as_of=NOW, batches=found or [BATCH]), **changes)
    return list_shown("batches.html", page, {"batch": "april"}).the("main")


def test_batch_has_its_progress_its_times_and_its_bar() -> None:
    page = batches()
    (row,) = page.rows()
    told = {name: row[name].words for name in ("Queue", "Submitter", "Rows", "State")}
    assert told == {"Queue": "nightly", "Submitter": "team_b", "Rows": "1,000", "State": "75% ended"}
    assert [one.words for one in row["Rows by status"].every("a")] == ["✕ failed 750", "○ waiting 250"]
    assert [one.attributes["width"] for one in row["Rows by status"].every("rect")] == ["75.0", "25.0"]
    key = "queue=nightly&submitted_by=team_b&batch=april"
    assert row["Rows by status"].links == [f"/proxy/tasks?{key}&status={status}" for status in ("failed", "waiting")]
    times: list[datetime] = row["First start"].moments + row["Last end"].moments
    assert times == [ago(900), ago(60)]
    (group,) = batches(failures=[GROUP]).every("table")[1].the("tbody").every("tr")
    assert group.links[0] == f"/proxy/tasks?{key}&group={'a' * 32}"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"by_status": {"succeeded": 1000}}, "over"), ({"is_whole": False}, "not counted to the end"),
        ({"by_status": {"processing": 1, "failed": 999}}, "> 99% ended"),
    ],
)  # fmt: skip
def test_state_of_a_batch_is_told(changes: dict[str, Any], told: str) -> None:
    page = batches(replace(BATCH, **changes))
    assert page.rows()[0]["State"].words == told
    assert ("1,000+" in page.words) is ("Only 1,000 rows of queue nightly were counted" in page.words)


def test_batch_tells_how_many_of_its_failures_are_in_groups() -> None:
    assert "Of its failed rows, the newest 5 were read." in batches(failures=[replace(GROUP, count=5)]).words
    assert "were read" not in batches(failures=[replace(GROUP, count=750)]).words
    assert "No row of it has failed." in batches(replace(BATCH, by_status={"waiting": 1})).words


def test_list_of_a_group_says_so_and_its_form_keeps_the_group() -> None:
    main = tasks({"group": "ab12"}).the("main")
    assert "These are rows of one group of failures" in main.words
    assert [one.attributes["value"] for one in main.every("input") if one.attributes["name"] == "group"] == ["ab12"]
    assert "group" not in [one.attributes["name"] for one in tasks().the("main").every("input")]
