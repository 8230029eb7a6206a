"""What a body reports: progress, note, result, and its end. Pure; all texts are texts that Postgres stores."""

import contextlib
import json
import re
import traceback
from typing import Final, NamedTuple

from dispatcher.container.contract import (
    FINAL,
    RESULT_BYTES,
    TAIL_BYTES,
    WORDS_BYTES,
    described,
    is_of_values,
    plain_note,
)


class DatabaseFault(Exception):
    """A call that was not done. `sqlstate`: None or empty if there was no answer."""

    def __init__(self, fault: Exception, state: str | None) -> None:
        super().__init__(described(fault))
        self.sqlstate = state

    @property
    def is_of_values(self) -> bool:
        """Whether the database refuses the values of the call."""
        return is_of_values(self.sqlstate)


NUL: Final = re.compile(r"(?<!\\)(\\\\)*\\u0000")


class Failed(Exception):
    """Raised by a body that a second try cannot help. Its words become the error of the row."""


class WrongResult(Failed, ValueError):
    """A result that Postgres does not store. The work is done, and a second try would end the same way."""


class TaskReport(NamedTuple):
    outcome: str
    error: str | None = None
    result: str | None = None


def judge(
    fault: BaseException | None, row_says: str, *, is_stopped: bool, finished: TaskReport | None
) -> TaskReport | None:
    """The report after the body. None: nothing is reported, and the next launch takes over, or has done so.

    is_stopped: SIGTERM came from outside. A body whose own handler ends it is not done, unless it called `finish`.
    """
    if is_success(fault):
        fault = None
    if row_says == "lost":
        return None
    if row_says == "cancel" and (fault is not None or finished is None):
        return TaskReport("failed")  # the row keeps the reason that came with the cancel
    if fault is None:
        return finished or (None if is_stopped else TaskReport("succeeded"))
    if is_stopped or isinstance(fault, KeyboardInterrupt):
        return None
    if (failed := failed_in(fault)) is not None:
        return TaskReport("failed", as_text(str(failed) or type(failed).__name__)[:WORDS_BYTES].decode(errors="ignore"))
    is_final = isinstance(fault, SystemExit) and isinstance(fault.code, int) and fault.code in FINAL
    trace = as_text("".join(traceback.format_exception(fault)))
    return TaskReport("failed" if is_final else "retry", trace[-TAIL_BYTES:].decode(errors="ignore"))


def is_success(fault: BaseException | None) -> bool:
    """Whether the process would end with 0."""
    return fault is None or (isinstance(fault, SystemExit) and fault.code in (None, 0))


def failed_in(fault: BaseException) -> Failed | None:
    """The fault itself, or the first such fault of a group: an asyncio.TaskGroup wraps what its tasks raise."""
    while isinstance(fault, BaseExceptionGroup) and (group := fault.subgroup(Failed)) is not None:
        fault = group.exceptions[0]
    return fault if isinstance(fault, Failed) else None


def as_text(words: str) -> bytes:
    return words.replace("\0", "").encode(errors="replace")


def as_note(words: object) -> str:
    """One line of 200 characters, as in dispatch.plain_note."""
    return plain_note(str(words))


def as_progress(done: float) -> float:
    """The progress. Raises ValueError unless it is a number from 0 to 1."""
    with contextlib.suppress(TypeError):
        if 0 <= done <= 1:
            return round(float(done), 6)
    raise ValueError(f"progress is {done!r:.40}: a number from 0 to 1")


def as_result(result: object) -> str:
    """The result as JSON. Raises WrongResult if Postgres does not store it."""
    try:
        text = json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as fault:  # a set, NaN or half a character, 1,000 levels
        raise WrongResult(f"the result is no JSON that Postgres stores: {fault}") from fault
    if size > RESULT_BYTES:
        raise WrongResult(f"the result has {size} bytes, 65536 at most: leave the address of large results in it")
    if NUL.search(text):
        raise WrongResult("the result has a character NUL, which Postgres does not store")
    return text
