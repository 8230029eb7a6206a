"""The root of the cache directories of a node, and the steps by which a directory leaves it.

    ROOT/DIGEST ─ set_aside ─▶ .keeper/aside/DIGEST ─ condemn ─▶ .keeper/condemned/… ─▶ removed, piece by piece
         ◀────── put_back ─────────────┘

Each step is one rename, so a kill at any moment leaves a directory whole, or condemned. A condemned directory
never comes back. A mount that a Pod made before the rename follows the directory.

Nothing here follows a link or enters a mount below the root. Names of other forms are not touched.
"""

import ctypes
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import structlog

from dispatcher.keeper.plan import Disk
from dispatcher.keeper.removal import (
    OPEN_FOLDER,
    Measured,
    Refused,
    Removing,
    located,
    measure,
    mount_of,
    open_below,
    opened,
)
from dispatcher.model.errors import SettingsError

NAME: Final = re.compile(r"[0-9a-f]{40}")
OWN, ASIDE, CONDEMNED, RECORD = ".keeper", "aside", "condemned", "record.json"
RENAME_NOREPLACE: Final = 1
LARGEST_RECORD: Final = 64 * 2**20
LIBC: Final = ctypes.CDLL(None, use_errno=True)

log = structlog.get_logger(component="keeper")


class Root:
    """The folder, open. It is only read."""

    def __init__(self, path: str) -> None:
        """SettingsError: this is no folder for caches."""
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
        except (OSError, Refused) as fault:
            log.warning("a cache directory cannot be looked at", directory=name, fault=str(fault))
            return None

    def foreign(self) -> list[str]:
        """Names below the root that are no cache directories. They are not touched."""
        with os.scandir(self._root) as entries:
            return sorted(one.name for one in entries if one.name != OWN and not is_cache(one))

    def measuring(self, name: str) -> Iterator[Measured]:
        """Measures a directory, step by step. The last value is the result. OSError, Refused: it cannot be measured."""
        with opened(name, self._root, self._mount) as descriptor:
            yield from measure(descriptor, self._mount)

    def disk(self) -> Disk:
        found = os.fstatvfs(self._root)
        used, used_files = found.f_blocks - found.f_bfree, found.f_files - found.f_ffree
        return Disk(used * found.f_frsize, found.f_bavail * found.f_frsize, used_files, found.f_favail)

    def read_record(self) -> bytes:
        """The record of the last round; empty: there is none."""
        with suppress(OSError, Refused), opened(OWN, self._root, self._mount) as own:
            descriptor = os.open(RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=own)
            with os.fdopen(descriptor, "rb") as file:
                return file.read(LARGEST_RECORD)
        return b""


class CacheFolder(Root):
    """The folder, from which directories are taken. `removing`: removes what is condemned."""

    def __init__(self, path: str) -> None:
        """SettingsError: this is no folder for caches, or another keeper works in it."""
        super().__init__(path)
        self._own = self._made(OWN, self._root)
        try:
            fcntl.flock(self._own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            raise wrong(path, "another cache keeper works in it: a node needs one") from fault
        self._aside, self._condemned = self._made(ASIDE, self._own), self._made(CONDEMNED, self._own)
        self.removing = Removing(self._condemned, self._mount)

    def close(self) -> None:
        for descriptor in (self._condemned, self._aside, self._own):
            os.close(descriptor)
        super().close()

    def _made(self, name: str, folder: int) -> int:
        """A folder of ours, made where it is missing, and open."""
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
        try:
            return open_below(name, folder, self._mount)
        except (OSError, Refused) as fault:
            why = getattr(fault, "strerror", fault)
            raise wrong(self._path, f"{name} in it is not a folder of the cache keeper: {why}") from fault

    def aside(self) -> list[str]:
        """The directories that are set aside."""
        with os.scandir(self._aside) as entries:
            return sorted(one.name for one in entries)

    def set_aside(self, name: str) -> None:
        """From here on no new Pod gets the directory. Refused, OSError: it stays where it is."""
        with located(name, self._root, self._mount):
            pass
        rename_to_new(name, self._root, self._aside)

    def put_back(self, name: str) -> bool:
        """False: a new directory of the name has been made meanwhile."""
        try:
            rename_to_new(name, self._aside, self._root)
        except FileExistsError:
            return False
        return True

    def condemn(self, name: str) -> None:
        os.rename(name, f"{name}-{os.urandom(8).hex()}", src_dir_fd=self._aside, dst_dir_fd=self._condemned)

    def write_record(self, text: bytes) -> None:
        """Replaces the record as a whole."""
        new, flags = f"{RECORD}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(new, flags, 0o600, dir_fd=self._own), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, RECORD, src_dir_fd=self._own, dst_dir_fd=self._own)


def is_cache(entry: "os.DirEntry[str]") -> bool:
    return bool(NAME.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False)


def open_root(path: str) -> int:
    """SettingsError: it is no folder, a link, or the root of everything."""
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


def rename_to_new(name: str, source: int, target: int) -> None:
    """Renames, and never replaces: FileExistsError. Python has no call for it."""
    written = os.fsencode(name)
    if LIBC.renameat2(source, written, target, written, RENAME_NOREPLACE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
