"""The pages of a queue and of nodes: each value is beside its name, and text of people stays text."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dispatcher.model.history import EndedTask, Percentiles, QueueSettings
from dispatcher.model.reasons import ADVICE, Turn
from dispatcher.model.verdicts import HoldReason
from dispatcher.views.answers import ApiRequest
from dispatcher.views.explanation import Estimate
from dispatcher.views.first_page import QueueHour
from dispatcher.views.node_room import KeptCaches, NodesPage
from dispatcher.views.nodes import FitSummary, NodeFit, NodeGroup
from dispatcher.views.queue import NextRow, QueuePage, QueueTimes, effective_settings, no_queue
from dispatcher.views.status import QueueHold, ShapeDemand
from tests.rig.builders import NOW, ago, later
from tests.unit import page_facts
from tests.unit.page_facts import EMPTY, HOSTILE, NODE, NODES, PAGES
from tests.unit.page_tree import Element, read

SETTINGS = QueueSettings(
    weight=9, max_jobs=5678, max_jobs_per_submitter=1100, max_pending=2200, paused_until=later(60), owner_role="owners",
    submit_role="team_a", max_waiting_per_submitter=3300, fair_submitters=True, note="maps of the night",
    inherited=("max_pending", "max_jobs", "paused_until"),
)  # fmt: skip
SOON, SOMETIME = timedelta(days=5, hours=12, minutes=30), timedelta(days=8, hours=3, minutes=30)
ROW = NextRow(
    task=77, place=1201, priority=-7, attempt=2, submitted_by="team_b", template="tiles", created_at=ago(90),
    reason=HoldReason.NO_ROOM_NOW, message="the nodes are full: of cpu", since=None, whose_turn=Turn.CLUSTER,
    estimate=None,
)  # fmt: skip
ENDED = EndedTask(
    task=66, outcome="failed", attempt=1, submitted_by="team_a", finished_at=ago(40), run_seconds=7384, node="n7"
)
FULL = QueuePage(
    queue="nightly", waiting=1300, reasons={HoldReason.QUEUE_CAP: 325, HoldReason.NO_ROOM_NOW: 975},
    oldest_wait_seconds=7384, in_flight=1234, max_jobs=5678, weight=9, share=0.37, paused_until=later(60),
    paused_since=ago(60), note="cut", starts_per_minute=2.5, ends_per_minute=1111, as_of=ago(3), leads=True,
    counted_at=ago(11), behind=QueueHold(HoldReason.QUEUE_CAP, "5,678 of 5,678 Jobs", None), settings=SETTINGS,
    next=[ROW], ended=[ENDED],
    times=QueueTimes(1000, Percentiles(900, 1.5, 2.5, 3.5), Percentiles(1000, 60, 61, 3600)),
    hour=QueueHour([None, 2.0, 4.0], [None, 1.0, 2.0], [None, 3.0, 4.0], 90.0), counted_since=ago(1800),
)  # fmt: skip


def shown(**changes: Any) -> Element:
    return read(PAGES.write("queue.html", replace(FULL, **changes), ApiRequest("nightly"), "/api/v1/queues/nightly"))


def test_parts_of_the_page_have_their_headings() -> None:
    page = shown()
    headings = ["Waiting, by reason", "Settings", "Next rows", "Last hour", "How long rows take", "Last ends"]
    assert [one.words for one in page.the("main").every("h2")] == headings
    assert {one.attributes["aria-labelledby"] for one in page.every("section")} <= page.ids()
    assert page.the("title").words.startswith("Queue nightly ")


def test_empty_queue_has_no_mark_of_a_full_one_and_says_what_to_do() -> None:
    page = shown(
        waiting=0, reasons={}, next=(), ended=(), paused_until=None, settings=replace(SETTINGS, note=None), behind=None
    )  # fmt: skip
    main = page.the("main")
    assert (main.the("h1").words, page.section("reasons").every("svg")) == ("Queue nightly", [])
    assert len(main.every("p", **{"class": "words"})) == 0
    told = "No row waits here. Insert one: INSERT INTO dispatch.tasks (queue) VALUES ('nightly')"
    assert page.section("reasons").the("p").words == told
    for part, words in (("next", "No due row is without a Job."), ("ended", "No row of this queue has ended yet.")):
        assert page.section(part).the("p").words == f"{words} All rows of the queue"
        assert page.section(part).links == ["/proxy/tasks?queue=nightly"]
    assert "no cycle judged one by one" not in shown(behind=None).section("reasons").words


def test_head_tells_the_figures_of_the_queue() -> None:
    main = shown().the("main")
    assert main.the("h1").words == "Queue nightly ! paused"
    (figures,) = [one for one in main.every("p") if "starts/min" in one.words]
    assert [one.words for one in figures.every("span")] == [
        "1,300 rows wait", "1,234 of 5,678 Jobs", "37% of the cluster", "2 h 3 min oldest wait", "2.5 starts/min",
        "1,111 ends/min",
    ]  # fmt: skip
    assert figures.links == ["/proxy/tasks?queue=nightly&status=waiting"]
    assert "maps of the night" in [one.words for one in main.every("p")], "the whole note"
    assert "1,234 Jobs" in shown(max_jobs=None).the("main").words


def test_reasons_are_drawn_counted_explained_and_lead_to_their_rows() -> None:
    part = shown().section("reasons")
    bar = [(one.attributes["class"], one.attributes["width"]) for one in part.the("svg").every("rect")]
    assert bar == [("fill-cluster n0", "75.0"), ("fill-operator n1", "25.0")]
    assert [[cell.words for cell in row.values()] for row in part.rows()] == [
        [reason, count, ADVICE[reason].meaning]
        for reason, count in ((HoldReason.NO_ROOM_NOW, "975"), (HoldReason.QUEUE_CAP, "325"))
    ]
    assert part.rows()[0]["Rows"].links == ["/proxy/tasks?queue=nightly&reason=NoRoomNow"]
    assert part.rows()[0]["Rows"].attributes["data-value"] == "975"
    notes = [one for one in part.every("p") if one.attributes.get("class", "").startswith("note")]
    assert "no cycle judged one by one: 5,678 of 5,678 Jobs" in notes[0].words
    assert notes[1].moments == [ago(11)]


def test_settings_are_told_with_those_that_are_inherited() -> None:
    facts = shown().section("settings").facts()
    assert {name: value.words for name, value in facts.items()} == {
        "weight": "9", "max jobs": "5,678 from queue *", "max jobs per submitter": "1,100",
        "max pending": "2,200 from queue *", "max waiting per submitter": "3,300", "owner role": "owners",
        "paused until": "2026-03-14 12:01:00 UTC from queue *", "submit role": "team_a", "fair submitters": "yes",
    }  # fmt: skip
    assert "UPDATE of dispatch.queues" in shown().section("settings").words
    for_good = shown(settings=replace(SETTINGS, paused_until=datetime.max.replace(tzinfo=UTC))).section("settings")
    assert for_good.facts()["paused until"].words == "until somebody clears it from queue *"


def test_settings_that_are_not_set_are_told_in_words() -> None:
    none = dict.fromkeys((
        "max_jobs", "max_jobs_per_submitter", "max_waiting_per_submitter", "paused_until", "owner_role", "submit_role"
    ))  # fmt: skip
    facts = shown(settings=replace(SETTINGS, **none, fair_submitters=False)).section("settings").facts()
    told = {name: value.words for name, value in facts.items() if name not in {"weight", "max pending"}}
    assert told == {
        "max jobs": "no cap from queue *", "max jobs per submitter": "no cap", "max waiting per submitter": "no bound",
        "paused until": "not paused from queue *", "owner role": "none", "submit role": "every submitter",
        "fair submitters": "no",
    }  # fmt: skip


def test_next_row_is_told_with_its_place_and_why_it_waits() -> None:
    (row,) = shown().section("next").rows()
    assert {name: cell.words for name, cell in row.items() if name != "Waits since"} == {
        "Place": "1,201", "Task": "77", "Why it waits": "NoRoomNow the nodes are full: of cpu", "Start": "—",
        "Template": "tiles", "Submitter": "team_b", "Priority": "-7", "Attempt": "2",
    }  # fmt: skip
    assert (row["Waits since"].moments, row["Task"].links) == ([ago(90)], ["/proxy/tasks/77"])
    assert row["Waits since"].attributes["data-value"] == str(ago(90).timestamp())
    assert "The first 1 due rows without a Job" in shown().section("next").words
    assert "take turns" in shown().section("next").words
    plain = shown(settings=replace(SETTINGS, fair_submitters=False)).section("next").words
    assert "by priority, then by id" in plain


def test_estimate_of_a_next_row_is_a_range_from_now_on() -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    estimate = Estimate(now + SOON, now + SOMETIME, 40)
    (row,) = shown(next=[replace(ROW, estimate=estimate)]).section("next").rows()
    told = row["Start"].the("time")
    assert row["Start"].words == "in 5 d 12 h to 8 d 3 h"
    assert row["Start"].moments == [estimate.earliest]
    assert row["Start"].attributes["data-value"] == str(estimate.earliest.timestamp())
    exact = [f"{one:%Y-%m-%d %H:%M:%S} UTC" for one in (estimate.earliest, estimate.latest)]
    assert told.attributes["title"] == f"{exact[0]} to {exact[1]}, by 40 starts"


def test_last_hour_is_drawn_with_what_is_usual() -> None:
    part = shown().section("hour")
    drawn = {one.attributes["aria-label"]: one.the("path").attributes["d"] for one in part.every("svg")}
    assert drawn == {
        "starts a minute in the last hour": "M0 100V100h1V50h1V0h1V100z",
        "ends a minute in the last hour": "M0 100V100h1V50h1V0h1V100z",
        "oldest wait, minute by minute in the last hour": "M0 100V100h1V25h1V0h1V100z",
    }
    assert [one.words for one in part.every("span")] == ["Starts", "Ends", "Oldest wait", "usually 1 min 30 s"]
    assert part.moments == [ago(1800)]
    assert "from the next count on" in shown(hour=None, counted_since=None).section("hour").words


def test_times_and_last_ends_are_told() -> None:
    part = shown().section("times")
    assert [[cell.words for cell in row.values()] for row in part.rows()] == [
        ["due to first launch", "1.5 s", "2.5 s", "3.5 s", "900"], ["last run", "1 min", "1 min 1 s", "1 h", "1,000"]
    ]  # fmt: skip
    assert "Of the 1,000 rows that ended last" in part.words
    none = QueueTimes(1000, Percentiles(0), Percentiles(0))
    assert "No row that ran has ended here" in shown(times=none).section("times").words
    (row,) = shown().section("ended").rows()
    assert [cell.words for name, cell in row.items() if name != "Ended"] == ["66", "✕ failed", "2 h 3 min", "n7"]
    assert (row["Ended"].moments, row["Task"].links) == ([ago(40)], ["/proxy/tasks/66"])
    assert (row["Run time"].attributes["data-value"], row["Ended"].attributes["data-value"]) == (
        "7384", str(ago(40).timestamp())
    )  # fmt: skip


def test_row_that_never_ran_has_no_run_time_and_no_node() -> None:
    (row,) = shown(ended=[replace(ENDED, run_seconds=None, node=None)]).section("ended").rows()
    assert (row["Run time"].words, row["Node"].words) == ("—", "—")


@pytest.mark.parametrize("reason", HoldReason)
def test_each_reason_is_told_with_its_meaning(reason: HoldReason) -> None:
    page = shown(waiting=5, reasons={reason: 5}, next=[replace(ROW, reason=reason)])
    (row,), (next_row,) = page.section("reasons").rows(), page.section("next").rows()
    assert [cell.words for cell in row.values()] == [reason, "5", ADVICE[reason].meaning]
    shown_by = [one.every("span")[0].attributes for one in (row["Reason"], next_row["Why it waits"])]
    assert shown_by == [{"class": f"reason turn-{ADVICE[reason].whose_turn}", "title": ADVICE[reason].meaning}] * 2
    assert next_row["Why it waits"].words.startswith(reason)


ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"}
SHOWN = "".join(ESCAPES.get(one, one) for one in HOSTILE)
ASKED = ShapeDemand(asks=HOSTILE, pods=2**62, has_grown=True, since=ago(60), answer=HOSTILE)
FITS = FitSummary(
    cpu=HOSTILE, memory="1Gi", pods=2**62, nodes=1, most=(NodeFit(HOSTILE, 2),),
    answers=(NodeGroup(1, HOSTILE, (HOSTILE,)),),
)  # fmt: skip


def queue(**changes: Any) -> str:
    return PAGES.write("queue.html", replace(EMPTY, **changes), ApiRequest("default"), "/api/v1/queues/default")


def nodes(page: NodesPage, query: Mapping[str, str] = {}) -> str:
    return PAGES.write("nodes.html", page, ApiRequest("", query), "/api/v1/nodes")


def check_text(page: str) -> None:
    """Every hostile text is escaped, and is isolated where it is content."""
    assert "<script>alert" not in page
    page = re.sub(r'href="[^"]*"', "", page)
    assert page.count("w" * 300) == page.count(SHOWN)
    in_attributes = len(re.findall(r'(?:value|title)="[^"]*' + "w" * 300, page))
    isolated = page.count(f"<bdi>{SHOWN}</bdi>")
    assert isolated + in_attributes == page.count(SHOWN)
    assert isolated > 0


def test_hostile_text_of_a_queue_stays_text() -> None:
    behind = QueueHold(HoldReason.QUEUE_CAP, HOSTILE, None)
    settings, reasons = replace(page_facts.SETTINGS, note=HOSTILE), {HoldReason.NO_ROOM_NOW: 1}
    lists = {"next": (page_facts.ROW,), "ended": (page_facts.ENDED,)}
    page = queue(settings=settings, waiting=1, reasons=reasons, behind=behind, **lists)
    check_text(page)
    assert page.count(SHOWN) == 6
    assert f'<a href="/proxy/tasks/{2**62}">{2**62}</a>' in page


def test_hostile_text_of_nodes_stays_text() -> None:
    page = nodes(replace(NODES, fits=FITS, demand=[ASKED]), {"cpu": HOSTILE})
    check_text(page)
    assert page.count(SHOWN) >= 8
    assert f"{2**62:,}" in page


@pytest.mark.parametrize(
    ("page", "query", "told"),
    [
        (replace(NODES, demand=[replace(ASKED, asks="cpu 1", answer="")]), {}, "nothing yet"),
        (replace(NODES, nodes=(), total=0), {}, "The cluster has no node"),
        (replace(NODES, nodes=()), {"after": "z"}, "No node has a name behind this one"),
        (replace(NODES, warm_ends=None), {}, "the database cannot be read"),
        (replace(NODES, reservations_are_watched=False), {}, "NodeReservations are not watched"),
        (replace(NODES, next_after="n9"), {"cpu": "1"}, 'href="/proxy/nodes?cpu=1&amp;after=n9"'),
        (NODES, {"after": "a", "cpu": "1"}, 'href="/proxy/nodes?cpu=1"'),
    ],
)
def test_page_of_nodes_says_what_to_do_next(page: NodesPage, query: Mapping[str, str], told: str) -> None:
    assert told in nodes(page, query)


def test_caches_of_a_node_are_those_that_its_keeper_tells() -> None:
    def cell(is_whole: bool) -> str:
        told = replace(NODE, caches=KeptCaches(1200, 3 * 2**30, is_whole))
        return read(nodes(replace(NODES, nodes=(told,)), {})).the("main").rows()[-1]["Warm keys"].words

    assert (cell(is_whole=True), cell(is_whole=False)) == ("1,200 3 GiB", "1,200+ 3 GiB")


PLAIN = QueueSettings(1, None, None, None, None, None, None, None, False, None)
CAPS = ("max_jobs", "max_jobs_per_submitter", "max_pending", "max_waiting_per_submitter")


def settings(own: dict[str, Any], **defaults: Any) -> QueueSettings:
    return effective_settings(replace(PLAIN, **own), replace(PLAIN, **defaults), 1, NOW)


def test_queue_inherits_nothing_where_nothing_is_set() -> None:
    found = settings({})
    assert (found.max_jobs, found.submit_role, found.paused_until, found.inherited) == (None, None, None, [])
    assert found.max_pending == 1, "the setting of the dispatcher"


def test_caps_that_are_null_are_those_of_the_defaults() -> None:
    found = settings({"max_jobs": 3}, **dict.fromkeys(CAPS, 7))
    assert [getattr(found, name) for name in CAPS] == [3, 7, 7, 7]
    assert found.inherited == sorted(CAPS[1:])


def test_a_cap_of_nothing_is_a_cap() -> None:
    assert settings({"max_jobs": 0}, max_jobs=7).max_jobs == 0


def test_weight_note_owner_and_fairness_are_never_inherited() -> None:
    found = settings({}, weight=5, note="defaults", owner_role="ops", fair_submitters=True)
    assert (found.weight, found.note, found.owner_role, found.fair_submitters) == (1, None, None, False)
    assert found.inherited == []


def test_submit_role_is_the_queues_own_then_its_owner_then_the_default() -> None:
    assert settings({"submit_role": "a", "owner_role": "b"}, submit_role="c").submit_role == "a"
    owned = settings({"owner_role": "b"}, submit_role="c")
    assert (owned.submit_role, owned.inherited) == ("b", [])
    plain = settings({}, submit_role="c")
    assert (plain.submit_role, plain.inherited) == ("c", ["submit_role"])


def test_the_longer_pause_holds() -> None:
    assert settings({"paused_until": later(60)}, paused_until=later(30)).inherited == []
    found = settings({"paused_until": later(30)}, paused_until=later(60))
    assert (found.paused_until, found.inherited) == (later(60), ["paused_until"])


def test_a_pause_that_is_over_is_none() -> None:
    assert settings({"paused_until": ago(1)}, paused_until=NOW).paused_until is None


def test_unknown_queue_is_told_the_nearest_name_and_what_to_do() -> None:
    known = ["default", "nightly", "builds"]
    assert no_queue("nigtly", known) == (
        "there is no queue 'nigtly' in dispatch.queues: the nearest name is 'nightly'; "
        "/api/v1/queues lists all, and an operator declares a queue by an INSERT"
    )
    assert "nearest" not in no_queue("zzzzzz", known)
    assert len(no_queue("x" * 9000, known)) < 250


def test_nearest_name_is_found_among_a_thousand_that_are_alike() -> None:
    known = [f"team-{number}-{'abcdefgh-' * 6}z" for number in range(1000)]
    for wrong in (known[500][1:], known[500][:-1], known[500].replace("-a", "-xa", 1)):
        assert f"the nearest name is {known[500]!r}" in no_queue(wrong, known)


def test_queue_of_the_defaults_says_that_it_has_no_rows() -> None:
    assert "holds the defaults" in no_queue("*", ["default"])
