"""What a body says: progress, note, result, and its end. Pure decisions; all texts are texts that Postgres stores."""

import json
import re
import traceback
from typing import Final, NamedTuple

RESULT_BYTES: Final = 65536
WORDS_BYTES: Final = 8192
TAIL_BYTES: Final = 4096
CONTROLS: Final = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
FINAL: Final = frozenset({64, 65, 66, 67, 68, 70, 72, 73, 76, 77, 78})
"""Exit statuses of sysexits.h after which no second try helps: those of `dispatcher exec`."""
NUL: Final = re.compile(r"(?<!\\)(\\\\)*\\u0000")


class Failed(Exception):
    """Raised by a body that a second try cannot help. Its words become the error of the row."""


class Report(NamedTuple):
    outcome: str
    error: str | None = None
    result: str | None = None


def judge(fault: BaseException | None, row_says: str, *, is_stopped: bool, finished: Report | None) -> Report | None:
    """The report after the body. None: nothing is reported, and the next launch takes over, or has done so."""
    if isinstance(fault, SystemExit) and fault.code in (None, 0):
        fault = None
    if row_says == "lost":
        return None
    if row_says == "cancel" and (fault is not None or finished is None):
        return Report("failed")  # the row keeps the reason that came with the cancel
    if fault is None:
        return finished or Report("succeeded")
    if is_stopped or isinstance(fault, KeyboardInterrupt):
        return None
    if (failed := failed_in(fault)) is not None:
        return Report("failed", as_text(str(failed) or type(failed).__name__)[:WORDS_BYTES].decode(errors="ignore"))
    is_final = isinstance(fault, SystemExit) and isinstance(fault.code, int) and fault.code in FINAL
    trace = as_text("".join(traceback.format_exception(fault)))
    return Report("failed" if is_final else "retry", trace[-TAIL_BYTES:].decode(errors="ignore"))


def failed_in(fault: BaseException) -> Failed | None:
    """The fault itself, or the first such fault of a group: an asyncio.TaskGroup wraps what its tasks raise."""
    while isinstance(fault, BaseExceptionGroup) and (group := fault.subgroup(Failed)) is not None:
        fault = group.exceptions[0]
    return fault if isinstance(fault, Failed) else None


def as_text(words: str) -> bytes:
    return words.replace("\0", "").encode(errors="replace")


def as_note(words: object) -> str:
    """One line of 200 characters, as dispatch.plain_note makes it."""
    return CONTROLS.sub(" ", str(words)[:1000])[:200]


def as_progress(done: float) -> float:
    """ValueError: not a number from 0 to 1."""
    try:
        if 0 <= done <= 1:
            return round(float(done), 6)
    except TypeError:
        pass
    raise ValueError(f"progress is {done!r:.40}: a number from 0 to 1")


def as_result(result: object) -> str:
    """The result as JSON. TypeError, ValueError: it is none that Postgres stores."""
    text = json.dumps(result, ensure_ascii=False, allow_nan=False)
    if (size := len(text.encode())) > RESULT_BYTES:
        raise ValueError(f"the result has {size} bytes, 65536 at most: leave the address of large results in it")
    if NUL.search(text):
        raise ValueError("the result has a character NUL, which Postgres does not store")
    return text
