"""The command of a task: its session, the end of its stderr, and the orphans that we inherit.

As PID 1 of a container we inherit every process whose parent has died, and must reap it. When CMD has ended, the rest
of its session is killed, as the kernel does with a container: no process may work on for a row that has moved on.
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
"""Limits for killing the session, whose members may fork as fast as they are killed."""
LAST_WORDS_SECONDS: Final = 1
"""Longest wait for the end of stderr after CMD has ended. A process that left the session may hold stderr open."""


class NotStarted(Exception):
    """CMD is absent, or cannot be run. `status`: the exit status that a shell gives."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


class Command:
    """One run of CMD. It needs a running event loop, and `start` before anything else.

    stdout: the descriptor that CMD writes to; None: ours.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], stdout: int | None = None) -> None:
        self._argv = argv
        self._env = env
        self._stdout = stdout
        self._tail = bytearray()
        self._loop = asyncio.get_running_loop()
        self._child: subprocess.Popen[bytes] | None = None
        self._ended: asyncio.Future[int] = self._loop.create_future()

    def start(self) -> None:
        """Starts CMD. NotStarted: it cannot be run."""
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        try:
            self._child = subprocess.Popen(  # noqa: S603  # running CMD is the purpose
                self._argv, env=self._env, stdout=self._stdout, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as fault:
            missing = isinstance(fault, FileNotFoundError)
            name = os.fsencode(self._argv[0]).decode(errors="replace")
            raise NotStarted(f"{name}: {fault.strerror}", 127 if missing else 126) from fault
        self._reader = threading.Thread(target=self._read, daemon=True)  # a blocked log must not stop heartbeats
        self._reader.start()

    async def wait(self) -> int:
        """The exit status; -n: ended by signal n. Ends the rest of CMD's session before it returns."""
        status = await self._ended
        for _ in range(SWEEPS):
            if not self.signal(signal.SIGKILL):
                break
            await asyncio.sleep(SWEEP_SECONDS)
        await self._loop.run_in_executor(None, self._reader.join, LAST_WORDS_SECONDS)
        return status

    def tail(self) -> str:
        """The last 4 KiB of stderr, as text that Postgres accepts."""
        return bytes(self._tail[-TAIL_BYTES:]).decode(errors="replace").replace("\0", "")

    def signal(self, number: signal.Signals) -> bool:
        """Sends a signal to all processes of CMD's session, in any process group. True: there was one."""
        pids = members(self._child.pid) if self._child is not None else []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended, or has another user now
                os.kill(pid, number)
        return bool(pids)

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
                    self._ended.set_result(self._child.returncode)

    def _read(self) -> None:
        assert self._child is not None
        assert self._child.stderr is not None
        descriptor = self._child.stderr.fileno()
        while chunk := os.read(descriptor, 65536):
            self._tail = (self._tail + chunk)[-TAIL_BYTES:]
            with contextlib.suppress(OSError):  # our own stderr is closed: that must not affect CMD
                os.write(2, chunk)


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
