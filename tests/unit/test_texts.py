"""Texts of others, as a terminal and a table of ours show them."""

import pytest

from dispatcher.model.texts import one_line, printable

SHOWN = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("sign", ["\x00", "\x07", "\x0b", "\r", "\x1b", "\x7f", "\x9b", "\ud800"])
def test_control_characters_are_replaced(sign: str) -> None:
    assert printable(f"a{sign}b\tc\nd") == f"a{SHOWN}b\tc\nd"


@pytest.mark.parametrize("end", ["\n", "\u2028", "\u2029", "\n\n"])
def test_text_of_several_lines_becomes_one(end: str) -> None:
    assert len(one_line(f"first{end}  operator's turn: run this").splitlines()) == 1
