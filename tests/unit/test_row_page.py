"""The page of one row: what is told of it, its commands, its texts, and its time as parts."""

from typing import Any

import pytest
import yaml

from dispatcher.model.history import LaunchFacts, RowMarks
from dispatcher.model.jobs import Manifest
from dispatcher.model.reasons import Turn
from dispatcher.model.tasks import Status, Task
from dispatcher.model.verdicts import HoldReason
from dispatcher.views.explanation import Explanation
from dispatcher.views.row_page import RowPage, RowReadings, Span, TimeKind, row_page, timeline
from dispatcher.views.words import as_yaml, beginning, drawn, end
from tests.rig.builders import CREATED, NOW, a_manifest, a_running_task, a_task, ago, later

SECRET = "planted-secret-77aa"
MARKS = RowMarks("july", {"month": "7"}, 0.5, "half", "no disk")


def a_page(task: Task, *launches: LaunchFacts, preview: Manifest | str = "none") -> RowPage:
    found = Explanation(
        task=task.id, status=task.status, queue=task.queue, attempt=task.attempt, reason=None, message="", since=None,
        as_of=NOW, whose_turn=Turn.NOBODY, next_step="", position=None, position_of=None, before={}, launches=launches,
    )  # fmt: skip
    return row_page(task, RowReadings(NOW, MARKS, found, preview), 3, "jobs")


def a_run(attempt: int = 1, launch: int = 1, **facts: Any) -> LaunchFacts:
    return LaunchFacts(attempt=attempt, launch=launch, started_at=ago(9), **facts)


def texts(page: RowPage) -> list[str]:
    return [one.text for one in page.commands]


def test_row_is_told_with_its_marks_and_its_limits() -> None:
    page = a_page(a_task(attempt=2, launch=1, failures=1), a_run(1, 3), a_run(2, 2))
    assert (page.task, page.as_of, page.failures, page.max_failures) == (42, NOW, 1, 3)
    assert (page.launches_used, page.max_launches) == (2, 3), "launches of another attempt do not count"
    assert (page.batch, page.labels, page.progress, page.note, page.error) == (
        "july",
        {"month": "7"},
        0.5,
        "half",
        "no disk",
    )
    assert a_page(a_task(launch=1)).launches_used == 1


def test_job_is_shown_without_values_or_why_there_is_none() -> None:
    job = a_manifest(container={"env": [{"name": "PASSWORD", "value": SECRET}]})
    page = a_page(a_task(), preview=job)
    assert (SECRET in str(page), "PASSWORD" in str(page.preview.job), page.preview.fault) == (False, True, "")
    page = a_page(a_task(), preview="InvalidTemplate: it has two containers")
    assert (page.preview.job, page.preview.fault) == (None, "InvalidTemplate: it has two containers")


def test_commands_name_the_newest_job_that_exists() -> None:
    logs = "kubectl logs -n jobs dispatcher-42-x-1r2-abcde"
    page = a_page(a_running_task(), a_run(1, 1), a_run(1, 2, job="dispatcher-42-x-1r2", logs=logs))
    assert texts(page)[:3] == [
        logs,
        "kubectl describe -n jobs job dispatcher-42-x-1r2",
        "kubectl get -n jobs job,pod -l dispatcher.internal/task-id=42",
    ]
    assert "dispatcher explain 42" in texts(page)


def test_job_without_a_log_is_described_alone() -> None:
    assert texts(a_page(a_task(), a_run(job="dispatcher-42-x-1")))[0].startswith("kubectl describe ")


def test_name_of_a_pod_that_a_container_reported_is_in_no_command() -> None:
    page = a_page(a_task(), a_run(pod="x; rm -rf ~", node="$(reboot)"))
    assert not [text for text in texts(page) if "rm" in text or "reboot" in text or "kubectl logs" in text]


@pytest.mark.parametrize(
    ("status", "may_cancel"), [(Status.WAITING, True), (Status.PROCESSING, True), (Status.FAILED, False)]
)
def test_row_that_has_ended_cannot_be_cancelled(status: Status, may_cancel: bool) -> None:
    found = texts(a_page(a_task(status=status, finished_at=None if may_cancel else NOW)))
    assert ("SELECT dispatch.task_cancel(42);" in found) is may_cancel
    assert "SELECT dispatch.task_retry(42);" in found


def a_span(step: TimeKind, seconds: float) -> Span:
    return Span(step=step, began=CREATED, ended=None, seconds=seconds)


def test_parts_of_a_bar_are_as_long_as_their_times() -> None:
    spans = [a_span(TimeKind.WAITING, 30), a_span(TimeKind.RUNNING, 10)]
    assert list(drawn(spans)) == [(TimeKind.WAITING, 0.0, 75.0), (TimeKind.RUNNING, 75.0, 25.0)]


def test_bar_of_a_row_without_any_time_is_empty() -> None:
    assert list(drawn([a_span(TimeKind.WAITING, 0)])) == [(TimeKind.WAITING, 0.0, 0.0)]
    assert list(drawn([])) == []


def test_job_is_written_in_ascii_that_means_the_same() -> None:
    shared = {"cpu": "1"}
    job = {"args": ["\u202etxt.exe", "\U0001f600", "a: b\n"], "requests": shared, "limits": shared}
    text = as_yaml(job)
    assert (text.isascii(), yaml.safe_load(text)) == (True, job)
    assert ("&" in text, "\\u202E" in text) == (False, True)


def test_long_text_is_cut_with_the_number_of_characters_that_are_left_out() -> None:
    assert beginning("x" * 5 + "y" * 3000, 5) == "xxxxx\n… 3,000 more characters, in the JSON"
    assert end("y" * 3000 + "x" * 5, 5) == "3,000 more characters, in the JSON …\nxxxxx"
    assert beginning("short", 5) == end("short", 5) == beginning("short", 100) == "short"


@pytest.mark.parametrize(
    ("character", "kept"), [("x", 20), ("<", 4), ("&", 4), ("é", 10), ("\U0001f600", 5), ("\ud800", 20)]
)
def test_characters_count_as_they_are_on_the_page(character: str, kept: int) -> None:
    text = character * 100
    assert beginning(text, 20).count(character) == end(text, 20).count(character) == kept


WAITING, NOT_DUE, STARTING, RUNNING = TimeKind.WAITING, TimeKind.NOT_DUE, TimeKind.STARTING, TimeKind.RUNNING


def a_launch(attempt: int = 1, launch: int = 1, **facts: Any) -> LaunchFacts:
    return LaunchFacts(attempt=attempt, launch=launch, **facts)


def told(task: Task, *launches: LaunchFacts, **facts: Any) -> list[Span]:
    reason = facts.get("reason")
    found = Explanation(
        task=task.id, status=task.status, queue=task.queue, attempt=task.attempt, reason=reason, message="",
        since=facts.get("since"), as_of=NOW, whose_turn=Turn.NOBODY, next_step="", position=None, position_of=None,
        before={}, launches=launches,
    )  # fmt: skip
    return timeline(task, found, NOW)


def lengths(spans: list[Span]) -> list[tuple[TimeKind, float]]:
    return [(span.step, span.seconds) for span in spans]


def test_row_that_was_never_launched_waits_since_it_was_created() -> None:
    (span,) = told(a_task(), reason=HoldReason.IN_LINE, since=CREATED)
    assert (span.step, span.began, span.ended, span.seconds) == (WAITING, CREATED, None, 3600)
    assert (span.reason, span.attempt, span.launch) == (HoldReason.IN_LINE, None, None)


def test_wait_is_cut_where_the_reason_of_now_began() -> None:
    before, now = told(a_task(), reason=HoldReason.NO_ROOM_NOW, since=ago(60))
    assert (before.reason, before.seconds, before.ended) == (None, 3540, ago(60))
    assert (now.reason, now.seconds, now.ended) == (HoldReason.NO_ROOM_NOW, 60, None)


@pytest.mark.parametrize("since", [None, CREATED, later(5)])
def test_wait_is_whole_if_the_reason_has_no_begin_within_it(since: Any) -> None:
    (span,) = told(a_task(), reason=HoldReason.NO_ROOM_NOW, since=since)
    assert (span.seconds, span.reason) == (3600, HoldReason.NO_ROOM_NOW)


def test_row_is_not_due_before_its_time() -> None:
    (span,) = told(a_task(run_at=later(60)), reason=HoldReason.NOT_DUE, since=ago(9))
    assert (span.step, span.ended, span.reason) == (NOT_DUE, None, HoldReason.NOT_DUE)
    assert lengths(told(a_task(run_at=ago(600)))) == [(NOT_DUE, 3000), (WAITING, 600)]


def test_launch_that_runs_has_a_wait_and_a_start_before_it() -> None:
    launch = a_launch(created_at=ago(300), started_at=ago(200))
    spans = told(a_running_task(), launch)
    assert lengths(spans) == [(WAITING, 3300), (STARTING, 100), (RUNNING, 200)]
    assert [(span.attempt, span.launch, span.outcome) for span in spans[1:]] == [(1, 1, None)] * 2
    assert spans[2].ended is None


def test_launch_whose_job_is_gone_runs_after_the_wait() -> None:
    assert lengths(told(a_running_task(), a_launch(started_at=ago(200)))) == [(WAITING, 3400), (RUNNING, 200)]


def test_launch_that_has_not_started_is_starting() -> None:
    (_, start) = told(a_task(), a_launch(created_at=ago(30)), reason=HoldReason.LAUNCHED)
    assert (start.step, start.seconds, start.ended) == (STARTING, 30, None)


def test_launch_that_never_started_has_its_outcome_at_its_start() -> None:
    ended = a_launch(created_at=ago(90), ended_at=ago(30), outcome="unstarted")
    spans = told(a_task(), ended, reason=HoldReason.LAUNCHES_EXHAUSTED, since=ago(30))
    assert [(span.step, span.seconds, span.outcome) for span in spans] == [
        (WAITING, 3510, None), (STARTING, 60, "unstarted"), (WAITING, 30, None),
    ]  # fmt: skip


def test_attempts_follow_each_other_with_the_pause_of_the_retry() -> None:
    first = a_launch(1, started_at=ago(1000), ended_at=ago(900), outcome="retry")
    second = a_launch(2, created_at=ago(800), started_at=ago(790), ended_at=ago(700), outcome="succeeded")
    task = a_task(status=Status.SUCCEEDED, attempt=2, run_at=ago(850), finished_at=ago(700))
    spans = told(task, first, second)
    assert lengths(spans) == [
        (WAITING, 2600), (RUNNING, 100), (NOT_DUE, 50), (WAITING, 50), (STARTING, 10), (RUNNING, 90),
    ]  # fmt: skip
    assert [span.outcome for span in spans] == [None, "retry", None, None, None, "succeeded"]
    assert all(span.ended is not None for span in spans)


def test_retry_that_waits_for_its_time_is_not_due() -> None:
    first = a_launch(1, started_at=ago(1000), ended_at=ago(900), outcome="retry")
    spans = told(a_task(attempt=2, run_at=later(30)), first, reason=HoldReason.NOT_DUE, since=CREATED)
    assert lengths(spans)[-1] == (NOT_DUE, 900)


def test_row_cancelled_while_it_waited_has_no_reason_any_more() -> None:
    (span,) = told(a_task(status=Status.CANCELLED, finished_at=ago(600)))
    assert (span.step, span.seconds, span.ended, span.reason) == (WAITING, 3000, ago(600), None)


def test_end_that_nobody_wrote_down_is_where_the_next_launch_begins() -> None:
    lost, next_one = a_launch(1, 1, started_at=ago(500)), a_launch(1, 2, created_at=ago(100), started_at=ago(90))
    assert lengths(told(a_running_task(launch=2), lost, next_one)) == [
        (WAITING, 3100), (RUNNING, 400), (STARTING, 10), (RUNNING, 90),
    ]  # fmt: skip


def test_run_that_a_retry_fenced_off_has_no_known_length() -> None:
    fenced = a_launch(1, 1, started_at=ago(500))
    assert lengths(told(a_task(attempt=2), fenced)) == [(WAITING, 3100), (WAITING, 500)]


def test_row_tells_its_own_run_if_no_launch_is_remembered() -> None:
    task = a_task(status=Status.FAILED, launch=1, started_at=ago(500), finished_at=ago(400))
    assert lengths(told(task)) == [(WAITING, 3100), (RUNNING, 100)]
    assert told(task, a_launch())[1].launch == 1, "a launch without any time tells nothing"


def test_clocks_that_differ_give_no_negative_length() -> None:
    """Jobs have the API server's time, rows the database's."""
    early = a_launch(created_at=ago(3700), started_at=ago(3550), ended_at=later(5))
    spans = told(a_task(attempt=2), early)
    assert all(span.seconds >= 0 for span in spans)
    assert spans[-1].ended is None
