"""Measures and removes trees that other teams' code has written, and may still be writing.

Everything is reached from a descriptor of its folder, and no link is followed. So nobody can swap a folder for a link
on our way. A walk has at most DEEPEST folders open, and keeps nothing of folders that it has left. Deeper folders are
not measured, and are moved up to be removed.

Each function is a generator that gives way after every step, so that its caller can leave the disk to the tasks, and
can end a walk that a writer makes endless.

Not guaranteed: that everything can be removed. An immutable file stays, and so does a folder on which something is
mounted. The caller learns of both.
"""

import errno
import os
import secrets
import stat
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Final

from msgspec import Struct

DEEPEST: Final = 100
"""Levels that a walk looks into, at most. Each needs two descriptors."""
BLOCK: Final = 512
"""The unit of st_blocks, in bytes."""
OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LONGEST_FDINFO: Final = 4096
LONGEST_BEGINNING: Final = 100
NO_FOLDER: Final = frozenset({errno.ENOTDIR, errno.ELOOP})
CHANGED: Final = NO_FOLDER | {errno.EISDIR, errno.ENOTEMPTY}
"""Faults after which somebody has written meanwhile."""


class TreeSize(Struct, frozen=True):
    """Bytes on the disk and inodes of a tree. `is_whole`: False: parts of it were not looked at."""

    size: int = 0
    files: int = 0
    is_whole: bool = True

    def plus(self, found: os.stat_result) -> "TreeSize":
        """The sum with a file. A file with several names counts once, in parts."""
        links = 1 if stat.S_ISDIR(found.st_mode) else max(1, found.st_nlink)
        return TreeSize(self.size + found.st_blocks * BLOCK // links, self.files + 1, self.is_whole)

    def in_part(self) -> "TreeSize":
        return TreeSize(self.size, self.files, is_whole=False)


class RemovalRefused(Exception):
    """A folder that must not be touched, or cannot be. The message says why."""


@contextmanager
def located(name: str, folder: int, mount: int) -> Iterator[int]:
    """A descriptor of a folder in a folder, which cannot read it.

    Raises OSError if it is no folder or a link, and RemovalRefused for a mount. No call reaches a mount, because its
    server may never answer.
    """
    descriptor = os.open(name, OPEN_FOLDER | os.O_PATH, dir_fd=folder)
    try:
        if mount_of(descriptor) != mount:
            raise RemovalRefused("another file system is mounted there")
        yield descriptor
    finally:
        os.close(descriptor)


def mount_of(descriptor: int) -> int:
    """The number of the mount of a descriptor. A folder that is mounted twice has two numbers."""
    told = os.open(f"/proc/self/fdinfo/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(told, LONGEST_FDINFO).partition(b"mnt_id:")[2].split()[0])
    finally:
        os.close(told)


@contextmanager
def opened(name: str, folder: int, mount: int) -> Iterator[int]:
    """A descriptor of a folder in a folder, to read it. It raises the same as `located`."""
    descriptor = open_below(name, folder, mount)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_below(name: str, folder: int, mount: int) -> int:
    with located(name, folder, mount) as place:
        return os.open(".", OPEN_FOLDER, dir_fd=place)


class Level:
    """An open folder of a walk, and its entries. `name`: its name in the folder above it."""

    def __init__(self, folder: int, name: str = "") -> None:
        """Takes over the descriptor."""
        self.folder = folder
        self.name = name
        try:
            self.entries = os.scandir(folder)
        except OSError:
            os.close(folder)
            raise

    def close(self) -> None:
        self.entries.close()
        os.close(self.folder)


class Walk:
    """The open folders of a walk, from the top down."""

    def __init__(self, top: int, mount: int) -> None:
        """`top`: the descriptor of a folder, which stays the caller's."""
        self._mount = mount
        self.levels = [Level(os.dup(top))]

    @property
    def is_deepest(self) -> bool:
        return len(self.levels) >= DEEPEST

    def enter(self, name: str) -> Level:
        """Opens the folder below. Raises the same as `located`."""
        self.levels.append(Level(open_below(name, self.levels[-1].folder, self._mount), name))
        return self.levels[-1]

    def leave(self) -> str:
        """Closes the lowest folder. Returns its name."""
        left = self.levels.pop()
        left.close()
        return left.name

    def close(self) -> None:
        while self.levels:
            self.leave()


def measure(folder: int, mount: int) -> Generator[TreeSize, None, None]:
    """Yields what was found so far of the tree in a folder, after each entry."""
    so_far = TreeSize().plus(os.fstat(folder))
    yield so_far
    with closing(Walk(folder, mount)) as walk:
        while walk.levels:
            entry = next(walk.levels[-1].entries, None)
            if entry is None:
                walk.leave()
                continue
            if entry.is_dir(follow_symlinks=False):
                so_far = with_folder(so_far, entry, walk)
            else:
                so_far = with_file(so_far, entry)
            yield so_far


def with_folder(so_far: TreeSize, entry: "os.DirEntry[str]", walk: Walk) -> TreeSize:
    """Goes into the folder, unless it is too deep, gone, or a mount."""
    if walk.is_deepest:
        return so_far.in_part()
    try:
        return so_far.plus(os.fstat(walk.enter(entry.name).folder))
    except FileNotFoundError:
        return so_far
    except (OSError, RemovalRefused):
        return so_far.in_part()


def with_file(so_far: TreeSize, entry: "os.DirEntry[str]") -> TreeSize:
    try:
        return so_far.plus(entry.stat(follow_symlinks=False))
    except FileNotFoundError:
        return so_far
    except OSError:  # a single file may be a mount, whose server has died
        return so_far.in_part()


class TreeRemoval:
    """Removes trees in one folder that only the keeper writes.

    refused: why a tree could not be removed, by its name.
    """

    def __init__(self, folder: int, mount: int) -> None:
        self.refused: dict[str, str] = {}
        self._folder = folder
        self._mount = mount

    def steps(self, name: str) -> Generator[None, None, None]:
        """Removes the tree. Yields after each step. It ends when the tree is gone, or is in `refused`.

        A folder that is too deep becomes a tree beside this one. Both names have the same beginning.
        """
        self.refused.pop(name, None)
        try:
            with opened(name, self._folder, self._mount) as descriptor:
                yield from self._empty(descriptor, name)
            os.rmdir(name, dir_fd=self._folder)
        except RemovalRefused as fault:
            self.refused[name] = str(fault)
        except FileNotFoundError:
            pass
        except OSError as fault:
            self._not_emptied(name, fault)
        yield

    def _empty(self, top: int, name: str) -> Iterator[None]:
        """Removes everything that it can, in as many walks as it needs. Raises RemovalRefused if something stays."""
        stays, is_empty = "", False
        while not is_empty and not stays:
            is_empty = True
            with closing(Walk(top, self._mount)) as walk:
                while walk.levels:
                    try:
                        self._take_out(walk, name)
                    except FileNotFoundError:
                        pass
                    except (OSError, RemovalRefused) as fault:
                        if getattr(fault, "errno", 0) in CHANGED:
                            is_empty = False  # the next walk sees what it is now
                        else:
                            stays = stays or f"cannot be removed: {words_of(fault)}"
                    yield
        if stays:
            raise RemovalRefused(stays)

    def _take_out(self, walk: Walk, name: str) -> None:
        """Removes the next entry, or goes into it. At any time an entry may become another kind of file."""
        folder = walk.levels[-1].folder
        entry = next(walk.levels[-1].entries, None)
        if entry is None:
            left = walk.leave()
            if walk.levels:
                os.rmdir(left, dir_fd=walk.levels[-1].folder)
        elif not entry.is_dir(follow_symlinks=False):
            remove_file(entry.name, walk)
        elif walk.is_deepest:  # up into a folder that tasks cannot write
            own = f"{name[:LONGEST_BEGINNING]}.{secrets.token_hex(12)}"
            os.rename(entry.name, own, src_dir_fd=folder, dst_dir_fd=self._folder)
        else:
            remove_folder(entry.name, walk)

    def _not_emptied(self, name: str, fault: OSError) -> None:
        if fault.errno in NO_FOLDER:
            try:
                os.unlink(name, dir_fd=self._folder)
            except OSError as why:
                self.refused[name] = f"cannot be removed: {words_of(why)}"
        else:
            self.refused[name] = f"cannot be removed: {words_of(fault)}"  # ENOTEMPTY: somebody writes; later


def remove_file(name: str, walk: Walk) -> None:
    try:
        os.unlink(name, dir_fd=walk.levels[-1].folder)
    except IsADirectoryError:
        walk.enter(name)


def remove_folder(name: str, walk: Walk) -> None:
    """Goes into a folder. Its entries are removed next, and then the folder."""
    try:
        walk.enter(name)
    except OSError as fault:
        if fault.errno not in NO_FOLDER:
            raise
        os.unlink(name, dir_fd=walk.levels[-1].folder)


def words_of(fault: OSError | RemovalRefused) -> str:
    return fault.strerror or str(fault) if isinstance(fault, OSError) else str(fault)
