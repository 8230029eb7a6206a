"""Measures and removes trees that other teams' code has written, and may still be writing.

Everything is reached from a descriptor of its folder, and no link is followed. To remove a tree, each folder in it is
first moved up into one flat folder of ours. So a tree of 10,000 levels needs two descriptors and no recursion, and
nobody can swap a folder for a link on our way.

Each function is a generator that gives way after every step, so that its caller can leave the disk to the tasks.

Not guaranteed: that everything can be removed. An immutable file stays, and so does a folder on which something is
mounted. The caller is told of both.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from msgspec import Struct

DEEPEST: Final = 100
"""Levels that a measurement looks into. Each needs a descriptor."""
BLOCK: Final = 512
"""The unit of st_blocks."""
OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LONGEST_FDINFO: Final = 4096
NO_FOLDER: Final = frozenset({errno.ENOTDIR, errno.ELOOP})


class Measured(Struct, frozen=True):
    """Bytes on the disk and inodes of a tree. `is_whole`: False: parts of it were not looked at."""

    size: int = 0
    files: int = 0
    is_whole: bool = True

    def plus(self, found: os.stat_result) -> "Measured":
        """A file with several names counts once, in parts."""
        links = 1 if stat.S_ISDIR(found.st_mode) else max(1, found.st_nlink)
        return Measured(self.size + found.st_blocks * BLOCK // links, self.files + 1, self.is_whole)

    def in_part(self) -> "Measured":
        return Measured(self.size, self.files, is_whole=False)


class Refused(Exception):
    """A folder that must not be touched, or cannot be. The message says why."""


@contextmanager
def located(name: str, folder: int, mount: int) -> Iterator[int]:
    """A descriptor of a folder in a folder, which cannot read it. OSError: it is none, or a link. Refused: a mount.

    Nothing is asked of a mount, because its server may never answer.
    """
    descriptor = os.open(name, OPEN_FOLDER | os.O_PATH, dir_fd=folder)
    try:
        if mount_of(descriptor) != mount:
            raise Refused("another file system is mounted there")
        yield descriptor
    finally:
        os.close(descriptor)


def mount_of(descriptor: int) -> int:
    """The number of the mount of a place. A folder that is mounted twice has two."""
    told = os.open(f"/proc/self/fdinfo/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(told, LONGEST_FDINFO).partition(b"mnt_id:")[2].split()[0])
    finally:
        os.close(told)


@contextmanager
def opened(name: str, folder: int, mount: int) -> Iterator[int]:
    """A descriptor of a folder in a folder, to read it. It fails as `located` does."""
    descriptor = open_below(name, folder, mount)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_below(name: str, folder: int, mount: int) -> int:
    with located(name, folder, mount) as place:
        return os.open(".", OPEN_FOLDER, dir_fd=place)


def measure(folder: int, mount: int) -> Iterator[Measured]:
    """Yields what was found so far of the tree in a folder, after each entry."""
    so_far = Measured().plus(os.fstat(folder))
    yield so_far
    with ExitStack() as all_levels:
        levels = [Level(folder, all_levels, is_ours=False)]
        while levels:
            entry = next(levels[-1].entries, None)
            if entry is None:
                levels.pop().close()
                continue
            if not entry.is_dir(follow_symlinks=False):
                so_far = with_file(so_far, entry)
            elif len(levels) < DEEPEST and (below := level_below(levels[-1], entry.name, mount, all_levels)):
                levels.append(below)
                so_far = so_far.plus(os.fstat(below.folder))
            else:
                so_far = so_far.in_part()
            yield so_far


def with_file(so_far: Measured, entry: "os.DirEntry[str]") -> Measured:
    try:
        return so_far.plus(entry.stat(follow_symlinks=False))
    except FileNotFoundError:
        return so_far
    except OSError:  # a single file may be a mount, whose server has died
        return so_far.in_part()


class Level:
    """A folder that is being measured, and its entries. `is_ours`: its descriptor is closed with it."""

    def __init__(self, folder: int, all_levels: ExitStack, *, is_ours: bool = True) -> None:
        self.entries = os.scandir(folder)
        self.folder = folder
        self._closing = all_levels.enter_context(ExitStack())
        self._closing.callback(self.entries.close)
        if is_ours:
            self._closing.callback(os.close, folder)

    def close(self) -> None:
        self._closing.close()


def level_below(level: Level, name: str, mount: int, all_levels: ExitStack) -> Level | None:
    """None: the folder is gone, or another file system is mounted there."""
    try:
        return Level(open_below(name, level.folder, mount), all_levels)
    except (OSError, Refused):
        return None


class Removing:
    """Removes what is in one folder of ours.

    refused: why an entry could not be removed, by its name.
    """

    def __init__(self, folder: int, mount: int) -> None:
        self.refused: dict[str, str] = {}
        self._folder = folder
        self._mount = mount

    def steps(self) -> Iterator[None]:
        """Removes until nothing is left but what was refused. Yields after each step."""
        self.refused.clear()
        while names := [name for name in self._names() if name not in self.refused]:
            for name in names:
                yield from self._remove(name)

    def _names(self) -> list[str]:
        """Some names; all of them could be a million."""
        with os.scandir(self._folder) as entries:
            found = (entry.name for entry in entries)
            return [name for name, _ in zip(found, range(len(self.refused) + 1000), strict=False)]

    def _remove(self, name: str) -> Iterator[None]:
        try:
            with opened(name, self._folder, self._mount) as descriptor:
                yield from self._empty(descriptor)
            os.rmdir(name, dir_fd=self._folder)
        except Refused as fault:
            self.refused[name] = str(fault)
        except OSError as fault:
            self._not_emptied(name, fault)
        yield

    def _empty(self, descriptor: int) -> Iterator[None]:
        """Takes out all that can be taken out. Refused: something stays."""
        stays = ""
        with os.scandir(descriptor) as entries:
            for entry in entries:
                try:
                    self._take_out(entry.name, descriptor, is_folder=entry.is_dir(follow_symlinks=False))
                except OSError as fault:
                    stays = stays or f"cannot be removed: {fault.strerror}"
                yield
        if stays:
            raise Refused(stays)

    def _take_out(self, name: str, descriptor: int, *, is_folder: bool) -> None:
        """Removes an entry, or moves a folder up. At any time an entry may become another kind of file."""
        with suppress(FileNotFoundError):
            if not is_folder:
                try:
                    os.unlink(name, dir_fd=descriptor)
                except IsADirectoryError:
                    is_folder = True
            if is_folder:
                os.rename(name, secrets.token_hex(12), src_dir_fd=descriptor, dst_dir_fd=self._folder)

    def _not_emptied(self, name: str, fault: OSError) -> None:
        if fault.errno in NO_FOLDER:
            try:
                os.unlink(name, dir_fd=self._folder)
            except OSError as why:
                self.refused[name] = f"cannot be removed: {why.strerror}"
        elif fault.errno != errno.ENOENT:
            self.refused[name] = f"cannot be removed: {fault.strerror}"  # ENOTEMPTY: somebody writes; later
