"""`dispatcher exec -- CMD…`: runs the command of a task, and reports for it.

The program is part of images of task authors, so it is small: it imports only the driver and the standard library. It
holds no connection while CMD runs: a thousand tasks would hold a thousand. It promises:

* CMD runs only after `task_start` has accepted this launch.
* CMD goes on whatever the database answers. Its end is reported until the run limit.
* An end after SIGTERM is no success, unless CMD says so by a result file.
* A lost answer is asked for again. That is safe, because the calls are idempotent for one Pod.

Failure story: if it is killed, at any moment, the row stays `processing`, and the next launch takes the row over.

`CommandRun`: when CMD has ended, the rest of its session is killed, as the kernel does with a container: no process may
work on for a row that has moved on.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dispatcher.container.asking import write_words
from dispatcher.container.contract import (
    PUT_OFF,
    RESULT_BYTES,
    START_SECONDS,
    TAIL_BYTES,
    UNREPORTED,
    WrongEnvironment,
    described,
    is_of_values,
    read_contract,
)
from dispatcher.container.dial import Loop
from dispatcher.container.isolated import restored
from dispatcher.container.row import (
    AT_WORK,
    FAULTS,
    HELP,
    MAYBE_MARKED,
    USAGE,
    Codes,
    ExecReport,
    NotStorable,
    RowConnection,
    TaskRow,
    WrongOption,
    ask_until,
    open_written,
    read_options,
    read_progress,
    say,
)

SWEEPS: Final = 100
SWEEP_SECONDS: Final = 0.01
"""Limits for killing the session, whose members may fork as fast as they are killed."""
LAST_WORDS_SECONDS: Final = 1
"""Longest wait for the end of stderr after CMD has ended. A process that left the session may hold stderr open."""


class NotStarted(Exception):
    """CMD is absent, or cannot be run.

    status: the exit status that a shell gives.
    passes: the fault is the node's or the moment's, and may pass.
    """

    def __init__(self, words: str, status: int, *, passes: bool = False) -> None:
        super().__init__(words)
        self.status, self.passes = status, passes


OF_CMD: Final = frozenset({
    errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.E2BIG, errno.ENOEXEC,
    errno.EINVAL,
})  # fmt: skip
"""Faults of a start that another try has again. Others are the node's or the moment's: no memory, a busy file, a disk,
an image whose files come over the network when they are read.
"""


class CommandRun:
    """The command of a task: its session, the end of its stderr, and the orphans that we inherit.

    One run of CMD. It needs a running event loop, and `start` before anything else. As PID 1 of a container we inherit
    every process whose parent has died, and must reap it.

    stdout: the descriptor that CMD writes to; None: ours.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], stdout: int | None = None) -> None:
        self._argv = argv
        self._env = env
        self._stdout = stdout
        self._reader = StderrReader()
        self._loop = asyncio.get_running_loop()
        self._child: subprocess.Popen[bytes] | None = None
        self._is_refused = False  # a process of CMD could not be signalled
        self._ended: asyncio.Future[int] = self._loop.create_future()

    def start(self) -> None:
        """Starts CMD. Raises NotStarted if it cannot be run."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})  # whoever started us may have blocked it
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        name = os.fsencode(self._argv[0]).decode(errors="replace")
        try:
            words, stderr = os.pipe()
        except OSError as fault:
            raise NotStarted(f"{name}: {fault.strerror}", 126, passes=True) from fault
        try:  # the thread first: CMD may use up all that can be started
            self._reader.start_with(words)
            self._child = subprocess.Popen(  # noqa: S603  # running CMD is the purpose
                self._argv, env=self._env, stdout=self._stdout, stderr=stderr, start_new_session=True
            )
        except RuntimeError as fault:  # no thread can be started now
            os.close(words)
            raise NotStarted(f"{name}: {fault}", 126, passes=True) from fault
        except OSError as fault:
            missing = isinstance(fault, FileNotFoundError)
            words_of_it = f"{name}: {fault.strerror}"
            if missing and shutil.which(self._argv[0], path=self._env.get("PATH")):
                words_of_it = f"{name}: it is there, and what its first line names, or its loader, is not"
            raise NotStarted(words_of_it, 127 if missing else 126, passes=fault.errno not in OF_CMD) from fault
        finally:
            os.close(stderr)

    async def wait(self) -> int:
        """The exit status; -n: ended by signal n. Ends the rest of CMD's session before it returns."""
        status = await self._ended
        for _ in range(SWEEPS):
            if not self.signal(signal.SIGKILL):
                break
            await asyncio.sleep(SWEEP_SECONDS)
        for _ in range(int(LAST_WORDS_SECONDS / SWEEP_SECONDS)):
            if not self._reader.is_alive():
                return status
            await asyncio.sleep(SWEEP_SECONDS)
        self._reader.read_rest()
        return status

    @property
    def is_running(self) -> bool:
        return not self._ended.done()

    def tail(self) -> str:
        """The last 4 KiB of stderr, as text that Postgres accepts."""
        return self._reader.tail.decode(errors="replace").replace("\0", "")

    def signal(self, number: signal.Signals) -> bool:
        """Sends a signal to all processes of CMD's session, in any process group. True: there was one."""
        pids = members(self._child.pid) if self._child is not None else []
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # it ended
            except PermissionError:
                self._tell_refusal(pid)
        return bool(pids)

    def _tell_refusal(self, pid: int) -> None:
        """Says once that a process has another user, and cannot be signalled by us."""
        if not self._is_refused:
            self._is_refused = True
            say(f"process {pid} of CMD cannot be signalled, and works on: it has another user, and exec lacks CAP_KILL")

    def stop(self, grace_seconds: float) -> None:
        """Sends SIGTERM, and SIGKILL after the grace period."""
        self.signal(signal.SIGTERM)
        self._loop.call_later(grace_seconds, self._kill)

    def _kill(self) -> None:
        if not self._ended.done():
            self.signal(signal.SIGKILL)

    def _reap(self) -> None:
        """Reaps all children that have ended. One SIGCHLD may stand for many."""
        with contextlib.suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if self._child is not None and reaped[0] == self._child.pid:
                    self._child.returncode = os.waitstatus_to_exitcode(reaped[1])
                    # In the next turn of the loop: of two signals that come together, the later one is seen first.
                    self._loop.call_soon(self._ended.set_result, self._child.returncode)


class StderrReader(threading.Thread):
    """Passes on CMD's stderr, and keeps its end. It is a thread, because a blocked log must not stop heartbeats."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.tail = self._rest = b""
        self._words = -1

    def start_with(self, words: int) -> None:
        """Starts reading the descriptor `words`. Raises RuntimeError if no thread can be started now."""
        self._words = words
        self.start()

    def run(self) -> None:
        while chunk := os.read(self._words, 65536):
            self.tail = (self.tail + chunk)[-TAIL_BYTES:]
            write_words(chunk)
        write_words(self._rest)
        os.close(self._words)

    def read_rest(self) -> None:
        """Reads what CMD wrote last while the log takes nothing: the error of the row ends with it."""
        with contextlib.suppress(OSError):  # there is no /proc
            rest = os.open(f"/proc/self/fd/{self._words}", os.O_RDONLY | os.O_NONBLOCK)  # `run` still waits
            with os.fdopen(rest, "rb", buffering=0) as pipe:
                self._rest = pipe.read() or b""
        self.tail = (self.tail + self._rest)[-TAIL_BYTES:]


def members(session: int) -> list[int]:
    """Pids of a session, without zombies. Without /proc: its first process group, as a negative number."""
    try:
        pids = [int(one.name) for one in Path("/proc").iterdir() if one.name.isdecimal()]
    except OSError:
        return [-session]
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if os.getsid(pid) == session and not is_zombie(pid):
                found.append(pid)
    return found


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"


HEARTBEAT_SECONDS: Final = 15
"""Seconds between two heartbeats."""
GRACE_SECONDS: Final = 30
"""Seconds between SIGTERM and SIGKILL when the row asks CMD to stop. It is kubelet's default, too."""
TERMINATED: Final = 128 + signal.SIGTERM
STOPS: Final = {
    signal.SIGTERM: signal.SIGTERM,
    signal.SIGINT: signal.SIGTERM,
    signal.SIGQUIT: signal.SIGQUIT,  # the STOPSIGNAL of some images
}
"""The signals that stop this program, and the signals that CMD gets."""
MISUSED: Final = 2


class Work(NamedTuple):
    """CMD, and the terms of its run.

    env: the environment of CMD, without its files.
    codes: what its exit status means for the row.
    limit_seconds: the run limit.
    heartbeat_seconds: time between two heartbeats.
    stdout: the descriptor for CMD's output; None: this program's own.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    codes: Codes
    limit_seconds: float
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    stdout: int | None = None


class StartPostponed(Exception):
    """The database took no start for START_SECONDS. The message is its last answer."""


class LaunchRun:
    """One launch of one task, from its start to its report. `dispatcher try` runs it with a row of its own.

    stopped: is set when the program is asked to stop.
    command: CMD; None: it has not started.
    """

    def __init__(self, row: TaskRow, work: Work) -> None:
        self._row = row
        self._work = work
        self._deadline = time.monotonic() + work.limit_seconds
        self._row_answer = ""  # to a heartbeat: cancel or lost
        self._was_told = False  # CMD got a signal to stop from outside while it ran
        self._number = signal.SIGTERM
        self.stopped = asyncio.Event()
        self.command: CommandRun | None = None

    async def go(self) -> int:
        """Runs the launch. Returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in STOPS:
            loop.add_signal_handler(number, self._stop, number)
        # Made before `task_start`: with a full disk the row must not start.
        with own_folder() as folder:
            started = await self._start()
            if started is None:
                return TERMINATED if self.stopped.is_set() else 0
            token, payload = started
            report = await self._run(token, payload, Path(folder))
            return report.status if report.outcome == "" else await self._report(token, report)

    def _stop(self, number: signal.Signals) -> None:
        """Passes on each signal. CMD may wait for a second one."""
        self._number = STOPS[number]
        self._was_told = self._was_told or (self.command is not None and self.command.is_running)
        if self.stopped.is_set() and self.command is not None:
            self.command.signal(self._number)
        self.stopped.set()

    async def _start(self) -> tuple[str, str] | None:
        """Run token and payload. None: CMD must not run. Tries for a while, because most outages are short."""
        deadline = min(self._deadline, time.monotonic() + START_SECONDS)
        asking = asyncio.ensure_future(ask_until("start", self._row.start, deadline))
        stopped = asyncio.ensure_future(self.stopped.wait())
        await asyncio.wait([asking, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not asking.done():  # its result is unknown: if the row is ours, the next launch takes the row over
            asking.cancel()
            return None
        if self.stopped.is_set():
            return None
        try:
            started = asking.result()
        except FAULTS as fault:
            if is_of_values(getattr(fault, "sqlstate", None)):
                raise
            raise StartPostponed(described(fault)) from fault
        if started is None:
            say("the row is not this launch's, or not any more: nothing to do")
        return started

    async def _run(self, token: str, payload: str, folder: Path) -> ExecReport:
        names = {
            "TASK_PAYLOAD_FILE": "payload.json",
            "TASK_RESULT_FILE": "result.json",
            "TASK_PROGRESS_FILE": "progress",
        }
        files = {variable: folder / name for variable, name in names.items()}
        try:
            files["TASK_PAYLOAD_FILE"].write_text(payload, encoding="utf-8")
            files["TASK_PAYLOAD_FILE"].chmod(0o644)  # whatever the umask is; the folder bounds who reaches it
        except OSError as fault:
            return ExecReport("retry", 1, f"TASK_PAYLOAD_FILE cannot be written: {fault}")
        # The command needs no start key: exec has taken the row. A second start of it would be refused.
        env = {name: value for name, value in self._work.env.items() if name != "TASK_START_KEY"}
        env |= {name: str(path) for name, path in files.items()}
        command = CommandRun(self._work.argv, env, self._work.stdout)
        try:
            command.start()
        except NotStarted as fault:
            return ExecReport("retry" if fault.passes else "failed", fault.status, str(fault))
        self.command = command
        beating = self._beat(token, command, files["TASK_PROGRESS_FILE"])
        parallel = [asyncio.create_task(part) for part in (beating, self._pass_on(command))]
        try:
            status = await command.wait()
        finally:
            for task in parallel:
                task.cancel()
        return self._judge(status, command.tail(), files["TASK_RESULT_FILE"])

    async def _beat(self, token: str, command: CommandRun, progress: Path) -> None:
        """Sends heartbeats with the progress, also while CMD stops. An unreachable database is no reason to stop."""
        while True:
            await asyncio.sleep(self._work.heartbeat_seconds)
            try:
                answer = await self._row.heartbeat(token, read_progress(progress))
            except AT_WORK as fault:
                say(f"task_heartbeat: {described(fault)}")
                continue
            if answer != "continue" and not self._row_answer and command.is_running:
                self._row_answer = answer
                command.stop(GRACE_SECONDS)
                say(f"the row says {answer}: CMD must stop")

    async def _pass_on(self, command: CommandRun) -> None:
        await self.stopped.wait()
        self._was_told = self._was_told or command.is_running
        command.signal(self._number)  # the kubelet enforces the grace period

    def _judge(self, status: int, tail: str, result: Path) -> ExecReport:
        exited = status if status >= 0 else 128 - status
        if self._row_answer == "lost":  # by an end with 0, a row that a restore has set back would be parked
            return ExecReport("", exited if status or says_done(result) else TERMINATED)
        if self._row_answer == "cancel":  # at any exit status: many programs exit with 0 after SIGTERM
            return ExecReport("failed", exited)  # the row keeps the reason that came with the cancel
        if self._was_told and not (status == 0 and says_done(result) and read_result(result).outcome == "succeeded"):
            # Programs that save their work and exit with 0 on SIGTERM are not done.
            done = ". CMD says that it is done all the same by a result file" if status == 0 else ""
            say(f"{describe_end(status)} after SIGTERM: not reported, the next launch takes over{done}")
            return ExecReport("", TERMINATED)
        if status == 0:
            return read_result(result)
        words = [tail] if tail and status > 0 else [*filter(None, [tail.rstrip("\n")]), describe_end(status)]
        return ExecReport(self._work.codes.outcome(exited), exited, "\n".join(words))

    async def _report(self, token: str, report: ExecReport) -> int:
        """Reports until the run limit. Reports a failure instead of a result that the database cannot store."""
        try:
            answer = await ask_until("finish", lambda: self._row.finish(token, report), self._deadline)
        except NotStorable as fault:
            if report.result is not None and self._was_told:  # it was still being written
                say(f"TASK_RESULT_FILE cannot be stored: not reported, the next launch takes over: {fault}")
                return TERMINATED
            if report.result is not None:
                return await self._report(token, ExecReport("failed", 1, f"TASK_RESULT_FILE cannot be stored: {fault}"))
            say(f"{report.outcome} was refused: {fault}")
            return UNREPORTED
        except AT_WORK as fault:
            say(f"{report.outcome} could not be reported: {described(fault)}")
            return UNREPORTED
        if answer is None:
            say(f"{report.outcome} was not accepted: the row is somebody else's by now")
        return report.status


def read_result(path: Path) -> ExecReport:
    """The report of success, with the content of the result file.

    The database checks that the content is JSON.
    """
    try:
        with os.fdopen(open_written(path), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ExecReport("failed", 1, "TASK_RESULT_FILE is no file")
            written = file.read(RESULT_BYTES + 1)
        if len(written) > RESULT_BYTES:
            return ExecReport(
                "failed", 1, "TASK_RESULT_FILE is larger than 64 KiB: leave the address of large results in it"
            )
        return ExecReport("succeeded", 0, result=written.decode(MAYBE_MARKED) or None)
    except FileNotFoundError:
        return ExecReport("succeeded", 0)
    except (OSError, UnicodeDecodeError) as fault:
        return ExecReport("failed", 1, f"TASK_RESULT_FILE cannot be read: {fault}")


def says_done(result: Path) -> bool:
    """Whether CMD wrote a result, even `null`."""
    with contextlib.suppress(OSError):
        return result.stat().st_size > 0
    return False


def describe_end(status: int) -> str:
    return f"CMD ended with status {status}" if status >= 0 else f"CMD was ended by {name_of(-status)}"


def own_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for payload and result. Raises OSError with the next step if none can be made.

    An entrypoint that starts as root often goes on as another user (gosu, su-exec, setpriv), who writes here, too.
    """
    try:
        place = os.path.abspath(restored(os.environ).get("TMPDIR") or tempfile.gettempdir())  # noqa: PTH100  # CMD may go to another folder
        folder = tempfile.TemporaryDirectory(prefix="task-", dir=place, ignore_cleanup_errors=True)
        if os.geteuid() == 0:
            Path(folder.name).chmod(0o1777)
    except OSError as fault:
        raise OSError(f"{fault}: mount an emptyDir at /tmp, or name a folder in TMPDIR") from fault
    return folder


def name_of(number: int) -> str:
    """The name of a signal. Real-time signals have none."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def main(argv: Sequence[str]) -> int:
    """Runs the command line. Returns the exit status: CMD's, or one of our own."""
    try:
        codes, command = read_options(argv)
        if not command or command[0] in HELP:
            print(USAGE, file=sys.stdout if command else sys.stderr)
            return 0 if command else MISUSED
        contract = read_contract(os.environ)
        work = Work(command, restored(os.environ), codes, contract.limit_seconds)
        with asyncio.Runner(loop_factory=Loop) as runner:
            return runner.run(LaunchRun(RowConnection(contract), work).go())
    except (WrongEnvironment, WrongOption) as fault:
        say(str(fault))
        return MISUSED
    except FAULTS as fault:
        say(f"not started: {described(fault)}")
        return 1
    except StartPostponed as fault:
        say(f"not started: {fault}")
        return PUT_OFF
