"""The page of one row shows everything that its model has, each value beside its name."""

from typing import Any

import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from dispatcher.model.history import LaunchFacts
from dispatcher.model.reasons import ADVICE, ReasonInWords, Turn
from dispatcher.model.tasks import Status
from dispatcher.model.verdicts import HoldReason
from dispatcher.views.answers import ApiRequest
from dispatcher.views.explanation import Estimate, Explanation
from dispatcher.views.launches import CacheNow
from dispatcher.views.nodes import NodeGroup
from dispatcher.views.row_page import CopyCommand, PreviewedJob, RowPage, Span, TimeKind
from tests.rig.builders import NOW, a_manifest, ago, later
from tests.unit.page_facts import PAGES
from tests.unit.page_tree import Element, read

WHY = Explanation(
    task=42, status=Status.WAITING, queue="nightly", attempt=2, reason=HoldReason.NO_ROOM_NOW,
    message="the nodes are full: of cpu", since=ago(600), as_of=NOW, whose_turn=Turn.CLUSTER, next_step="add a node",
    position=1234, position_of=5678, before={HoldReason.QUEUE_CAP: 3, HoldReason.NO_ROOM_NOW: 1200},
    nodes=[NodeGroup(1500, "full: cpu 1 < 2", ["n1", "n2"], later(300)), NodeGroup(2, "cordoned", ["n3"])],
    also=[ReasonInWords(HoldReason.JOB_CAP, "500 of 500 Jobs"), ReasonInWords(HoldReason.QUOTA_EXCEEDED,
    "quota q is used up")],
    estimate=Estimate(later(60), later(120), 1040),
    cache=CacheNow(message="warm on 2 nodes (12 GiB)", nodes=("n7", "n9"), bytes=12 * 2**30),
    launches=[
        LaunchFacts(attempt=1, launch=1, started_at=ago(900), ended_at=ago(800), outcome="lost", error="the same"),
        LaunchFacts(
            attempt=2, launch=3, job="dispatcher-42", pod="dispatcher-42-x", node="n7", created_at=ago(700),
            started_at=ago(690), ended_at=ago(610), outcome="retry", exit_code=137, reason="OOMKilled",
            error="read 5 files\nout of memory",
        ),
    ],
)  # fmt: skip
FULL = RowPage(
    as_of=NOW, task=42, queue="nightly", status=Status.WAITING, template="maps", submitted_by="team_a", priority=-7,
    batch="april", labels={"month": "4", "kind": "map"}, progress=0.42, note="half of it", attempt=2, failures=1,
    max_failures=3, launches_used=3, max_launches=5, timeout_seconds=7200, created_at=ago(3600), run_at=ago(3000),
    started_at=ago(690), heartbeat_at=ago(620), finished_at=ago(5), cancel_requested_at=ago(9), error="the same",
    explain=WHY, preview=PreviewedJob(a_manifest()),
    commands=[CopyCommand("its log", "dispatcher logs 42"), CopyCommand("cancel it",
    "SELECT dispatch.task_cancel(42);")],
    timeline=[
        Span(step=TimeKind.STARTING, began=ago(700), ended=ago(690), seconds=10, attempt=2, launch=3),
        Span(step=TimeKind.RUNNING, began=ago(690), ended=ago(610), seconds=80, attempt=2, launch=3, outcome="retry"),
        Span(step=TimeKind.WAITING, began=ago(610), ended=None, seconds=610, reason=HoldReason.NO_ROOM_NOW),
    ],
)  # fmt: skip


def html(page: RowPage) -> str:
    return PAGES.write("task.html", page, ApiRequest("42"), "/api/v1/tasks/42")


def shown(**changes: Any) -> Element:
    return read(html(replace(FULL, **changes)))


def why(**changes: Any) -> Element:
    return shown(explain=replace(WHY, **changes)).section("why")


def test_reason_is_told_first_with_whose_turn_it_is_and_the_next_step() -> None:
    page, part = shown(), why()
    assert page.the("h1").words == "Task 42 ○ waiting"
    assert part.the("h2").words == "Why it waits"
    assert part.the("p").words == "NoRoomNow the nodes are full: of cpu"
    facts = part.facts()
    assert (facts["Whose turn"].words, facts["Next step"].words) == ("cluster", "add a node")
    assert facts["Whose turn"].attributes["class"] == "turn-cluster"
    assert facts["Since"].moments == [ago(600)]


def test_parts_of_the_page_have_their_headings() -> None:
    page = shown()
    assert page.the("title").words == "Task 42 · dispatcher · dispatcher"
    headings = "Why it waits", "The row", "Timeline", "Launches", "Commands", "Job of its next launch"
    assert [one.words for one in page.the("main").every("h2")] == [*headings]
    assert {one.attributes["aria-labelledby"] for one in page.every("section")} <= page.ids()


def test_place_in_the_line_and_the_estimate_are_told() -> None:
    facts = why().facts()
    assert facts["Place in its queue"].words == "1,234 of 5,678"
    assert facts["Starts probably"].moments == [later(60), later(120)]
    assert "by 1,040 starts of the last hour" in facts["Starts probably"].words


def test_reasons_that_would_hold_the_row_next_are_told_in_order() -> None:
    told = why().facts()["Would hold it next"]
    assert told.words == "JobCap 500 of 500 Jobs QuotaExceeded quota q is used up"
    assert [one.attributes["title"] for one in told.every("span")] == [ADVICE[one.reason].meaning for one in WHY.also]
    assert len(told.every("br")) == 1


def test_reasons_of_the_other_rows_of_its_queue_lead_to_them() -> None:
    told = why().facts()["Rows of its queue"]
    assert told.words == "QueueCap 3 NoRoomNow 1,200"
    assert told.links == [f"/proxy/tasks?queue=nightly&reason={reason}" for reason in WHY.before]


def test_nodes_are_told_with_the_answer_that_each_gives() -> None:
    first, second = why().rows()
    assert [cell.words for cell in first.values()][:3] == ["1,500", "full: cpu 1 < 2", "n1 n2"]
    assert first["Free at the latest"].moments == [later(300)]
    assert first["Free at the latest"].attributes["data-value"] == str(later(300).timestamp())
    assert [cell.words for cell in second.values()] == ["2", "cordoned", "n3", "—"]
    assert [*first][:3] == ["Nodes", "Why its Pod cannot go there", "For example"]


def test_row_that_does_not_wait_has_no_place_no_estimate_and_no_nodes() -> None:
    part = why(
        reason=None, message="its container runs", position=None, position_of=None, estimate=None, also=(), before={},
        nodes=(), since=None,
    )  # fmt: skip
    assert (part.the("h2").words, part.the("p").words) == ("What it does", "its container runs")
    assert (part.facts(), part.every("table")) == ({}, [])


TOLD = {
    "Queue": "nightly", "Template": "maps", "Submitter": "team_a", "Priority": "-7 (lower comes first)",
    "Batch": "april", "Labels": "month=4 kind=map", "Progress": "42%", "Note": "half of it",
    "Attempt": "2, launch 3 (launches without a start: at most 5)", "Failures": "1 of 3", "Run limit": "2 h",
    "Cache key": "set; warm on 2 nodes (12 GiB): n7, n9",
}  # fmt: skip
TIMES = {
    "Created": FULL.created_at, "Not before": FULL.run_at, "Started": FULL.started_at,
    "Last heartbeat": FULL.heartbeat_at, "Cancel requested": FULL.cancel_requested_at, "Ended": FULL.finished_at,
}  # fmt: skip


def test_row_is_told_with_every_value_and_every_time() -> None:
    facts = shown().section("row").facts()
    assert {name: facts[name].words for name in TOLD} == TOLD
    assert {name: facts[name].moments for name in TIMES} == {name: [moment] for name, moment in TIMES.items()}
    assert facts.keys() == TOLD.keys() | TIMES.keys()
    assert facts["Progress"].the("progress").attributes == {"max": "1", "value": "0.42", "aria-label": "progress"}
    assert (facts["Queue"].links, facts["Submitter"].links) == (
        ["/proxy/queues/nightly"],
        ["/proxy/tasks?submitted_by=team_a"],
    )
    assert facts["Created"].the("time").attributes["title"] == "2026-03-14 11:00:00 UTC"


def test_row_without_marks_tells_none() -> None:
    facts = shown(
        batch=None, labels={}, progress=None, note=None, run_at=None, started_at=None, heartbeat_at=None,
        cancel_requested_at=None, finished_at=None, timeout_seconds=None, launches_used=0, error=None,
    ).section("row").facts()  # fmt: skip
    assert [*facts] == [
        "Queue", "Template", "Submitter", "Priority", "Attempt", "Failures", "Run limit", "Created", "Cache key"
    ]  # fmt: skip
    assert facts["Attempt"].words == "2, not launched (launches without a start: at most 5)"
    assert facts["Run limit"].words == "that of the installation or the template"


@pytest.mark.parametrize(
    ("cache", "told"),
    [
        (UNSET, "none"),
        (CacheNow(message="no node has it", nodes=(), bytes=None), "set; no node has it"),
        (CacheNow(message="warm on 1 node", nodes=("n7",), bytes=None), "set; warm on 1 node: n7"),
        (CacheNow(message="warm", nodes=tuple("abcdefg"), bytes=5), "set; warm: a, b, c, d, e and 2 more"),
    ],
)
def test_cache_key_tells_its_warm_nodes(cache: CacheNow | UnsetType, told: str) -> None:
    assert shown(explain=replace(WHY, cache=cache)).section("row").facts()["Cache key"].words == told


def test_error_is_shown_and_its_end_is_told_where_it_is_long() -> None:
    part = shown().section("row")
    assert (part.the("h3").words, part.the("pre", id="error").words) == ("Error", "the same")
    long = shown(error="x" * 30_000).section("row").the("pre").words
    assert long == "x" * 24_000 + " … 6,000 more characters, in the JSON"


def test_timeline_tells_each_step_with_its_length_and_its_end() -> None:
    part = shown().section("timeline")
    steps = part.rows()
    assert [[cell.words for name, cell in row.items() if name != "Began"] for row in steps] == [
        ["starting attempt 2, launch 3", "10 s", ""],
        ["running attempt 2, launch 3", "1 min 20 s", "retry"],
        ["waiting: NoRoomNow", "10 min 10 s", "goes on"],
    ]
    assert [row["Began"].moments for row in steps] == [[span.began] for span in FULL.timeline]
    bar = part.every("svg")[0].every("rect")
    assert [one.attributes["class"] for one in bar] == ["step-starting", "step-running", "step-waiting"]
    drawn = [(one.attributes["x"], one.attributes["width"]) for one in bar]
    assert drawn == [("0.0", "1.43"), ("1.43", "11.43"), ("12.86", "87.14")]
    assert "Why it waited before is not kept" in part.words
    assert [row["Step"].the("rect").attributes["class"] for row in steps] == [one.attributes["class"] for one in bar]


def test_launch_tells_its_exit_code_its_node_and_the_end_of_its_output() -> None:
    newest, oldest = shown().section("launches").every("article")
    assert newest.the("h3").words == "Attempt 2, launch 3: retry"
    facts = newest.facts()
    told = {"Job": "dispatcher-42", "Pod": "dispatcher-42-x", "Node": "n7", "Exit code": "137", "Reason": "OOMKilled"}
    assert {name: facts[name].words for name in told} == told
    times = {"Job created": ago(700), "Started": ago(690), "Ended": ago(610)}
    assert {name: facts[name].moments for name in times} == {name: [moment] for name, moment in times.items()}
    assert newest.the("p").words == "Its error, or the end of its output"
    assert newest.the("pre").words == "read 5 files out of memory"
    assert oldest.facts().keys() == {"Started", "Ended"}, "nothing else is known"
    assert (oldest.the("h3").words, oldest.every("pre")) == ("Attempt 1, launch 1: lost", []), "the row tells its error"


def test_exit_code_of_nothing_wrong_is_told() -> None:
    one = LaunchFacts(attempt=1, launch=1, job="j", ended_at=ago(9), exit_code=0)
    (launch,) = shown(explain=replace(WHY, launches=[one])).section("launches").every("article")
    assert (launch.the("h3").words, launch.facts()["Exit code"].words) == ("Attempt 1, launch 1: ended", "0")


def test_output_of_a_launch_is_cut_at_its_beginning() -> None:
    one = LaunchFacts(attempt=1, launch=1, job="j", error="a" * 1000 + "b" * 1000)
    (launch,) = shown(explain=replace(WHY, launches=[one])).section("launches").every("article")
    assert launch.the("h3").words == "Attempt 1, launch 1: under way"
    assert launch.the("pre").words == "500 more characters, in the JSON … " + "a" * 500 + "b" * 1000


@pytest.mark.parametrize(("count", "told"), [(10, ""), (13, "3 older launches are in the JSON.")])
def test_only_the_newest_launches_are_shown(count: int, told: str) -> None:
    many = [LaunchFacts(attempt=1, launch=number + 1, started_at=NOW) for number in range(count)]
    part = shown(explain=replace(WHY, launches=many)).section("launches")
    assert part.every("article")[0].the("h3").words == f"Attempt 1, launch {count}: under way"
    assert (len(part.every("article")), " ".join(one.words for one in part.every("p"))) == (10, told)


def test_row_that_was_not_launched_says_so() -> None:
    part = shown(explain=replace(WHY, launches=())).section("launches")
    assert part.the("p").words == "It has not been launched, or nobody remembers it."


def test_commands_are_shown_and_can_be_copied() -> None:
    part = shown().section("commands")
    assert [one.words for one in part.every("p")] == ["its log", "cancel it"]
    assert {one.attributes["id"]: one.words for one in part.every("pre")} == {
        "command-1": "dispatcher logs 42", "command-2": "SELECT dispatch.task_cancel(42);"
    }  # fmt: skip
    assert [one.attributes["data-copy"] for one in part.every("button")] == ["command-1", "command-2"]
    described = {one.attributes["aria-describedby"] for one in part.every("button")}
    assert described == {one.attributes["id"] for one in part.every("p")} == {"what-1", "what-2"}


def test_job_of_the_next_launch_is_shown_or_why_there_is_none() -> None:
    part = shown().section("job")
    assert "kind: Job" in part.the("pre", id="manifest").words
    assert part.the("button").attributes["data-copy"] == "manifest"
    assert "dispatcher render 42 shows it. Values of env are hidden here." in part.words
    part = shown(preview=PreviewedJob(None, "InvalidTemplate: two containers")).section("job")
    assert part.the("p").words == "There is none: InvalidTemplate: two containers"


HOSTILE_NAME = "A</pre><script>alert(1)</script>\u202eB\u2066\"'&lt;{{ 7 * 7 }}"


def test_hostile_name_of_env_in_the_job_is_text() -> None:
    """A template may allow rows to set env. A name is then what the row's submitter wrote."""
    job = a_manifest(container={"env": [{"name": HOSTILE_NAME, "value": "x"}]})
    harmless = shown(preview=PreviewedJob(a_manifest(container={"env": [{"name": "A", "value": "x"}]})))
    page = html(replace(FULL, preview=PreviewedJob(job)))
    manifest = read(page).section("job").the("pre").words
    assert "<script>alert(1)</script>" in manifest
    assert "&lt;{{ 7 * 7 }}" in manifest
    assert [one.name for one in read(page).every("script")] == [one.name for one in harmless.every("script")]
    assert "<script>alert" not in page
    assert [mark for mark in "\u202e\u2066" if mark in page] == [], "they would turn the lines that follow"
    assert r"\u202e" in manifest.lower()


@pytest.mark.parametrize("reason", HoldReason)
def test_each_reason_is_told_with_its_meaning_wherever_it_stands(reason: HoldReason) -> None:
    span = Span(step=TimeKind.WAITING, began=ago(5), ended=None, seconds=5, reason=reason)
    found = replace(WHY, reason=reason, also=[ReasonInWords(reason, "next")], before={reason: 3})
    page = shown(explain=found, timeline=[span])
    part = page.section("why")
    told = (part.the("p"), part.facts()["Would hold it next"], page.section("timeline").rows()[0]["Step"])
    assert [one.every("span")[0].words for one in told] == [reason] * 3
    meant = {"class": f"reason turn-{ADVICE[reason].whose_turn}", "title": ADVICE[reason].meaning}
    assert [one.every("span")[0].attributes for one in told] == [meant] * 3
    assert part.facts()["Rows of its queue"].words == f"{reason} 3"
