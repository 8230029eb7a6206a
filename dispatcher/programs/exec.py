"""`dispatcher exec -- CMD…`: runs the command of a task, and reports for it.

The program is part of images of task authors, so it is small: it imports only the driver and the standard library. It
holds no connection while CMD runs: a thousand tasks would hold a thousand. It promises:

* CMD runs only after `task_start` has accepted this launch.
* CMD goes on while the database is away. Its end is reported until the run limit.
* A lost answer is asked for again. That is safe, because the calls are idempotent for one Pod.

Failure story: if it is killed, at any moment, the row stays `processing`, and the next launch takes the row over.
"""

import asyncio
import os
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dispatcher.programs.exec_codes import USAGE, Codes, WrongOption, read_options
from dispatcher.programs.exec_command import Command, NotStarted
from dispatcher.programs.exec_isolated import restored
from dispatcher.programs.exec_progress import read_progress
from dispatcher.programs.exec_row import (
    AT_WORK,
    FAULTS,
    Misuse,
    NotStorable,
    Report,
    Row,
    TaskRow,
    ask_until,
    describe,
    read_contract,
    say,
)

HEARTBEAT_SECONDS: Final = 15
GRACE_SECONDS: Final = 30
"""Time between SIGTERM and SIGKILL when the row asks CMD to stop. It is kubelet's default, too."""
RESULT_BYTES: Final = 65536
TERMINATED: Final = 128 + signal.SIGTERM
UNREPORTED: Final = 69
"""EX_UNAVAILABLE of sysexits.h: CMD ended, and its end could not be reported."""
MISUSED: Final = 2


class Work(NamedTuple):
    """CMD, and the terms of its run.

    env: the environment of CMD, without its files.
    codes: what its exit status means for the row.
    limit_seconds: the run limit.
    heartbeat_seconds: time between two heartbeats.
    stdout: where CMD writes its output; None: where this program writes.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    codes: Codes
    limit_seconds: float
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    stdout: int | None = None


class Run:
    """One launch of one task, from its start to its report. `dispatcher try` runs it with a row of its own.

    stopped: is set when the program is asked to stop.
    command: CMD; None: it has not started.
    """

    def __init__(self, row: TaskRow, work: Work) -> None:
        self._row = row
        self._work = work
        self._deadline = time.monotonic() + work.limit_seconds
        self._row_answer = ""  # to a heartbeat: cancel or lost
        self.stopped = asyncio.Event()
        self.command: Command | None = None

    async def go(self) -> int:
        """Runs the launch. Returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopped.set)
        # Made before `task_start`: with a full disk the row must not start.
        with own_folder() as folder:
            started = await self._start()
            if started is None:
                return TERMINATED if self.stopped.is_set() else 0
            token, payload = started
            report = await self._run(token, payload, Path(folder))
            return report.status if report.outcome == "" else await self._report(token, report)

    async def _start(self) -> tuple[str, str] | None:
        """Run token and payload. None: CMD must not run. Asks until the run limit: outages must not use up launches."""
        asking = asyncio.ensure_future(ask_until("task_start", self._row.start, self._deadline))
        stopped = asyncio.ensure_future(self.stopped.wait())
        await asyncio.wait([asking, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not asking.done():  # its result is unknown: if the row is ours, the next launch takes the row over
            asking.cancel()
            return None
        if self.stopped.is_set():
            return None
        if (started := asking.result()) is None:
            say("the row is not this launch's, or not any more: nothing to do")
        return started

    async def _run(self, token: str, payload: str, folder: Path) -> Report:
        names = {
            "TASK_PAYLOAD_FILE": "payload.json",
            "TASK_RESULT_FILE": "result.json",
            "TASK_PROGRESS_FILE": "progress",
        }
        files = {variable: folder / name for variable, name in names.items()}
        try:
            files["TASK_PAYLOAD_FILE"].write_text(payload, encoding="utf-8")
        except OSError as fault:
            return Report("retry", 1, f"TASK_PAYLOAD_FILE cannot be written: {fault}")
        env = {**self._work.env, **{name: str(path) for name, path in files.items()}}
        command = Command(self._work.argv, env, self._work.stdout)
        try:
            command.start()
        except NotStarted as fault:
            return Report("failed", fault.status, str(fault))
        self.command = command
        beating = self._beat(token, command, files["TASK_PROGRESS_FILE"])
        parallel = [asyncio.create_task(part) for part in (beating, self._pass_on(command))]
        try:
            status = await command.wait()
        finally:
            for task in parallel:
                task.cancel()
        return self._judge(status, command.tail(), files["TASK_RESULT_FILE"])

    async def _beat(self, token: str, command: Command, progress: Path) -> None:
        """Sends heartbeats with the progress, also while CMD stops. An unreachable database is no reason to stop."""
        while True:
            await asyncio.sleep(self._work.heartbeat_seconds)
            try:
                answer = await self._row.heartbeat(token, read_progress(progress))
            except AT_WORK as fault:
                say(f"task_heartbeat: {describe(fault)}")
                continue
            if answer != "continue" and not self._row_answer:
                say(f"the row says {answer}: CMD is stopped")
                self._row_answer = answer
                command.stop(GRACE_SECONDS)

    async def _pass_on(self, command: Command) -> None:
        await self.stopped.wait()
        command.signal(signal.SIGTERM)  # the kubelet enforces the grace period

    def _judge(self, status: int, tail: str, result: Path) -> Report:
        exited = status if status >= 0 else 128 - status
        if self._row_answer == "lost":
            return Report("", exited)
        if self._row_answer == "cancel":  # at any exit status: many programs exit with 0 after SIGTERM
            return Report("failed", exited)  # the row keeps the reason that came with the cancel
        if status == 0:
            return read_result(result)
        if self.stopped.is_set():
            say(f"{describe_end(status)} after SIGTERM: not reported, the next launch takes over")
            return Report("", TERMINATED)
        return Report(self._work.codes.outcome(exited), exited, tail or describe_end(status))

    async def _report(self, token: str, report: Report) -> int:
        """Reports until the run limit. Reports a failure instead of a result that the database cannot store."""
        try:
            answer = await ask_until("task_finish", lambda: self._row.finish(token, report), self._deadline)
        except NotStorable as fault:
            if report.result is not None:
                return await self._report(token, Report("failed", 1, f"TASK_RESULT_FILE cannot be stored: {fault}"))
            say(f"{report.outcome} was refused: {fault}")
            return UNREPORTED
        except AT_WORK as fault:
            say(f"{report.outcome} could not be reported: {describe(fault)}")
            return UNREPORTED
        if answer is None:
            say(f"{report.outcome} was not accepted: the row is somebody else's by now")
        return report.status


def read_result(path: Path) -> Report:
    """The report of success, with the content of the result file. A pipe is not waited for.

    The database checks that the content is JSON.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return Report("failed", 1, "TASK_RESULT_FILE is no file")
            written = file.read(RESULT_BYTES + 1)
        if len(written) > RESULT_BYTES:
            return Report(
                "failed", 1, "TASK_RESULT_FILE is larger than 64 KiB: leave the address of large results in it"
            )
        return Report("succeeded", 0, result=written.decode())
    except FileNotFoundError:
        return Report("succeeded", 0)
    except (OSError, UnicodeDecodeError) as fault:
        return Report("failed", 1, f"TASK_RESULT_FILE cannot be read: {fault}")


def describe_end(status: int) -> str:
    return f"CMD ended with status {status}" if status >= 0 else f"CMD was ended by {name_of(-status)}"


def own_folder() -> tempfile.TemporaryDirectory[str]:
    """For payload and result. OSError: none can be made; the message names the next step."""
    try:
        return tempfile.TemporaryDirectory(prefix="task-", ignore_cleanup_errors=True)
    except OSError as fault:
        raise OSError(f"{fault}: mount an emptyDir at /tmp, or name a folder in TMPDIR") from fault


def name_of(number: int) -> str:
    """The name of a signal. Real-time signals have none."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def main(argv: Sequence[str]) -> int:
    """Returns the exit status: CMD's, or one of our own."""
    try:
        codes, command = read_options(argv)
        if not command or command[0] in {"-h", "--help"}:
            print(USAGE, file=sys.stdout if command else sys.stderr)
            return 0 if command else MISUSED
        contract = read_contract(os.environ)
        work = Work(command, restored(os.environ), codes, contract.limit_seconds)
        return asyncio.run(Run(Row(contract), work).go())
    except (Misuse, WrongOption) as fault:
        say(str(fault))
        return MISUSED
    except FAULTS as fault:
        say(f"not started: {describe(fault)}")
        return 1
