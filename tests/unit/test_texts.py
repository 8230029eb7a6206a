"""Texts of others, as a terminal and a table of ours show them."""

import sys
import unicodedata
from collections.abc import Callable

import pytest

from dispatcher.model.tasks import for_terminal, one_line, printable

SHOWN = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("sign", ["\x00", "\x07", "\x0b", "\r", "\x1b", "\x7f", "\x9b", "\ud800"])
def test_control_characters_are_replaced(sign: str) -> None:
    assert printable(f"a{sign}b\tc\nd") == f"a{SHOWN}b\tc\nd"


@pytest.mark.parametrize("end", ["\n", "\u2028", "\u2029", "\n\n"])
def test_text_of_several_lines_becomes_one(end: str) -> None:
    assert len(one_line(f"first{end}  operator's turn: run this").splitlines()) == 1


HOSTILE = "".join(
    chr(one) for one in range(sys.maxunicode + 1) if unicodedata.category(chr(one)) in {"Cc", "Cf", "Zl", "Zp"}
)


@pytest.mark.parametrize("shown", [printable, one_line, for_terminal])
def test_no_sign_that_controls_a_screen_or_a_direction_is_left(shown: Callable[[str], str]) -> None:
    """Of all that Unicode has of them, in this version of Python."""
    told = shown(f"a{HOSTILE}b")
    assert (told[0], told[-1]) == ("a", "b")
    assert set(told) & set(HOSTILE) <= ({"\t", "\n"} if shown is printable else {"\t"})
