"""The page of one row: what is told of it, and which commands there are to copy."""

from typing import Any

import pytest

from dispatcher.model.history import LaunchFacts, RowMarks
from dispatcher.model.jobs import Manifest
from dispatcher.model.reasons import Turn
from dispatcher.model.tasks import Status, Task
from dispatcher.views.explanation import Explanation
from dispatcher.views.row_page import RowPage, RowReadings, row_page
from tests.rig.builders import NOW, a_manifest, a_running_task, a_task, ago

SECRET = "planted-secret-77aa"
MARKS = RowMarks("july", {"month": "7"}, 0.5, "half", "no disk")


def a_page(task: Task, *launches: LaunchFacts, preview: Manifest | str = "none") -> RowPage:
    found = Explanation(
        task=task.id, status=task.status, queue=task.queue, attempt=task.attempt, reason=None, message="", since=None,
        as_of=NOW, whose_turn=Turn.NOBODY, next_step="", position=None, position_of=None, before={}, launches=launches,
    )  # fmt: skip
    return row_page(task, RowReadings(NOW, MARKS, found, preview), 3, "jobs")


def a_launch(attempt: int = 1, launch: int = 1, **facts: Any) -> LaunchFacts:
    return LaunchFacts(attempt=attempt, launch=launch, started_at=ago(9), **facts)


def texts(page: RowPage) -> list[str]:
    return [one.text for one in page.commands]


def test_row_is_told_with_its_marks_and_its_limits() -> None:
    page = a_page(a_task(attempt=2, launch=1, failures=1), a_launch(1, 3), a_launch(2, 2))
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
    page = a_page(a_running_task(), a_launch(1, 1), a_launch(1, 2, job="dispatcher-42-x-1r2", logs=logs))
    assert texts(page)[:3] == [
        logs,
        "kubectl describe -n jobs job dispatcher-42-x-1r2",
        "kubectl get -n jobs job,pod -l dispatcher.internal/task-id=42",
    ]
    assert "dispatcher explain 42" in texts(page)


def test_job_without_a_log_is_described_alone() -> None:
    assert texts(a_page(a_task(), a_launch(job="dispatcher-42-x-1")))[0].startswith("kubectl describe ")


def test_name_of_a_pod_that_a_container_reported_is_in_no_command() -> None:
    page = a_page(a_task(), a_launch(pod="x; rm -rf ~", node="$(reboot)"))
    assert not [text for text in texts(page) if "rm" in text or "reboot" in text or "kubectl logs" in text]


@pytest.mark.parametrize(
    ("status", "may_cancel"), [(Status.WAITING, True), (Status.PROCESSING, True), (Status.FAILED, False)]
)
def test_row_that_has_ended_cannot_be_cancelled(status: Status, may_cancel: bool) -> None:
    found = texts(a_page(a_task(status=status, finished_at=None if may_cancel else NOW)))
    assert ("SELECT dispatch.task_cancel(42);" in found) is may_cancel
    assert "SELECT dispatch.task_retry(42);" in found
