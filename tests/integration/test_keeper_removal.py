"""Trees that hostile code has written are measured and removed. Nothing outside of them is ever touched."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from dispatcher.keeper.folder import CacheFolder
from dispatcher.keeper.removal import BLOCK, DEEPEST, TreeSize
from tests.controlplane.waiting import wait_for
from tests.integration.cache_places import A, B, Place, go_on, is_gone, measured, remove


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    subprocess.run(["rm", "-rf", made.root], check=True)  # pytest itself cannot remove 10,000 levels
    made.check()


def hostile(cache: Path, witnesses: Path) -> None:
    """Leaves what hostile code may leave."""
    targets = [str(witnesses), "/", "..", "../..", f"../{B}", ".", "loop", str(witnesses / "file")]
    for number, target in enumerate(targets):
        (cache / f"link-{number}").symlink_to(target)
    (cache / "loop").symlink_to("loop")
    (cache / "hard").hardlink_to(witnesses / "file")
    (cache / "sub").mkdir()
    (cache / "sub" / "up").symlink_to("../../..")
    names = [b"n" * 255, b"new\nline", b"\xff\xfe not text", b"-rf", b" ", b"\x1b[2J", b"*", b"\\"]
    for name in names:
        (cache / os.fsdecode(name)).touch()
        inside = cache / "sub" / os.fsdecode(name)
        inside.mkdir()
        (inside / os.fsdecode(name)).touch()
    os.mkfifo(cache / "pipe")
    with closing(socket.socket(socket.AF_UNIX)) as made:
        previous = Path.cwd()
        os.chdir(cache)
        made.bind("socket")
        os.chdir(previous)
    with (cache / "sparse").open("wb") as file:
        file.truncate(2**40)
    (cache / "closed").mkdir()
    (cache / "closed" / "file").touch()
    (cache / "closed" / "file").chmod(0)
    (cache / "closed").chmod(0)
    (cache / "sticky").mkdir(mode=0o1777)


def test_hostile_tree_is_measured_and_removed_and_no_witness_is_touched(place: Place) -> None:
    hostile(place.cache(), place.witnesses)
    place.cache(B)
    found = measured(place.root)
    assert found.is_whole
    assert (30 < found.files < 60, found.size < 2**20) == (True, True)
    assert remove(place.root) == {}
    assert is_gone(place.root)
    assert (place.root / B).is_dir()


def deep(cache: Path, levels: int) -> None:
    """A tree that no path can name."""
    descriptor = os.open(cache, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir("d" * 100, dir_fd=descriptor)
        below = os.open("d" * 100, os.O_RDONLY | os.O_DIRECTORY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.slow
def test_tree_of_ten_thousand_levels_is_removed_with_few_descriptors(place: Place) -> None:
    deep(place.cache(), 10_000)
    found = measured(place.root)
    assert (found.is_whole, found.files) == (False, DEEPEST)
    with closing(CacheFolder(str(place.root))) as folder:
        folder.set_aside(A)
        folder.condemn(A)
        before, (condemned,) = open_files(), folder.condemned()
        most = max(open_files() for _ in folder.removing.steps(condemned))
        assert (go_on(folder), most - before <= 2 * DEEPEST + 3) == ({}, True)
    assert is_gone(place.root)


def test_file_that_is_immutable_stays_and_is_told(place: Place) -> None:
    cache = place.cache()
    (cache / "other").touch()
    (cache / "kept").touch()
    subprocess.run(["chattr", "+i", cache / "kept"], check=True)
    try:
        refused = remove(place.root)
        assert list(refused.values()) == ["cannot be removed: Operation not permitted"]
        assert not (place.root / A).exists(), "a new Pod gets a new directory"
    finally:
        (left,) = place.root.rglob("kept")
        subprocess.run(["chattr", "-i", left], check=True)
    assert [path.name for path in left.parent.iterdir()] == ["kept"]
    with closing(CacheFolder(str(place.root))) as folder:
        assert go_on(folder) == {}
    assert is_gone(place.root)


def test_sizes_are_those_of_the_disk_and_links_count_in_parts(place: Place) -> None:
    cache = place.cache()
    (cache / "one").write_bytes(b"x" * 100_000)
    (cache / "two").hardlink_to(cache / "one")
    (cache / "out").hardlink_to(place.witnesses / "file")
    with (cache / "sparse").open("wb") as file:
        file.truncate(2**30)
    blocks = cache.stat().st_blocks + (cache / "one").stat().st_blocks + (place.witnesses / "file").stat().st_blocks / 2
    assert measured(place.root) == TreeSize(int(blocks * BLOCK), 5)


def test_removal_that_is_killed_at_any_step_is_finished_by_the_next_start(place: Place) -> None:
    step = 0
    while True:
        hostile(place.cache(), place.witnesses)
        with closing(CacheFolder(str(place.root))) as folder:
            folder.set_aside(A)
            steps = folder.removing.steps(folder.condemn(A))
            taken = sum(1 for _ in zip(range(step), steps, strict=False))
            steps.close()
        with closing(CacheFolder(str(place.root))) as folder:
            assert list(folder.names()) == folder.aside() == []
            assert go_on(folder) == {}
        assert is_gone(place.root)
        if taken < step:
            return
        step += 7


def test_files_that_appear_during_the_removal_are_removed_later(place: Place) -> None:
    """A process that was left behind writes through its descriptor. Each pass ends."""
    cache = place.cache()
    (cache / "sub").mkdir()
    descriptor = os.open(cache / "sub", os.O_RDONLY | os.O_DIRECTORY)
    with closing(CacheFolder(str(place.root))) as folder:
        folder.set_aside(A)
        for number, _ in enumerate(folder.removing.steps(folder.condemn(A))):
            if number < 50 and os.fstat(descriptor).st_nlink:
                os.close(os.open(f"f{number}", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
        assert go_on(folder) == {}
    os.close(descriptor)
    assert is_gone(place.root)


RACER = """
import ctypes, mmap, os, sys
libc, exchanged = ctypes.CDLL(None), 0
with open(sys.argv[2], "r+b") as file:
    told = mmap.mmap(file.fileno(), 8)
while True:
    try:
        parent = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        continue
    some = True
    while some:
        some = sum(not libc.renameat2(parent, b"folder%d" % n, parent, b"link%d" % n, 2) for n in range(20))
        exchanged += some
        told[:] = exchanged.to_bytes(8)
    os.close(parent)
"""
RACES, EXCHANGES = 50, 100_000


@pytest.mark.slow
async def test_folder_that_is_swapped_for_a_link_leads_nowhere(place: Place, tmp_path: Path) -> None:
    """A process that was left behind exchanges folders and links before and while they are removed, 10^5 times."""
    counter = tmp_path / "exchanged"
    counter.write_bytes(bytes(8))
    racer = await asyncio.create_subprocess_exec(sys.executable, "-c", RACER, place.root / A, counter)
    try:
        races = 0
        while races < RACES or int.from_bytes(counter.read_bytes()) < EXCHANGES:
            races, before = races + 1, counter.read_bytes()
            swappable(place.root / B, place.witnesses)
            (place.root / B).rename(place.root / A)
            await wait_for(partial(has_changed, counter, before), "folders are exchanged", 30)
            assert remove(place.root) == {}
            assert is_gone(place.root)
    finally:
        racer.kill()
        await racer.wait()


def has_changed(file: Path, before: bytes) -> bool:
    return file.read_bytes() != before


def swappable(cache: Path, witnesses: Path) -> None:
    cache.mkdir()
    for number in range(20):
        (cache / f"folder{number}").mkdir()
        (cache / f"folder{number}" / "file").touch()
        (cache / f"link{number}").symlink_to(witnesses)
