"""What `dispatcher try` tells at the end: the report, and what becomes of the row. In words, or as one JSON object."""

from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.model.texts import printable
from dispatcher.programs.trying_row import TriedRow, pause_seconds, shortened
from dispatcher.programs.words import span

AGAIN: Final = "while max_failures lasts"


class Stop(StrEnum):
    """Why a launch ended without a report. `LIMIT` and `KILLED_AT_LIMIT`: it ran until the run limit."""

    SIGTERM = "not 0 after SIGTERM"
    LIMIT = "not 0 after SIGTERM at the run limit"
    KILLED = "killed, because it did not end after SIGTERM"
    KILLED_AT_LIMIT = "killed, because it did not end after SIGTERM at the run limit"

    @property
    def is_limit(self) -> bool:
        return self in {Stop.LIMIT, Stop.KILLED_AT_LIMIT}


class Ended(Struct, frozen=True):
    """The end of a launch.

    status: exit status.
    row: the row, as the launch leaves it.
    stop: why nothing was reported, if nothing was.
    attempt: the attempt that was tried.
    """

    status: int
    row: TriedRow
    stop: Stop
    attempt: int


class RowAfter(Struct, frozen=True):
    """The row: its status, and after how many seconds it runs again by itself; None: it does not, or at once."""

    status: str
    runs_again_after_seconds: float | None


class Told(Struct, frozen=True):
    """The object of --json. `outcome`: succeeded, failed, retry, or nothing. `status`: the exit status."""

    outcome: str
    status: int
    error: str | None
    result: Any
    row: RowAfter
    progress: float | None
    note: str | None
    heartbeats: int
    words: str


def as_told(ended: Ended) -> Told:
    row = ended.row
    return Told(
        outcome=row.report.outcome if row.report else "nothing",
        status=ended.status,
        error=row.error,
        result=None if row.result is None else msgspec.Raw(row.result.encode()),
        row=RowAfter(row.status, pause_seconds(ended.attempt) if runs_again_later(ended) else None),
        progress=row.progress.done,
        note=row.progress.note,
        heartbeats=row.heartbeats,
        words=in_words(ended),
    )


def runs_again_later(ended: Ended) -> bool:
    return ended.row.status == "waiting" or (ended.row.report is None and ended.stop.is_limit)


def in_words(ended: Ended) -> str:
    row, report = ended.row, ended.row.report
    error = "without an error" if row.error is None else f"the row's error would be: {shortened(row.error)}"
    again = f"the row runs again after {span(pause_seconds(ended.attempt))} {AGAIN}"
    if report is None:
        return f"nothing: {ended.stop}, {again if ended.stop.is_limit else 'the next launch takes over'}"
    if report.outcome == "succeeded":
        return f"succeeded, {'without a result' if row.result is None else f'with the result {cut(row.result)}'}"
    if row.status == "cancelled":
        return f"{report.outcome}: the row becomes cancelled, and keeps the reason of the cancel as its error"
    if report.outcome == "retry":
        return f"retry: CMD ended with status {report.status}; {again}; {error}"
    return f"failed: the row does not run again; {error}"


def cut(result: str, most: int = 1000) -> str:
    words = printable(result)
    return words if len(words) <= most else f"{words[:most]} … ({len(result.encode())} bytes)"
