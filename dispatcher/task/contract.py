"""The launch, as the environment of its container describes it, and what may be wrong with it and with its database."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

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
AWAY: Final = ("08", "40", "53", "57", "25006")
"""Beginnings of SQLSTATEs that say: not now, or not from the primary server."""


class WrongEnvironment(Exception):
    """The environment is not that of a task's container."""


class DatabaseFault(Exception):
    """A call was not done. `state` is its SQLSTATE. Without one there was no answer."""

    def __init__(self, fault: Exception, state: str | None) -> None:
        super().__init__(f"{type(fault).__name__}: {' '.join(str(fault).split())}")
        self.is_away = not state or state.startswith(AWAY)
        self.is_of_value = (state or "").startswith(("22", "54"))


class Contract(NamedTuple):
    """The launch. `me`: the parameters of task_start, in their order."""

    database_url: str
    limit_seconds: int
    me: tuple[int, str, int, int, str, str, str]


def read_contract(env: Mapping[str, str]) -> Contract:
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
    return Contract(env["TASK_DATABASE_URL"], limit, me)
