"""Tasks that work against the keeper of their node: other caches are measured and removed as without them."""

import asyncio
import json
import os
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import pytest

from dispatcher.keeper.folder import CacheFolder
from dispatcher.keeper.keeping import PATIENCE
from dispatcher.keeper.plan import Disk, Marks, RemovalCause
from dispatcher.keeper.removal import DEEPEST, TreeRemoval, TreeSize
from tests.controlplane.waiting import wait_for
from tests.integration.cache_places import in_namespace, of_ours
from tests.integration.kept import KEEPS_ALL, NOW, Kept, name

HOSTILE = 0
SECONDS = 0.5
FULL = 500


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path, 4)
    yield made
    made.check()


class Teased(CacheFolder):
    """A folder in which a task moves a full folder ahead of whoever reads there, after each step."""

    def measuring(self, one: str) -> Generator[TreeSize, None, None]:
        steps = super().measuring(one)
        return self._with_moves(steps) if one == name(HOSTILE) else steps

    def _with_moves(self, steps: Iterator[TreeSize]) -> Generator[TreeSize, None, None]:
        top = Path(self._path, name(HOSTILE))
        places = [path for path in top.iterdir() if path.is_dir()]  # in the order in which they are read
        full = next(top.glob("*/full")).rename(places[0] / "full")
        for number, step in enumerate(steps):
            yield step
            if number % (FULL + 2) == FULL // 2:
                full = full.rename(places[number // (FULL + 2) + 1] / "full")


def skeleton(top: Path) -> None:
    """Many folders, and a full one in one of them."""
    for number in range(200):
        (top / f"{number}").mkdir()
    (full := top / "0" / "full").mkdir()
    for number in range(FULL):
        (full / f"{number}").hardlink_to(top / "data")
    os.utime(top, (NOW, NOW))


async def test_measurement_that_a_task_makes_endless_ends_and_keeps_nobody_waiting(kept: Kept) -> None:
    """The measurement of others, the removal by age, and the size of the hostile one: unknown, which is too large."""
    skeleton(kept.root / name(HOSTILE))
    with closing(Teased(str(kept.root))) as folder:
        rounds = kept.keeping(folder, Marks(0.99, 0.98, 5, max_bytes=2**40), seconds=SECONDS)
        await rounds.survey.look([kept.cluster.pod(name(1))], NOW)
        measuring = asyncio.create_task(rounds.survey.measure(NOW + 1))
        await rounds.keeping.run_once()
        assert not measuring.done()
        await measuring
        sizes = {one.name: (one.is_whole, one.size >= 65536) for one in rounds.found.directories}
        assert sizes == {name(HOSTILE): (False, True), **{name(at): (True, True) for at in (1, 2, 3)}}
        await rounds.keeping.run_once()
        assert [(one.directory.name, one.cause) for one in rounds.found.removed] == [(name(HOSTILE), RemovalCause.SIZE)]
        assert kept.left() == [1, 2, 3]


class WrittenInto(TreeRemoval):
    """A process that was left behind makes a folder through its descriptor after each step of a removal."""

    descriptor = -1

    def steps(self, name: str) -> Generator[None, None, None]:
        for step in super().steps(name):
            with suppress(OSError):
                os.mkdir(f"{next(NUMBERS)}", dir_fd=self.descriptor)
            yield step


NUMBERS = count(1)


async def test_removal_that_a_process_makes_endless_keeps_no_other_directory(kept: Kept) -> None:
    """Its folder is condemned, and goes when the process ends."""
    with closing(CacheFolder(str(kept.root))) as folder:
        rounds = kept.keeping(folder, KEEPS_ALL, seconds=SECONDS)
        await rounds.run_once()
        kept.cluster.time += 1000
        kept.cluster.orders = {name(at): NOW + 500 for at in (HOSTILE, 1)}
        folder.removing = removing = WrittenInto(folder._root, folder._mount)
        removing.descriptor = os.open(kept.root / name(HOSTILE), os.O_RDONLY | os.O_DIRECTORY)
        await rounds.keeping.run_once()
        assert kept.left() == [2, 3]
        assert [one[:51] for one in of_ours(kept.root)] == [f".condemned.{name(HOSTILE)}"]
        os.close(removing.descriptor)
        removing.descriptor = -1

        async def is_gone() -> bool:
            await rounds.keeping.run_once()
            return of_ours(kept.root) == []

        await wait_for(is_gone, "what it left is removed", 30)


@pytest.mark.slow
def test_memory_of_a_measurement_and_a_removal_does_not_grow_with_the_tree(tmp_path: Path) -> None:
    """node_modules, bazel and conda have as many folders. The keeper was killed by its memory limit, at each start."""
    told = in_namespace(MANY, tmp_path, 60_000)
    found = json.loads(told.splitlines()[-1])
    assert found["files"] == 2 * 60_000 + 4
    assert found["measured_kib"] < 3000, found
    assert found["removed_kib"] < 3000, found


MANY = """
import json, os, resource, subprocess, sys
from contextlib import closing
from pathlib import Path
from dispatcher.keeper.folder import CacheFolder
from tests.controlplane.waiting import wait_for
from tests.integration.cache_places import A, go_on

disk, number = Path(sys.argv[1]), int(sys.argv[2])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g,nr_inodes=0", "tmpfs", disk], check=True)
root, most = disk / "root", lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for part in ("folders", "files"):
    (root / A / part).mkdir(parents=True)
    os.chdir(root / A / part)
    for at in range(number):
        os.mkdir(str(at)) if part == "folders" else os.close(os.open(str(at), os.O_CREAT | os.O_WRONLY))
(root / A / "x").touch()
os.chdir("/")
with closing(CacheFolder(str(root))) as folder:
    before = most()
    for found in folder.measuring(A):
        pass
    measured = most()
    folder.set_aside(A)
    folder.condemn(A)
    assert go_on(folder) == {}
    print(json.dumps({"files": found.files, "whole": found.is_whole, "measured_kib": measured - before,
                      "removed_kib": most() - measured}))
"""

ON_A_DISK = """
import asyncio, json, os, subprocess, sys
from contextlib import closing, suppress
from pathlib import Path
from dispatcher.keeper.folder import CacheFolder
from dispatcher.keeper.plan import Marks
from tests.integration.kept import NOW, Kept, name

disk, options, levels = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], check=True)
kept = Kept(disk, 8)
at = kept.root / name(0)
for _ in range(levels):
    at = at / "d"
    at.mkdir()
if levels:
    (at / "hidden").write_bytes(bytes(4 * 2**20))
for number in range(8):
    os.utime(kept.root / name(number), (NOW - 1000 + number, NOW - 1000 + number))
with suppress(OSError):
    for number in range(10_000 if "nr_inodes" in options else 0):
        (disk / f"filler-{number}").touch()


async def rounds():
    with closing(CacheFolder(str(kept.root))) as folder:
        keeping = kept.keeping(folder, Marks(0.8, 0.75, 0))
        before = folder.disk().used_part
        await keeping.run_once()
        found = keeping.found
        told = {"before": before, "used": found.disk.used_part, "left": kept.left(), "stuck": found.is_stuck}
        kept.cluster.bound = [kept.cluster.pod(name(at)) for at in kept.left()]
        with suppress(OSError):
            for number in range(10_000):
                (disk / f"more-{number}").touch()
        await keeping.run_once()
        return {**told, "stuck": keeping.found.is_stuck, "record": len(folder.read_record())}


print(json.dumps(asyncio.run(rounds())))
"""


@pytest.mark.slow
@pytest.mark.parametrize("levels", [3, DEEPEST + 20])
def test_size_that_a_task_hides_costs_no_other_directory_its_place(tmp_path: Path, levels: int) -> None:
    """One file of 4 MiB on a disk of 5 MiB, in the oldest directory: it goes alone, wherever the file is."""
    found = json.loads(in_namespace(ON_A_DISK, tmp_path, "size=5400k,nr_inodes=0", levels).splitlines()[-1])
    assert (found["before"] > 0.8, found["used"] < 0.75) == (True, True)
    assert found["left"] == list(range(1, 8))


@pytest.mark.slow
def test_disk_without_a_free_inode_is_kept_from_the_first_start_on(tmp_path: Path) -> None:
    """The keeper needs no file of its own there. When nothing more may go, it says so."""
    found = json.loads(in_namespace(ON_A_DISK, tmp_path, "size=64m,nr_inodes=40", 0).splitlines()[-1])
    assert (found["before"], found["used"] <= 0.8, found["stuck"]) == (1.0, True, True)  # its record takes a file
    assert 0 < len(found["left"]) < 8


async def test_caches_stay_while_the_removal_of_a_large_one_frees_the_disk(kept: Kept) -> None:
    """Also after a kill: what is condemned goes on first, and nothing goes in its place."""
    skeleton(kept.root / name(HOSTILE))
    with closing(Halved(str(kept.root))) as folder:
        folder.set_aside(name(HOSTILE))
        folder.condemn(name(HOSTILE))
        rounds = kept.keeping(folder, Marks(0.8, 0.7, 0), seconds=0.001)
        await rounds.run_once()
        assert (kept.left(), len(of_ours(kept.root))) == ([1, 2, 3], 1)

        async def is_gone() -> bool:
            await rounds.keeping.run_once()
            return of_ours(kept.root) == []

        await wait_for(is_gone, "the large one is removed", 30)
        assert kept.left() == [1, 2, 3]


class Halved(CacheFolder):
    """On a disk that is full until the last condemned directory is gone."""

    def disk(self) -> Disk:
        return Disk(95, 5) if self.condemned() else Disk(50, 50)


async def test_directory_that_a_pod_makes_during_a_removal_is_another_one(kept: Kept) -> None:
    """It has neither the age of the removed one, nor its order to go."""
    with closing(CacheFolder(str(kept.root))) as folder:
        rounds = kept.keeping(folder, KEEPS_ALL)
        await rounds.run_once()
        kept.cluster.time += 1000
        kept.cluster.orders = {name(1): NOW + 500}
        await rounds.keeping.run_once()
        assert kept.left() == [0, 2, 3]
        os.utime(kept.cache(name(1)), (NOW + 1001, NOW + 1001))
        kept.cluster.time += 60
        await rounds.keeping.run_once()
        await rounds.keeping.run_once()
        assert kept.left() == [0, 1, 2, 3]


def test_folder_that_goes_while_it_is_measured_is_not_a_part_that_is_missing(kept: Kept) -> None:
    (kept.root / name(1) / "sub").mkdir()
    with closing(CacheFolder(str(kept.root))) as folder:
        steps = folder.measuring(name(1))
        next(steps)
        (kept.root / name(1) / "sub").rmdir()
        *_, last = steps
        assert last.is_whole


class NeverDone(TreeRemoval):
    """A removal that somebody makes endless."""

    def steps(self, name: str) -> Generator[None, None, None]:
        while name:
            yield


async def test_full_disk_is_told_although_a_removal_never_ends(kept: Kept) -> None:
    with closing(Halved(str(kept.root))) as folder:
        folder.removing = NeverDone(folder._root, folder._mount)
        folder.set_aside(name(HOSTILE))
        folder.condemn(name(HOSTILE))
        kept.cluster.bound = [kept.cluster.pod(name(at)) for at in (1, 2, 3)]
        rounds = kept.keeping(folder, Marks(0.8, 0.7, 0), seconds=0.01)
        told = list[bool]()
        for _ in range(PATIENCE + 1):
            await rounds.keeping.run_once()
            told.append(rounds.found.is_stuck)
        assert told == [False] * PATIENCE + [True]
