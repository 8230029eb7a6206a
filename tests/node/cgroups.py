"""The cgroups of one run: one in each hierarchy, with a part for each node. And what killed runs leave."""

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
ENDING_SECONDS: Final = 10
PREFIX: Final = "dispatcher-tests-"
INHERITED: Final = ("cpuset.cpus", "cpuset.mems")
"""A cgroup of version 1 begins without processors and memory, and then takes no process."""


class Cgroups:
    """`name` is the same in all hierarchies, and ends with the pid of the process that removes them."""

    def __init__(self, name: str) -> None:
        self.name = name

    def make(self, node: str) -> str:
        """Makes the cgroups of a node. Returns the path of them within each hierarchy."""
        for hierarchy in hierarchies():
            for folder in (hierarchy / self.name, hierarchy / self.name / node):
                folder.mkdir(exist_ok=True)
                for name in INHERITED:
                    if (folder / name).exists() and not (folder / name).read_text().strip():
                        (folder / name).write_text((folder.parent / name).read_text())
        return f"/{self.name}/{node}"

    def remove(self, node: str = "") -> None:
        """Removes those of the node, or all, with those of containers. OSError: processes in them do not end."""
        limit = time.monotonic() + ENDING_SECONDS
        while True:
            try:
                return self._remove(node)
            except OSError:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.05)  # killed processes take a moment

    def _remove(self, node: str) -> None:
        for hierarchy in hierarchies():
            top = hierarchy / self.name / node
            for folder in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
                folder.rmdir()
            if top.exists():
                top.rmdir()


def hierarchies() -> list[Path]:
    """One folder for each hierarchy of version 1; the one of version 2 alone."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return [path for path in ROOT.iterdir() if path.is_dir() and not path.is_symlink()]


def remove_abandoned() -> None:
    """Removes cgroups and folders of runs that were killed. Their names have the pid of the run."""
    for top in {path.name for hierarchy in hierarchies() for path in hierarchy.glob(f"{PREFIX}*")}:
        if is_over(top):
            with suppress(OSError):  # a process of it has not ended yet: the next run removes it
                Cgroups(top).remove()
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if is_over(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def is_over(name: str) -> bool:
    """Whether the run with the pid in this name has ended."""
    try:
        os.kill(int(name.removeprefix(PREFIX).partition("-")[0]), 0)
    except ProcessLookupError:
        return True
    return False
