"""The launch, as the environment of its container describes it, and what may be wrong with it and with its database.

What a body says: progress, note, result, and its end. Pure decisions; all texts are texts that Postgres stores.
"""

import json
import re
import traceback
from collections.abc import Mapping
from typing import Final, NamedTuple

from dispatcher.row_calls import described, is_of_values

NUMBERS: Final = ("TASK_ID", "TASK_ATTEMPT", "TASK_LAUNCH", "TASK_TIMEOUT_SECONDS")
TEXTS: Final = ("TASK_DATABASE_URL", "TASK_START_KEY", "JOB_UID", "POD_NAME")
TAKEN: Final = "TASK_TAKEN_BY"
"""Holds the pid of the process whose body runs, so that its child processes do not take the task again."""
URL: Final = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, the password's special characters percent-encoded"
FORMS: Final = {"TASK_DATABASE_URL": ("postgres(ql)?://.+", URL), "TASK_START_KEY": (r"[\da-fA-F-]{36}", "a UUID")}
TWICE: Final = {
    TAKEN: "the task is taken already: begin it once, under `if __name__ == '__main__'`",
    "TASK_RESULT_FILE": "`dispatcher exec` runs this program and reports for it: use one of the two",
}


class WrongEnvironment(Exception):
    """The environment is not that of a task's container."""


class DatabaseFault(Exception):
    """A call was not done. `sqlstate`: None or empty if there was no answer."""

    def __init__(self, fault: Exception, state: str | None) -> None:
        super().__init__(described(fault))
        self.sqlstate = state

    @property
    def is_of_values(self) -> bool:
        """Whether the database refuses what the call says."""
        return is_of_values(self.sqlstate)


class LaunchContract(NamedTuple):
    """The launch. `me`: the parameters of task_start, in their order, without the id of the process."""

    database_url: str
    limit_seconds: int
    me: tuple[int, str, int, int, str, str, str]


def read_contract(env: Mapping[str, str]) -> LaunchContract:
    """WrongEnvironment names all faults at once, and no value."""
    numbers = [int(text) if (text := env.get(name, "")[:18]).isdecimal() else 0 for name in NUMBERS]
    faults = [f"{name} is not a number above 0" for name, one in zip(NUMBERS, numbers, strict=True) if not one]
    faults += [f"{name} is not set" for name in TEXTS if not env.get(name)]
    faults += [
        f"{n} is not {words}" for n, (form, words) in FORMS.items() if env.get(n) and not re.fullmatch(form, env[n])
    ]
    faults += [f"{name} is set: {words}" for name, words in TWICE.items() if name in env]
    if faults:
        source = "A Secret sets TASK_DATABASE_URL, the dispatcher sets the other variables (docs/author.md)."
        raise WrongEnvironment(f"{'; '.join(faults)}. {source}")
    task_id, attempt, launch, limit = numbers
    me = (task_id, env["TASK_START_KEY"], attempt, launch, env["JOB_UID"], env.get("NODE_NAME", ""), env["POD_NAME"])
    return LaunchContract(env["TASK_DATABASE_URL"], limit, me)


RESULT_BYTES: Final = 65536
WORDS_BYTES: Final = 8192
TAIL_BYTES: Final = 4096
CONTROLS: Final = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
FINAL: Final = frozenset({64, 65, 66, 67, 68, 70, 72, 73, 76, 77, 78})
"""Exit statuses of sysexits.h after which no second try helps: those of `dispatcher exec`."""
NUL: Final = re.compile(r"(?<!\\)(\\\\)*\\u0000")


class Failed(Exception):
    """Raised by a body that a second try cannot help. Its words become the error of the row."""


class TaskReport(NamedTuple):
    outcome: str
    error: str | None = None
    result: str | None = None


def judge(
    fault: BaseException | None, row_says: str, *, is_stopped: bool, finished: TaskReport | None
) -> TaskReport | None:
    """The report after the body. None: nothing is reported, and the next launch takes over, or has done so.

    is_stopped: SIGTERM came from outside. A body that ends by its own handler of it is not done, unless it said so.
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
