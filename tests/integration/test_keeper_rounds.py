"""Rounds of the cache keeper on a real file system, with Pods that come at any moment."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dispatcher.keeper.folder import CacheFolder
from dispatcher.keeper.keeping import AGAIN_SECONDS, AT_ONCE, EVERY_SECONDS
from dispatcher.keeper.plan import DAY, Disk, Marks, RemovalCause
from dispatcher.model.errors import ClusterAway
from tests.integration.cache_places import in_namespace, of_ours
from tests.integration.kept import KEEPS_ALL, NOW, Kept, name

PART = 68 * 2**10
"""Bytes of a directory with its file, on a disk of blocks of 4 KiB."""


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.check()


class SmallDisk(CacheFolder):
    """A folder on a disk with room for `parts` of its directories, less one that is free. 0: the real disk."""

    parts = 0

    def disk(self) -> Disk:
        used = PART * (len(self.names()) + len(self.aside()) - 1)
        return Disk(used, self.parts * PART - used) if self.parts else super().disk()


@pytest.fixture
def folder(kept: Kept) -> Iterator[SmallDisk]:
    with closing(SmallDisk(str(kept.root))) as opened:
        yield opened


async def test_quiet_round_asks_no_live_list_and_removes_nothing(kept: Kept, folder: CacheFolder) -> None:
    keeping = kept.keeping(folder, KEEPS_ALL)
    assert await keeping.run_once() == EVERY_SECONDS
    assert (kept.cluster.lists, kept.left()) == (0, list(range(10)))
    assert all(one.size >= 65536 and one.files == 2 for one in keeping.found.directories)


async def test_directories_that_were_not_used_for_too_long_go_and_used_ones_stay(
    kept: Kept, folder: CacheFolder
) -> None:
    """Also after a restart: the next keeper reads the record."""
    await kept.uses_in_turn(kept.keeping(folder, KEEPS_ALL))
    keeping = kept.keeping(folder, Marks(0.99, 0.98, 5))
    kept.cluster.bound = [kept.cluster.pod(name(1))]
    kept.cluster.time = NOW + 11.5 * DAY
    assert await keeping.run_once() == AGAIN_SECONDS
    assert kept.left() == [1, 7, 8, 9]
    assert {one.cause for one in keeping.found.removed} == {RemovalCause.AGE}


async def test_least_recently_used_directories_go_until_the_low_mark(kept: Kept, folder: SmallDisk) -> None:
    keeping = kept.keeping(folder, Marks(0.8, 0.55, 0))
    await kept.uses_in_turn(keeping)
    folder.parts = 10
    kept.cluster.bound = [kept.cluster.pod(name(0))]
    await keeping.run_once()
    assert kept.left() == [0, 5, 6, 7, 8, 9]
    assert not keeping.found.is_stuck


async def test_directories_of_unknown_size_go_one_by_one_until_the_low_mark(kept: Kept, folder: SmallDisk) -> None:
    folder.parts = 10
    keeping = kept.keeping(folder, Marks(0.8, 0.55, 0)).keeping
    left = list[int]()
    for _ in range(6):
        await keeping.run_once()
        left.append(len(kept.left()))
    assert left == [9, 8, 7, 6, 6, 6]


async def test_keeper_is_stuck_if_pods_use_all_that_could_go(kept: Kept, folder: SmallDisk) -> None:
    keeping = kept.keeping(folder, Marks(0.8, 0.7, 0))
    folder.parts = 10
    kept.cluster.bound = [kept.cluster.pod(name(at)) for at in range(10)]
    await keeping.run_once()
    assert (keeping.found.is_stuck, kept.left()) == (True, list(range(10)))


async def test_directory_of_a_pod_that_comes_after_the_plan_stays_whole(kept: Kept, folder: CacheFolder) -> None:
    """The Pod is in the list after the rename, or has no node yet."""
    keeping = kept.keeping(folder, KEEPS_ALL)
    await keeping.run_once()
    kept.cluster.time += 1e9
    kept.cluster.orders = {name(at): kept.cluster.time for at in range(10)}
    kept.cluster.live = [[], [kept.cluster.pod(name(3))]]
    await keeping.run_once()
    assert kept.left() == [3]
    assert (kept.root / name(3) / "data").stat().st_size == 65536
    assert of_ours(kept.root) == []


async def test_directories_come_back_if_the_list_after_the_rename_fails(kept: Kept, folder: CacheFolder) -> None:
    keeping = kept.keeping(folder, KEEPS_ALL)
    await keeping.run_once()
    kept.cluster.time += 1e9
    kept.cluster.orders = {name(at): kept.cluster.time for at in range(10)}
    kept.cluster.live = [[], None]
    with pytest.raises(ClusterAway):
        await keeping.run_once()
    assert (kept.left(), folder.aside()) == (list(range(10)), [])


async def test_directory_is_ordered_away_once(kept: Kept, folder: CacheFolder) -> None:
    keeping = kept.keeping(folder, KEEPS_ALL)
    await keeping.run_once()
    kept.cluster.time += 1e9
    kept.cluster.orders = {name(4): kept.cluster.time - 1}
    await keeping.run_once()
    assert kept.left() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    os.utime(kept.cache(name(4)), (kept.cluster.time, kept.cluster.time))
    kept.cluster.bound = [kept.cluster.pod(name(4))]
    await keeping.run_once()  # notes the use of the new directory
    kept.cluster.bound = []
    kept.cluster.time += 60
    await keeping.run_once()
    assert 4 in kept.left()


async def test_keeper_that_was_killed_after_a_rename_puts_back_what_has_no_successor(
    kept: Kept, folder: CacheFolder
) -> None:
    for at in (2, 3, 4):
        folder.set_aside(name(at))
    kept.cache(name(4))  # a Pod came, and kubelet made a new directory
    await kept.keeping(folder, KEEPS_ALL).run_once()
    assert kept.left() == list(range(10))
    assert (kept.root / name(3) / "data").exists()
    assert not (kept.root / name(4) / "data").exists()
    assert of_ours(kept.root) == []


async def test_many_directories_go_with_few_lists(tmp_path: Path) -> None:
    kept = Kept(tmp_path, number=2 * AT_ONCE + 1)
    with closing(CacheFolder(str(kept.root))) as folder:
        keeping = kept.keeping(folder, KEEPS_ALL)
        await keeping.run_once()
        kept.cluster.time += 1e9
        kept.cluster.orders = {name(at): kept.cluster.time for at in range(kept.number)}
        await keeping.run_once()
        assert (kept.left(), kept.cluster.lists) == ([], 4)


ON_A_FULL_DISK = """
import asyncio, subprocess, sys
from contextlib import closing, suppress
from pathlib import Path
from dispatcher.keeper.folder import CacheFolder
from dispatcher.keeper.keeping import Keeping
from dispatcher.keeper.folder import KeeperPace
from dispatcher.keeper.plan import Marks
from dispatcher.keeper.folder import Survey
from tests.integration.kept import Cluster, name

disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], check=True)
root, cluster = disk / "root", Cluster(disk / "root")
root.mkdir()
for at in range(8):
    (root / name(at)).mkdir()
    (root / name(at) / "data").write_bytes(b"x" * 2**18)


async def rounds():
    with closing(CacheFolder(str(root))) as folder:
        survey = Survey(folder, str(root), KeeperPace())
        keeping = Keeping(folder, survey, cluster, Marks(0.8, 0.6, 0))
        cluster.bound = [cluster.pod(name(3))]
        await keeping.run_once()
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while filler.write(b"x" * 4096):
                pass
        print(folder.disk().used_part)
        await survey.measure(cluster.now() + 1)
        await keeping.run_once()
        print(folder.disk().used_part <= 0.6, (root / name(3) / "data").stat().st_size, keeping.found.is_stuck)
        print(len(folder.read_record()) > 0)


asyncio.run(rounds())
"""


def test_disk_that_somebody_else_fills_to_the_last_byte_gets_room(tmp_path: Path) -> None:
    """On a real file system. The keeper writes its record there, too."""
    told = in_namespace(ON_A_FULL_DISK, tmp_path).splitlines()
    assert [line for line in told if "[info" not in line] == ["1.0", "True 262144 False", "True"]
