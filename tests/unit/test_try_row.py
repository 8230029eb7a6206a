"""The row of `dispatcher try`, and the words about its end."""

from pathlib import Path

import msgspec
import pytest

from dispatcher.commands.options import read_payload
from dispatcher.commands.trying import (
    InMemoryRow,
    Stop,
    TryEnd,
    as_told,
    clip,
    in_words,
    kept,
    pause_seconds,
    shortened,
    status_after,
    stored,
    told,
)
from dispatcher.container.contract import plain_note
from dispatcher.container.row import NOTHING, ExecReport, NotStorable, Progress

RUN = "token"


def a_row(*said: str, cancel_after: float | None = None) -> InMemoryRow:
    return InMemoryRow("null", cancel_after, list(said).append)


async def ended(report: ExecReport | None, *, stop: Stop = Stop.SIGTERM, cancelled: bool = False) -> TryEnd:
    row = a_row(cancel_after=0 if cancelled else None)
    await row.start()
    await row.heartbeat(RUN, NOTHING)
    if report is not None:
        await row.finish(RUN, report)
    return TryEnd(report.status if report else 143, row, stop, attempt=2)


@pytest.mark.parametrize(
    ("report", "cancelled", "status", "words"),
    [
        (ExecReport("succeeded", 0), False, "succeeded", "succeeded, without a result"),
        (ExecReport("succeeded", 0, result='{"a":1}'), True, "succeeded", 'succeeded, with the result {"a": 1}'),
        (ExecReport("retry", 9, "oh"), False, "waiting",
         "retry: CMD ended with status 9; the row runs again after 20 s"),
        (ExecReport("failed", 65, "oh"), False, "failed",
         "failed: the row does not run again; the row's error would be:"),
        (ExecReport("failed", 143), True, "cancelled", "failed: the row becomes cancelled"),
    ],
)  # fmt: skip
async def test_report_moves_the_row_and_is_told(report: ExecReport, cancelled: bool, status: str, words: str) -> None:
    end = await ended(report, cancelled=cancelled)
    assert (end.row.status, as_told(end).row.status, as_told(end).outcome) == (status, status, report.outcome)
    assert in_words(end).startswith(words)


@pytest.mark.parametrize(
    ("stop", "again", "words"),
    [
        (Stop.SIGTERM, None, "nothing: ended after SIGTERM, without a result file, the next launch takes over"),
        (
            Stop.LIMIT,
            20,
            "nothing: ended after SIGTERM at the run limit, without a result file, the row runs again after 20 s while",
        ),
        (Stop.KILLED, None, "nothing: killed, because it did not end after SIGTERM, the next launch takes over"),
        (Stop.KILLED_AT_LIMIT, 20, "nothing: killed, because it did not end after SIGTERM at the run limit, the row"),
    ],
)
async def test_launch_without_a_report_leaves_the_row_processing(stop: Stop, again: float | None, words: str) -> None:
    end = await ended(None, stop=stop)
    assert (as_told(end).row.status, as_told(end).row.runs_again_after_seconds) == ("processing", again)
    assert in_words(end).startswith(words)


async def test_row_keeps_the_result_as_jsonb_and_the_last_progress() -> None:
    said: list[str] = []
    row = InMemoryRow('{"a": 1}', None, said.append)
    assert (await row.start() or ("", ""))[1] == '{"a": 1}'
    assert await row.heartbeat(RUN, Progress(0.5, "half")) == "continue"
    assert await row.heartbeat(RUN, NOTHING) == "continue"
    assert await row.finish(RUN, ExecReport("succeeded", 0, result="[1,2]")) == "succeeded"
    assert (row.result, row.progress, row.heartbeats) == ("[1, 2]", Progress(0.5, "half"), 2)
    assert said == ['heartbeat 1 with progress 0.5, note "half": continue', "heartbeat 2: continue"]


@pytest.mark.parametrize(("result", "rule"), [("no", "invalid input syntax"), ('"' + "x " * 32768 + '"', "64 KiB")])
def test_result_that_the_row_cannot_hold_is_refused(result: str, rule: str) -> None:
    with pytest.raises(NotStorable, match=rule):
        stored(result)


def test_heartbeat_without_a_value_changes_none() -> None:
    assert kept(NOTHING, Progress(0.1, "a")) == Progress(0.1, "a")
    assert kept(Progress(0.2, None), Progress(0.1, "a")) == Progress(0.2, "a")
    assert kept(Progress(None, "b"), Progress(0.1, "a")) == Progress(0.1, "b")


def test_note_is_one_plain_line_of_200_characters() -> None:
    assert plain_note("a\x1b\n\u202eb") == "a b"
    assert plain_note("x" * 300) == "x" * 200


@pytest.mark.parametrize(
    ("progress", "words"),
    [(Progress(0.5), " with progress 0.5"), (Progress(None, "a"), ' with note "a"'),
     (Progress(1, "a"), ' with progress 1, note "a"')],
)  # fmt: skip
def test_progress_is_told_in_words(progress: Progress, words: str) -> None:
    assert told(progress) == words


def test_error_is_cut_to_8_kib_between_characters() -> None:
    assert clip("ü" * 5000) == "ü" * 4096
    assert clip("a" + "ü" * 5000) == "a" + "ü" * 4095


def test_long_texts_are_shortened_for_a_terminal() -> None:
    assert shortened("a\x1bb\n") == "a\N{REPLACEMENT CHARACTER}b"
    assert shortened("x" * 2000 + "end") == f"… {'x' * 997}end"


async def test_error_of_many_lines_is_told_by_its_last_one() -> None:
    """CMD has printed the traceback already."""
    end = await ended(ExecReport("retry", 1, "Traceback:\n  line 1\nValueError: no month\n\n"))
    assert in_words(end).endswith("the row's error would be: … ValueError: no month")
    assert as_told(end).error == "Traceback:\n  line 1\nValueError: no month\n\n"


async def test_long_result_is_cut_with_its_size() -> None:
    assert in_words(await ended(ExecReport("succeeded", 0, result=f'"{"x" * 2000}"'))).endswith("x … (2002 bytes)")


def test_pause_doubles_up_to_ten_minutes() -> None:
    assert [pause_seconds(attempt) for attempt in (1, 2, 6, 7, 32_000)] == [10, 20, 320, 600, 600]


@pytest.mark.parametrize("outcome", ["retry", "failed"])
def test_cancel_counts_more_than_a_failure(outcome: str) -> None:
    assert status_after(outcome, is_cancelled=True) == "cancelled"


def test_file_of_a_payload_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Editors of Windows write one."""
    file = tmp_path / "payload.json"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n')
    assert msgspec.json.decode(read_payload(f"@{file}")) == {"a": 1}
