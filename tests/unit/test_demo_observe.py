"""The demo observes servers that may be away at any moment, in any state."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import asyncpg
import pytest

from dispatcher.kube.client import KubeClient
from dispatcher.model.history import ListedRow
from dispatcher.model.reasons import ReasonInWords
from dispatcher.model.verdicts import HoldReason
from dispatcher.views.rows import RowsPage
from dispatcher.views.status import QueueStatus
from dispatcher_demo.observe import (
    CycleReport,
    DemoRow,
    Judged,
    Observer,
    QueueLoad,
    RowState,
    is_fresh,
    judged_on,
    load_of,
    with_cause,
)


class Broken:
    """A connection whose server was killed during an answer. The driver takes it for open."""

    is_terminated = False

    def is_closed(self) -> bool:
        return False

    async def fetch(self, *_: Any, **__: Any) -> list[Any]:
        raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")

    def terminate(self) -> None:
        self.is_terminated = True


async def test_connection_that_broke_during_an_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    observer, broken = Observer("postgresql://nowhere", cast("KubeClient", None), "x", frozenset()), Broken()

    async def nothing(_: list[str]) -> Any:
        return None

    monkeypatch.setattr(observer, "_told", nothing)
    monkeypatch.setattr(observer, "_nodes", nothing)
    monkeypatch.setattr(observer, "_connection", broken)
    view = await observer.observe()
    assert (view.rows, view.queues, view.away) == ([], None, ["Postgres"])
    assert broken.is_terminated
    await observer.close()


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FULL = ReasonInWords(HoldReason.NO_ROOM_NOW, "the nodes are full")
NO_REPORT = ReasonInWords(HoldReason.EXITED_WITHOUT_REPORT, "its container ended")


def queue(**reasons: int) -> QueueStatus:
    return QueueStatus(
        queue="q", waiting=sum(reasons.values()), reasons={HoldReason(name): n for name, n in reasons.items()},
        oldest_wait_seconds=None, in_flight=2, max_jobs=4, weight=1, share=0, paused_until=None, paused_since=None,
        note=None, starts_per_minute=0, ends_per_minute=0,
    )  # fmt: skip


def waiting(number: int, cause: ReasonInWords | None = None) -> list[DemoRow]:
    return [DemoRow(id_, "q", "waiting", cause=cause) for id_ in range(number)]


def test_reasons_of_rows_count_more_than_an_older_count() -> None:
    load = load_of(queue(JobCap=14), [*waiting(2, FULL), DemoRow(9, "q", "succeeded")])
    assert load == QueueLoad("q", {HoldReason.NO_ROOM_NOW: 2}, 2, 4)


def test_count_of_the_dispatcher_is_made_to_fit_the_rows() -> None:
    rows = waiting(300)
    assert load_of(queue(InLine=280, JobCap=10), rows).reasons == {HoldReason.IN_LINE: 290, HoldReason.JOB_CAP: 10}
    assert load_of(queue(InLine=310, JobCap=10), rows).reasons == {HoldReason.IN_LINE: 290, HoldReason.JOB_CAP: 10}


@pytest.mark.parametrize("counted", [{}, {"InLine": 3, "JobCap": 2}])
def test_rows_are_not_judged_yet_if_no_count_fits_them(counted: dict[str, int]) -> None:
    assert load_of(queue(**counted), waiting(1)) == QueueLoad("q", {}, 2, 4, unjudged=1)


def test_reason_is_told_only_of_the_row_that_was_judged() -> None:
    told = CycleReport(cast("Any", None), {1: Judged("waiting", 2, FULL), 2: Judged("waiting", 1, NO_REPORT)})
    rows = [
        DemoRow(1, "q", "waiting", 2),
        DemoRow(1, "q", "waiting", 3),
        DemoRow(1, "q", "processing", 2),
        DemoRow(7, "q", "waiting"),
    ]
    assert [with_cause(row, told, frozenset()).cause for row in rows] == [FULL, None, None, None]
    ended = DemoRow(2, "q", "waiting")
    assert with_cause(ended, told, frozenset()).state is RowState.NEEDS_YOU
    assert with_cause(ended, told, frozenset({NO_REPORT.reason})).state is RowState.WAITING


def test_row_that_came_after_the_cycle_is_not_judged_yet() -> None:
    rows = [
        listed(1, NOW, HoldReason.IN_LINE),
        listed(2, NOW + timedelta(seconds=1), HoldReason.IN_LINE),
        listed(3, NOW, None),
    ]
    assert [id_ for id_, _ in judged_on(RowsPage(NOW + timedelta(seconds=9), NOW, rows, None))] == [1]


def listed(id_: int, created_at: datetime, reason: HoldReason | None) -> ListedRow:
    return ListedRow(
        task=id_, queue="q", status="waiting", attempt=1, priority=1, template="t", submitted_by="s",
        created_at=created_at, run_at=None, started_at=None, finished_at=None, reason=reason, message=None, error=None,
    )  # fmt: skip


def test_cycle_of_some_seconds_ago_tells_no_reason() -> None:
    assert [is_fresh(NOW, NOW + timedelta(seconds=age)) for age in (-1, 0, 5, 6)] == [True, True, True, False]
