"""One container as a process of this machine, and whoever keeps watch over it while the kubelet is away.

Run as `python -I -S shim.py FOLDER`; needs nothing but the standard library. It reads `spec.json` (argv, env, cwd),
writes `running.json` when the process runs and `ended.json` when it has ended with everything it left behind, and holds
a lock on `alive` as long as it lives: whoever finds its pid there, and no lock, knows that it is gone. SIGTERM goes to
the process alone, as to PID 1 of a container; SIGUSR1 ends all of them at once. Both may come before there is one.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

SUBREAPER = 36  # prctl(PR_SET_CHILD_SUBREAPER): orphans of the container come to us, and no process gets away
PARENT_DEATH = 1  # prctl(PR_SET_PDEATHSIG): a container whose shim is killed does not work on unseen
SWEEPS = 100
"""Descendants that are born as fast as they are killed: not for ever."""


class Container:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None
        self._asked: set[int] = set()

    def listen(self) -> None:
        """From here on nothing that is asked of it gets lost."""
        signal.signal(signal.SIGTERM, self._hear)
        signal.signal(signal.SIGUSR1, self._hear)

    def run(self) -> None:
        """From start to end; what cannot be started has ended, too."""
        spec = json.loads((self._folder / "spec.json").read_text(encoding="utf-8"))
        try:
            with (self._folder / "log").open("ab") as log:
                self._child = subprocess.Popen(  # noqa: S603  # a container is what we are for
                    spec["argv"], env=spec["env"], cwd=spec["cwd"], preexec_fn=bind_to_parent,  # noqa: PLW1509  # one thread
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
        except (OSError, ValueError) as fault:
            words = fault.strerror if isinstance(fault, OSError) else str(fault)
            told = f'exec: "{spec["argv"][0]}": {str(words).lower()}'
            self._write("ended", {"fault": told, "at": time.time()})
            return
        self._write("running", {"at": time.time()})
        for number in self._asked:
            self._hear(number)
        code = self._child.wait()
        ended_at = time.time()
        self._kill()
        self._write("ended", {"exit_code": code if code >= 0 else 128 - code, "at": ended_at})

    def _write(self, name: str, told: object) -> None:
        """Whole or not at all."""
        (self._folder / f"{name}.new").write_text(json.dumps(told), encoding="utf-8")
        (self._folder / f"{name}.new").rename(self._folder / f"{name}.json")

    def _hear(self, number: int, _: FrameType | None = None) -> None:
        if self._child is None:
            self._asked.add(number)
        elif number == signal.SIGUSR1:
            self._kill()
        else:
            self._child.send_signal(number)

    def _kill(self) -> None:
        """The session first, then whoever left it."""
        assert self._child is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        for _ in range(SWEEPS):
            others = [pid for pid in children() if pid != self._child.pid]
            if not others:
                return
            for pid in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def bind_to_parent() -> None:
    """In the child, before it becomes the container."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL, 0, 0, 0)


def children() -> list[int]:
    """Processes whose parent we are, where the kernel tells."""
    try:
        return [int(pid) for pid in Path("/proc/self/task", str(os.getpid()), "children").read_text().split()]
    except OSError:
        return []


def main(folder: Path) -> None:
    container = Container(folder)
    container.listen()
    with (folder / "alive").open("a") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)  # waits: somebody may only be looking, and a second shim finds it done
        if any((folder / f"{name}.json").exists() for name in ("running", "ended")):
            return
        alive.truncate(0)
        alive.write(str(os.getpid()))
        alive.flush()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
        container.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
