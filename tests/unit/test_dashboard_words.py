"""Numbers and times as people read them."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Struct

from dispatcher.views.words import (
    MOST_ROWS,
    brief,
    columns,
    duration,
    exact,
    highest,
    instant,
    number,
    percent,
    query,
    relative,
    some,
    stacked,
    steps,
)
from tests.rig.builders import NOW


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, "—"), (float("inf"), "—"),
        (0, "0 s"), (-5, "0 s"), (0.44, "0.4 s"), (9, "9 s"), (59.6, "1 min"), (61, "1 min 1 s"),
        (3600, "1 h"),
        (3601, "1 h"), (7384, "2 h 3 min"), (86_400 * 1234 + 3600, "1,234 d 1 h"),
    ],
)  # fmt: skip
def test_duration_has_its_two_largest_units(seconds: float | None, told: str) -> None:
    assert duration(seconds) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "now"), (0.9, "now"), (5, "5 s ago"), (-5, "in 5 s"), (90, "1 min 30 s ago"), (-7200, "in 2 h")],
)
def test_relative_time_tells_its_direction(seconds: float, told: str) -> None:
    assert relative(NOW - timedelta(seconds=seconds), NOW) == told


def test_exact_time_tells_seconds_and_zone() -> None:
    assert exact(NOW) == f"{NOW:%Y-%m-%d %H:%M:%S} UTC"


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, "—"), (0, "0"), (9007199254740993, "9,007,199,254,740,993"), (1234.56, "1,234.6"), (0.0, "0")],
)
def test_whole_number_is_exact(value: float | None, told: str) -> None:
    assert number(value) == told


@pytest.mark.parametrize(("part", "told"), [
    (None, "—"), (0, "0%"), (0.001, "< 1%"), (0.01, "1%"), (0.5, "50%"), (0.99, "99%"), (0.9999, "> 99%"), (1, "100%"),
])  # fmt: skip
def test_small_part_is_not_nothing_and_a_large_one_is_not_the_whole(part: float | None, told: str) -> None:
    assert percent(part) == told


class Filter(Struct):
    queue: str | None = None
    after: int | None = None


def test_query_keeps_what_is_given_and_escapes_it() -> None:
    assert query({}) == query(Filter()) == query({"queue": ""}) == ""
    assert query({"queue": "a&b=<"}, after=3) == "?queue=a%26b%3D%3C&after=3"
    assert query(Filter("a", 9), after=None) == "?queue=a"


def test_stacked_bar_is_as_wide_as_its_parts_together() -> None:
    parts = stacked({"small": 1, "large": 3})
    assert [(part.name, part.start, part.width) for part in parts] == [("large", 0, 75), ("small", 75, 25)]
    assert stacked({}) == []
    assert [part.width for part in stacked({"none": 0})] == [0]


def test_columns_are_as_high_as_their_share_of_the_highest() -> None:
    assert columns([None, 2, 0, 4]) == "M0 100V100h1V50h1V100h1V0h1V100z"
    assert columns([1, 1000]).startswith("M0 100V99h1"), "a column that is there can be seen"
    assert (columns([]), columns([None, 0])) == ("M0 100V100z", "M0 100V100h1V100h1V100z")


def test_line_has_gaps_where_nobody_counted() -> None:
    assert steps([None, 2, 0, None, 4]) == "M1 50h1V100h1M4 0h1"
    assert (steps([]), steps([None, 0])) == ("", "M1 100h1")


def test_columns_and_line_are_drawn_by_one_measure() -> None:
    most = highest([1, None], [4])
    assert (most, highest(), highest([None])) == (4, 0, 0)
    assert columns([1, None], most) == "M0 100V75h1V100h1V100z"
    assert steps([4], most) == "M0 0h1"
    assert columns([0], 0) == "M0 100V100h1V100z"


@pytest.mark.parametrize(
    ("number_of_rows", "share", "left"),
    [(0, 1, 0), (7, 1, 7), (7, 0.5, 3), (7, 0.001, 1), (500, 1, MOST_ROWS), (500, 0.25, MOST_ROWS // 4)],
)
def test_some_rows_are_a_share_and_one_at_least(number_of_rows: int, share: float, left: int) -> None:
    rows = range(number_of_rows)
    assert list(some(rows, share)) == list(rows)[:left]


@pytest.mark.parametrize(("text", "told"), [("short", "short"), ("<" * 10, "<" * 4 + "…"), ("x" * 30, "x" * 20 + "…")])
def test_brief_text_is_cut_by_its_size_on_a_page(text: str, told: str) -> None:
    assert brief(text, 20) == told


def test_instant_has_three_digits_of_a_second() -> None:
    moment = datetime(2026, 3, 14, 11, 2, 3, 123456, tzinfo=UTC)
    assert (instant(moment), instant(moment.replace(microsecond=0))) == (
        "2026-03-14T11:02:03.123+00:00", "2026-03-14T11:02:03.000+00:00",
    )  # fmt: skip
