"""How the page of a row is written: the bar of its time, its Job as YAML, long texts."""

import pytest
import yaml

from dispatcher.views.row_page import Span, TimeKind
from dispatcher.views.words import as_yaml, beginning, drawn, end
from tests.rig.builders import CREATED


def a_span(step: TimeKind, seconds: float) -> Span:
    return Span(step=step, began=CREATED, ended=None, seconds=seconds)


def test_parts_of_a_bar_are_as_long_as_their_times() -> None:
    spans = [a_span(TimeKind.WAITING, 30), a_span(TimeKind.RUNNING, 10)]
    assert list(drawn(spans)) == [(TimeKind.WAITING, 0.0, 75.0), (TimeKind.RUNNING, 75.0, 25.0)]


def test_bar_of_a_row_without_any_time_is_empty() -> None:
    assert list(drawn([a_span(TimeKind.WAITING, 0)])) == [(TimeKind.WAITING, 0.0, 0.0)]
    assert list(drawn([])) == []


def test_job_is_written_in_ascii_that_means_the_same() -> None:
    shared = {"cpu": "1"}
    job = {"args": ["\u202etxt.exe", "\U0001f600", "a: b\n"], "requests": shared, "limits": shared}
    text = as_yaml(job)
    assert (text.isascii(), yaml.safe_load(text)) == (True, job)
    assert ("&" in text, "\\u202E" in text) == (False, True)


def test_long_text_is_cut_with_the_number_of_characters_that_are_left_out() -> None:
    assert beginning("x" * 5 + "y" * 3000, 5) == "xxxxx\n… 3,000 more characters, in the JSON"
    assert end("y" * 3000 + "x" * 5, 5) == "3,000 more characters, in the JSON …\nxxxxx"
    assert beginning("short", 5) == end("short", 5) == beginning("short", 100) == "short"


@pytest.mark.parametrize(
    ("character", "kept"), [("x", 20), ("<", 4), ("&", 4), ("é", 10), ("\U0001f600", 5), ("\ud800", 20)]
)
def test_characters_count_as_they_are_on_the_page(character: str, kept: int) -> None:
    text = character * 100
    assert beginning(text, 20).count(character) == end(text, 20).count(character) == kept
