"""The row of `dispatcher try`: it is in memory, and answers the three calls as the functions of sql/ do.

`tests/integration/test_try_agrees.py` runs the same commands with this row and with a row of Postgres.
"""

import re
import time
from collections.abc import Callable
from typing import Final

from dispatcher.model.backoff import doubled
from dispatcher.model.stored_json import NotStoredJson, stored_json
from dispatcher.model.texts import one_line, printable
from dispatcher.programs.exec_progress import NOTHING, Progress
from dispatcher.programs.exec_row import NotStorable, Report

RUN: Final = "00000000-0000-0000-0000-000000000001"
"""Stands for the run token."""
RESULT_BYTES, ERROR_BYTES, NOTE_CHARACTERS = 65536, 8192, 200
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 10, 600
TOO_LARGE: Final = (
    "the result is larger than 64 KiB\nHINT:  Put it into object storage and its address into the result."
)
CONTROLS: Final = re.compile("[\x01-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
Tell = Callable[[str], None]


class TriedRow:
    """One row, from its start to its report.

    status: as the column.
    progress: what the heartbeats brought, as the columns `progress` and `note` keep it.
    heartbeats: how many were sent.
    report: what was reported; None: nothing.
    result, error: what the row keeps of the report.
    """

    def __init__(self, payload: str, cancel_after: float | None, tell: Tell) -> None:
        self._payload = payload
        self._cancel_after = cancel_after
        self._tell = tell
        self._started_at = 0.0
        self.status = "waiting"
        self.progress = NOTHING
        self.heartbeats = 0
        self.is_cancelled = False
        self.report: Report | None = None
        self.result: str | None = None
        self.error: str | None = None

    async def start(self) -> tuple[str, str] | None:
        self.status, self._started_at = "processing", time.monotonic()
        return RUN, self._payload

    async def heartbeat(self, token: str, progress: Progress) -> str:  # noqa: ARG002  # there is one run
        self.heartbeats += 1
        before, self.progress = self.progress, kept(progress, self.progress)
        seconds = time.monotonic() - self._started_at
        self.is_cancelled = self.is_cancelled or (self._cancel_after is not None and seconds >= self._cancel_after)
        answer = "cancel" if self.is_cancelled else "continue"
        self._tell(f"heartbeat {self.heartbeats}{told(self.progress) if self.progress != before else ''}: {answer}")
        return answer

    async def finish(self, token: str, report: Report) -> str | None:  # noqa: ARG002  # there is one run
        self.result = None if report.result is None else stored(report.result)
        self.error = None if report.error is None else clip(report.error)
        self.report = report
        self.status = status_after(report.outcome, is_cancelled=self.is_cancelled)
        return self.status


def kept(new: Progress, old: Progress) -> Progress:
    """What the row has after a heartbeat. A heartbeat without a value changes none."""
    note = old.note if new.note is None else plain_note(new.note)
    return Progress(old.done if new.done is None else new.done, note)


def plain_note(words: str) -> str:
    return CONTROLS.sub(" ", words[:1000])[:NOTE_CHARACTERS]


def told(progress: Progress) -> str:
    """Progress and note for people: ` with progress 0.42, note "reading"`."""
    done = "" if progress.done is None else f" progress {progress.done:g}"
    note = "" if progress.note is None else f' note "{one_line(progress.note)}"'
    return f" with{done}{',' if done and note else ''}{note}"


def stored(result: str) -> str:
    """The result as jsonb. NotStorable: the database would refuse it, in these words."""
    try:
        found = stored_json(result)
    except NotStoredJson as fault:
        raise NotStorable(str(fault)) from fault
    if len(found.encode()) > RESULT_BYTES:
        raise NotStorable(TOO_LARGE)
    return found


def clip(error: str) -> str:
    return error.encode()[:ERROR_BYTES].decode(errors="ignore")


def status_after(outcome: str, *, is_cancelled: bool) -> str:
    """The status that a report leads to, of a row that may fail again."""
    if outcome == "succeeded":
        return outcome
    if is_cancelled:
        return "cancelled"
    return "waiting" if outcome == "retry" else "failed"


def pause_seconds(attempt: int) -> float:
    """How long a row waits after a failure, if each earlier attempt failed."""
    return doubled(RETRY_SECONDS, attempt - 1, LONGEST_RETRY_SECONDS)


def shortened(text: str, most: int = 1000) -> str:
    """For a terminal: the end of a long text, which has the cause."""
    words = printable(text).rstrip()
    return words if len(words) <= most else f"… {words[-most:]}"
