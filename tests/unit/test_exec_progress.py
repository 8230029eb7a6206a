"""Progress files as tasks write them, and what each of them tells."""

import os
from pathlib import Path

import pytest

from dispatcher.container.row import FILE_BYTES, Progress, parse_progress, read_progress


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
