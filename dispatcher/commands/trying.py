"""`dispatcher try -- CMD…`: runs CMD as `dispatcher exec` does in a container, without a database and a cluster.

`exec` itself runs CMD, judges its end and writes its files. Only the row and the kubelet are ours.

Not guaranteed: that a container has what this machine has: programs, variables, rights, memory.

`InMemoryRow`: the row in memory answers the three calls as the functions of sql/ do.
`tests/integration/test_try_agrees.py` runs the same commands with this row and with a row of Postgres.

`TryResult`: the report, and what becomes of the row, in words or as one JSON object.

`asked_of`: the options. A wrong one is reported with its value, the rule and the place.

`RunStopper`: sends SIGTERM at the run limit, and SIGKILL after the grace.
"""

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

import click
import msgspec
from msgspec import Struct

from dispatcher.commands.options import read_env, read_payload, span
from dispatcher.container.asking import say
from dispatcher.container.contract import RESULT_BYTES, WORDS_BYTES, described, plain_note
from dispatcher.container.exec import GRACE_SECONDS, TERMINATED, LaunchRun, Work
from dispatcher.container.isolated import as_given
from dispatcher.container.row import NOTHING, Codes, ExecReport, NotStorable, Progress, WrongOption, read_options
from dispatcher.jobs.env import check_env_names
from dispatcher.model.errors import DispatcherError, doubled
from dispatcher.model.stored_json import NotStoredJson, stored_json
from dispatcher.model.tasks import one_line, printable

RUN_UID: Final = "00000000-0000-0000-0000-000000000000"
NULL: Final = "null"
tell: Final = partial(say, "dispatcher try")


def closed_by_default(env: Mapping[str, str]) -> list[str]:
    """The variables that a template has to open by name before rows may set them."""
    return [told for name in env if (told := check_env_names([name], frozenset({"env"}), frozenset()))]


def env_of_cmd(env: Mapping[str, str], attempt: int, limit_seconds: int) -> dict[str, str]:
    """The environment of CMD: that of this shell, the row's variables, and the contract of a container."""
    contract = {
        "TASK_ID": "1",
        "TASK_QUEUE": "default",
        "TASK_ATTEMPT": str(attempt),
        "TASK_LAUNCH": "1",
        "TASK_START_KEY": RUN_UID,
        "TASK_TIMEOUT_SECONDS": str(limit_seconds),
        "TASK_CACHE_DIR": "",
        "NODE_NAME": "node",
        "POD_NAME": "pod",
        "POD_NAMESPACE": "default",
        "JOB_UID": RUN_UID,
    }
    return {**as_given(os.environ), **env, **contract}


RUN: Final = "00000000-0000-0000-0000-000000000001"
"""Stands for the run token."""
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 10, 600
STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
"""A string in JSON. All blanks outside of them are those of jsonb."""
TOO_LARGE: Final = (
    "the result is larger than 64 KiB\nHINT:  Put it into object storage and its address into the result."
)
Tell = Callable[[str], None]


class InMemoryRow:
    """One row, from its start to its report.

    status: as the column.
    progress: of the heartbeats, as the columns `progress` and `note` keep it.
    heartbeats: number of heartbeats that were sent.
    report: the report; None: there was none.
    result, error: the parts of the report that the row keeps.
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
        self.report: ExecReport | None = None
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

    async def finish(self, token: str, report: ExecReport) -> str | None:  # noqa: ARG002  # there is one run
        self.result = None if report.result is None else stored(report.result)
        self.error = None if report.error is None else clip(report.error)
        self.report = report
        self.status = status_after(report.outcome, is_cancelled=self.is_cancelled)
        return self.status


def kept(new: Progress, old: Progress) -> Progress:
    """The progress of the row after a heartbeat. A heartbeat without a value changes none."""
    note = old.note if new.note is None else plain_note(new.note)
    return Progress(old.done if new.done is None else new.done, note)


def told(progress: Progress) -> str:
    """Progress and note for people: ` with progress 0.42, note "reading"`."""
    done = "" if progress.done is None else f" progress {progress.done:g}"
    note = "" if progress.note is None else f' note "{one_line(progress.note)}"'
    return f" with{done}{',' if done and note else ''}{note}"


def stored(result: str) -> str:
    """The result as jsonb. Raises NotStorable with the message of the database that would refuse it."""
    try:
        found = stored_json(result)
    except NotStoredJson as fault:
        raise NotStorable(str(fault)) from fault
    if len(found.encode()) - STRING.sub("", found).count(" ") > RESULT_BYTES:
        raise NotStorable(TOO_LARGE)
    return found


def clip(error: str) -> str:
    return error.encode()[:WORDS_BYTES].decode(errors="ignore")


def status_after(outcome: str, *, is_cancelled: bool) -> str:
    """The status of a row that may fail again, after a report."""
    if outcome == "succeeded":
        return outcome
    if is_cancelled:
        return "cancelled"
    return "waiting" if outcome == "retry" else "failed"


def pause_seconds(attempt: int) -> float:
    """Seconds that a row waits after a failure, if each earlier attempt failed."""
    return doubled(RETRY_SECONDS, attempt - 1, LONGEST_RETRY_SECONDS)


MOST_SHOWN: Final = 1000
"""Characters of an error, and of a result, for a terminal, at most."""


def shortened(text: str) -> str:
    """The end of a long text, which has the cause, for a terminal."""
    words = printable(text).rstrip()
    return words if len(words) <= MOST_SHOWN else f"… {words[-MOST_SHOWN:]}"


def last_line(error: str) -> str:
    """The end of CMD's stderr, which was printed already. An error about a file of CMD stays whole."""
    lines = [line for line in error.splitlines() if line.strip()]
    return f"… {lines[-1]}" if len(lines) > 1 and not error.startswith("TASK_") else error


AGAIN: Final = "while max_failures lasts"


class Stop(StrEnum):
    """Why a launch ended without a report. `LIMIT` and `KILLED_AT_LIMIT`: it ran until the run limit."""

    SIGTERM = "ended after SIGTERM, without a result file"
    LIMIT = "ended after SIGTERM at the run limit, without a result file"
    KILLED = "killed, because it did not end after SIGTERM"
    KILLED_AT_LIMIT = "killed, because it did not end after SIGTERM at the run limit"

    @property
    def is_limit(self) -> bool:
        return self in {Stop.LIMIT, Stop.KILLED_AT_LIMIT}


class TryEnd(Struct, frozen=True):
    """The end of a launch.

    status: exit status.
    row: the row, as the launch leaves it.
    stop: why nothing was reported, if nothing was.
    attempt: the attempt that was tried.
    """

    status: int
    row: InMemoryRow
    stop: Stop
    attempt: int


class RowAfter(Struct, frozen=True):
    """The row: its status, and the seconds until it runs again by itself; None: it does not, or at once."""

    status: str
    runs_again_after_seconds: float | None


class TryResult(Struct, frozen=True):
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


def as_told(ended: TryEnd) -> TryResult:
    row = ended.row
    return TryResult(
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


def runs_again_later(ended: TryEnd) -> bool:
    return ended.row.status == "waiting" or (ended.row.report is None and ended.stop.is_limit)


def in_words(ended: TryEnd) -> str:
    row, report = ended.row, ended.row.report
    error = "without an error" if row.error is None else f"the row's error would be: {shortened(last_line(row.error))}"
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


def cut(result: str) -> str:
    words = printable(result)
    return words if len(words) <= MOST_SHOWN else f"{words[:MOST_SHOWN]} … ({len(result.encode())} bytes)"


HEARTBEAT_SECONDS: Final = 1
"""Seconds between two heartbeats."""
KILLED: Final = 128 + signal.SIGKILL
STDERR: Final = 2


class TryOptions(NamedTuple):
    """What is tried.

    cmd: CMD and its arguments.
    codes: the statuses after which no second try helps.
    payload: the payload, as the row keeps it.
    env: the variables that the row sets.
    limit_seconds: the run limit.
    attempt: the attempt of the row.
    cancel_after: seconds after which a heartbeat answers `cancel`; None: none does.
    as_json: whether the end is printed as JSON.
    """

    cmd: Sequence[str]
    codes: Codes
    payload: str
    env: dict[str, str]
    limit_seconds: int
    attempt: int = 1
    cancel_after: float | None = None
    as_json: bool = False


def asked_of(cmd: Sequence[str], final: Sequence[str], retry: Sequence[str], **given: Any) -> TryOptions:
    """The options of the command line. UsageError says what is wrong with them."""
    if not cmd:
        raise click.UsageError("CMD is missing: dispatcher try [OPTIONS] -- CMD [ARG…]")
    options = [*(f"--final={one}" for one in final), *(f"--retry={one}" for one in retry)]
    try:
        codes, _ = read_options([*options, "--", *cmd])
    except WrongOption as wrong:
        raise click.UsageError(str(wrong)) from wrong
    payload, env = read_payload(given["payload"]), read_env(given["env"])
    return TryOptions(
        cmd, codes, payload, env, given["timeout"], given["attempt"], given["cancel_after"], given["as_json"]
    )


class RunStopper:
    """Stops a run as kubelet stops a container. A second signal ends the grace.

    stop: what it did last.
    has_killed: whether it had to kill CMD.
    """

    def __init__(self, run: LaunchRun, limit_seconds: float, grace_seconds: float = GRACE_SECONDS) -> None:
        self._run = run
        self._limit_seconds = limit_seconds
        self._grace_seconds = grace_seconds
        self.stop = Stop.SIGTERM
        self.has_killed = False

    async def watch(self) -> None:
        try:
            async with asyncio.timeout(self._limit_seconds):
                await self._run.stopped.wait()
        except TimeoutError:
            tell(f"the run limit of {self._limit_seconds:g} s is over")
            self.stop = Stop.LIMIT
            self._run.stopped.set()
        tell(f"CMD gets SIGTERM, and SIGKILL after {self._grace_seconds:g} s or at a second signal")
        again = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, again.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._grace_seconds):
                await again.wait()
        self._kill()

    def _kill(self) -> None:
        tell("CMD gets SIGKILL")
        self.has_killed = True
        self.stop = Stop.KILLED_AT_LIMIT if self.stop.is_limit else Stop.KILLED
        if self._run.command is not None:
            self._run.command.signal(signal.SIGKILL)


def try_command(asked: TryOptions) -> int:
    """Runs CMD, and prints what would be reported. Returns the exit status."""
    for closed in closed_by_default(asked.env):
        tell(f"note: {closed}")
    try:
        ended = asyncio.run(run_command(asked))
    except OSError as fault:  # no folder for the files
        raise DispatcherError(f"not started: {described(fault)}") from fault
    tell(in_words(ended))
    if asked.as_json:
        print(printable(msgspec.json.encode(as_told(ended)).decode()))  # noqa: T201  # the output is the purpose
    return ended.status


async def run_command(asked: TryOptions, grace_seconds: float = GRACE_SECONDS) -> TryEnd:
    env = env_of_cmd(asked.env, asked.attempt, asked.limit_seconds)
    stdout = STDERR if asked.as_json else None
    work = Work(asked.cmd, env, asked.codes, asked.limit_seconds, HEARTBEAT_SECONDS, stdout)
    row = InMemoryRow(asked.payload, asked.cancel_after, tell)
    run = LaunchRun(row, work)
    kubelet = RunStopper(run, asked.limit_seconds, grace_seconds)
    watching = asyncio.create_task(kubelet.watch())
    try:
        status = await run.go()
    finally:
        watching.cancel()
    if row.report is None and kubelet.has_killed and status == TERMINATED:
        status = KILLED  # kubelet kills the whole container, so `exec` ends like CMD
    return TryEnd(status, row, kubelet.stop, asked.attempt)
