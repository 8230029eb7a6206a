"""Decides which cache directories of a node go, and why: by disk, record, users and orders. Pure.

`DirectoryRecord`: the keeper keeps the records from one round to the next and over its restarts. A lost or unreadable
record costs no directory: each one then counts as used when its folder changed last.

`orders_for`: orders to remove cache directories are the data of a ConfigMap, `DIGEST` or `DIGEST.NODE` with the time of
the order. A keeper removes a directory that was first used before its order. Each order is an entry of its own, so two
people who order at the same time lose nothing.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

import msgspec
from msgspec import Struct

DAY: Final = 86_400
"""Seconds of a day."""


class RemovalCause(StrEnum):
    """Why a directory goes."""

    ORDER = "order"  # somebody wants it to go: `dispatcher cache drop`
    AGE = "age"  # it was not used for CACHE_MAX_AGE_DAYS
    SIZE = "size"  # it is larger than CACHE_MAX_BYTES
    DISK = "disk"  # the disk was above CACHE_HIGH_PERCENT


class Directory(Struct, frozen=True):
    """A cache directory.

    name: the digest of installation, queue and key.
    size: bytes on the disk, at the last measurement.
    files: number of inodes, at the last measurement.
    first_use, last_use: when a Pod used it, in Unix seconds.
    is_whole: False: it was measured only in part, because it has too many or too deep folders, or always changes.
    is_sure: whether it has this size now. False: nobody knows how much its removal frees.
    """

    name: str
    size: int
    files: int
    first_use: float
    last_use: float
    is_whole: bool = True
    is_sure: bool = True


class Disk(Struct, frozen=True):
    """The file system of the directories.

    used, free: bytes that are used, and bytes that are free for everybody.
    used_files, free_files: the same in inodes. Some file systems have no fixed number of inodes, and report 0.
    """

    used: int
    free: int
    used_files: int = 0
    free_files: int = 0

    @property
    def used_part(self) -> float:
        """The larger one of the used parts of bytes and inodes, from 0 to 1."""
        return max(part(self.used, self.free), part(self.used_files, self.free_files))

    def without(self, one: Directory) -> "Disk":
        size, files = min(one.size, self.used), min(one.files, self.used_files)
        return Disk(self.used - size, self.free + size, self.used_files - files, self.free_files + files)


class Marks(Struct, frozen=True):
    """When directories go.

    high, low: parts of the disk, above 0 and below 1. Above `high` directories go until `low` is reached.
    max_age_days: directories that were not used for so many days go; 0: they stay.
    max_bytes: size of one directory, at most; 0: any. A directory that was measured only in part counts as larger.
    ordered: directories that go, and the times of their orders, in Unix seconds. One that was first used later stays.
    """

    high: float
    low: float
    max_age_days: int
    max_bytes: int = 0
    ordered: Mapping[str, float] = {}


class Removal(Struct, frozen=True):
    directory: Directory
    cause: RemovalCause


def plan_removals(
    directories: Iterable[Directory], in_use: Set[str], disk: Disk, marks: Marks, now: float
) -> Sequence[Removal]:
    """The directories that go, in their order. A directory in use never goes."""
    idle = [one for one in directories if one.name not in in_use]
    found = {one.name: Removal(one, RemovalCause.ORDER) for one in by_last_use(idle) if is_ordered(one, marks)}
    for one in by_last_use(idle):
        if is_old(one, marks, now):
            found.setdefault(one.name, Removal(one, RemovalCause.AGE))
    for one in by_size(idle):
        if is_large(one, marks):
            found.setdefault(one.name, Removal(one, RemovalCause.SIZE))
    return [*found.values(), *for_the_disk(idle, found, disk, marks)]


def for_the_disk(idle: Sequence[Directory], found: Mapping[str, Removal], disk: Disk, marks: Marks) -> list[Removal]:
    """The least recently used ones, until the low mark is reached. `found`: directories that go in any case.

    It ends with the first directory whose size is not sure. Then the disk is read again, so no other one goes instead.
    """
    if disk.used_part <= marks.high or not all(removal.directory.is_sure for removal in found.values()):
        return []
    for removal in found.values():
        disk = disk.without(removal.directory)
    more = list[Removal]()
    for one in by_last_use(idle):
        if disk.used_part <= marks.low or (more and not more[-1].directory.is_sure):
            break
        if one.name not in found:
            more.append(Removal(one, RemovalCause.DISK))
            disk = disk.without(one)
    return more


def is_ordered(one: Directory, marks: Marks) -> bool:
    return one.first_use < marks.ordered.get(one.name, one.first_use)


def is_old(one: Directory, marks: Marks, now: float) -> bool:
    return bool(marks.max_age_days) and now - one.last_use > marks.max_age_days * DAY


def is_large(one: Directory, marks: Marks) -> bool:
    return marks.max_bytes > 0 and (one.size > marks.max_bytes or not one.is_whole)


def by_last_use(directories: Iterable[Directory]) -> list[Directory]:
    """The directories, the least recently used first."""
    return sorted(directories, key=lambda one: (one.last_use, one.name))


def by_size(directories: Iterable[Directory]) -> list[Directory]:
    """The directories, the largest first."""
    return sorted(directories, key=lambda one: (-one.size, one.name))


def part(used: int, free: int) -> float:
    return used / (used + free) if used + free else 0.0


MEASURED_IN_USE_SECONDS: Final = 300
"""Seconds between two measurements of a directory that is in use."""


class DirectoryRecord(Struct, frozen=True, omit_defaults=True):
    """One directory. Times are Unix seconds.

    first_use, last_use: as far as this record goes back.
    uses: number of Pods that were seen to use it.
    size, files: bytes and inodes, at the last measurement.
    measured_at: time of the last measurement; 0: there was none.
    changed_at: when its folder had changed last, at that time.
    is_whole: False: the measurement was ended before it had seen everything.
    """

    first_use: float
    last_use: float
    uses: int = 0
    size: int = 0
    files: int = 0
    measured_at: float = 0
    changed_at: float = 0
    is_whole: bool = True

    def needs_measurement(self, changed_at: float, now: float, *, is_in_use: bool) -> bool:
        """Whether its size may have changed. Deep inside, it changes only while the directory is in use."""
        if is_in_use:
            return not 0 <= now - self.measured_at < MEASURED_IN_USE_SECONDS
        return self.measured_at <= self.last_use or self.changed_at != changed_at


class Users(Struct, frozen=True):
    """The Pods that use directories, or are about to use them.

    pods: UIDs of Pods by directory.
    """

    pods: Mapping[str, Set[str]] = {}

    @property
    def names(self) -> Set[str]:
        return self.pods.keys()


Entries = Mapping[str, DirectoryRecord]


def noted(
    known: Entries, present: Mapping[str, float], users: Users, before: Users, now: float
) -> dict[str, DirectoryRecord]:
    """The records of this round. Directories that are gone are forgotten.

    present: when the folder of each directory changed last.
    before: the users of the last round. Only other users count as new uses.
    """
    return {name: entry_of(known.get(name), changed_at, new_pods(name, users, before), name in users.names, now)
            for name, changed_at in present.items()}  # fmt: skip


def new_pods(name: str, users: Users, before: Users) -> int:
    return len(users.pods.get(name, frozenset()) - before.pods.get(name, frozenset()))


def entry_of(
    known: DirectoryRecord | None, changed_at: float, new: int, is_in_use: bool, now: float
) -> DirectoryRecord:
    first = known or DirectoryRecord(min(changed_at, now), min(changed_at, now))
    last_use = now if is_in_use else min(first.last_use, now)  # a clock that was ahead must not keep it for ever
    return msgspec.structs.replace(first, last_use=last_use, uses=first.uses + new)


def directories_of(entries: Entries, unsure: Set[str] = frozenset()) -> list[Directory]:
    """The directories. `unsure`: those that must be measured, because they may have changed."""
    return [
        Directory(name, one.size, one.files, one.first_use, one.last_use,
                  is_whole=one.is_whole or name in unsure, is_sure=one.is_whole and name not in unsure)
        for name, one in entries.items()
    ]  # fmt: skip


def write_record(entries: Entries) -> bytes:
    return msgspec.json.encode(entries)


def read_record(written: bytes) -> dict[str, DirectoryRecord]:
    """The records; empty if the text is no record."""
    try:
        return msgspec.json.decode(written, type=dict[str, DirectoryRecord])
    except msgspec.MsgspecError:
        return {}


class MountingPod(Protocol):
    """A Pod and the folders of its node that it mounts."""

    @property
    def uid(self) -> str: ...
    @property
    def paths(self) -> Sequence[str]: ...


def users_of(pods: Iterable[MountingPod], root: str, names: Set[str] = frozenset()) -> Users:
    """The Pods by directory. A Pod that mounts the root, or a folder above it, uses all `names`."""
    found: Mapping[str, set[str]] = defaultdict(set)
    for pod in pods:
        for path in pod.paths:
            for name in names_of(clean(path), clean(root), names):
                found[name].add(pod.uid)
    return Users(dict(found))


def names_of(path: str, root: str, names: Set[str]) -> Iterable[str]:
    if path.startswith(f"{root}/"):
        return [path.removeprefix(f"{root}/").partition("/")[0]]
    return names if f"{root}/".startswith(f"{path}/") else ()


def clean(path: str) -> str:
    """The path without parts that mean nothing, as kubelet mounts it. `/` is empty."""
    return "".join(f"/{part}" for part in path.split("/") if part not in {"", "."})


LASTS: Final = timedelta(days=7)
"""Keepers forget an order after this time. A directory that was in use for the whole time stays."""
DIGEST: Final = re.compile(r"[0-9a-f]{40}")


def order_entry(digest: str, node: str | None, now: datetime) -> tuple[str, str]:
    """Name and value of an order. `node` None: every node."""
    return digest if node is None else f"{digest}.{node}", now.astimezone(UTC).isoformat(timespec="milliseconds")


def orders_for(node: str, entries: Mapping[str, str], now: datetime) -> dict[str, float]:
    """The times of the orders for a node, in Unix seconds, by directory. Orders for other nodes are left out."""
    found = dict[str, float]()
    for name, value in entries.items():
        digest, _, of = name.partition(".")
        at = time_of(value)
        if DIGEST.fullmatch(digest) and of in {"", node} and at is not None and now - LASTS < at <= now:
            found[digest] = max(at.timestamp(), found.get(digest, 0))
    return found


def over(entries: Mapping[str, str], now: datetime) -> list[str]:
    """Names of the orders that keepers have forgotten, or cannot read."""
    return [name for name, value in entries.items() if (at := time_of(value)) is None or at <= now - LASTS]


def time_of(value: str) -> datetime | None:
    """The time; None: the text is no time with a time zone."""
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None
