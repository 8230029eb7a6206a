"""What a body of `dispatcher.task` says, and what its end means."""

import json
import math
from fractions import Fraction
from typing import Any

import pytest

from dispatcher.container.contract import LAST_STATUS
from dispatcher.container.row import Codes
from dispatcher.task.body import Failed, TaskReport, as_note, as_progress, as_result, judge

RESULT = TaskReport("succeeded", result="17")


class WithoutWords(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raised(fault: BaseException) -> BaseException:
    """The fault with its traceback."""
    with pytest.raises(type(fault)) as caught:
        raise fault
    return caught.value


def judged(
    fault: BaseException | None, row_says: str = "", stopped: bool = False, finished: TaskReport | None = None
) -> TaskReport | None:
    return judge(fault, row_says, is_stopped=stopped, finished=finished)


def outcome(report: TaskReport | None) -> str | None:
    return report.outcome if report else None


ENDS: list[tuple[BaseException | None, str, bool, TaskReport | None, str | None]] = [
    (None, "", False, None, "succeeded"),
    (None, "", False, RESULT, "succeeded"),
    (None, "", True, None, None),
    (None, "", True, RESULT, "succeeded"),
    (SystemExit(0), "", True, None, None),
    (SystemExit(0), "", True, RESULT, "succeeded"),
    (None, "cancel", False, None, "failed"),
    (None, "cancel", True, RESULT, "succeeded"),
    (None, "lost", False, RESULT, None),
    (ValueError(), "", False, RESULT, "retry"),
    (ValueError(), "", True, RESULT, None),
    (ValueError(), "cancel", True, RESULT, "failed"),
    (ValueError(), "lost", False, None, None),
    (Failed("no"), "", False, None, "failed"),
    (Failed("no"), "", True, None, None),
    (KeyboardInterrupt(), "", False, None, None),
    (KeyboardInterrupt(), "cancel", False, None, "failed"),
    (SystemExit(), "", False, RESULT, "succeeded"),
    (SystemExit(0), "cancel", False, None, "failed"),
    (SystemExit([]), "", False, None, "retry"),
    (SystemExit(65), "", False, RESULT, "failed"),
    (SystemExit(65), "", True, RESULT, None),
    (SystemExit(65), "lost", False, RESULT, None),
    (SystemExit("65"), "", False, None, "retry"),
    (SystemExit(143), "", True, None, None),
    (SystemExit(143), "cancel", True, RESULT, "failed"),
]


@pytest.mark.parametrize(("fault", "row_says", "stopped", "finished", "expected"), ENDS)
def test_end_of_a_body_has_its_outcome(
    fault: BaseException | None, row_says: str, stopped: bool, finished: TaskReport | None, expected: str | None
) -> None:
    assert outcome(judged(fault, row_says, stopped, finished)) == expected


def test_exit_status_means_the_same_as_after_exec() -> None:
    statuses = range(1, LAST_STATUS + 1)
    assert [outcome(judged(SystemExit(status))) for status in statuses] == [Codes().outcome(one) for one in statuses]


def test_success_has_the_result_and_a_cancelled_body_no_error() -> None:
    assert judged(None, finished=RESULT) == RESULT
    assert judged(None) == TaskReport("succeeded")
    assert judged(ValueError("words"), "cancel", finished=RESULT) == TaskReport("failed")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Failed("no bucket"), "no bucket"),
        (Failed(), "Failed"),
        (Failed("a\0b\ud800"), "ab?"),
        (Failed("é" * 5000), "é" * 4096),
        (BaseExceptionGroup("", [OSError(), KeyboardInterrupt(), Failed("inner")]), "inner"),
        (ExceptionGroup("", [OSError(), ExceptionGroup("", [ValueError(), Failed("deep")])]), "deep"),
    ],
)
def test_failed_ends_the_row_with_its_words(fault: BaseException, words: str) -> None:
    assert judged(fault) == TaskReport("failed", words)


@pytest.mark.parametrize("fault", [OSError("oh\0 no"), ExceptionGroup("some", [OSError("oh no")]), WithoutWords()])
def test_other_fault_is_tried_again_with_its_traceback(fault: BaseException) -> None:
    report = judged(raised(fault))
    assert report is not None
    assert report.outcome == "retry"
    assert type(fault).__name__ in (report.error or "")
    assert "in raised" in (report.error or "")
    assert "\0" not in (report.error or "")


def test_end_of_a_long_traceback_is_kept() -> None:
    report = judged(raised(OSError("é" * 5000 + "last words")))
    assert report is not None
    assert report.error is not None
    assert report.error.endswith("élast words\n")
    assert 4090 < len(report.error.encode()) <= 4096


@pytest.mark.parametrize("done", [0, 1, 0.5, True, Fraction(1, 2)])
def test_number_from_0_to_1_is_progress(done: Any) -> None:
    assert as_progress(done) == float(done)


def test_tiny_progress_is_a_number_that_the_column_holds() -> None:
    assert as_progress(1e-300) == 0


@pytest.mark.parametrize("done", [-0.1, 1.1, math.nan, math.inf, "0.4", None, [], 1j])
def test_other_progress_is_refused_with_its_value(done: Any) -> None:
    with pytest.raises(ValueError, match=r"progress is .*: a number from 0 to 1"):
        as_progress(done)


@pytest.mark.parametrize(
    ("said", "note"),
    [
        ("reading month 5", "reading month 5"),
        ("a\r\n\tb\x1b[31m", "a b [31m"),
        ("\0a\u202eb\x9f\ud800c", " a b c"),
        ("x" * 300, "x" * 200),
        ("\n" * 999 + "abc", " a"),
        (5, "5"),
        ("", ""),
    ],
)
def test_note_is_one_line_of_200_characters(said: object, note: str) -> None:
    assert as_note(said) == note


@pytest.mark.parametrize("result", [17, None, "ü", [1, 2.5, {"a": None}], "x" * 65534, "\\u0000", "\\\\u0000", {1: 2}])
def test_result_is_json(result: Any) -> None:
    assert json.loads(as_result(result)) == ({"1": 2} if result == {1: 2} else result)


@pytest.mark.parametrize(
    "result", [math.nan, [math.inf], "\ud800", "a\0b", "\\\0", {"\0": 1}, "x" * 65535, "ü" * 32768]
)
def test_result_that_postgres_does_not_store_is_refused(result: Any) -> None:
    with pytest.raises(ValueError, match=r"result|JSON compliant|surrogates"):
        as_result(result)


@pytest.mark.parametrize("result", [object(), {1}, b"bytes", {(1, 2): 3}])
def test_result_that_is_no_json_is_refused(result: Any) -> None:
    with pytest.raises(TypeError, match=r"JSON|keys"):
        as_result(result)
