"""A task's command: a session of its own, the end of its stderr, and whoever is orphaned to us.

As PID 1 of a container we inherit every process whose parent has died, and must reap it. When CMD has ended, what is
left of its session is ended too, as the kernel does with a container: nothing may work on for a row that has moved on.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

TAIL_BYTES: Final = 4096
SWEEPS: Final = 100
SWEEP_SECONDS: Final = 0.01
"""Members of the session that are born as fast as they are killed: not for ever."""
LAST_WORDS_SECONDS: Final = 1
"""How long the end of stderr is waited for after CMD has ended: a process that left the session may hold it open."""


class NotStarted(Exception):
    """CMD is not there, or cannot be run; `status` as a shell has it."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


class Command:
    """CMD, once; `start` before anything else, within a running loop."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._argv = argv
        self._env = env
        self._tail = bytearray()
        self._loop = asyncio.get_running_loop()
        self._child: subprocess.Popen[bytes] | None = None
        self._ended: asyncio.Future[int] = self._loop.create_future()

    def start(self) -> None:
        """Raises NotStarted."""
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        try:
            self._child = subprocess.Popen(  # noqa: S603  # CMD is what we are for
                self._argv, env=self._env, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as fault:
            missing = isinstance(fault, FileNotFoundError)
            name = os.fsencode(self._argv[0]).decode(errors="replace")
            raise NotStarted(f"{name}: {fault.strerror}", 127 if missing else 126) from fault
        self._reader = threading.Thread(target=self._read, daemon=True)  # a log that is stuck must not stop heartbeats
        self._reader.start()

    async def wait(self) -> int:
        """The exit status, negative for a signal; nothing of CMD's session is left."""
        status = await self._ended
        for _ in range(SWEEPS):
            if not self.signal(signal.SIGKILL):
                break
            await asyncio.sleep(SWEEP_SECONDS)
        await self._loop.run_in_executor(None, self._reader.join, LAST_WORDS_SECONDS)
        return status

    def tail(self) -> str:
        """The last 4 KiB of stderr, as text that Postgres takes."""
        return bytes(self._tail[-TAIL_BYTES:]).decode(errors="replace").replace("\0", "")

    def signal(self, number: signal.Signals) -> bool:
        """To everybody of CMD's session, whatever groups it made. True: somebody was there."""
        there = members(self._child.pid) if self._child is not None else []
        for pid in there:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or one that became another user
                os.kill(pid, number)
        return bool(there)

    def stop(self, grace_seconds: float) -> None:
        """SIGTERM, and SIGKILL after the grace."""
        self.signal(signal.SIGTERM)
        self._loop.call_later(grace_seconds, self._kill)

    def _kill(self) -> None:
        if not self._ended.done():
            self.signal(signal.SIGKILL)

    def _reap(self) -> None:
        """One signal may stand for many children."""
        with contextlib.suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if self._child is not None and reaped[0] == self._child.pid:
                    self._child.returncode = os.waitstatus_to_exitcode(reaped[1])
                    self._ended.set_result(self._child.returncode)

    def _read(self) -> None:
        assert self._child is not None
        assert self._child.stderr is not None
        descriptor = self._child.stderr.fileno()
        while chunk := os.read(descriptor, 65536):
            self._tail = (self._tail + chunk)[-TAIL_BYTES:]
            with contextlib.suppress(OSError):  # our own stderr is gone: CMD must not feel it
                os.write(2, chunk)


def members(session: int) -> list[int]:
    """Processes of a session that are no zombies; where there is no /proc, its first group stands for all."""
    try:
        there = [int(one.name) for one in Path("/proc").iterdir() if one.name.isdecimal()]
    except OSError:
        return [-session]
    found = []
    for pid in there:
        with contextlib.suppress(OSError):
            if os.getsid(pid) == session and not is_zombie(pid):
                found.append(pid)
    return found


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
