"""The folder of a node's cache directories: its steps, what is in it, and the pace of work on its disk.

    ROOT/DIGEST ─ set_aside ─▶ ROOT/.aside.DIGEST ─ condemn ─▶ ROOT/.condemned.DIGEST.… ─▶ removed, piece by piece
         ◀────── put_back ──────────────┘

`CacheFolder`: each step is one rename, so a kill at any moment leaves a directory whole, or condemned. A condemned
directory never comes back. A mount that a Pod made before the rename follows the directory. No step makes a file or a
folder, so a disk without a free inode stops none. No link is followed, and no mount below the root is entered. Names of
other forms are not touched.

`KeeperPace`: works on the disk in small parts, so that tasks have most of it.

`Survey`: how large each directory is, and who uses it. A look is quick, and is made before directories go. A
measurement may take minutes, and tasks can make it longer. So nothing waits for one, and each has a bound.
"""

import asyncio
import ctypes
import fcntl
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, suppress
from itertools import islice
from math import inf
from typing import Final, TypeVar

import structlog
from msgspec.structs import replace

from dispatcher.keeper.plan import (
    DIGEST,
    Directory,
    DirectoryRecord,
    Disk,
    MountingPod,
    Users,
    directories_of,
    noted,
    read_record,
    users_of,
)
from dispatcher.keeper.removal import (
    OPEN_FOLDER,
    RemovalRefused,
    TreeRemoval,
    TreeSize,
    located,
    measure,
    mount_of,
    opened,
)
from dispatcher.model.errors import SettingsError
from dispatcher.runtime.clock import elapsed

ASIDE, CONDEMNED, RECORD = ".aside.", ".condemned.", ".record.json"
NEW_RECORD: Final = f"{RECORD}.new"
RENAME_NOREPLACE: Final = 1
LARGEST_RECORD: Final = 64 * 2**20
"""Bytes of the record that are read, at most."""
LIBC: Final = ctypes.CDLL(None, use_errno=True)

log = structlog.get_logger(component="keeper")


class Root:
    """The folder, open. It is only read."""

    def __init__(self, path: str) -> None:
        """Raises SettingsError if this is no folder for caches."""
        self._path = path
        self._root = open_root(path)
        self._mount = mount_of(self._root)

    def close(self) -> None:
        os.close(self._root)

    def names(self) -> dict[str, float]:
        """The cache directories, and when the folder of each changed last, in Unix seconds. Mounts are left out."""
        with os.scandir(self._root) as entries:
            looked_at = ((one.name, self._changed_at(one.name)) for one in entries if is_cache(one))
            return {name: at for name, at in looked_at if at is not None}

    def _changed_at(self, name: str) -> float | None:
        try:
            with located(name, self._root, self._mount) as place:
                return os.fstat(place).st_mtime
        except (OSError, RemovalRefused) as fault:
            log.warning("a cache directory cannot be looked at", directory=name, fault=str(fault))
            return None

    def foreign(self) -> list[str]:
        """Names below the root that are no cache directories. They are not touched."""
        with os.scandir(self._root) as entries:
            return sorted(one.name for one in entries if not is_ours(one) and not is_cache(one))

    def measuring(self, name: str) -> Generator[TreeSize, None, None]:
        """Measures a directory, step by step. The last value is the result. Raises OSError or RemovalRefused."""
        with opened(name, self._root, self._mount) as descriptor:
            yield from measure(descriptor, self._mount)

    def disk(self) -> Disk:
        found = os.fstatvfs(self._root)
        used, used_files = found.f_blocks - found.f_bfree, found.f_files - found.f_ffree
        return Disk(used * found.f_frsize, found.f_bavail * found.f_frsize, used_files, found.f_favail)

    def read_record(self) -> bytes:
        """The record of the last round; empty: there is none."""
        with suppress(OSError):
            descriptor = os.open(RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._root)
            with os.fdopen(descriptor, "rb") as file:
                return file.read(LARGEST_RECORD)
        return b""

    def _begins_with(self, beginning: str) -> list[str]:
        with os.scandir(self._root) as entries:
            return sorted(one.name for one in entries if one.name.startswith(beginning))


class CacheFolder(Root):
    """The folder, from which directories are taken. `removing`: removes condemned directories."""

    def __init__(self, path: str) -> None:
        """Raises SettingsError if this is no folder for caches, or another keeper works in it."""
        super().__init__(path)
        try:
            fcntl.flock(self._root, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            self.close()
            raise wrong(path, "another cache keeper works in it: a node needs one") from fault
        self.removing = TreeRemoval(self._root, self._mount)

    def aside(self) -> list[str]:
        """The directories that are set aside."""
        return [name.removeprefix(ASIDE) for name in self._begins_with(ASIDE)]

    def set_aside(self, name: str) -> None:
        """Sets a directory aside: no new Pod gets it from here on. After RemovalRefused or OSError it is still in
        place.
        """
        with located(name, self._root, self._mount):
            pass
        self._rename(name, f"{ASIDE}{name}")

    def put_back(self, name: str) -> bool:
        """Puts a directory back. False: a new directory of the name has been made meanwhile."""
        try:
            self._rename(f"{ASIDE}{name}", name)
        except FileExistsError:
            return False
        return True

    def condemn(self, name: str) -> str:
        """Condemns a directory. Returns its new name."""
        condemned = f"{CONDEMNED}{name}.{os.urandom(8).hex()}"
        self._rename(f"{ASIDE}{name}", condemned)
        return condemned

    def condemned(self) -> list[str]:
        """The names of condemned directories that still exist."""
        return self._begins_with(CONDEMNED)

    def write_record(self, text: bytes) -> None:
        """Replaces the whole record. Raises OSError if the disk is full."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(NEW_RECORD, flags, 0o600, dir_fd=self._root), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(NEW_RECORD, RECORD, src_dir_fd=self._root, dst_dir_fd=self._root)

    def _rename(self, name: str, new: str) -> None:
        rename_to_new(name, new, self._root)


def is_ours(entry: "os.DirEntry[str]") -> bool:
    """Whether the keeper has given the name."""
    return entry.name in {RECORD, NEW_RECORD} or entry.name.startswith((ASIDE, CONDEMNED))


def is_cache(entry: "os.DirEntry[str]") -> bool:
    return bool(DIGEST.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False)


def open_root(path: str) -> int:
    """The descriptor of the root. Raises SettingsError if it is no folder, a link, or the root of everything."""
    try:
        descriptor = os.open(path, OPEN_FOLDER)
    except OSError as fault:
        raise wrong(path, f"it cannot be opened as a folder (a link is none): {fault.strerror}") from fault
    if os.path.samestat(os.fstat(descriptor), os.lstat("/")):
        os.close(descriptor)
        raise wrong(path, "it is /, which has more than caches")
    return descriptor


def wrong(path: str, why: str) -> SettingsError:
    return SettingsError((f"DISPATCHER_CACHE_ROOT is {path!r}: {why}",))


def rename_to_new(name: str, new: str, folder: int) -> None:
    """Renames, and never replaces: raises FileExistsError. Python has no call for it."""
    if LIBC.renameat2(folder, os.fsencode(name), folder, os.fsencode(new), RENAME_NOREPLACE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


T = TypeVar("T")
STEPS_A_SECOND: Final = 20_000
"""Directory entries that are worked on in a second."""
STEPS_AT_ONCE: Final = 500
"""Directory entries that are worked on without a pause."""
BUSY_PART: Final = 0.5
"""Part of the time that may be work. On a slow disk this bounds the load, and the number of steps does not."""


async def in_thread(work: Callable[[], T]) -> T:
    """Runs the work in a thread. A cancelled caller waits for its end: a folder must not be closed while it is used."""
    under_way = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(under_way)
    except asyncio.CancelledError:
        await asyncio.wait([under_way])
        raise


class KeeperPace:
    """The pace of all work of one keeper. A step is one directory entry that is looked at, renamed or removed."""

    def __init__(self, steps_a_second: float = STEPS_A_SECOND) -> None:
        self._steps_a_second = steps_a_second
        self._turn = asyncio.Lock()

    async def last_of(self, steps: Iterator[T], none: T, longest_seconds: float = inf) -> tuple[T, bool]:
        """Takes the steps, in a thread, for `longest_seconds` at most. Other work of this pace gets every second part.

        Returns the last step (`none`: there are none), and whether all were taken. Raises what a step raises.
        """
        last, ends_at = none, elapsed() + longest_seconds
        while elapsed() < ends_at:
            async with self._turn:
                began = elapsed()
                taken = await in_thread(lambda: list(islice(steps, STEPS_AT_ONCE)))
                last = taken[-1] if taken else last
                if len(taken) < STEPS_AT_ONCE:
                    return last, True
                await asyncio.sleep(self.pause_after(len(taken), elapsed() - began))
        return last, False

    def pause_after(self, steps: int, seconds: float) -> float:
        """The pause after a part of the work, in seconds."""
        return max(steps / self._steps_a_second - seconds, seconds * (1 / BUSY_PART - 1))


LONGEST_SECONDS: Final = 300
"""Seconds of one measurement, at most: 6 million files and folders at the usual pace."""


class Survey:
    """What is known of the directories.

    entries: by name, the records that are older than this process.
    users: the Pods that use directories.
    pace: of all work on the disk.
    """

    def __init__(self, folder: Root, path: str, pace: KeeperPace, longest_seconds: float = LONGEST_SECONDS) -> None:
        """`path`: the folder's path on the node, as Pods mount it."""
        self.entries: dict[str, DirectoryRecord] = read_record(folder.read_record())
        self.users = Users()
        self._folder = folder
        self._path = path
        self.pace = pace
        self._longest_seconds = longest_seconds
        self._present: Mapping[str, float] = {}

    async def look(self, pods: Iterable[MountingPod], now: float) -> None:
        """Notes which directories exist, and who uses them."""
        self._present = await in_thread(self._folder.names)
        users = self.users_among(pods, self._present.keys())
        self.entries = noted(self.entries, self._present, users, self.users, now)
        self.users = users

    def users_among(self, pods: Iterable[MountingPod], names: Set[str]) -> Users:
        return users_of(pods, self._path, names)

    def directories(self, now: float) -> Sequence[Directory]:
        return directories_of(self.entries, set(self.unmeasured(now)))

    def forget(self, name: str) -> None:
        """Forgets a condemned directory. A directory that a Pod makes anew is another one."""
        self.entries.pop(name, None)

    def unmeasured(self, now: float) -> Sequence[str]:
        """The directories that may have changed: unused ones first, and of these the oldest measurement first."""
        in_use = self.users.names
        found = [
            name for name, entry in self.entries.items()
            if entry.needs_measurement(self._present.get(name, 0), now, is_in_use=name in in_use)
        ]  # fmt: skip
        return sorted(found, key=lambda name: (name in in_use, self.entries[name].measured_at, name))

    async def measure(self, now: float) -> None:
        """Measures all directories that may have changed since their last measurement."""
        for name in self.unmeasured(now) if self._present else ():  # before the first look, each one seems changed
            if name in self.entries:
                await self._measure(name, now)

    async def _measure(self, name: str, now: float) -> None:
        """Measures a directory. If that fails, its size stays unsure, and it is tried again."""
        changed_at = self._present.get(name, 0)
        try:
            with closing(self._folder.measuring(name)) as steps:
                found, is_done = await self.pace.last_of(steps, TreeSize(), self._longest_seconds)
        except FileNotFoundError:
            return  # it went meanwhile
        except (OSError, RemovalRefused) as fault:
            log.warning("a cache directory cannot be measured", directory=name, fault=str(fault))
            return
        is_whole = is_done and found.is_whole
        if not is_whole:
            log.warning("a cache directory was measured in part", directory=name, bytes=found.size, inodes=found.files)
        if name in self.entries:  # else it went meanwhile
            self.entries[name] = replace(
                self.entries[name], size=found.size, files=found.files, measured_at=now, changed_at=changed_at,
                is_whole=is_whole,
            )  # fmt: skip
