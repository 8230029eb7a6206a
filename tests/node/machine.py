"""The namespaces of a node: own mounts, folders and processes, in the network of the run.

Invariant: everything that runs on the node is in one PID namespace. When its first process ends, all of it ends, as on
a machine that loses its power. `/run`, `/var/lib/kubelet` and other fixed paths of its programs are the node's own.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.controlplane.processes import Server

CACHES: Final = "caches"
"""The name of the folder for cache directories, beside the folders of the nodes. Each node has one of its own there."""
OWN_FOLDERS: Final = ("/var/lib/kubelet", "/var/lib/cni", "/var/log")
WANTED: Final = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
"""Kubelet sets these for the whole machine, unless they read so."""
FIRST: Final = """
set -e
mount --make-rshared /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
{binds}
echo ready > {ready}
while :; do sleep 1000 & wait; done
"""


class Machine:
    """`folder` holds everything of the node. `start` boots it, `kill` cuts its power; its disk stays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._first: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
        script = FIRST.format(binds="\n".join(self._binds()), ready=ready)
        self._first = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command, "/bin/sh", "-c", script])

    def is_ready(self) -> bool:
        assert self._first is not None
        assert self._first.poll() is None, "the first process of the node ended"
        return (self.folder / "ready").exists()

    def _binds(self) -> list[str]:
        lines = []
        for path in (*OWN_FOLDERS, str(self.folder.parent / CACHES)):
            own = self.folder / path.strip("/").replace("/", "-")
            own.mkdir(exist_ok=True)
            lines += [f"mkdir -p {path}", f"mount --bind {own} {path}"]
        for number, (path, text) in enumerate(WANTED.items()):
            own = self.folder / f"sysctl-{number}"
            own.write_text(text)
            lines += [f"mount --bind {own} /proc/sys/{path}"]
        return lines

    @property
    def first(self) -> int:
        """Pid of the node's first process."""
        assert self._first is not None
        return children(self._first.pid)[0]

    def kill(self) -> None:
        if self._first is not None:
            self._first.kill()  # `--kill-child` ends the first process, and the kernel all others
            self._first.wait()
            self._first = None

    def program(self, name: str, command: Sequence[str]) -> "Program":
        return Program(name, ["nsenter", f"--target={self.first}", "--mount", "--pid", "--", *command], self.folder)


class Program(Server):
    """A program on the node. Its containers go on when it is killed."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        super().__init__(name, command, folder / f"{name}.log")

    def kill(self) -> None:
        for child in children(self.pid) if self.pid else ():
            os.kill(child, signal.SIGKILL)  # nsenter, the process that we know, waits for it
        super().kill()


def children(pid: int) -> list[int]:
    """Pids of its children; none if it has ended."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
