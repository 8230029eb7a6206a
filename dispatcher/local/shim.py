"""One container as a process of this machine, and whoever keeps watch over it while the kubelet is away.

Run as `python -I -S shim.py FOLDER`; needs nothing but the standard library. It reads `spec.json` (argv, env, cwd),
writes `running.json` when the process runs and `ended.json` when it has ended with everything it left behind, and holds
a lock on `alive` as long as it lives: whoever can take that lock knows that it is gone. SIGTERM goes to the process
alone, as to PID 1 of a container; SIGUSR1 ends all of them at once.
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


class Container:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """From start to end; what cannot be started has ended, too."""
        spec = json.loads((self._folder / "spec.json").read_text(encoding="utf-8"))
        for number, act in ((signal.SIGTERM, self._pass_on), (signal.SIGUSR1, self._kill)):
            signal.signal(number, act)
        try:
            with (self._folder / "log").open("ab") as log:
                self._child = subprocess.Popen(  # noqa: S603  # a container is what we are for
                    spec["argv"], env=spec["env"], cwd=spec["cwd"],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
        except OSError as fault:
            words = f'exec: "{spec["argv"][0]}": {str(fault.strerror).lower()}'
            self._write("ended", {"fault": words, "at": time.time()})
            return
        self._write("running", {"at": time.time()})
        code = self._child.wait()
        ended_at = time.time()
        self._kill()
        self._write("ended", {"exit_code": code if code >= 0 else 128 - code, "at": ended_at})

    def _write(self, name: str, told: object) -> None:
        """Whole or not at all."""
        (self._folder / f"{name}.new").write_text(json.dumps(told), encoding="utf-8")
        (self._folder / f"{name}.new").rename(self._folder / f"{name}.json")

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        if self._child is not None:
            self._child.send_signal(number)

    def _kill(self, *_: object) -> None:
        """The session first, then whoever left it."""
        if self._child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        while others := [pid for pid in children() if pid != self._child.pid]:
            for pid in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def children() -> list[int]:
    """Processes whose parent we are, where the kernel tells."""
    try:
        return [int(pid) for pid in Path("/proc/self/task", str(os.getpid()), "children").read_text().split()]
    except OSError:
        return []


def main(folder: Path) -> None:
    with (folder / "alive").open("a") as alive:
        try:
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if any((folder / f"{name}.json").exists() for name in ("running", "ended")):
            return
        alive.truncate(0)
        alive.write(str(os.getpid()))
        alive.flush()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
        Container(folder).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
