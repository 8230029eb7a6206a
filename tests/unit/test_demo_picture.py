"""The picture of a demo in terminals of several sizes, and its words: reasons, news, and what it breaks on purpose."""

import pytest
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from dispatcher.model.reasons import ReasonInWords
from dispatcher.model.tasks import for_terminal
from dispatcher.model.verdicts import HoldReason
from dispatcher_demo import run
from dispatcher_demo.observe import DemoRow, DemoView, News, NodeLoad, QueueLoad, RowState, error_line
from dispatcher_demo.picture import COLORS, Shown, draw, follow
from dispatcher_demo.run import (
    is_time_to_kill,
    kill_of,
    killed_in_words,
    kills_in_words,
    recovery_in_words,
    recovery_of,
)
from dispatcher_demo.words import Moment, moment_of, queue_in_words, rounded, row_in_words, seconds_left

SIZES = [(80, 24), (120, 40), (40, 20), (20, 5), (200, 50)]
PINNED = ("SQL, in another terminal: .venv/bin/dispatcher demo psql", "k kill Postgres  q quit")
NODES = (NodeLoad("east", 1, 0.9, 2), NodeLoad("west", 1, 0.45, 1))
NEEDS = ReasonInWords(
    HoldReason.POLICY_DENIED, "its template does not allow what it asks for: spec.memory 64Gi is over it"
)
LAUNCHED = ReasonInWords(HoldReason.LAUNCHED, "its Job exists, and its container has not reported its start: Starting")
HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202egnp.exe\u2066\r\nnext line\ttab " + "漢字" * 200


def view(rows: list[DemoRow], queues: list[QueueLoad] | None = None, **more: object) -> DemoView:
    return DemoView(rows, NODES, queues if queues is not None else [], **more)  # type: ignore[arg-type]  # fields


def text(shown: Shown, width: int = 80, height: int = 24) -> list[str]:
    """The lines as a terminal shows them, each checked for its width and for signs that steer."""
    lines = [line.plain for line in draw(shown, width, height)]
    assert len(lines) < max(2, height), lines
    assert [line for line in lines if cell_len(line) > width or not line.isprintable()] == []
    return lines


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("number", [0, 1, 5, 20, 5000])
def test_picture_of_any_number_of_rows_fits_and_ends_with_what_is_pinned(number: int, width: int, height: int) -> None:
    rows = [DemoRow(id_, "default", "waiting") for id_ in range(1, number + 1)]
    shown = Shown(view(rows, [QueueLoad("default")]), 3, ["first", "last"], pinned=PINNED)
    lines = text(shown, width, height)
    if height > 5:
        assert [line[:15] for line in lines[-2:]] == [line[:15] for line in PINNED]
        assert lines[0].startswith(f"0 of {number:,} ended")
        assert "last" in lines or height < 24


def test_picture_shows_twelve_rows_in_80_by_24_and_keeps_its_height() -> None:
    rows = [DemoRow(id_, "default", "waiting") for id_ in range(1, 21)]
    first, later = (text(Shown(view(rows), news=news, pinned=PINNED)) for news in ([], ["one"] * 50))
    assert sum(" default " in line for line in first) == 12
    assert len(first) == len(later) == 23


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_texts_of_others_neither_steer_the_terminal_nor_break_a_line(width: int, height: int) -> None:
    rows = [
        DemoRow(1, "default", "failed", error=HOSTILE), DemoRow(2, "default", "processing", node=HOSTILE, note=HOSTILE),
        DemoRow(3, "default", "succeeded", result={HOSTILE: HOSTILE}), DemoRow(4, "default", "waiting", 2, HOSTILE),
        DemoRow(5, "default", "waiting", cause=ReasonInWords(HoldReason.POISON, HOSTILE)),
    ]  # fmt: skip
    lines = text(Shown(view(rows, [QueueLoad("default", {HoldReason.POISON: 1})])), width, height)
    assert [
        line for line in lines if "\u202e" in line or "\x1b" in line or ("next line" in line and "tab" not in line)
    ] == []


def test_markup_of_rich_in_a_text_is_text() -> None:
    lines = text(Shown(view([DemoRow(1, "default", "failed", error="[red]not a colour[/red]")])))
    assert "[red]not a colour[/red]" in "\n".join(lines)


OF_EACH_STATE = [
    DemoRow(1, "q", "waiting"),
    DemoRow(2, "q", "waiting", cause=LAUNCHED),
    DemoRow(3, "q", "processing", node="east"),
    DemoRow(4, "q", "processing", is_stopping=True),
    DemoRow(5, "q", "waiting", 2, "no answer"),
    DemoRow(6, "q", "waiting", cause=NEEDS),
    DemoRow(7, "q", "succeeded"),
    DemoRow(8, "q", "failed", error="no"),
    DemoRow(9, "q", "cancelled"),
]


def test_row_has_a_word_for_what_it_is_really_in() -> None:
    told = [line[4:].split()[1:] for line in text(Shown(view(OF_EACH_STATE)), 120, 40)[3:12]]
    assert [" ".join(words) for words in told] == [
        "waiting not judged yet", "starting its Job is made, its container starts", "running east", "stopping",
        "tried again no answer; not judged yet",
        "needs you its template does not allow what it asks for: spec.memory 64Gi is over it", "done", "failed no",
        "cancelled",
    ]  # fmt: skip


def test_state_has_a_colour_in_its_line_and_in_the_headline() -> None:
    head, *lines = draw(Shown(view(OF_EACH_STATE)), 120, 40)
    assert {row.state for row in OF_EACH_STATE} == set(RowState) == set(COLORS)
    for row, line in zip(OF_EACH_STATE, lines[2:11], strict=True):
        assert styles(line, row.state) == [COLORS[row.state]], line.plain
    for state in (
        RowState.NEEDS_YOU,
        RowState.RUNNING,
        RowState.STARTING,
        RowState.WAITING,
        RowState.AGAIN,
        RowState.FAILED,
    ):
        assert styles(head, f"1 {state}") == [COLORS[state]], head.plain


def test_colours_exist_in_a_terminal_and_set_running_rows_apart() -> None:
    assert [state for state, style in COLORS.items() if Style.parse(style).color is None] == []
    loud = [RowState.WAITING, RowState.RUNNING, RowState.NEEDS_YOU, RowState.DONE, RowState.FAILED]
    assert len({COLORS[state] for state in loud}) == len(loud)


def styles(line: Text, words: str) -> list[str]:
    """The styles of the parts of a line that are these words, without the spaces behind them."""
    return [str(part.style) for part in line.spans if line.plain[part.start : part.end].strip() == words]


def test_detail_of_a_reason_is_told_where_not_all_of_it_fits() -> None:
    lines = text(Shown(view([DemoRow(6, "reports", "waiting", cause=NEEDS)])))
    assert lines[2].endswith("  spec.memory 64Gi is over it")


def test_rows_that_need_a_person_and_those_that_moved_last_are_shown() -> None:
    rows = [DemoRow(id_, "q", "waiting", cause=NEEDS if id_ == 1 else None) for id_ in range(1, 101)]
    moved = [*rows[:39], DemoRow(40, "q", "processing"), *rows[40:]]
    shown = Shown(view(moved), moves=follow({}, view(rows), view(moved)))
    ids = [int(line.split()[0]) for line in text(shown) if " q " in line]
    assert ids == [1, 40, *range(91, 101)]


def test_moves_grow_and_a_new_row_has_none() -> None:
    first, second = (
        view([DemoRow(1, "q", "waiting")]),
        view([DemoRow(1, "q", "processing"), DemoRow(2, "q", "waiting")]),
    )
    moves = follow({}, first, second)
    assert moves == {1: 1}
    assert follow(moves, second, view([DemoRow(1, "q", "processing"), DemoRow(2, "q", "succeeded")])) == {1: 1, 2: 2}


def test_queue_line_has_numbers_and_the_time_that_is_left() -> None:
    loads = [QueueLoad("default", {HoldReason.JOB_CAP: 9896, HoldReason.LAUNCHED: 2}, 6, None)]
    shown = Shown(view([DemoRow(1, "default", "waiting")], loads, in_flight=6, max_jobs=6), left={"default": 840.0})
    words = "default: 9,896 wait for a free slot: 6 of 6 used, 2 start, about 14 min left"
    assert words in text(shown)


def test_server_that_is_away_and_reasons_that_are_not_known_are_said() -> None:
    lines = text(Shown(DemoView([DemoRow(1, "q", "waiting")], away=["Postgres"])))
    assert lines[0].endswith("Postgres is away")
    assert "what the rows wait for is not known at the moment" in lines


def test_node_without_cores_is_drawn() -> None:
    assert any("0/0 cpu, 1 Pod" in line for line in text(Shown(DemoView(nodes=[NodeLoad("a", 0, 0, 1)]))))


def test_long_name_of_a_queue_is_cut_to_its_column() -> None:
    lines = text(Shown(view([DemoRow(1, "a-queue-with-a-long-name", "waiting")])))
    assert " a-queue-with-… waiting" in lines[2]


DENIED = ReasonInWords(HoldReason.POLICY_DENIED, "its template does not allow what it asks for: memory")


@pytest.mark.parametrize("reason", list(HoldReason))
def test_each_reason_of_a_queue_has_words_without_its_code(reason: HoldReason) -> None:
    for number in (1, 2):
        told = queue_in_words(QueueLoad("q", {reason: number}, 1, 2), DemoView(in_flight=3, max_jobs=4), None)
        assert str(reason) not in told
        assert told.startswith((f"{number} wait", f"{number} need", f"{number} start"))
        assert told.split()[1].strip(":").endswith("s") is (number == 1), told


def test_rows_that_no_cycle_has_judged_are_not_given_a_reason() -> None:
    assert queue_in_words(QueueLoad("q", {}, unjudged=3), DemoView(), None) == "3 not judged yet"
    assert queue_in_words(QueueLoad("q"), DemoView(), 5.0) == ""
    assert row_in_words(DemoRow(1, "q", "waiting")) == "not judged yet"


def test_running_row_tells_attempt_progress_and_note_or_what_it_is_for() -> None:
    assert (
        row_in_words(DemoRow(1, "q", "processing", 2, progress=0.42, note="part 3"), "counts")
        == "attempt 2, 42%, part 3"
    )
    assert row_in_words(DemoRow(1, "q", "processing"), "counts") == "counts"


def test_park_reason_that_ends_by_itself_needs_nobody() -> None:
    view = DemoView(passing=frozenset({HoldReason.EXITED_WITHOUT_REPORT}))
    told = queue_in_words(QueueLoad("q", {HoldReason.EXITED_WITHOUT_REPORT: 1}), view, None)
    assert told.startswith("1 waits: its container ended")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.1, "1 s"), (89, "89 s"), (91, "2 min"), (840, "14 min"), (7000, "2 h")]
)
def test_time_that_is_left_is_rounded(seconds: float, words: str) -> None:
    assert rounded(seconds) == words


def test_pace_is_told_once_there_is_one() -> None:
    rows = [DemoRow(id_, "q", "succeeded" if id_ < 10 else "waiting") for id_ in range(30)]
    rows.append(DemoRow(99, "q", "waiting", cause=DENIED))
    view = DemoView(rows)
    now = moment_of(view, 10)
    assert now == Moment(10, {"q": 10})
    assert seconds_left([Moment(0, {}), now], view) == {"q": 20.0}
    assert seconds_left([Moment(0, {"q": 6}), now], view) == {}, "too few have ended"
    assert seconds_left([Moment(7, {}), now], view) == {}, "too short a time"
    assert seconds_left([now], view) == {}


def test_news_tell_each_change_once() -> None:
    news = News()
    assert news.take(DemoView([DemoRow(1, "q", "waiting")], away=["the dispatcher"])) == ["task 1 (q) is inserted"]
    assert news.take(DemoView([DemoRow(1, "q", "processing", node="east")])) == ["task 1 (q) runs on east"]
    again = DemoRow(1, "q", "waiting", 2, "no\nanswer")
    assert news.take(DemoView([again])) == ["task 1 (q) failed, and is tried again (attempt 2): no"]
    assert news.take(DemoView([DemoRow(1, "q", "processing", 2, node="east")])) == [
        "task 1 (q) runs on east, attempt 2"
    ]
    assert news.take(DemoView([DemoRow(1, "q", "succeeded", 2, result={"a": 1})])) == ["task 1 (q) succeeded: a 1"]
    assert news.take(DemoView([DemoRow(1, "q", "succeeded", 2, result={"a": 1})])) == []


def test_error_is_told_by_its_first_line_and_a_traceback_by_its_last() -> None:
    traceback = "Traceback (most recent call last):\n  File \"report.py\", line 5\nKeyError: 'month'\n"
    told = [error_line(text) for text in (None, " \n", "no disk\nmore", traceback)]
    assert told == ["", "", "no disk", "KeyError: 'month'"]


def test_row_that_needs_a_person_is_told_once_though_its_reason_is_unknown_between() -> None:
    news, parked = News(), DemoRow(5, "q", "waiting", cause=DENIED)
    assert news.take(DemoView([parked]))[1:] == [f"task 5 (q) needs you: {DENIED.message}"]
    assert news.take(DemoView([DemoRow(5, "q", "waiting")])) == []
    assert news.take(DemoView([parked])) == []
    retried = DemoRow(5, "q", "waiting", 2, cause=DENIED)
    assert news.take(DemoView([retried]))[-1] == f"task 5 (q) needs you: {DENIED.message}"


def test_server_that_goes_and_comes_back_is_told_but_not_one_that_still_starts() -> None:
    news, rows = News(), [DemoRow(1, "q", "succeeded")]
    news.take(DemoView(rows, away=["the dispatcher"]))
    assert news.take(DemoView(rows, away=["the dispatcher"])) == []
    assert news.take(DemoView(rows)) == []
    assert news.take(DemoView(rows, away=["Postgres"])) == ["Postgres does not answer"]
    assert news.take(DemoView(rows, away=["Postgres"])) == []
    assert news.take(DemoView(rows)) == ["Postgres answers again"]


def test_many_new_rows_are_one_line_and_full_nodes_are_told() -> None:
    rows = [DemoRow(id_, "q", "waiting") for id_ in range(60)]
    view = DemoView(rows, queues=[QueueLoad("q", {HoldReason.NO_ROOM_NOW: 3})])
    assert News().take(view) == ["60 tasks are inserted", "the nodes are full: rows of queue q wait for room"]


def test_hostile_text_in_news_is_one_plain_line() -> None:
    hostile = "\x1b[2J\u202eabc\u2028def\x9b31m"
    (line,) = News().take(DemoView([DemoRow(1, "q", "failed", error=hostile)]))
    assert line.isprintable()
    assert "\u202e" not in line


@pytest.mark.parametrize("mark", ["\u202e", "\u2066", "\u200f", "\u061c", "\u200b", "\ufeff"])
def test_marks_that_nobody_sees_are_left_out_for_a_terminal(mark: str) -> None:
    assert for_terminal(f"a{mark}b\tc") == "ab c"


def running(ended: int, total: int = 20) -> DemoView:
    return DemoView([DemoRow(n, "q", "succeeded" if n < ended else "processing") for n in range(total)])


def test_postgres_is_killed_while_rows_run_and_others_have_ended() -> None:
    assert [is_time_to_kill(view) for view in (running(5), running(6), running(6, 8))] == [
        False, True, False
    ]  # fmt: skip
    assert not is_time_to_kill(DemoView(running(6).rows, away=["the dispatcher"]))


def test_postgres_is_killed_near_the_end_at_the_latest() -> None:
    waiting = [DemoRow(n, "q", "succeeded" if n < 8 else "waiting") for n in range(12)]
    assert [is_time_to_kill(DemoView(waiting[:number])) for number in (12, 11, 10)] == [False, False, True]
    kill = kill_of(DemoView(waiting), 1)
    assert killed_in_words(kill) == "Postgres is killed now (kill -9), with 12 rows: none of them runs"
    assert "while no row ran" in kills_in_words([recovery_of(kill, DemoView(waiting), 2)])[0]


def test_recovery_tells_that_nothing_is_lost() -> None:
    kill = kill_of(running(6), 5.0)
    recovery = recovery_of(kill, running(8, 25), 6.5)
    assert recovery_in_words(recovery) == "Postgres is back after 1.5 s: 20 of 20 rows are there, nothing is lost"
    assert kills_in_words([recovery]) == [
        "Postgres was killed once (kill -9), while 14 rows ran: 20 of 20 rows are there, nothing is lost"
    ]
    assert kills_in_words([recovery, recovery])[0].startswith("Postgres was killed 2 times")
    assert kills_in_words([]) == []


def test_recovery_names_the_rows_that_are_gone_or_whose_end_is_forgotten() -> None:
    kill = kill_of(running(6), 5.0)
    rows = [DemoRow(0, "q", "waiting"), DemoRow(1, "q", "waiting", 2), *running(6).rows[2:19]]
    assert "18 of 20 rows are there. Lost: 0, 19" in recovery_in_words(recovery_of(kill, DemoView(rows), 6))


def test_the_line_of_the_keys_fits_80_columns_and_names_each_key() -> None:
    for is_paused in (False, True):
        line = run.line(is_paused=is_paused)
        assert len(line) <= 80
        assert [part[0] for part in line.split("  ")] == list(run.NAMES)
    assert "p resume" in run.line(is_paused=True)


def test_a_file_is_no_source_of_keys(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (tmp_path_factory.mktemp("keys") / "file").open("w") as file:
        assert not run.is_usable(file.fileno())
    assert not run.is_usable(file_that_is_closed())


def file_that_is_closed() -> int:
    return 1 << 20
