"""The time of a row, as parts: waits, starts and runs."""

from typing import Any

import pytest

from dispatcher.model.history import LaunchFacts
from dispatcher.model.reasons import Turn
from dispatcher.model.tasks import Status, Task
from dispatcher.model.verdicts import HoldReason
from dispatcher.views.explanation import Explanation
from dispatcher.views.row_page import Span, TimeKind, timeline
from tests.rig.builders import CREATED, NOW, a_running_task, a_task, ago, later

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
