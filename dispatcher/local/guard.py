"""Ends a demo, however it ended: every process that it noted, every container, every file.

Run as `python -I -S guard.py FOLDER`, by whoever made the folder; needs nothing but the standard library. It waits for
the end of its input, which comes with a clean end, with Ctrl-C and with `kill -9` alike. In the folder: `pids/NAME`
(a process of the demo), `postgres/*/postmaster.pid`, `nodes/*/pods/*/containers/*/alive` (a shim, which ends its
container first). Whoever was started and not noted yet is in our process group, which ends with us.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE_SECONDS = 10
POSTGRES = "postgres"
"""Ends its children itself, and gives its shared memory back."""


def main(folder: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    if folder.exists():
        end_all(folder)
        # A shim that was on its way finds no folder any more; one that was quicker is seen now.
        # Its new name is random: another account, which sees the old one, cannot have taken it before.
        gone = folder.rename(folder.with_name(f"{folder.name}.{os.urandom(8).hex()}"))
        end_all(gone)
        shutil.rmtree(gone, ignore_errors=True)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


def end_all(folder: Path) -> None:
    limit = time.monotonic() + PATIENCE_SECONDS
    while (alive := list(noted(folder))) and time.monotonic() < limit:
        for pid, number in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(0.02)


def noted(folder: Path) -> Iterator[tuple[int, signal.Signals]]:
    """What still lives, and how it is ended. Kubelets come first: they start containers."""
    for file in sorted((folder / "pids").glob("*")):
        if pid := living(file):
            yield pid, signal.SIGQUIT if file.name == POSTGRES else signal.SIGKILL
    for file in folder.glob("postgres/*/postmaster.pid"):
        if pid := living(file):  # negative: initdb's, which gives its shared memory back on SIGTERM alone
            yield abs(pid), signal.SIGQUIT if pid > 0 else signal.SIGTERM
        else:  # what computes for a client does not see that its server was killed
            yield from ((left, signal.SIGKILL) for left in working_in(file.parent))
    for file in folder.glob("nodes/*/pods/*/containers/*/alive"):
        if pid := locked_by(file):
            yield pid, signal.SIGUSR1


def living(file: Path) -> int:
    """The process of that file; 0: there is none any more. A zombie has ended: whoever would reap it may be gone."""
    try:
        pid = int((file.read_text().splitlines() or ["0"])[0])
        os.kill(abs(pid), 0)
        stat = Path(f"/proc/{abs(pid)}/stat")
        is_zombie = stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, ValueError):
        return 0
    return 0 if is_zombie else pid


def working_in(folder: Path) -> list[int]:
    """Processes whose working folder it is, where that can be seen."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if link.readlink() == folder.resolve():
                found.append(int(link.parts[2]))
    return found


def locked_by(file: Path) -> int:
    """The shim that holds the lock; 0: nobody does."""
    try:
        with file.open() as alive:
            try:
                fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(alive.read() or 0)
    except (OSError, ValueError):
        pass
    return 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
