"""The remains of a program on this machine: processes, ports, shared memory, files.

A folder of its own marks the processes of the program: the name of the folder is in their command line, in their
environment, in their working folder or among their open files. Names and parents of processes do not matter.
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
SEGMENT = re.compile(rb"^(?:\S+ ){4}(\d+) +/SYSV", re.MULTILINE)
"""An attached segment of System V: its id stands where a file has its inode."""
TOLD_FILES = re.compile(rb"TASK_(?:PAYLOAD|RESULT)_FILE=([^\0]+)")


class Remains:
    """`folder`: the folder that marks the program. `look` records what it makes. `left` lists what still exists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = os.fsencode(folder)
        self._older = pids()
        self.commands: dict[int, str] = {}
        self.ports: dict[str, int] = {}  # by the inode of the socket, which is unique
        self.segments: set[tuple[str, ...]] = set()  # of System V: id and pid of the maker
        self.shared: set[Path] = set()
        self.elsewhere: set[Path] = set()

    def look(self) -> None:
        living, attached = self.living(), set[str]()
        self.commands |= living
        ports = listening(min(living)) if living else {}
        for pid, words in living.items():
            sockets = {target[8:-1] for target in links(pid) if target.startswith("socket:[")}
            self.ports |= {inode: port for inode, port in ports.items() if inode in sockets}
            told = {Path(os.fsdecode(path)).parent for path in TOLD_FILES.findall(read(pid, "environ"))}
            self.elsewhere |= {path for path in told if not path.is_relative_to(self.folder)}
            if "bin/postgres" in words:
                maps = read(pid, "maps")
                self.shared |= {Path(os.fsdecode(path)) for path in SHARED.findall(maps)}
                attached |= {found.decode() for found in SEGMENT.findall(maps)}
        # By what its processes have attached. The pid of a maker tells nothing: a busy machine gives the pid of an
        # ended process to somebody else within minutes.
        self.segments |= {segment for segment in segments() if segment[0] in attached}

    def living(self) -> dict[int, str]:
        """The living processes of the program: command lines by pid."""
        return {pid: command(pid) for pid in pids() - self._older if self._is_of_it(pid)}

    def left(self) -> list[str]:
        """The remains, in words."""
        found = [f"process {pid}: {words}" for pid, words in self.living().items()]
        ports = listening("self") if self.ports else {}
        found += [f"port {port}" for inode, port in self.ports.items() if inode in ports]
        found += [f"System V segment {segment}" for segment in self.segments & segments()]
        found += [str(path) for path in [*self.shared, *self.elsewhere] if path.exists()]
        return found + [
            str(Path(top, name)) for top, folders, files in os.walk(self.folder) for name in folders + files
        ]

    def end(self) -> None:
        """Removes the remains after a failed test, except segments of shared memory."""
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
    """A file of /proc. Empty: the process has ended, or belongs to another account."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def command(pid: int) -> str:
    return read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def links(pid: int) -> Iterator[str]:
    """The working folder and the open files of a process."""
    folder = Path(f"/proc/{pid}")
    try:
        names = [folder / "cwd", *(folder / "fd").iterdir()]
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):  # closed meanwhile
            yield str(name.readlink())


def listening(pid: int | str) -> dict[str, int]:
    """Listening ports in the network of this process, by the inode of the socket."""
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
