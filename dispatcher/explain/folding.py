"""Folds what differs from row to row in a message, so that messages of one cause are equal. Pure.

The cost is linear in the length of the text: no pattern can be tried twice at one place.
"""

import re
from functools import lru_cache
from typing import Final

from dispatcher.model.texts import MARKS
from dispatcher.model.verdicts import HoldReason

LONGEST_READ: Final = 400
LONGEST: Final = 200
REMEMBERED: Final = 6000
"""All rows of the page of failures and of one batch. Of a smaller memory, a second pass would find nothing."""
PATTERN: Final = re.compile(
    r"""
    (?P<time>  \b\d{4}-\d\d-\d\d (?:[T\ ]\d\d:\d\d (?::\d\d(?:[.,]\d++)?+)?+ (?:Z|[+-]\d\d:?\d\d)?+)?+ \b )
  | (?P<uuid>  \b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b )
  | (?P<name>  (?<!\w)(?: '[^'\n]{0,120}+'(?!\w) | "[^"\n]{0,120}+" | `[^`\n]{0,120}+` ) )
  | (?P<number> (?<![\w.])\d++(?:[.,:]\d++)*+ (?: [KMGTPE]i?B?|[kmunµ]?s|min|ms|h|d|[kmB]|x )?+ (?!\w) )
  | (?P<word>  \b[^\W\d]*+\d\w*+ )
    """,
    re.VERBOSE,
)
UNIT: Final = re.compile(r"[^\d.,:]*$")
HEX: Final = re.compile(r"(?:0[xX])?[0-9a-fA-F]{7,}+|0[xX][0-9a-fA-F]++")
NUMBERED: Final = re.compile(r"([^\W\d]+)\d++")


def fold(text: str) -> str:
    """The first 400 characters of the text on one line, with the differing parts as `<number>`, `<name>` and so on."""
    return remembered(text[:LONGEST_READ])


@lru_cache(REMEMBERED)
def remembered(text: str) -> str:
    return PATTERN.sub(folded, " ".join(MARKS.sub("", text).split()))[:LONGEST]


def folded(found: re.Match[str]) -> str:
    kind, part = found.lastgroup, found[0]
    if kind == "number":
        unit = UNIT.search(part)
        return "<number>" + (unit[0] if unit else "")
    return of_word(part) if kind == "word" else f"<{kind}>"


def of_word(word: str) -> str:
    """A word with digits: a digest, a name with a number at its end, or another id."""
    if HEX.fullmatch(word):
        return "<hex>"
    numbered = NUMBERED.fullmatch(word)
    return f"{numbered[1]}<number>" if numbered else "<id>"


REASONS: Final = frozenset(HoldReason)
FIRST_WORD: Final = re.compile(r"[A-Za-z]+")


def telling_line(head: str | None, tail: str | None) -> str:
    """The line of an error that names its cause: the first one if it begins with a reason of ours, else the last one.

    head, tail: the first and the last characters of the error. A traceback or an output has its cause at its end.
    """
    first, last = lines_of(head), lines_of(tail)
    word = FIRST_WORD.match(head or "")
    if first and ((word and word[0] in REASONS) or len(first) == len(last) == 1):
        return first[0]  # a single long line: its tail begins within it
    return last[-1] if last else ""


def lines_of(text: str | None) -> list[str]:
    return [line for line in (text or "").splitlines() if line.strip()]
