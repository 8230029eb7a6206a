"""Processes that a demo keeps alive. Each is recorded for the guard, and started again when it ends by itself."""

import asyncio
import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from dispatcher.commands.reaching import ALIVE, PREFIX
from dispatcher.model.errors import DispatcherError

GUARD: Final = Path(__file__).with_name("guard.py")
RESTARTS: Final = 3
"""Ends within WITHIN_SECONDS after which a process counts as broken."""
WITHIN_SECONDS: Final = 30
"""See RESTARTS."""
TAIL_BYTES: Final = 1500
"""Bytes of the end of a log that a fault quotes."""


class ChildFault(DispatcherError):
    """A process ends again and again. The text holds the end of its log."""


class RunFolder:
    """A temporary folder of one run. It and everything that runs in it end with this process, however it ends."""

    def __init__(self) -> None:
        """Makes the folder, closed to other accounts. Raises DispatcherError if it cannot be made."""
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        except OSError as fault:
            raise unwritable(fault) from fault
        (self.folder / "pids").mkdir()
        self._alive = (self.folder / ALIVE).open("w")
        fcntl.flock(self._alive, fcntl.LOCK_EX)
        self._command = [sys.executable, "-I", "-S", str(GUARD), str(self.folder)]
        self._guard = subprocess.Popen(  # noqa: S603  # our own file
            self._command, stdin=subprocess.PIPE, cwd="/",
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0,
        )  # fmt: skip
        self.group = self._guard.pid

    def close(self) -> None:
        """Returns when nothing is left. If the guard was killed, a second guard does its work."""
        self._alive.close()
        self._guard.communicate()
        if self.folder.exists():
            subprocess.run(self._command, stdin=subprocess.DEVNULL, cwd="/", process_group=0, check=False)  # noqa: S603  # our own file

    def note(self, name: str, pid: int) -> None:
        (self.folder / "pids" / name).write_text(str(pid))

    def kill(self, *names: str) -> None:
        """Kills these recorded processes now, before the guard ends the rest."""
        for name in names:
            with suppress(FileNotFoundError, ProcessLookupError):
                os.kill(int((self.folder / "pids" / name).read_text()), signal.SIGKILL)

    def forget(self, name: str) -> None:
        (self.folder / "pids" / name).unlink(missing_ok=True)


UNWRITABLE: Final = frozenset({errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.EPERM, errno.EROFS})


def unwritable(fault: OSError) -> DispatcherError:
    """The error for a folder of temporary files that cannot be written to."""
    where = f"nowhere to write: {fault.strerror or fault}"
    return DispatcherError(f"{where}; name a folder in TMPDIR that has room, and that you may write to")


Start = Callable[[], Awaitable[asyncio.subprocess.Process]]


class Keeper:
    """Keeps processes alive. `tell` receives a line for each process that had to be started again."""

    def __init__(self, run_folder: RunFolder, tell: Callable[[str], None]) -> None:
        self._run_folder = run_folder
        self._tell = tell
        self._watches: list[asyncio.Task[None]] = []
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._starts = Counter[str]()
        self._killed: set[str] = set()

    async def keep(self, name: str, start: Start) -> None:
        """Starts the process, and starts it again when it ends. Returns once it runs."""
        process = await self._begin(name, start)
        self.watch(self._watch(name, start, process))

    def watch(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Runs the work, until `close` at the latest. `check` raises its fault."""
        self._watches.append(asyncio.create_task(work))
        return self._watches[-1]

    def kill(self, name: str) -> bool:
        """Kills a process as a crash does. It is started again, and its end is no fault. False: it does not run now."""
        process = self._running.get(name)
        if process is None or process.returncode is not None:
            return False
        self._killed.add(name)
        process.kill()
        return True

    def starts(self, name: str) -> int:
        """Number of starts of the process."""
        return self._starts[name]

    def check(self) -> None:
        """Raises ChildFault if a process ended too often, and DispatcherError if it could not be started again."""
        for watch in self._watches:
            if watch.done() and (fault := watch.exception()):
                raise fault if isinstance(fault, DispatcherError) else DispatcherError(str(fault))

    async def close(self) -> None:
        """Ends the watch over the processes. The processes go on."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    async def _begin(self, name: str, start: Start) -> asyncio.subprocess.Process:
        process = await start()
        self._run_folder.note(name, process.pid)
        self._running[name] = process
        self._starts[name] += 1
        return process

    async def _watch(self, name: str, start: Start, process: asyncio.subprocess.Process) -> None:
        ends: deque[float] = deque(maxlen=RESTARTS)
        while True:
            code = await process.wait()
            self._run_folder.forget(name)
            if name in self._killed:
                self._killed.remove(name)
                process = await self._begin(name, start)
                continue
            ends.append(time.monotonic())
            if len(ends) == RESTARTS and ends[-1] - ends[0] < WITHIN_SECONDS:
                raise ChildFault(f"{name} ended {RESTARTS} times, the last time with {code}:\n{self.tail(name)}")
            self._tell(f"{name} ended with {code}, and is started again")
            process = await self._begin(name, start)

    def tail(self, name: str) -> str:
        """The end of the log of the process."""
        log = self._run_folder.folder / f"{name}.log"
        return log.read_bytes()[-TAIL_BYTES:].decode(errors="replace") if log.exists() else ""

    def program(self, name: str, *arguments: str, env: Mapping[str, str] | None = None) -> Start:
        """A function that starts `python -m …` with its output in `NAME.log`. `env`: more variables for the program."""

        async def start() -> asyncio.subprocess.Process:
            kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
            with (self._run_folder.folder / f"{name}.log").open("ab") as log:
                return await asyncio.create_subprocess_exec(
                    sys.executable, "-m", *arguments, env={**kept, **(env or {})}, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, process_group=self._run_folder.group,  # Ctrl-C reaches only the demo
                )  # fmt: skip

        return start
