"""The picture of a demo, as text, in terminals of several sizes."""

import pytest
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from dispatcher.model.reasons import ReasonInWords
from dispatcher.model.verdicts import HoldReason
from dispatcher_demo.observe import DemoRow, DemoView, NodeLoad, QueueLoad, RowState
from dispatcher_demo.picture import COLORS, Shown, draw, follow

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


def test_colour_is_one_that_a_terminal_shows_and_tells_what_runs_from_what_needs_somebody() -> None:
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
