"""Runs one container as a process of this machine, and watches it even while the kubelet is away.

Run as `python -I -S shim.py FOLDER`. The shim needs only the standard library. Files in the folder:

* `spec.json`: argv, env and cwd of the process.
* `running.json`: written once the process runs.
* `ended.json`: written once the process and all that it started have ended.
* `alive`: the shim's pid. The shim locks this file as long as it lives. A pid without a lock means: the shim is gone.

SIGTERM goes to the process alone, as to PID 1 of a container. SIGUSR1 kills all processes of the container at once.
Both may come before the process exists. They are blocked, and the shim takes them one by one: a Python handler would
run too late for a signal that comes just before the shim waits for the process.
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

SUBREAPER = 36  # prctl(PR_SET_CHILD_SUBREAPER): orphans of the container become our children, and none escapes
PARENT_DEATH = 1  # prctl(PR_SET_PDEATHSIG): the container's process is killed when its shim is
SIGNALS = frozenset({signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD})
"""The signals that the shim waits for."""
SWEEPS = 100
"""Most rounds of killing descendants, which may fork as fast as they are killed."""


class ContainerProcess:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Runs the container to its end. A container that cannot be started is recorded as ended."""
        spec = json.loads((self._folder / "spec.json").read_text(encoding="utf-8"))
        try:
            with (self._folder / "log").open("ab") as log:
                self._child = subprocess.Popen(  # noqa: S603  # running a container is the purpose
                    spec["argv"], env=spec["env"], cwd=spec["cwd"], preexec_fn=bind_to_parent,  # noqa: PLW1509  # one thread
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
        except (OSError, ValueError) as fault:
            reason = fault.strerror if isinstance(fault, OSError) else str(fault)
            message = f'exec: "{spec["argv"][0]}": {str(reason).lower()}'
            self._write("ended", {"fault": message, "at": time.time()})
            return
        self._write("running", {"at": time.time()})
        while (code := self._child.poll()) is None:
            self._pass_on(signal.sigwait(SIGNALS))  # SIGCHLD: it may have ended
        ended_at = time.time()
        self._kill()
        self._write("ended", {"exit_code": code if code >= 0 else 128 - code, "at": ended_at})

    def _write(self, name: str, state: object) -> None:
        """Writes the whole file or nothing."""
        (self._folder / f"{name}.new").write_text(json.dumps(state), encoding="utf-8")
        (self._folder / f"{name}.new").rename(self._folder / f"{name}.json")

    def _pass_on(self, number: int) -> None:
        assert self._child is not None
        if number == signal.SIGUSR1:
            self._kill()
        elif number == signal.SIGTERM:
            self._child.send_signal(number)

    def _kill(self) -> None:
        """Kills the container's session, then the processes that left the session."""
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


def listen() -> None:
    """Blocks the signals from now on. One that comes before the process starts is kept for it."""
    signal.signal(signal.SIGCHLD, lambda *_: None)  # an ignored signal may be dropped even while it is blocked
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def bind_to_parent() -> None:
    """Runs in the child, before the child becomes the container."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL, 0, 0, 0)


def children() -> list[int]:
    """Pids of our child processes. Empty where the kernel does not list them."""
    try:
        return [int(pid) for pid in Path("/proc/self/task", str(os.getpid()), "children").read_text().split()]
    except OSError:
        return []


def main(folder: Path) -> None:
    listen()
    container = ContainerProcess(folder)
    with (folder / "alive").open("a") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)  # waits: the kubelet tests the lock, and a second shim finds the work done
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
