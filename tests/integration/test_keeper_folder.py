"""The folder of cache directories: what it is not, what is in it, and how a directory leaves it and comes back."""

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dispatcher.keeper.folder import CacheFolder, Root
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


def test_folder_of_ours_that_is_a_link_is_refused(place: Place) -> None:
    (place.root / ".keeper").symlink_to(place.witnesses)
    with pytest.raises(SettingsError, match=r"\.keeper in it is not a folder of the cache keeper"):
        CacheFolder(str(place.root))


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


MOUNTED = f"""
import subprocess, sys
from contextlib import closing
from functools import partial
from pathlib import Path
from dispatcher.keeper.folder import CacheFolder, Root
from dispatcher.keeper.removal import Refused
root, inner = Path(sys.argv[1]), Path(sys.argv[2])
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", inner], check=True)
(inner / "precious").write_text("x" * 100_000)
with closing(CacheFolder(str(root))) as folder:
    try:
        *_, last = folder.measuring("{A}")
        print(last.size < 100_000)
        folder.set_aside("{A}")
        folder.condemn("{A}")
        list(folder.removing.steps())
        print(sorted(folder.removing.refused.values()))
    except (Refused, OSError) as fault:
        print(type(fault).__name__, fault)
mounted = [line.split()[4] for line in open("/proc/self/mountinfo") if f" {{root}}/" in line]
print([sorted(path.name for path in Path(one).iterdir()) for one in mounted])
"""


def test_file_system_that_is_mounted_inside_is_neither_measured_nor_entered(place: Place) -> None:
    inner = place.cache() / "sub" / "mounted"
    inner.mkdir(parents=True)
    told = in_namespace(MOUNTED, place.root, inner).splitlines()
    assert told == ["True", "['cannot be removed: Device or resource busy']", "[['precious']]"]


def test_directory_on_another_file_system_is_refused(place: Place) -> None:
    told = in_namespace(MOUNTED, place.root, place.cache()).splitlines()
    assert told == ["Refused another file system is mounted there", "[['precious']]"]


def test_record_is_replaced_as_a_whole_and_is_no_link(place: Place) -> None:
    with closing(CacheFolder(str(place.root))) as folder:
        assert folder.read_record() == b""
        folder.write_record(b"{}")
        assert folder.read_record() == b"{}"
        record = place.root / ".keeper" / "record.json"
        assert stat.S_IMODE(record.stat().st_mode) == 0o600
        record.unlink()
        record.symlink_to(place.witnesses / "file")
        assert folder.read_record() == b""
        folder.write_record(b"[]")
        assert (folder.read_record(), record.is_symlink()) == (b"[]", False)
