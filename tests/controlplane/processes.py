"""One server process of the control plane.

Invariant: a server is identified only by the pid that we started. With `setpriv` it ends with this process, even when
this process is killed. Ctrl-C at the terminal does not reach it.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path


class ServerDied(Exception):
    """A server ended by itself. The message has the end of its log."""


class Server:
    """A program with its own log file. It can be started again after a kill."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        assert self._process is None, f"{self.name} runs already"
        die_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*die_with_us, *self._command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def has_ended(self) -> bool:
        """Whether the server was started and has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def check(self) -> None:
        """Raises ServerDied if the server was started and has ended."""
        if self.has_ended:
            assert self._process is not None
            raise ServerDied(f"{self.name} ended with {self._process.returncode}; {self.last_words()}")

    def last_words(self) -> str:
        return f"the end of the log of {self.name}:\n{self._log.read_text(errors='replace')[-3000:]}"

    def kill(self) -> None:
        """Kills the process, also a frozen one. Only etcd has state, in its folder."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stops the process, and waits until all its threads have stopped: SIGSTOP takes effect with a delay."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"{self.name} ended instead of standing still"

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, f"{self.name} does not run"
        self._process.send_signal(number)
