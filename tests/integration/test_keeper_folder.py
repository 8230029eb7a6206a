"""The folder of cache directories: what it is not, what is in it, and how a directory leaves it and comes back."""

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dispatcher.keeper.folder import RECORD, CacheFolder, Root
from dispatcher.model.errors import SettingsError
from tests.integration.cache_places import A, B, Place


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
