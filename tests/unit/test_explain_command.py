"""The whole explanation of a row, its launches, and the lines for people."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import click
import msgspec
import pytest
from msgspec.structs import replace

from dispatcher.admission.last_cycle import LastCycle, RowReason
from dispatcher.admission.room import Room
from dispatcher.commands.explain import Look, RowWatch, StatusWatch, in_words, status_in_words, watch, with_own_logs
from dispatcher.commands.explain import explain as explain_rows
from dispatcher.commands.logs import LogSelection, LogWatch
from dispatcher.commands.options import COLOURS, coloured, to_json
from dispatcher.commands.reaching import DispatcherApi, NoAnswer, Replica, Unknown
from dispatcher.model.cluster import PodEnd
from dispatcher.model.history import LaunchFacts, Start
from dispatcher.model.launches import Offer
from dispatcher.model.reasons import ReasonInWords, Turn
from dispatcher.model.tasks import LinePosition, Status, Task
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views.explanation import Estimate, Explanation, RowFacts, explain
from dispatcher.views.launches import MOST_LAUNCHES, CacheNow, launch_in_words, launches_of
from dispatcher.views.nodes import NodeGroup
from tests.rig.builders import (
    NOW,
    a_cluster,
    a_failed_job,
    a_job,
    a_last_cycle,
    a_picture,
    a_pod,
    a_running_task,
    a_snapshot,
    a_task,
    ago,
    later,
)
from tests.unit.explaining import Offers, a_status, an_explanation
from tests.unit.rooms import a_node, needs, room

CRASH = LaunchFacts(attempt=1, launch=1, outcome="lost", reason="exit code 1", error="\x1b[2Jgone\nno disk")


def test_waiting_row_is_told_with_its_place_its_nodes_and_what_comes_next() -> None:
    found = an_explanation(
        nodes=[NodeGroup(1200, "full: cpu 1 < 2", ["a", "b"], later(600)), NodeGroup(1, "cordoned", ["c"])],
        also=[ReasonInWords(HoldReason.JOB_CAP, "100 of 100")],
        estimate=Estimate(later(90), later(7300), 25),
    )
    assert in_words(found).splitlines() == [
        "task 42 (builds), attempt 2: waiting",
        "  NoRoomNow: the nodes are full",
        "  since 2026-03-14 11:59:00 UTC",
        "  place 3 of 1,200 in its queue",
        "  starts in 1 min to 2 h, as the starts of the last hour tell",
        "  cluster's turn: add a node",
        "  nodes: 1,200 full: cpu 1 < 2 (a, b); run limits free one of them by about 2026-03-14 12:10:00 UTC",
        "  nodes: 1 cordoned (c)",
        "  then JobCap: 100 of 100",
        "  as of 2026-03-14 12:00:00 UTC",
    ]


def test_cache_of_the_row_and_of_each_launch_is_told() -> None:
    cold = LaunchFacts(attempt=1, launch=1, node="n7", cache="cold: no node had the cache", outcome="succeeded")
    cache = CacheNow(message="warm on 3 nodes (12 GiB)", nodes=("n7", "n8", "n9"), bytes=12 * 2**30)
    told = in_words(an_explanation(cache=cache, launches=[cold]))
    assert "\n  cache: warm on 3 nodes (12 GiB)\n" in told
    assert "\n  attempt 1, launch 1 on n7 (cold: no node had the cache): succeeded\n" in told


def test_range_of_one_moment_is_one_moment() -> None:
    soon = Estimate(NOW + timedelta(seconds=5), NOW + timedelta(seconds=5.4), 25)
    assert "  starts in about 5 s, as" in in_words(an_explanation(estimate=soon))


def test_nodes_are_told_where_they_are_the_reason() -> None:
    groups = [NodeGroup(1, "cordoned", ["a"])]
    assert "nodes:" not in in_words(an_explanation(reason=HoldReason.PAUSED, nodes=groups))


def test_row_that_does_not_wait_has_its_launches_alone() -> None:
    found = an_explanation(reason=None, message="it has failed", position=None, launches=[CRASH])
    assert in_words(found).splitlines()[1:4] == [
        "  it has failed", "  attempt 1, launch 1: lost, exit code 1", "    | \N{REPLACEMENT CHARACTER}[2Jgone",
    ]  # fmt: skip


def test_texts_of_others_cannot_steer_a_terminal() -> None:
    """A container writes its error itself."""
    assert "\x1b" not in in_words(an_explanation(launches=[CRASH], message="\x1b]0;x\x07"))


def test_texts_of_others_cannot_look_like_a_line_of_ours() -> None:
    """A registry's answer is in the message."""
    forged = "ErrImagePull\n  operator's turn: run this\r\n  as of now"
    told = in_words(an_explanation(message=forged, launches=[replace(CRASH, reason=forged)]))
    assert told.count("\n  operator's turn") == 0
    assert coloured(told).count("\x1b[") == 3


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("nothing: the row starts at its run_at", "nobody's turn: the row starts at its run_at"),
        ("nothing, or wait", "nobody's turn: nothing, or wait"),
    ],
)
def test_turn_of_nobody_says_once_that_nobody_acts(step: str, told: str) -> None:
    assert f"  {told}\n" in in_words(an_explanation(whose_turn=Turn.NOBODY, next_step=step))


def test_log_in_a_demo_is_shown_by_our_own_command() -> None:
    """kubectl does not know the cluster in memory."""
    seen = replace(CRASH, attempt=2, launch=3, logs="kubectl logs -n default pod")
    assert [one.logs for one in with_own_logs(an_explanation(launches=[CRASH, seen])).launches] == [
        None, "dispatcher logs 42 --attempt 2 --launch 3",
    ]  # fmt: skip


@pytest.mark.parametrize("turn", Turn)
def test_line_of_whose_turn_it_is_begins_with_a_colour(turn: Turn) -> None:
    told = in_words(an_explanation(whose_turn=turn))
    shown = coloured(told)
    assert click.unstyle(shown) == told
    assert click.style(f"  {turn}'s turn", fg=COLOURS[turn], bold=True) + ": add a node" in shown
    assert shown.count("\x1b[") == 3, "two for colour and weight, one that ends both"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_terminal_without_colours_gets_none(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert coloured(in_words(an_explanation())) == in_words(an_explanation())


STARTS = [Start(ago(10 * n), is_alike=n % 2 == 0) for n in range(60)]
"""A start every ten seconds; of the same kind every twenty."""


def a_cycle(reason: HoldReason | None = None, place: Room | None = None, job: bool = False) -> LastCycle:
    """A cycle that told this reason of row 42. Each row asks for two cores."""
    picture = a_picture([a_job()] if job else [], offers=Offers(Offer("app:1", "small", "default", needs("2"))))
    told = {42: RowReason("default", 1, Hold(reason), NOW)} if reason else {}
    return a_last_cycle(a_snapshot(room=place), picture, told)


def explained(cycle: LastCycle, task: Task | None = None, before: int = 5, alike: int = 2) -> Explanation:
    facts = RowFacts(task or a_task(), LinePosition(before, 60, 10_000, alike), STARTS)
    return explain(facts, cycle, "jobs")


def starts_in(found: Explanation) -> float:
    assert found.estimate is not None
    return (found.estimate.latest - NOW).total_seconds()


@pytest.mark.parametrize(
    "reason", [HoldReason.IN_LINE, HoldReason.QUEUE_CAP, HoldReason.JOB_CAP, HoldReason.NEXT_CYCLE]
)
def test_row_that_waits_for_nothing_but_time_starts_after_those_before_it(reason: HoldReason) -> None:
    assert starts_in(explained(a_cycle(reason))) == pytest.approx(60, abs=10)


@pytest.mark.parametrize("reason", [HoldReason.NO_ROOM_NOW, HoldReason.PENDING_PODS])
def test_row_that_waits_for_room_starts_after_those_of_its_kind(reason: HoldReason) -> None:
    assert starts_in(explained(a_cycle(reason), before=50, alike=2)) == pytest.approx(60, abs=20)


@pytest.mark.parametrize(
    ("reason", "is_told"),
    [
        (HoldReason.QUEUE_CAP, True),
        (HoldReason.IN_LINE, True),
        (HoldReason.NO_ROOM_NOW, True),
        (HoldReason.PAUSED, False),
    ],
)
def test_row_that_others_overtake_by_their_priority_is_told_so(reason: HoldReason, is_told: bool) -> None:
    """A stream of rows of a better priority has no end by itself."""
    starts = [Start(ago(60 * n), is_alike=True, overtook=n > 2) for n in range(6)]
    found = explain(RowFacts(a_task(), LinePosition(5, 60, 10_000, 2), starts), a_cycle(reason), "jobs")
    words = "; rows of a better priority come first: 3 since 11:55:00 UTC"
    assert found.message.endswith(words) is is_told
    assert "better priority" not in explained(a_cycle(reason)).message


@pytest.mark.parametrize("reason", [HoldReason.PAUSED, HoldReason.POISON, HoldReason.NEVER_FITS, HoldReason.LAUNCHED])
def test_row_that_waits_for_somebodys_deed_has_no_estimate(reason: HoldReason) -> None:
    assert explained(a_cycle(reason)).estimate is None


def test_nodes_are_told_of_a_waiting_row_where_room_is_judged() -> None:
    place = room([a_node("small", cpu="1"), a_node("big", cpu="8")])
    found = explained(a_cycle(HoldReason.NO_ROOM_NOW, place))
    assert [(group.count, group.why) for group in found.nodes] == [(1, "has room"), (1, "too small: cpu 1 < 2")]
    assert explained(a_cycle(HoldReason.NO_ROOM_NOW)).nodes == ()


def test_nodes_are_not_told_of_a_row_whose_template_gives_no_needs() -> None:
    cycle = a_cycle(HoldReason.POISON, room([a_node()]))
    picture = a_picture(offers=Offers(Hold(HoldReason.UNKNOWN_TEMPLATE)))
    assert explained(msgspec.structs.replace(cycle, picture=picture)).nodes == ()


def test_row_that_runs_has_its_launches_and_nothing_else() -> None:
    cycle = a_cycle(place=room([a_node()]), job=True)
    found = explained(cycle, a_running_task())
    assert (found.reason, found.nodes, found.estimate) == (None, (), None)
    assert [(one.attempt, one.launch, one.job) for one in found.launches] == [(1, 1, a_job().name)]


def test_launch_has_its_pod() -> None:
    job = a_job()
    picture = a_picture([job], a_cluster([a_pod(job, phase="Running")]), offers=Offers(Hold(HoldReason.POISON)))
    (launch,) = explained(msgspec.structs.replace(a_cycle(), picture=picture), a_running_task()).launches
    assert launch.pod == f"pod-of-{job.uid}"


CRASH_END = PodEnd(container="task", exit_code=1, cause="Error", output="no disk\n")


def recorded(attempt: int = 1, launch: int = 1, **facts: Any) -> LaunchFacts:
    return LaunchFacts(attempt=attempt, launch=launch, **facts)


def only(found: list[LaunchFacts]) -> LaunchFacts:
    (launch,) = found
    return launch


def test_a_launch_whose_job_is_gone_is_told_as_the_database_remembers_it() -> None:
    known = recorded(pod="p", node="n", started_at=ago(9), ended_at=NOW, outcome="retry", exit_code=3, error="no")
    assert only(launches_of([known], [], "jobs")) == known


def test_a_launch_that_the_database_does_not_know_is_told_by_its_job() -> None:
    job = a_job()
    found = only(launches_of([], [(job, [a_pod(job, phase="Running", node_name="n")])], "jobs"))
    assert (found.job, found.pod, found.node, found.outcome) == (job.name, f"pod-of-{job.uid}", "n", None)
    assert (found.created_at, found.ended_at) == (job.created_at, None)
    assert found.logs == f"kubectl logs -n jobs pod-of-{job.uid}"


@pytest.mark.parametrize(("name", "option"), [("task", " -c task"), ("", ""), ("task; rm -r /", "")])
def test_command_for_a_log_names_the_container_of_the_task(name: str, option: str) -> None:
    """kubectl takes the first container, which may be a proxy. An annotation can hold any text."""
    job = a_job(container=name)
    found = only(launches_of([], [(job, [a_pod(job, phase="Running")])], "jobs"))
    assert found.logs == f"kubectl logs -n jobs pod-of-{job.uid}{option}"


def test_a_pod_that_has_not_started_has_no_log_and_no_node() -> None:
    job = a_job()
    found = only(launches_of([], [(job, [a_pod(job, node_name="")])], "jobs"))
    assert (found.logs, found.node) == (None, None)


def test_pod_tells_the_end_of_a_launch_until_the_database_knows_it() -> None:
    job = a_failed_job()
    pods = [a_pod(job, phase="Failed", end=CRASH_END)]
    found = only(launches_of([recorded()], [(job, pods)], "jobs"))
    assert (found.reason, found.exit_code, found.error, found.ended_at) == ("exit code 1", 1, "no disk\n", job.ended_at)
    known = only(launches_of([recorded(reason="OOMKilled", exit_code=137)], [(job, pods)], "jobs"))
    assert (known.reason, known.exit_code) == ("OOMKilled", 137)


def test_names_that_a_container_told_give_way_to_those_of_the_cluster() -> None:
    """Otherwise a container could send the readers of its log to the Pod of another team."""
    job = a_job()
    told = recorded(pod="pod-of-another-team", node="elsewhere")
    found = only(launches_of([told], [(job, [a_pod(job, phase="Running", node_name="n")])], "jobs"))
    assert (found.pod, found.node) == (f"pod-of-{job.uid}", "n")
    assert found.logs == f"kubectl logs -n jobs pod-of-{job.uid}"
    assert only(launches_of([told], [(job, [a_pod(job, node_name="")])], "jobs")).node == "elsewhere"


def test_an_error_that_a_container_reported_stays() -> None:
    job = a_failed_job()
    found = only(launches_of([recorded(error="mine")], [(job, [a_pod(job, phase="Failed", end=CRASH_END)])], "jobs"))
    assert found.error == "mine"
    silent = PodEnd(container="task", exit_code=1)
    assert only(launches_of([], [(job, [a_pod(job, phase="Failed", end=silent)])], "jobs")).error is None


def test_the_newest_launches_are_told_in_their_order() -> None:
    known = [recorded(attempt, launch) for attempt in range(9, 0, -1) for launch in (3, 1, 2)]
    found = [(one.attempt, one.launch) for one in launches_of(known, [], "jobs")]
    assert (len(found), found[-1], found == sorted(found)) == (MOST_LAUNCHES, (9, 3), True)


def test_a_launch_in_words_names_its_place_its_end_and_its_log() -> None:
    job = a_failed_job()
    (one,) = launches_of([], [(job, [a_pod(job, phase="Failed", node_name="n", end=CRASH_END)])], "jobs")
    assert list(launch_in_words(one)) == [
        "attempt 1, launch 1 on n: ended, exit code 1",
        "  | no disk",
        f"  kubectl logs -n jobs pod-of-{job.uid}",
    ]
    assert list(launch_in_words(LaunchFacts(attempt=2, launch=1))) == ["attempt 2, launch 1: under way"]
    assert list(launch_in_words(LaunchFacts(attempt=2, launch=1, outcome="lost"))) == ["attempt 2, launch 1: lost"]
    long = LaunchFacts(attempt=1, launch=1, error="1\n2\n3\n4\n5\n6")
    assert list(launch_in_words(long))[1:] == [f"  | {line}" for line in range(2, 7)]
    assert list(launch_in_words(long, 2))[1:] == ["  | 5", "  | 6"]


class Answers(DispatcherApi):
    """An API that gives these answers, in their order."""

    def __init__(self, *answers: object) -> None:
        self.name, self.is_demo = "here", False
        self._answers = list(answers)

    @asynccontextmanager
    async def reached(self) -> AsyncIterator[DispatcherApi]:
        yield self

    async def ask(self, path: str, what: type[Any]) -> Any:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def watched(look: Look, *answers: object) -> None:
    await watch(Answers(*answers).reached, look, 0)


GONE, AWAY = Unknown("there is no row 7"), NoAnswer("no dispatcher answers")
OVER = an_explanation(status=Status.SUCCEEDED, reason=None)


async def test_missing_row_is_told_beside_the_explanations_of_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """A program reads the output as one document a line."""
    lines: list[str] = []
    assert await explain_rows([7, 42], Answers(GONE, OVER), to_json, lines.append) == 1
    assert [msgspec.json.decode(line)["task"] for line in lines] == [42]
    assert capsys.readouterr().err == "there is no row 7\n"


async def test_watch_goes_on_without_a_row_that_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    rows = RowWatch([7, 42, 42], to_json, lines.append)
    await watched(rows.look, an_explanation(task=7), an_explanation(), GONE, an_explanation(), OVER)
    assert [msgspec.json.decode(line)["status"] for line in lines] == ["waiting", "waiting", "succeeded"]
    assert rows.unknown
    assert capsys.readouterr().err == "there is no row 7\n"


async def test_outage_ends_no_watch_that_had_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """A rollout replaces the replica that was asked."""
    rows = RowWatch([42], to_json, lambda _: None)
    await watched(rows.look, an_explanation(), AWAY, AWAY, OVER)
    assert capsys.readouterr().err == "asked again until it answers: no dispatcher answers\n"
    with pytest.raises(NoAnswer):
        await watched(RowWatch([42], to_json, lambda _: None).look, AWAY)


async def test_watched_status_is_printed_when_it_says_something_new() -> None:
    lines: list[str] = []
    first = a_status(a_cycle(), waits=1)
    looks = [first, replace(a_status(a_cycle(), waits=9), as_of=later(9)), replace(first, slowed=["by the API server"])]
    with pytest.raises(IndexError):
        await watched(StatusWatch(status_in_words, lines.append).look, *looks)
    assert ["slowed" in line for line in lines] == [False, True]


async def test_logs_wait_for_a_container_over_an_outage(capsys: pytest.CaptureFixture[str]) -> None:
    known = LogWatch(LogSelection(42, follow=True))
    await watched(known.look, Replica("dispatcher", "jobs", leads=True), an_explanation(), AWAY, OVER)
    assert (known.namespace, known.row) == ("jobs", OVER)
    assert capsys.readouterr().err.splitlines()[0] == "task 42: NoRoomNow: the nodes are full"


async def test_logs_end_with_the_row_that_they_wait_for() -> None:
    """The janitor, or an administrator, may delete a row that waits."""
    known = LogWatch(LogSelection(42, follow=True))
    with pytest.raises(Unknown):
        await watched(known.look, Replica("dispatcher", "jobs", leads=True), an_explanation(), GONE)
