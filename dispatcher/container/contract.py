"""The contract of a container: its environment, its calls, its limits, and the meaning of an exit status.

`dispatcher exec`, `dispatcher.task` and `dispatcher try` share this file. It runs in the container of a task, so it
needs only the standard library.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

PINNED: Final = {
    "search_path": "pg_catalog, pg_temp",
    # Any container can set these for the login of all, by ALTER ROLE. The server would log keys then.
    **dict.fromkeys(("debug_print_parse", "debug_print_rewritten", "debug_print_plan"), "off"),
    "log_parameter_max_length_on_error": "0",
    # By these, too: they would end the sessions of all containers.
    "local_preload_libraries": "",
    "idle_session_timeout": "0",
    "default_transaction_isolation": "read committed",  # in a stricter one a call may fail beside other calls
    "statement_timeout": "8000",  # a call that is given up here ends there, and leaves no session that waits for a lock
}
"""Settings that the session of a call sets for itself."""

START_SECONDS: Final = 300
"""Seconds for which a start is asked for. A container that waits longer would only keep its room from others."""
PUT_OFF: Final = 75
"""EX_TEMPFAIL of sysexits.h: the database took no start. The dispatcher does not count such a launch as one that failed
to start."""
UNREPORTED: Final = 69
"""EX_UNAVAILABLE of sysexits.h: the work ended, and its end could not be reported. With 0 the row would be parked."""
OF_VALUES: Final = ("22000", "22P02", "22P05", "22003", "22021", "22023", "54001", "DI")
"""Beginnings of SQLSTATEs that are about the values of a call.

In this order: a value that the driver refused, no JSON or UUID, a NUL in a text, a number out of range, a character
that the database does not have, a rule of the function, too deep JSON, a rule of an INSERT. Other codes of class 22,
such as the one of a division by zero, come from a trigger of somebody else.
"""
LAST_STATUS: Final = 255
CODES_RULE: Final = "exit statuses from 1 to 255, such as 2,64-68"
LOGIN_REFUSED: Final = "28P01"
"""The password changed since this container began. Its environment keeps the old one, so its report never arrives."""

SERVER: Final = (
    "SELECT (SELECT system_identifier::text FROM pg_catalog.pg_control_system()), "  # house: asked before any query
    "('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::integer"
)
"""The query for the server's identity: its system and its timeline, also before its first checkpoint as primary."""


CONNECT_SECONDS: Final = 5
"""The time for one host, in seconds, if the URL names none."""
LONGEST_CONNECT_SECONDS: Final = 60
"""The longest time for one host, in seconds."""


def host_seconds(written: str) -> int:
    """The time for one host. `written`: connect_timeout. With 0 libpq waits for ever, but our programs do not."""
    return min(int(written), LONGEST_CONNECT_SECONDS) if written.isdecimal() and int(written) else CONNECT_SECONDS


def variables_of_libpq(env: Mapping[str, str]) -> str:
    """The end of a message: what libpq may read beside a URL. An image has it for a database of its own."""
    set_here = sorted(name for name in env if name.startswith("PG"))
    return f". Or one of these variables is wrong: {', '.join(set_here)}" if set_here else ""


BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
)  # fmt: skip
"""Where images have the certificates of public authorities: Debian, distroless, Red Hat, SUSE, newer Fedora, Alpine."""


def bundle_of(env: Mapping[str, str], bundles: Sequence[str] = BUNDLES) -> str | None:
    """The image's file of public authorities, for an OpenSSL that was built elsewhere and looks in other places.

    None: it has none, or variables tell OpenSSL where to look.
    """
    if env.get("SSL_CERT_FILE") or env.get("SSL_CERT_DIR"):
        return None
    return next((one for one in bundles if Path(one).is_file()), None)


class OldPrimary(Exception):
    """The server was the primary once. Another server was promoted without its knowledge."""


class NewestServer:
    """The newest server that the connections of a program saw. Each promotion begins a timeline of a higher number."""

    def __init__(self) -> None:
        self._server, self._number = "", 0

    def learn(self, server: str, number: int) -> None:
        """Learns a server's number. Raises OldPrimary if the server, or a former standby of it, was seen with a higher
        one.
        """
        if server == self._server and number < self._number:
            raise OldPrimary(
                f"this server is on timeline {number}, and another one has been on {self._number}: it is an old "
                "primary. End it. If it was restored on purpose, restart this program"
            )
        self._server, self._number = server, number


def is_of_values(sqlstate: str | None) -> bool:
    """Whether the database refuses the values of the call, so that the same call is refused again.

    Every other fault passes, or a person mends it: a lock, a maintenance, a login, a disk, a fault of a trigger.

    sqlstate: None or empty if there was no answer.
    """
    return (sqlstate or "").startswith(OF_VALUES)


def is_final(call: str, fault: BaseException) -> bool:
    """Whether this call is not repeated. `call`: `start`, `heartbeat` or `finish`.

    A start is repeated after LOGIN_REFUSED: the new password may be on its way to the server. A URL that was read at
    the start may be readable again later, because its files may be.
    """
    if isinstance(fault, WrongEnvironment):
        return call == "start"
    state = getattr(fault, "sqlstate", None)
    return is_of_values(state) or (call == "finish" and state == LOGIN_REFUSED)


def described(fault: BaseException) -> str:
    """Type and text of a fault, and the server if it is known. It never has the URL, which holds a password."""
    return " ".join([type(fault).__name__ + ":", *str(fault).split(), *getattr(fault, "__notes__", ())])


@lru_cache(maxsize=1000)
def read_statuses(written: str) -> frozenset[int]:
    """The statuses of a text such as `2,64-68`. Raises ValueError for any other text."""
    spans = [span(part) for part in written.split(",")]
    if not all(one and one[0] > 0 and one[-1] <= LAST_STATUS for one in spans):
        raise ValueError(CODES_RULE)
    return frozenset().union(*spans)


def statuses_as_text(codes: Sequence[int]) -> str:
    """The text of such statuses, which are sorted."""
    spans = list[list[int]]()
    for code in codes:
        if spans and spans[-1][-1] == code - 1:
            spans[-1].append(code)
        else:
            spans.append([code])
    return ",".join(str(one[0]) if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in spans)


def span(part: str) -> range:
    """The statuses of `3` or `64-68`."""
    first, has_last, last = part.partition("-")
    return range(number(first), number(last if has_last else first) + 1)


def number(text: str) -> int:
    """The number. Raises ValueError unless it has one to three digits."""
    if len(text.strip()) > len(str(LAST_STATUS)):
        raise ValueError(text)
    return int(text)


NUMBERS: Final = ("TASK_ID", "TASK_ATTEMPT", "TASK_LAUNCH", "TASK_TIMEOUT_SECONDS")
ID_DIGITS: Final = 19
"""Digits of the largest id."""
TEXTS: Final = ("TASK_DATABASE_URL", "TASK_START_KEY", "JOB_UID", "POD_NAME")
TAKEN: Final = "TASK_TAKEN_BY"
"""Holds the pid of the process whose body runs, so that its child processes do not take the task again."""
URL_FORM: Final = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, the password's special characters percent-encoded"
FORMS: Final = {"TASK_DATABASE_URL": ("postgres(ql)?://.+", URL_FORM), "TASK_START_KEY": (r"[\da-fA-F-]{36}", "a UUID")}
TWICE: Final = {
    TAKEN: "the task is taken already: begin it once, under `if __name__ == '__main__'`",
    "TASK_RESULT_FILE": "`dispatcher exec` runs this program and reports for it: use one of the two",
}


class WrongEnvironment(Exception):
    """The environment is not that of a task's container."""


class LaunchContract(NamedTuple):
    """The launch. `me`: the parameters of task_start, in their order, without the id of the process."""

    database_url: str
    limit_seconds: int
    me: tuple[int, str, int, int, str, str, str]


def read_contract(env: Mapping[str, str], at_home: str = "use: dispatcher try -- CMD…") -> LaunchContract:
    """The launch. WrongEnvironment names all faults at once, and no value. `at_home`: what to do on a laptop."""
    env = {**env, "TASK_DATABASE_URL": env.get("TASK_DATABASE_URL", "").strip()}  # `echo` made a Secret with a newline
    numbers = [int(text) if (text := env.get(name, "")[:ID_DIGITS]).isdecimal() else 0 for name in NUMBERS]
    faults = [f"{name} is not a number above 0" for name, one in zip(NUMBERS, numbers, strict=True) if not one]
    faults += [f"{name} is not set" for name in TEXTS if not env.get(name)]
    faults += [
        f"{n} is not {words}" for n, (form, words) in FORMS.items() if env.get(n) and not re.fullmatch(form, env[n])
    ]
    faults += [f"{name} is set: {words}" for name, words in TWICE.items() if name in env]
    if faults:
        source = "A Secret sets TASK_DATABASE_URL: TASK_SECRET, or envFrom of the template."
        rest = "The dispatcher sets the other variables."
        raise WrongEnvironment(f"{'; '.join(faults)}. {source} {rest} On your own machine {at_home}")
    task_id, attempt, launch, limit = numbers
    me = (task_id, env["TASK_START_KEY"], attempt, launch, env["JOB_UID"], env.get("NODE_NAME", ""), env["POD_NAME"])
    return LaunchContract(env["TASK_DATABASE_URL"], limit, me)


RESULT_BYTES: Final = 65536
"""Bytes of a result, at most, without the blanks that jsonb has after commas and colons."""
WORDS_BYTES: Final = 8192
"""Bytes of an error, at most."""
TAIL_BYTES: Final = 4096
"""Bytes of the end of stderr that are kept."""
CONTROLS: Final = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
FINAL: Final = frozenset({64, 65, 66, 67, 68, 70, 72, 73, 76, 77, 78})
"""Exit statuses of sysexits.h after which no second try helps: wrong usage or input, a missing host or right, a bug."""
NOTE_CHARACTERS: Final = 200
"""Characters of a note, at most."""


def plain_note(words: str) -> str:
    """A note as the row keeps it: one line."""
    return CONTROLS.sub(" ", words[:1000])[:NOTE_CHARACTERS]
