"""Other file systems that are mounted below the root of caches: nothing in them is counted, moved or removed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cache_places import A, B, Place, in_namespace

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
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.check()


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
