"""Decides which cache directories of a node go, and why. Pure."""

from collections.abc import Iterable, Sequence, Set
from enum import StrEnum
from typing import Final

from msgspec import Struct

DAY: Final = 86_400


class Cause(StrEnum):
    """Why a directory goes."""

    AGE = "age"  # it was not used for CACHE_MAX_AGE_DAYS
    SIZE = "size"  # it is larger than CACHE_MAX_BYTES
    DISK = "disk"  # the disk was above CACHE_HIGH_PERCENT


class Directory(Struct, frozen=True):
    """A cache directory.

    name: the digest of its queue and key.
    size: bytes on the disk.
    files: number of inodes.
    last_use: when a Pod used it last, in Unix seconds.
    """

    name: str
    size: int
    files: int
    last_use: float


class Disk(Struct, frozen=True):
    """The file system of the directories.

    size: bytes that are used, and bytes that are free for everybody.
    files: the same in inodes. Some file systems have no fixed number of inodes, and tell 0.
    """

    used: int
    free: int
    used_files: int = 0
    free_files: int = 0

    @property
    def used_part(self) -> float:
        """The larger one of the parts of bytes and inodes that are used, from 0 to 1."""
        return max(part(self.used, self.free), part(self.used_files, self.free_files))

    def without(self, one: Directory) -> "Disk":
        size, files = min(one.size, self.used), min(one.files, self.used_files)
        return Disk(self.used - size, self.free + size, self.used_files - files, self.free_files + files)


class Marks(Struct, frozen=True):
    """When directories go.

    high, low: parts of the disk, from 0 to 1. Above `high` directories go until `low` is reached.
    max_age_days: directories that were not used for so long go; 0: they stay.
    max_bytes: size of one directory at most; None: any.
    """

    high: float
    low: float
    max_age_days: int
    max_bytes: int | None = None


class Removal(Struct, frozen=True):
    directory: Directory
    cause: Cause


def plan_removals(
    directories: Iterable[Directory], in_use: Set[str], disk: Disk, marks: Marks, now: float
) -> Sequence[Removal]:
    """The directories that go, in their order. Never one that is in use."""
    idle = [one for one in directories if one.name not in in_use]
    found = [Removal(one, Cause.AGE) for one in by_last_use(idle) if is_old(one, marks, now)]
    found += [Removal(one, Cause.SIZE) for one in by_size(idle) if is_large(one, marks) and not is_old(one, marks, now)]
    return [*found, *for_the_disk(idle, found, disk, marks)]


def for_the_disk(idle: Sequence[Directory], found: Sequence[Removal], disk: Disk, marks: Marks) -> list[Removal]:
    """The least recently used ones, until the low mark is reached. `found`: what goes in any case."""
    if disk.used_part <= marks.high:
        return []
    going = {one.directory.name for one in found}
    for removal in found:
        disk = disk.without(removal.directory)
    more = list[Removal]()
    for one in by_last_use(idle):
        if disk.used_part <= marks.low:
            break
        if one.name not in going:
            more.append(Removal(one, Cause.DISK))
            disk = disk.without(one)
    return more


def is_old(one: Directory, marks: Marks, now: float) -> bool:
    return bool(marks.max_age_days) and now - one.last_use > marks.max_age_days * DAY


def is_large(one: Directory, marks: Marks) -> bool:
    return marks.max_bytes is not None and one.size > marks.max_bytes


def by_last_use(directories: Iterable[Directory]) -> list[Directory]:
    """The least recently used first."""
    return sorted(directories, key=lambda one: (one.last_use, one.name))


def by_size(directories: Iterable[Directory]) -> list[Directory]:
    """The largest first."""
    return sorted(directories, key=lambda one: (-one.size, one.name))


def part(used: int, free: int) -> float:
    return used / (used + free) if used + free else 0.0
