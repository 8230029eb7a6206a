"""The row of one launch: the three calls of its run, the meaning of CMD's exit status, and the progress file.

`Codes`: by default a failure is tried again, as a crash without a report is. Options of `dispatcher exec` change that.

`read_progress`: `0.42 reading month 5`. CMD writes the file, and each heartbeat of `exec` sends it.
"""

import asyncio
import contextlib
import math
import os
import stat
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

import asyncpg

from dispatcher.container import asking, dial
from dispatcher.container.contract import (
    CODES_RULE,
    FINAL,
    LaunchContract,
    NewestServer,
    OldPrimary,
    WrongEnvironment,
    described,
    is_final,
    is_of_values,
    read_statuses,
)

HELP: Final = frozenset({"-h", "--help"})
USAGE: Final = "usage: dispatcher exec [--final CODES] [--retry CODES] -- CMD [ARG…]"


class WrongOption(Exception):
    """An option of `exec` cannot be used. The message names option, value and rule."""


class Codes(NamedTuple):
    """The meaning of exit statuses. `final`: the statuses after which no second try helps."""

    final: frozenset[int] = FINAL

    def outcome(self, status: int) -> str:
        """The outcome to report for a status other than 0."""
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
    command = words[1:] if words[:1] == ["--"] else words
    if command and command[0].startswith("-") and not (command is words and command[0] in HELP):
        raise WrongOption(f"{command[0][:80]!r} is no option of exec, and no CMD: {USAGE}")
    return Codes((FINAL | given["--final"]) - given["--retry"]), command


def read_codes(option: str, written: str) -> frozenset[int]:
    try:
        return read_statuses(written)
    except ValueError as fault:
        raise WrongOption(f"{option} is {written[:80]!r}: CODES are {CODES_RULE}") from fault


FILE_BYTES: Final = 4096
"""Bytes of the end of the file that are read."""
MAYBE_MARKED: Final = "utf-8-sig"
"""UTF-8. PowerShell and .NET begin a file with a mark of it, which JSON does not have."""


class Progress(NamedTuple):
    """How far CMD is. `done`: from 0 to 1; None: CMD has not said it."""

    done: float | None = None
    note: str | None = None


NOTHING: Final = Progress()


def open_written(path: Path) -> int:
    """A descriptor of a file that CMD wrote. A pipe is not waited for.

    CMD may have another user than root, who exchanges what stands there at any moment. So root judges what it has
    opened. It follows no link but its own, and reads no second name of a private file of its own. A link of another
    user it opens as that user, and so a file where it lacks CAP_DAC_OVERRIDE, and the umask of CMD is 077.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK
    if os.geteuid() != 0:
        return os.open(path, flags)
    entry = os.open(path, os.O_PATH | os.O_NOFOLLOW)  # this very file or link, whatever takes its place
    try:
        written = os.fstat(entry)
        if written.st_uid == 0 and stat.S_ISLNK(written.st_mode):
            return os.open(path.parent / os.readlink("", dir_fd=entry), flags)
    finally:
        os.close(entry)
    try:
        return not_borrowed(os.open(path, flags | os.O_NOFOLLOW))
    except OSError:
        if written.st_uid == 0:
            raise
        return open_as_owner(path, flags, written)


def not_borrowed(file: int) -> int:
    """The same descriptor. Raises PermissionError for a file that root alone can read, and that has another name.

    Where fs.protected_hardlinks is 0, every user can give it one.
    """
    told = os.fstat(file)
    if told.st_uid == 0 and told.st_nlink > 1 and not told.st_mode & stat.S_IROTH:
        os.close(file)
        raise PermissionError("it is a second name of a file that root alone can read")
    return file


def open_as_owner(path: Path, flags: int, written: os.stat_result) -> int:
    """A descriptor of what the owner of `written` can read at this path."""
    with contextlib.ExitStack() as undo:
        groups, group = os.getgroups(), os.getegid()
        os.setgroups([])
        undo.callback(os.setgroups, groups)
        os.setegid(written.st_gid)
        undo.callback(os.setegid, group)
        os.seteuid(written.st_uid)
        undo.callback(os.seteuid, 0)
        return os.open(path, flags)


def read_progress(path: Path) -> Progress:
    """CMD's last progress. A file that cannot be read has none."""
    try:
        with os.fdopen(open_written(path), "rb") as file:
            if not stat.S_ISREG((told := os.fstat(file.fileno())).st_mode):
                return NOTHING
            file.seek(max(told.st_size - FILE_BYTES, 0))
            return parse_progress(file.read(FILE_BYTES).decode(MAYBE_MARKED, errors="replace"))
    except OSError:
        return NOTHING


def parse_progress(text: str) -> Progress:
    """The last line that is not empty: a number from 0 to 1, a note, or both. Other numbers are part of the note."""
    lines = [line for line in text.replace("\0", "").splitlines() if line.strip()]
    first, _, rest = lines[-1].strip().partition(" ") if lines else ("", "", "")
    try:
        done = float(first)
    except ValueError:
        done = math.nan
    if 0 <= done <= 1:
        return Progress(done, rest.strip() or None)
    return Progress(None, f"{first} {rest}".strip() or None)


T = TypeVar("T")
SQL: Final = Path(__file__).parents[1] / "sql" / "exec"
CALLS: Final = ("start", "heartbeat", "finish")
FAULTS: Final = (*dial.FAULTS, OldPrimary)


class NotStorable(Exception):
    """The row cannot hold the report. The message is the database's."""


AT_WORK: Final = (*FAULTS, WrongEnvironment)
"""Faults of calls. An unreadable URL is one: while CMD runs it may be readable again, as it was at the start."""


class ExecReport(NamedTuple):
    """The end of CMD.

    outcome: `succeeded`, `failed` or `retry`. Empty: nothing is reported.
    status: the exit status of this program.
    error: the message for the row.
    result: the result for the row, as JSON.
    """

    outcome: str
    status: int
    error: str | None = None
    result: str | None = None


class TaskRow(Protocol):
    """The three calls of a container."""

    async def start(self) -> tuple[str, str] | None:
        """Returns (run token, payload). None: the row does not accept this launch."""

    async def heartbeat(self, token: str, progress: Progress) -> str:
        """Returns `continue`, `cancel` or `lost`."""

    async def finish(self, token: str, report: ExecReport) -> str | None:
        """Returns the row's new status; None: the run has lost the row. NotStorable: the row cannot hold the report."""


class RowConnection:
    """The three calls in Postgres. Each opens a connection of its own.

    The id of the run is that of this process. If the kubelet starts the container again, the next process has another
    id and is refused.
    """

    def __init__(self, contract: LaunchContract) -> None:
        self._contract = contract
        self._newest = NewestServer()
        # Read now: while CMD runs, there may be no descriptor left.
        self._statements = {name: (SQL / f"{name}.sql").read_text(encoding="utf-8") for name in CALLS}
        self._run_id = os.urandom(16).hex()

    async def start(self) -> tuple[str, str] | None:
        found = await self._call("start", *self._contract.me, self._run_id)
        return (found["run_token"], found["payload"]) if found else None

    async def heartbeat(self, token: str, progress: Progress = NOTHING) -> str:
        found = await self._call("heartbeat", token, progress.done, progress.note)
        return str(found[0]) if found else "lost"

    async def finish(self, token: str, report: ExecReport) -> str | None:
        try:
            found = await self._call("finish", token, report.outcome, report.error, report.result)
        except asyncpg.PostgresError as fault:
            if is_of_values(fault.sqlstate):
                raise NotStorable(str(fault)) from fault
            raise
        return found[0] if found else None

    async def _call(self, name: str, *parameters: object) -> asyncpg.Record | None:
        url, statement = self._contract.database_url, self._statements[name]
        try:
            return await dial.ask_once(url, "dispatcher/exec", self._newest, statement, parameters)
        except dial.UnreadableUrl as fault:
            raise WrongEnvironment(f"TASK_DATABASE_URL cannot be used: {fault}") from None


async def ask_until(name: str, call: Callable[[], Awaitable[T]], deadline: float) -> T:
    """Repeats the call, with growing pauses. Gives up after a final fault, or if the deadline has passed."""
    pause = asking.pauses()
    while True:
        try:
            return await call()
        except AT_WORK as fault:
            if is_final(name, fault) or time.monotonic() >= deadline:
                raise
            say(f"task_{name}: {described(fault)}; asked again")
        await asyncio.sleep(next(pause))


say: Final = partial(asking.say, "dispatcher exec")
