"""Rows that failed or are parked, grouped by what is wrong with them. Pure.

The names of the fields are public: they are the names in JSON.

`fold`: replaces what differs from row to row in a message, so that messages of one cause are equal. The cost is linear
in the length of the text: no pattern can be tried twice at one place.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from dispatcher.admission.heads import KnownOffers
from dispatcher.admission.last_cycle import LastCycle, RowReason, parked_in_turns
from dispatcher.model.history import MOST_FAILED, FailedTask, JobSource
from dispatcher.model.launches import Offer
from dispatcher.model.reasons import cause_of
from dispatcher.model.tasks import MARKS
from dispatcher.model.verdicts import HoldReason

LONGEST_READ: Final = 400
"""Characters of an error that are folded, at most."""
LONGEST: Final = 200
"""Characters of a folded message, at most."""
REMEMBERED: Final = 6000
"""Folded messages that are remembered, enough for all rows of the page of failures and of one batch. With fewer, a
second pass would find nothing.
"""
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
    """The replacement of a word with digits: a digest, a name with a number at its end, or another id."""
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


HOURS: Final = 24
HOUR: Final = timedelta(hours=1)
MOST_GROUPS: Final = 100
"""Groups of the page, at most."""
MOST_PARKED: Final = 2000
"""Parked rows that are read, at most."""
EXAMPLES: Final = 3
"""Ids of rows in a group, at most."""
LONGEST_EXAMPLE: Final = 300
"""Characters of an example, at most."""
DIGEST_BYTES: Final = 8
SILENT: Final = "(no error was reported)"


class Failure(Struct, frozen=True):
    """One row.

    reason: why it is parked; None: it has failed.
    image: empty: not known.
    message: what is wrong, as it was reported.
    at: when it failed, or since when it is parked.
    """

    task: int
    template: str
    image: str
    reason: HoldReason | None
    message: str
    at: datetime


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Rows of one template and image with the same message.

    key: names the group in `group` of the list of rows, while it has a row.
    status: failed, or parked: they wait until somebody mends the row or its template.
    reason: why they are parked; None: they have failed.
    image: empty: not known.
    message: with `<number>`, `<name>` and so on for what differs from row to row.
    example: the message of the newest row, the first 300 characters.
    count: number of the rows that were read.
    by_hour: number of rows in each hour, the oldest first; the last hour ends at `as_of`.
    tasks: ids of the newest rows.
    """

    key: str
    status: str
    reason: HoldReason | None
    template: str
    image: str
    message: str
    example: str
    count: int
    first_seen: datetime
    last_seen: datetime
    by_hour: Sequence[int]
    tasks: Sequence[int]


class FailuresPage(Struct, frozen=True, kw_only=True):
    """Rows that failed in the last day, and rows that are parked now.

    as_of: time of the last cycle, which gave the parked rows.
    leads: whether the replica that answers leads. Only the leader knows which Jobs and Pods are refused, or suspended.
    groups: the largest first, at most 100.
    groups_left_out: number of further groups.
    failed: number of failed rows that were read, the newest first, at most 3,000.
    failed_since: failed rows were read from this time on.
    parked: number of parked rows that were judged.
    parked_left_out: number of parked rows in no group; at most 2,000 are read.
    """

    as_of: datetime
    leads: bool
    groups: Sequence[FailureGroup]
    groups_left_out: int
    failed: int
    failed_since: datetime
    parked: int
    parked_left_out: int


Identity = tuple[str, str, HoldReason | None, str]
"""Template, image, reason and folded message of a group."""


class FailureGroups:
    """Gathers rows into groups. Rows are added a few at a time, so that nothing else waits for long."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._groups: dict[Identity, list[Failure]] = {}
        self._keys: dict[Identity, str] = {}

    def add(self, failures: Iterable[Failure]) -> None:
        for one in failures:
            identity = one.template, one.image, one.reason, fold(one.message)
            if identity not in self._groups:
                self._groups[identity], self._keys[identity] = [], key_of(identity)
            self._groups[identity].append(one)

    def largest(self) -> tuple[list[FailureGroup], int]:
        """The largest groups, and the number of the others."""
        ordered = sorted(self._groups.items(), key=lambda pair: (-len(pair[1]), pair[0][0], pair[0][1], pair[0][3]))
        found = [self._group(identity, rows) for identity, rows in ordered[:MOST_GROUPS]]
        return found, max(0, len(ordered) - MOST_GROUPS)

    def rows(self) -> dict[str, list[int]]:
        """The ids of the rows of every group, by its key."""
        return {self._keys[identity]: [one.task for one in rows] for identity, rows in self._groups.items()}

    def _group(self, identity: Identity, rows: Sequence[Failure]) -> FailureGroup:
        newest = sorted(rows, key=lambda one: (one.at, one.task), reverse=True)
        first = newest[0]
        return FailureGroup(
            key=self._keys[identity], status="parked" if first.reason else "failed", reason=first.reason,
            template=first.template, image=first.image, message=identity[3],
            example=first.message[:LONGEST_EXAMPLE], count=len(rows),
            first_seen=newest[-1].at, last_seen=first.at, by_hour=by_hour((one.at for one in rows), self._now),
            tasks=[one.task for one in newest[:EXAMPLES]],
        )  # fmt: skip


def key_of(identity: Identity) -> str:
    """The key of a group, equal on every replica and short enough for an address. Its second half is the image's."""
    template, image, reason, message = identity
    halves = (template, reason, message), (image,)
    return "".join(blake2b(msgspec.json.encode(half), digest_size=DIGEST_BYTES).hexdigest() for half in halves)


def rows_of(key: str, rows: Mapping[str, Sequence[int]]) -> Sequence[int]:
    """The rows of the group with this key. `rows`: the rows of every group.

    The image of a group is not known until a template has judged such a row, and changes with the template. An older
    key finds the groups of every image.
    """
    if key in rows:
        return rows[key]
    half = key[: 2 * DIGEST_BYTES]
    return [id_ for other, ids in rows.items() if other.startswith(half) for id_ in ids]


def by_hour(times: Iterable[datetime], now: datetime) -> list[int]:
    """Number of times in each of the last 24 hours. Earlier times are left out; the clock of a row may be ahead."""
    hours = [0] * HOURS
    for at in times:
        passed = max(0, (now - at) // HOUR)
        if passed < HOURS:
            hours[HOURS - 1 - passed] += 1
    return hours


def failures_of(rows: Iterable[FailedTask], offers: KnownOffers) -> Iterator[Failure]:
    for row in rows:
        message = telling_line(row.head, row.tail) or SILENT
        yield Failure(row.id, row.template, image_of(row, offers), None, message, row.at)


def parked_of(rows: Iterable[JobSource], told: Mapping[int, RowReason], offers: KnownOffers) -> Iterator[Failure]:
    """The parked rows, with their holds in the last cycle."""
    for row in rows:
        one = told[row.id]
        cause = cause_of(one.hold)
        yield Failure(row.id, row.template, image_of(row, offers), cause.reason, cause.message, one.since)


def failed_since(rows: Sequence[FailedTask], since: datetime) -> datetime:
    """The time from which on all failed rows were read. `rows`: the newest first."""
    return rows[-1].at if len(rows) == MOST_FAILED else since


def parked_ids(cycle: LastCycle) -> list[int]:
    """The parked rows, in turns of submitters: of very many not all are read."""
    return [id_ for id_, _ in parked_in_turns(cycle.told)]


def image_of(row: JobSource, offers: KnownOffers) -> str:
    """The image by the row's template, if the template has judged such a row; else the row's own."""
    offer = offers.known_offer(row.kind)
    return offer.image if isinstance(offer, Offer) else row.image or ""
