"""The folder of cache directories: what is in it, what is mounted below it, and the pace of work in it."""

import asyncio
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dispatcher.keeper.folder import RECORD, STEPS_AT_ONCE, CacheFolder, KeeperPace, Root
from dispatcher.model.errors import SettingsError
from tests.integration.cache_places import A, B, Place, in_namespace


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.check()


def test_folder_that_has_more_than_caches_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    for path, words in (("/", "it is /"), (str(tmp_path / "link"), "cannot be opened"), ("/nowhere", "No such file"),
                        (str(tmp_path / "file"), "Not a directory"), ("/proc/1/root", "cannot be opened")):  # fmt: skip
        with pytest.raises(SettingsError, match=f"DISPATCHER_CACHE_ROOT is '{path}'.*{words}"):
            CacheFolder(path)


def test_folder_of_another_keeper_is_refused(place: Place) -> None:
    with closing(CacheFolder(str(place.root))):
        with pytest.raises(SettingsError, match="another cache keeper works in it"):
            CacheFolder(str(place.root))
        closing(Root(str(place.root)))
    CacheFolder(str(place.root)).close()


def test_only_folders_with_a_digest_as_name_are_caches(place: Place) -> None:
    place.cache()
    (place.root / B).symlink_to(place.witnesses)
    (place.root / ("c" * 40)).touch()
    for name in ("lost+found", "A" * 40, "a" * 39, A + "a", "other"):
        (place.root / name).mkdir()
    with closing(CacheFolder(str(place.root))) as folder:
        assert list(folder.names()) == [A]
        assert folder.foreign() == sorted(["lost+found", "A" * 40, "a" * 39, A + "a", "other", B, "c" * 40])
        for name in (B, "c" * 40):
            with pytest.raises(OSError):  # noqa: PT011  # not a folder, or a link
                folder.set_aside(name)


def test_whole_directory_is_put_back_unless_a_new_one_was_made(place: Place) -> None:
    (place.cache() / "warm").write_text("yes")
    with closing(CacheFolder(str(place.root))) as folder:
        folder.set_aside(A)
        assert (folder.aside(), list(folder.names())) == ([A], [])
        assert folder.put_back(A)
        assert (place.root / A / "warm").read_text() == "yes"
        folder.set_aside(A)
        (place.cache() / "new").write_text("yes")
        assert not folder.put_back(A)
        with pytest.raises(FileExistsError):
            folder.set_aside(A)
        assert [path.name for path in (place.root / A).iterdir()] == ["new"]


def test_descriptor_from_before_follows_the_directory_back(place: Place) -> None:
    """As a mount does that kubelet made before the rename."""
    descriptor = os.open(place.cache(), os.O_RDONLY | os.O_DIRECTORY)
    with closing(CacheFolder(str(place.root))) as folder:
        folder.set_aside(A)
        os.close(os.open("written", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
        folder.put_back(A)
    os.close(descriptor)
    assert (place.root / A / "written").exists()


def test_record_is_replaced_as_a_whole_and_is_no_link(place: Place) -> None:
    with closing(CacheFolder(str(place.root))) as folder:
        assert folder.read_record() == b""
        folder.write_record(b"{}")
        assert folder.read_record() == b"{}"
        record = place.root / RECORD
        assert stat.S_IMODE(record.stat().st_mode) == 0o600
        record.unlink()
        record.symlink_to(place.witnesses / "file")
        assert folder.read_record() == b""
        folder.write_record(b"[]")
        assert (folder.read_record(), record.is_symlink()) == (b"[]", False)


SCRIPT = f"""
import ctypes, os, subprocess, sys
from contextlib import closing
from pathlib import Path
from dispatcher.keeper.folder import CacheFolder
from dispatcher.keeper.removal import RemovalRefused
root, inner, source, kind = *(Path(text) for text in sys.argv[1:4]), sys.argv[4]
precious = inner / "precious"

def mount():
    if kind in ("dead", "silent"):
        server = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={{server}},rootmode=40000,user_id=0,group_id=0".encode()
        if ctypes.CDLL(None, use_errno=True).mount(b"unanswered", os.fsencode(inner), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), "mount")
        if kind == "dead":
            os.close(server)
    else:
        what = ["--bind", source] if kind == "bind" else ["-t", "tmpfs", "tmpfs"]
        subprocess.run(["mount", *what, inner], check=True)
        precious.write_text("x" * 100_000)

def remove():
    with closing(CacheFolder(str(root))) as folder:
        print(sorted(folder.names()))
        try:
            *_, last = folder.measuring("{A}")
            print(last.size < 100_000, last.is_whole)
            folder.set_aside("{A}")
            list(folder.removing.steps(folder.condemn("{A}")))
            print(sorted(folder.removing.refused.values()))
        except (RemovalRefused, OSError) as fault:
            print(type(fault).__name__, fault)

mount()
remove()
if kind in ("tmpfs", "bind"):
    mounts = [line.split()[4] for line in open("/proc/self/mountinfo") if f" {{root}}/" in line]
    assert [path.name for path in Path(mounts[0]).iterdir()] == ["precious"]
"""
FUSE = ("dead", "silent") if Path("/dev/fuse").exists() else ()
"""Mounts whose server has gone, or never answers. A kernel without FUSE cannot have them."""
ELSEWHERE = "another file system is mounted there"
STAYS = f"['cannot be removed: {ELSEWHERE}']"
PASSED_OVER = "a cache directory cannot be looked at"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder on the disk of the caches. The kind `bind` mounts it a second time."""
    made = tmp_path / "source"
    made.mkdir()
    return made


@pytest.mark.parametrize("kind", ["tmpfs", "bind", *FUSE])
def test_mount_inside_is_neither_measured_nor_entered_and_the_rest_is_removed(
    place: Place, source: Path, kind: str
) -> None:
    inner = place.cache() / "sub" / "mounted"
    inner.mkdir(parents=True)
    (place.root / A / "file").write_text("x")
    told = in_namespace(SCRIPT, place.root, inner, source, kind).splitlines()
    assert told == [f"['{A}']", "True False", STAYS]
    assert not list(place.root.rglob("file"))


@pytest.mark.parametrize("kind", ["tmpfs", "bind", *FUSE])
def test_directory_that_is_a_mount_is_passed_over_and_said(place: Place, source: Path, kind: str) -> None:
    place.cache(B)
    said, *told = in_namespace(SCRIPT, place.root, place.cache(), source, kind).splitlines()
    assert (PASSED_OVER in said, ELSEWHERE in said, A in said) == (True, True, True)
    assert told == [f"['{B}']", f"RemovalRefused {ELSEWHERE}"]


async def test_all_steps_are_taken_and_the_last_one_is_returned() -> None:
    pace = KeeperPace(steps_a_second=1e9)
    assert await pace.last_of(iter(range(3 * STEPS_AT_ONCE + 7)), -1) == (3 * STEPS_AT_ONCE + 6, True)
    assert await pace.last_of(iter(range(2 * STEPS_AT_ONCE)), -1) == (2 * STEPS_AT_ONCE - 1, True)
    assert await pace.last_of(iter(()), -1) == (-1, True)


async def test_endless_work_ends_with_its_time_and_leaves_every_second_part_to_other_work() -> None:
    """Somebody can make each of them endless. So neither waits for the end of the other."""
    pace, parts = KeeperPace(steps_a_second=1e9), list[str]()

    def endless(name: str) -> Iterator[str]:
        while True:
            for _ in range(STEPS_AT_ONCE):
                yield name
            parts.append(name)

    found = await asyncio.gather(*(pace.last_of(endless(name), "", 0.5) for name in "ab"))
    assert found == [("a", False), ("b", False)]
    assert abs(parts.count("a") - parts.count("b")) <= 2


@pytest.mark.parametrize(("steps", "seconds", "pause"), [(500, 0.005, 0.02), (500, 0.1, 0.1), (500, 0.0, 0.025)])
def test_pause_keeps_the_number_of_steps_and_half_of_the_time(steps: int, seconds: float, pause: float) -> None:
    assert KeeperPace(20_000).pause_after(steps, seconds) == pytest.approx(pause)


async def test_cancelled_work_has_ended_when_the_cancellation_arrives() -> None:
    """Otherwise the keeper would close the folder under a thread that removes files in it."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def steps() -> Iterator[int]:
        begun.set()
        may_end.wait(20)
        ended.set()
        yield 1

    work = asyncio.create_task(KeeperPace().last_of(steps(), 0))
    await asyncio.to_thread(begun.wait, 20)
    work.cancel()
    asyncio.get_running_loop().call_later(0.05, may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await work
    assert ended.is_set()
