"""A task's code: its environment, its report and progress, what its end means, and how it learns that it is to stop."""

import json
import math
import os
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dispatcher.container.contract import LAST_STATUS, LaunchContract, WrongEnvironment, read_contract, read_statuses
from dispatcher.container.row import FILE_BYTES, Codes, Progress, parse_progress, read_progress
from dispatcher.model.tasks import LARGEST_ID
from dispatcher.task import run as here
from dispatcher.task import task
from dispatcher.task.body import (
    DatabaseFault,
    Failed,
    TaskReport,
    WrongResult,
    as_note,
    as_progress,
    as_result,
    judge,
)
from dispatcher.task.run import ContainerTask

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


@pytest.mark.parametrize(
    "result", [17, None, "ü", [1, 2.5, {"a": None}], "x" * 65534, [1] * 30000, "\\u0000", "\\\\u0000", {1: 2}]
)
def test_result_is_json(result: Any) -> None:
    assert json.loads(as_result(result)) == ({"1": 2} if result == {1: 2} else result)


@pytest.mark.parametrize(
    "result", [math.nan, [math.inf], "\ud800", "a\0b", "\\\0", {"\0": 1}, "x" * 65535, "ü" * 32768]
)
def test_result_that_postgres_does_not_store_is_refused(result: Any) -> None:
    with pytest.raises(ValueError, match=r"result|JSON compliant|surrogates"):
        as_result(result)


NESTED: list[Any] = []
for _ in range(100_000):
    NESTED = [NESTED]


@pytest.mark.parametrize("result", [object(), {1}, b"bytes", {(1, 2): 3}, datetime.now(UTC), math.nan, NESTED])
def test_result_that_is_no_json_ends_the_row(result: Any) -> None:
    """A second try would end the same way."""
    with pytest.raises(WrongResult, match="the result is no JSON") as caught:
        as_result(result)
    assert outcome(judged(caught.value)) == "failed"


KEY = "0b5c7a3e-0000-4000-8000-00000000000A"
GOOD = {
    "TASK_DATABASE_URL": "postgresql://task:hush@db/rows",
    "TASK_ID": "42",
    "TASK_START_KEY": KEY,
    "TASK_ATTEMPT": "1",
    "TASK_LAUNCH": "2",
    "TASK_TIMEOUT_SECONDS": "3600",
    "JOB_UID": "job",
    "NODE_NAME": "node",
    "POD_NAME": "pod",
}
BAD = {
    "TASK_DATABASE_URL": "host=db password=hush",
    "TASK_ID": "-1",
    "TASK_START_KEY": "hush",
    "TASK_ATTEMPT": "1.5",
    "TASK_LAUNCH": "0",
    "TASK_TIMEOUT_SECONDS": "",
    "TASK_TAKEN_BY": "7",
    "TASK_RESULT_FILE": "/tmp/hush",
}


@pytest.mark.parametrize("written", ["78-76", "3,78-76", "0-2", "250-256", "3,", "", "-3", "x"])
def test_span_that_names_no_status_is_refused_beside_others_too(written: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_statuses(written)


def test_contract_has_the_parameters_of_task_start_in_their_order() -> None:
    contract = read_contract(GOOD)
    assert contract.me == (42, KEY, 1, 2, "job", "node", "pod")
    assert (contract.database_url, contract.limit_seconds) == (GOOD["TASK_DATABASE_URL"], 3600)


def test_largest_id_of_a_row_is_read_whole() -> None:
    assert read_contract(GOOD | {"TASK_ID": str(LARGEST_ID)}).me[0] == LARGEST_ID


def test_node_may_be_unknown_and_the_url_short() -> None:
    env = GOOD | {"NODE_NAME": "", "TASK_DATABASE_URL": "postgres://db"}
    assert (read_contract(env).me[5], read_contract(env).database_url) == ("", "postgres://db")


def test_missing_variables_are_named_at_once() -> None:
    with pytest.raises(WrongEnvironment) as caught:
        read_contract({})
    assert [name for name in GOOD.keys() - {"NODE_NAME"} if name not in str(caught.value)] == []


def test_program_with_the_library_is_not_sent_to_a_command_that_cannot_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASK_ID", raising=False)
    with pytest.raises(WrongEnvironment, match=r"TASK_ID is not .* On your own machine call what the body calls"):
        task()
    with pytest.raises(WrongEnvironment, match="On your own machine use: dispatcher try"):
        read_contract({})


def test_wrong_variables_are_named_at_once_without_their_values() -> None:
    with pytest.raises(WrongEnvironment) as caught:
        read_contract(GOOD | BAD)
    assert [name for name in BAD if name not in str(caught.value)] == []
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), BAD.items())
def test_one_wrong_variable_is_a_fault(name: str, value: str) -> None:
    with pytest.raises(WrongEnvironment, match=name):
        read_contract(GOOD | {name: value})


def test_key_with_more_than_a_uuid_is_a_fault() -> None:
    with pytest.raises(WrongEnvironment, match="TASK_START_KEY is not a UUID"):
        read_contract(GOOD | {"TASK_START_KEY": KEY + "0"})


PASSES = ["", "08006", "53300", "53100", "57P03", "40001", "25006", "28P01", "42501", "42883", "55P03", "55000"]
"""No server, no login, no lock or no room: faults that pass or that a person mends."""


OF_A_TRIGGER = ["22001", "22004", "22012", "22026"]
"""Faults of values that no call of ours passes."""


@pytest.mark.parametrize("state", [None, *PASSES, *OF_A_TRIGGER, "54000", "P0001", "XX000"])
def test_fault_that_may_pass_is_asked_again(state: str | None) -> None:
    assert not DatabaseFault(OSError(), state).is_of_values


@pytest.mark.parametrize("state", ["22000", "22P02", "22P05", "22003", "22021", "22023", "54001", "DI007"])
def test_fault_of_the_values_is_final(state: str) -> None:
    assert DatabaseFault(OSError(), state).is_of_values


def test_fault_is_told_in_one_line() -> None:
    assert str(DatabaseFault(OSError("two\n  lines"), None)) == "OSError: two lines"


def test_package_is_marked_as_typed() -> None:
    assert (Path(__file__).parents[2] / "dispatcher" / "py.typed").is_file()


CONTRACT = LaunchContract("postgresql://nobody@127.0.0.1:1/x", 60, (1, "key", 1, 1, "uid", "node", "pod"))


@pytest.mark.parametrize("answer", ["cancel", "lost"])
def test_end_knows_that_the_row_says_stop_before_anybody_is_told(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """A SIGTERM between the words and the knowledge left a cancelled row without a report."""
    task: Any = ContainerTask(CONTRACT, heartbeat_seconds=0)
    task._token = "token"
    told = list[tuple[str, str, bool]]()

    def say(words: str) -> None:
        told.append((words, task._heard, task.cancelled))
        task._over.set()

    monkeypatch.setattr(here, "call", lambda *_: (answer,))
    monkeypatch.setattr(here, "say", say)
    task._beat()
    assert told == [(f"the row says {answer}", answer, False)]
    assert task.cancelled


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0.42 reading month 5\n", Progress(0.42, "reading month 5")),
        ("0.1 first\n0.2 second", Progress(0.2, "second")),
        ("1", Progress(1.0)),
        ("0\n\n", Progress(0.0)),
        ("reading", Progress(None, "reading")),
        ("2 of 7 months", Progress(None, "2 of 7 months")),
        ("nan x", Progress(None, "nan x")),
        ("-1", Progress(None, "-1")),
        ("", Progress()),
        (" \n", Progress()),
        ("0.5 a\0b", Progress(0.5, "ab")),
    ],
)
def test_last_line_is_told_as_number_and_note(text: str, told: Progress) -> None:
    assert parse_progress(text) == told


def test_file_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("absent", "pipe", "folder"):
        assert read_progress(tmp_path / name) == Progress()


def test_end_of_a_large_file_is_read(tmp_path: Path) -> None:
    """CMD may append a line for each step of its work."""
    (tmp_path / "large").write_text("0.1 begun\n" * FILE_BYTES + "0.5 half\n")
    assert read_progress(tmp_path / "large") == Progress(0.5, "half")


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"0.5 \xff\xfe")
    assert read_progress(tmp_path / "odd") == Progress(0.5, "\ufffd\ufffd")


def test_mark_of_utf_8_is_no_part_of_the_number(tmp_path: Path) -> None:
    (tmp_path / "marked").write_text("0.5 half\n", encoding="utf-8-sig")
    assert read_progress(tmp_path / "marked") == Progress(0.5, "half")
