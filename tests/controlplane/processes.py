"""One server process of the control plane, and the ports it listens on.

Invariant: a server is known by the pid we started, and by nothing else. It does not outlive this process, where
`setpriv` is at hand, even when this process is killed. Ctrl-C at the terminal does not reach it.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path


class ServerDied(Exception):
    """A server ended by itself; the message carries the end of its log."""


class Server:
    """A program with a log file of its own; can be started again after it was killed."""

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

    def check(self) -> None:
        """Raises if the server was started and is no more."""
        if self._process is not None and (code := self._process.poll()) is not None:
            tail = self._log.read_text(errors="replace")[-3000:]
            raise ServerDied(f"{self.name} ended with {code}; the end of its log:\n{tail}")

    def kill(self) -> None:
        """Ends it at once, frozen or not. What has to last is in etcd's folder, what has not goes with the test."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Returns when every thread of it stands still: one that is at work stops when it next looks at its signals."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"{self.name} ended instead of standing still"

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, f"{self.name} does not run"
        self._process.send_signal(number)


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on.

    They lie below the range the kernel gives to clients: a client that calls a stopped server again and again would
    otherwise be given the server's own port one day, reach itself, and keep the server from coming back.
    """
    found: list[int] = []
    for port in random.sample(range(20_000, 30_000), 1000):
        if len(found) == count:
            break
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    assert len(found) == count, "no free port on loopback"
    return found
