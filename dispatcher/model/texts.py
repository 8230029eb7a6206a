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
