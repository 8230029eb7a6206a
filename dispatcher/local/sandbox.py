"""The folder of one Pod on a node, and the shims of its containers.

Everything that the kubelet knows of a Pod stands here, so that it may be killed at any moment and goes on where it was:
a container is alive as long as its shim holds the lock, and over once there is `ended.json`.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dispatcher.local.facts import Order, Seen

SHIM_SECONDS: Final = 10
"""Within this a shim has begun, on a machine that is very busy too."""
SHIM: Final = Path(__file__).with_name("shim.py")
TAIL_BYTES: Final = 2048
TAIL_LINES: Final = 80
"""Of the log, as the kubelet puts it into a status."""


class Sandbox:
    """`folder` is this Pod's alone, and stays until `remove`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, name: str, order: Order) -> None:
        """Asked again after a crash, it starts nothing twice."""
        place = self._place(name)
        (place / "tmp").mkdir(parents=True, exist_ok=True)
        env = {"TMPDIR": str(place / "tmp"), **order.env}  # what it leaves there goes with the Pod
        (place / "spec.new").write_text(json.dumps({"argv": order.argv, "env": env, "cwd": order.cwd}))
        (place / "spec.new").rename(place / "spec.json")
        self.revive(name)

    def revive(self, name: str) -> None:
        """A shim for a container that has none. Two of them do no harm: the lock lets one, and it starts once."""
        command = [sys.executable, "-I", "-S", str(SHIM), str(self._place(name))]
        os.utime(self._place(name) / "spec.json")  # it has its time again
        nowhere = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)]
        os.posix_spawn(command[0], command, os.environ, file_actions=nowhere, setsid=True)  # `reap` hears of its end

    def look(self, name: str) -> Seen | None:
        """None: it was never started."""
        place = self._place(name)
        if not (place / "spec.json").exists():
            return None
        running, pid, is_alive = read(place / "running.json"), self.pid(name), self.is_alive(name)
        ended = read(place / "ended.json")  # read last: a shim that is not alive any more has written it before
        return Seen(
            started_at=running.get("at"),
            ended_at=ended.get("at"),
            exit_code=ended.get("exit_code"),
            fault=ended.get("fault", ""),
            tail=self.tail(name) if ended else "",
            is_gone=not ended and not is_alive and pid is not None,  # one without a pid has not begun
        )

    def terminate(self, name: str) -> bool:
        """False: its shim cannot hear yet."""
        self._signal(name, signal.SIGTERM)
        return self.pid(name) is not None

    def kill(self, name: str) -> None:
        self._signal(name, signal.SIGUSR1)

    def is_stranded(self, name: str, now: float) -> bool:
        """We were killed after its order was written and before its shim took it."""
        return self.pid(name) is None and now - (self._place(name) / "spec.json").stat().st_mtime > SHIM_SECONDS

    def names(self) -> list[str]:
        """Containers that were started."""
        return sorted(place.parent.name for place in self.folder.glob("containers/*/spec.json"))

    def pid(self, name: str) -> int | None:
        """Of the shim that has taken the lock, now or before."""
        with contextlib.suppress(FileNotFoundError):
            return int(text) if (text := (self._place(name) / "alive").read_text()) else None
        return None

    def is_alive(self, name: str) -> bool:
        """Whether a shim holds the lock."""
        try:
            with (self._place(name) / "alive").open() as alive:
                fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def tail(self, name: str) -> str:
        """Of its log, where there is one."""
        try:
            with (self._place(name) / "log").open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "".join(text.splitlines(keepends=True)[-TAIL_LINES:])

    def note(self, name: str, told: Mapping[str, Any]) -> None:
        """Remembers something of the Pod, over restarts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{name}.new").write_text(json.dumps(told))
        (self.folder / f"{name}.new").rename(self.folder / f"{name}.json")

    def recall(self, name: str) -> dict[str, Any]:
        return read(self.folder / f"{name}.json")

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _place(self, name: str) -> Path:
        return self.folder / "containers" / name

    def _signal(self, name: str, number: signal.Signals) -> None:
        pid = self.pid(name)
        if pid is not None and self.is_alive(name):
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(pid, number)


def reap() -> None:
    """Shims that were our children and have ended; whoever they kept is known by their folders."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def read(path: Path) -> dict[str, Any]:
    """Empty: not written, or cut short by a crash of the machine."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found
