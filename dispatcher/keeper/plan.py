"""Decides which cache directories of a node go, and why. Pure."""

from collections.abc import Iterable, Mapping, Sequence, Set
from enum import StrEnum
from typing import Final

from msgspec import Struct

DAY: Final = 86_400


class Cause(StrEnum):
    """Why a directory goes."""

    ORDER = "order"  # somebody wants it to go: `dispatcher cache drop`
    AGE = "age"  # it was not used for CACHE_MAX_AGE_DAYS
    SIZE = "size"  # it is larger than CACHE_MAX_BYTES
    DISK = "disk"  # the disk was above CACHE_HIGH_PERCENT


class Directory(Struct, frozen=True):
    """A cache directory.

    name: the digest of installation, queue and key.
    size: bytes on the disk.
    files: number of inodes.
    first_use, last_use: when a Pod used it, in Unix seconds.
    """

    name: str
    size: int
    files: int
    first_use: float
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

    high, low: parts of the disk, above 0 and below 1. Above `high` directories go until `low` is reached.
    max_age_days: directories that were not used for so long go; 0: they stay.
    max_bytes: size of one directory at most; 0: any.
    ordered: directories that go, and when that was said, in Unix seconds. One that was first used later stays.
    """

    high: float
    low: float
    max_age_days: int
    max_bytes: int = 0
    ordered: Mapping[str, float] = {}


class Removal(Struct, frozen=True):
    directory: Directory
    cause: Cause


def plan_removals(
    directories: Iterable[Directory], in_use: Set[str], disk: Disk, marks: Marks, now: float
) -> Sequence[Removal]:
    """The directories that go, in their order. Never one that is in use."""
    idle = [one for one in directories if one.name not in in_use]
    found = {one.name: Removal(one, Cause.ORDER) for one in by_last_use(idle) if is_ordered(one, marks)}
    for one in by_last_use(idle):
        if is_old(one, marks, now):
            found.setdefault(one.name, Removal(one, Cause.AGE))
    for one in by_size(idle):
        if is_large(one, marks):
            found.setdefault(one.name, Removal(one, Cause.SIZE))
    return [*found.values(), *for_the_disk(idle, found, disk, marks)]


def for_the_disk(idle: Sequence[Directory], found: Mapping[str, Removal], disk: Disk, marks: Marks) -> list[Removal]:
    """The least recently used ones, until the low mark is reached. `found`: what goes in any case."""
    if disk.used_part <= marks.high:
        return []
    for removal in found.values():
        disk = disk.without(removal.directory)
    more = list[Removal]()
    for one in by_last_use(idle):
        if disk.used_part <= marks.low:
            break
        if one.name not in found:
            more.append(Removal(one, Cause.DISK))
            disk = disk.without(one)
    return more


def is_ordered(one: Directory, marks: Marks) -> bool:
    return one.first_use < marks.ordered.get(one.name, one.first_use)


def is_old(one: Directory, marks: Marks, now: float) -> bool:
    return bool(marks.max_age_days) and now - one.last_use > marks.max_age_days * DAY


def is_large(one: Directory, marks: Marks) -> bool:
    return 0 < marks.max_bytes < one.size


def by_last_use(directories: Iterable[Directory]) -> list[Directory]:
    """The least recently used first."""
    return sorted(directories, key=lambda one: (one.last_use, one.name))


def by_size(directories: Iterable[Directory]) -> list[Directory]:
    """The largest first."""
    return sorted(directories, key=lambda one: (-one.size, one.name))


def part(used: int, free: int) -> float:
    return used / (used + free) if used + free else 0.0
