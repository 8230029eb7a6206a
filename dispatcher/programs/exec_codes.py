"""What an exit status of CMD means for its row, and the options of `dispatcher exec` that change it.

By default a failure is tried again, as a crash without a report is. Some statuses of sysexits.h end the row: they say
that a second try cannot help (wrong usage or input, a missing host or right, a bug, a wrong configuration).
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

USAGE: Final = "usage: dispatcher exec [--final CODES] [--retry CODES] -- CMD [ARG…]"
RULE: Final = "CODES are exit statuses from 1 to 255, such as 2,64-68"
LAST_STATUS: Final = 255
FINAL: Final = frozenset({64, 65, 66, 67, 68, 70, 72, 73, 76, 77, 78})


class WrongOption(Exception):
    """An option of `exec` cannot be used. The message names option, value and rule."""


class Codes(NamedTuple):
    """`final`: the statuses after which no second try helps."""

    final: frozenset[int] = FINAL

    def outcome(self, status: int) -> str:
        """What is reported for the status, which is not 0."""
        return "failed" if status in self.final else "retry"


def read_options(argv: Sequence[str]) -> tuple[Codes, list[str]]:
    """The statuses, and CMD with its arguments. `--` stands before CMD if there are options."""
    given: dict[str, frozenset[int]] = {"--final": frozenset(), "--retry": frozenset()}
    words = list(argv)
    while words and words[0].partition("=")[0] in given:
        option, has_value, codes = words.pop(0).partition("=")
        if not has_value:
            codes = words.pop(0) if words else ""
        given[option] |= read_codes(option, codes)
    if both := sorted(given["--final"] & given["--retry"]):
        raise WrongOption(f"{both[0]} is in --final and in --retry: name it once")
    return Codes((FINAL | given["--final"]) - given["--retry"]), words[1:] if words[:1] == ["--"] else words


def read_codes(option: str, written: str) -> frozenset[int]:
    try:
        codes = frozenset(code for part in written.split(",") for code in span(part))
    except ValueError:
        codes = frozenset()
    if not codes or min(codes) < 1 or max(codes) > LAST_STATUS:
        raise WrongOption(f"{option} is {written[:80]!r}: {RULE}")
    return codes


def span(part: str) -> Iterator[int]:
    """The statuses of `3` or `64-68`."""
    first, has_last, last = part.partition("-")
    yield from range(number(first), number(last if has_last else first) + 1)


def number(text: str) -> int:
    """ValueError: not up to three digits."""
    if len(text.strip()) > len(str(LAST_STATUS)):
        raise ValueError(text)
    return int(text)
