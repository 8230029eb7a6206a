"""What a program makes on this machine, and what is left of it: processes, ports, shared memory, files.

Its processes are told from everybody else's by a folder that is its alone: the name stands in their command line, their
environment, their working folder or among their open files, whatever they call themselves and whoever their parent is.
"""

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

LISTENING = "0A"
SHARED = re.compile(rb"(/dev/shm/\S+)")
TOLD_FILES = re.compile(rb"TASK_(?:PAYLOAD|RESULT)_FILE=([^\0]+)")


class Remains:
    """`folder`: its own. `look` while it runs; `left` says what of all that is still there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = os.fsencode(folder)
        self._older = pids()
        self.commands: dict[int, str] = {}
        self.ports: dict[str, int] = {}  # by the inode of the socket, which nobody else will get
        self.segments: set[tuple[str, ...]] = set()  # of System V: id and maker
        self.shared: set[Path] = set()
        self.elsewhere: set[Path] = set()

    def look(self) -> None:
        living = self.living()
        self.commands |= living
        ports = listening(min(living)) if living else {}
        for pid, words in living.items():
            sockets = {target[8:-1] for target in links(pid) if target.startswith("socket:[")}
            self.ports |= {inode: port for inode, port in ports.items() if inode in sockets}
            told = {Path(os.fsdecode(path)).parent for path in TOLD_FILES.findall(read(pid, "environ"))}
            self.elsewhere |= {path for path in told if not path.is_relative_to(self.folder)}
            if "bin/postgres" in words:
                self.shared |= {Path(os.fsdecode(path)) for path in SHARED.findall(read(pid, "maps"))}
        self.segments |= {segment for segment in segments() if int(segment[1]) in self.commands}

    def living(self) -> dict[int, str]:
        """Its processes by pid, and what they were called with."""
        return {pid: command(pid) for pid in pids() - self._older if self._is_of_it(pid)}

    def left(self) -> list[str]:
        """In words; empty: nothing."""
        found = [f"process {pid}: {words}" for pid, words in self.living().items()]
        ports = listening("self") if self.ports else {}
        found += [f"port {port}" for inode, port in self.ports.items() if inode in ports]
        found += [f"System V segment {segment}" for segment in self.segments & segments()]
        found += [str(path) for path in [*self.shared, *self.elsewhere] if path.exists()]
        return found + [
            str(Path(top, name)) for top, folders, files in os.walk(self.folder) for name in folders + files
        ]

    def end(self) -> None:
        """So that a test that failed leaves nothing, either; but for segments of shared memory."""
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for path in [self.folder, *self.elsewhere]:
            shutil.rmtree(path, ignore_errors=True)
        for path in self.shared:
            path.unlink(missing_ok=True)

    def _is_of_it(self, pid: int) -> bool:
        if self._mark in read(pid, "cmdline") or self._mark in read(pid, "environ"):
            return True
        return any(str(self.folder) in target for target in links(pid))


def pids() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208  # names are all that is asked


def read(pid: int, name: str) -> bytes:
    """Empty: it has ended, or is somebody else's."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def command(pid: int) -> str:
    return read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def links(pid: int) -> Iterator[str]:
    """Its working folder and its open files."""
    folder = Path(f"/proc/{pid}")
    try:
        names = [folder / "cwd", *(folder / "fd").iterdir()]
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):  # closed just now
            yield str(name.readlink())


def listening(pid: int | str) -> dict[str, int]:
    """Ports that are listened on where this process is, by the inode of the socket."""
    found = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING:
                    found[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    return found


def segments() -> set[tuple[str, ...]]:
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {(fields[1], fields[4]) for fields in map(str.split, lines)}
