"""A small disk for a node: a file system in a file, which a test can fill.

Invariant: the mount is in the namespaces of the run, and the loop device lets go of the file with the last mount of it.
So nothing is left when the run ends, even if it is killed.
"""

import errno
import os
from pathlib import Path
from typing import Final

from tests.node.place import run

SIZE_BYTES: Final = 2 << 30
"""Room for the images of all tests. The file takes what is written alone."""


def mount_small_disk(at: Path) -> None:
    """Makes the file beside the folder, and mounts it there."""
    file = at.with_suffix(".ext4")
    with file.open("wb") as made:
        made.truncate(SIZE_BYTES)
    run("mkfs.ext4", "-q", "-F", "-m", "0", file)  # without blocks that only root may use
    run("mount", "-o", "loop", file, at)


def fill(disk: Path) -> None:
    """Lets one file take all that is free by now."""
    with ballast(disk).open("ab") as file:
        size = os.fstat(file.fileno()).st_size
        free = os.fstatvfs(file.fileno())
        try:
            os.posix_fallocate(file.fileno(), size, max(1, free.f_bavail * free.f_frsize))
        except OSError as full:
            if full.errno != errno.ENOSPC:  # it has taken what there was
                raise


def ballast(disk: Path) -> Path:
    return disk / "ballast"
