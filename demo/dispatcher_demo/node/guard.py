"""Ends what a demo started, however the demo ended: each recorded process, each container, each file.

The process that made the folder runs it as `python -I -S guard.py FOLDER`. The guard needs only the standard library.
It waits for the end of its input, which comes after a clean end, after Ctrl-C and after `kill -9` alike. Then it reads:

* `pids/NAME`: the pid of a process of the demo.
* `postgres/*/postmaster.pid`: the pid of a Postgres server.
* `nodes/*/pods/*/containers/*/alive`: the pid of a shim, the process that watches one container. A shim ends its
  container first.

If the file `terminal` is there, the demo was killed while it read keys. The guard then puts the terminal's state back,
unless a shell has done so already.

A process that was started but not recorded yet is in the guard's process group, which ends with the guard.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE_SECONDS = 10
SHOW_CURSOR = "\x1b[?25h\r\n"
POSTGRES = "postgres"
"""The process that gets SIGQUIT: Postgres then ends its children and gives its shared memory back."""


def main(folder: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    if folder.exists():
        free_terminal(folder / "terminal")
        end_all(folder)
        # A shim that starts after the rename finds no folder. The second pass finds a shim that started before it.
        # The new name is random: another account sees the old name, but cannot have taken the new one.
        gone = folder.rename(folder.with_name(f"{folder.name}.{os.urandom(8).hex()}"))
        end_all(gone)
        shutil.rmtree(gone, ignore_errors=True)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


def free_terminal(file: Path) -> None:
    """`file`: JSON with the path of the terminal, its state for keys, and its state before."""
    with contextlib.suppress(OSError, ValueError, termios.error):  # there were no keys, or the terminal is gone
        path, ours, before = json.loads(file.read_text())
        with open(os.open(path, os.O_RDWR | os.O_NOCTTY), "w") as terminal:  # noqa: PTH123  # Path.open has no O_NOCTTY
            if plain(termios.tcgetattr(terminal)) == ours:
                termios.tcsetattr(terminal, termios.TCSANOW, before)
                terminal.write(SHOW_CURSOR)


def plain(state: list[object]) -> list[object]:
    """The state of a terminal in a form that JSON keeps."""
    *flags, signs = state
    assert isinstance(signs, list)
    return [*flags, [sign if isinstance(sign, int) else sign[0] for sign in signs]]


def end_all(folder: Path) -> None:
    limit = time.monotonic() + PATIENCE_SECONDS
    while (alive := list(find_living(folder))) and time.monotonic() < limit:
        for pid, number in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(0.02)


def find_living(folder: Path) -> Iterator[tuple[int, signal.Signals]]:
    """Processes that still live, each with the signal that ends it. Kubelets come first: they start containers."""
    for file in sorted((folder / "pids").glob("*")):
        if pid := living(file):
            yield pid, signal.SIGQUIT if file.name == POSTGRES else signal.SIGKILL
    for file in folder.glob("postgres/*/postmaster.pid"):
        if pid := living(file):  # negative: initdb's server, which gives its shared memory back only on SIGTERM
            yield abs(pid), signal.SIGQUIT if pid > 0 else signal.SIGTERM
        else:  # a backend at work does not notice that its server was killed
            yield from ((left, signal.SIGKILL) for left in working_in(file.parent))
    for file in folder.glob("nodes/*/pods/*/containers/*/alive"):
        if pid := locked_by(file):
            yield pid, signal.SIGUSR1


def living(file: Path) -> int:
    """The pid in the file, or 0 if that process has ended. A zombie has ended, too: its parent may never reap it."""
    try:
        pid = int((file.read_text().splitlines() or ["0"])[0])
        os.kill(abs(pid), 0)
        stat = Path(f"/proc/{abs(pid)}/stat")
        is_zombie = stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, ValueError):
        return 0
    return 0 if is_zombie else pid


def working_in(folder: Path) -> list[int]:
    """Pids of processes whose working folder this is, as far as /proc shows them."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if link.readlink() == folder.resolve():
                found.append(int(link.parts[2]))
    return found


def locked_by(file: Path) -> int:
    """The pid of the shim that holds the lock, or 0."""
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
