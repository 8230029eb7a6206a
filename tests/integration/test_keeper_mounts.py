"""Other file systems that are mounted below the root of caches: nothing in them is counted, moved or removed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cache_places import A, Place, in_namespace

KEEP = f"""
import ctypes, os, subprocess, sys
from contextlib import closing
from pathlib import Path
from dispatcher.keeper.folder import CacheFolder
from dispatcher.keeper.removal import Refused
root, inner, source = (Path(text) for text in sys.argv[1:4])

def remove():
    with closing(CacheFolder(str(root))) as folder:
        print(sorted(folder.names()))
        try:
            *_, last = folder.measuring("{A}")
            print(last.size < 100_000, last.is_whole)
            folder.set_aside("{A}")
            folder.condemn("{A}")
            list(folder.removing.steps())
            print(sorted(folder.removing.refused.values()))
        except (Refused, OSError) as fault:
            print(type(fault).__name__, fault)
"""
MOUNTED = f"""{KEEP}
subprocess.run(["mount", *(["--bind", source] if source.name else ["-t", "tmpfs", "tmpfs"]), inner], check=True)
(inner / "precious").write_text("x" * 100_000)
remove()
mounted = [line.split()[4] for line in open("/proc/self/mountinfo") if f" {{root}}/" in line]
print([sorted(path.name for path in Path(one).iterdir()) for one in mounted])
"""
UNANSWERED = f"""{KEEP}
server = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={{server}},rootmode=40000,user_id=0,group_id=0".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"unanswered", os.fsencode(inner), b"fuse", 0, options):
    raise OSError(ctypes.get_errno(), "mount")
if source.name == "dead":
    os.close(server)
remove()
"""
BUSY = "['cannot be removed: Device or resource busy']"
ELSEWHERE = "another file system is mounted there"
PASSED_OVER = "a cache directory cannot be looked at"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.check()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder on the disk of the caches, which is mounted a second time."""
    made = tmp_path / "source"
    made.mkdir()
    return made


def test_file_system_that_is_mounted_inside_is_neither_measured_nor_entered(place: Place) -> None:
    told = in_namespace(MOUNTED, place.root, below(place), "").splitlines()
    assert told == [f"['{A}']", "True False", BUSY, "[['precious']]"]


def test_folder_of_the_same_disk_that_is_mounted_inside_is_neither_measured_nor_entered(
    place: Place, source: Path
) -> None:
    told = in_namespace(MOUNTED, place.root, below(place), source).splitlines()
    assert told == [f"['{A}']", "True False", BUSY, "[['precious']]"]


def test_directory_on_another_file_system_is_passed_over_and_said(place: Place) -> None:
    said, *told = in_namespace(MOUNTED, place.root, place.cache(), "").splitlines()
    assert (PASSED_OVER in said, ELSEWHERE in said) == (True, True)
    assert told == ["[]", f"Refused {ELSEWHERE}", "[['precious']]"]


def test_directory_that_is_another_folder_of_the_same_disk_is_passed_over_and_said(place: Place, source: Path) -> None:
    said, *told = in_namespace(MOUNTED, place.root, place.cache(), source).splitlines()
    assert (PASSED_OVER in said, ELSEWHERE in said) == (True, True)
    assert told == ["[]", f"Refused {ELSEWHERE}", "[['precious']]"]


if Path("/dev/fuse").exists():  # a kernel without it cannot have these faults

    @pytest.mark.parametrize("server", ["dead", "silent"])
    def test_mount_inside_whose_server_does_not_answer_stays_and_the_rest_is_removed(place: Place, server: str) -> None:
        inner = below(place)
        (place.root / A / "file").write_text("x")
        told = in_namespace(UNANSWERED, place.root, inner, server).splitlines()
        assert told == [f"['{A}']", "True False", BUSY]
        assert not list(place.root.rglob("file"))

    @pytest.mark.parametrize("server", ["dead", "silent"])
    def test_directory_whose_server_does_not_answer_is_passed_over_and_said(place: Place, server: str) -> None:
        place.cache("b" * 40)
        said, *told = in_namespace(UNANSWERED, place.root, place.cache(), server).splitlines()
        assert (PASSED_OVER in said, A in said) == (True, True)
        assert told == [f"['{'b' * 40}']", f"Refused {ELSEWHERE}"]


def below(place: Place) -> Path:
    """A folder somewhere in the cache directory, for a mount."""
    inner = place.cache() / "sub" / "mounted"
    inner.mkdir(parents=True)
    return inner
