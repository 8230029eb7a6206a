"""Texts that somebody else has written, for people who read them in a terminal or in the database."""

import re
from typing import Final

CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""All but tab and line feed. One of them could steer a terminal, and Postgres stores no NUL."""
UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """The text without control characters."""
    return CONTROLS.sub(UNPRINTABLE, text)


def one_line(text: str) -> str:
    """The text as a single line, so that no part of it looks like a line of ours."""
    return " ".join(printable(text).splitlines())


MARKS: Final = re.compile(r"[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")
"""Signs that nobody sees: they turn the direction of a line, or join what has a width of its own."""


def for_terminal(text: str) -> str:
    """The text as a single line whose width in a terminal is known, and whose direction nobody can turn."""
    return MARKS.sub("", one_line(text.replace("\t", " ")))
