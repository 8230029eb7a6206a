"""What the janitor brings over: changes alone, in bounded calls."""

from collections.abc import Mapping

import msgspec
import pytest

from dispatcher.janitor.tables import GONE_A_CALL, ROWS_A_CALL, ReasonReport, ToldRow, after, plan_report, rows_of
from dispatcher.views.published import PublishedReasons, reasons_of
from dispatcher.views.status import InstallationStatus
from tests.rig.builders import NOW, ago, later
from tests.unit.explaining import a_cycle, a_status, told


def a_row(task: int, reason: str = "Poison", message: str = "m") -> ToldRow:
    return ToldRow(task, 1, reason, NOW, message)


def rows(*tasks: int, reason: str = "Poison") -> dict[int, ToldRow]:
    return {task: a_row(task, reason) for task in tasks}


def status(seconds: float = 0) -> InstallationStatus:
    return msgspec.structs.replace(a_status(a_cycle()), as_of=later(seconds))


def test_rows_of_the_config_map_have_their_messages() -> None:
    cycle = a_cycle({1: told("Poison", "a"), 2: told("Poison", "b"), 3: told("Poison", "a")})
    assert {id_: row.message for id_, row in rows_of(reasons_of(cycle)).items()} == {
        1: "the API server refuses its Job: a", 2: "the API server refuses its Job: b",
        3: "the API server refuses its Job: a",
    }  # fmt: skip


@pytest.mark.parametrize("at", [-1, 1, 10**9])
def test_row_that_somebody_else_wrote_may_have_no_message(at: int) -> None:
    forged = PublishedReasons(NOW, 0, [(1, 1, "Poison", NOW, at)], ["m"], {})
    assert rows_of(forged)[1].message == ""


@pytest.mark.parametrize(
    ("known", "wanted", "changed", "gone"),
    [
        (rows(), rows(1, 2), [1, 2], []),
        (rows(1, 2), rows(2), [], [1]),
        (rows(1), rows(1, reason="Backoff"), [1], []),
        (rows(1), {1: ToldRow(1, 1, "Poison", ago(5), "m")}, [1], []),
    ],
)
def test_changed_rows_and_gone_rows_are_told(
    known: Mapping[int, ToldRow], wanted: Mapping[int, ToldRow], changed: list[int], gone: list[int]
) -> None:
    report = plan_report(known, wanted, status(), NOW)
    assert report is not None
    assert ([row.task for row in report.rows], report.gone) == (changed, gone)
    assert report.queues is None, "the status has not changed"
    assert after(known, report) == wanted


def test_no_call_is_made_if_no_reason_has_changed() -> None:
    assert plan_report(rows(1), rows(1), status(), NOW) is None


def test_status_whose_time_went_back_is_told() -> None:
    """Somebody else wrote a time of the future, or the database's clock was set back."""
    report = plan_report({}, {}, status(-5), NOW)
    assert report is not None
    assert report.as_of == later(-5)


def test_queues_that_the_config_map_has_no_room_for_are_told() -> None:
    cut = msgspec.structs.replace(status(), queues=[], queues_left_out=7)
    report = plan_report({}, {}, cut, None)
    assert report is not None
    assert (report.queues, report.queues_left_out) == ([], 7)


def test_new_status_is_told_with_its_queues() -> None:
    for before in (None, ago(10)):
        report = plan_report({}, {}, status(), before)
        assert report is not None
        assert (report.as_of, report.rows, report.gone) == (NOW, [], [])
        assert [queue.queue for queue in report.queues or ()] == ["queue-0000"]


def test_many_changes_take_several_calls() -> None:
    known: Mapping[int, ToldRow] = rows(*range(5000, 7500))
    wanted, calls = rows(*range(500)), 0
    while (report := plan_report(known, wanted, status(), NOW)) is not None:
        assert len(report.rows) <= ROWS_A_CALL
        assert len(report.gone) <= GONE_A_CALL
        known, calls = after(known, report), calls + 1
    assert (known, calls) == (wanted, 3)


def test_report_is_small_json() -> None:
    report = ReasonReport(NOW, rows=[a_row(7)])
    assert msgspec.json.decode(msgspec.json.encode(report)) == {
        "as_of": "2026-03-14T12:00:00Z", "rows": [[7, 1, "Poison", "2026-03-14T12:00:00Z", "m"]],
    }  # fmt: skip
