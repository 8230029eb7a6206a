"""Rounds of the cache keeper on a real file system, on a full disk beside tasks, with Pods that come at any moment."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dispatcher.keeper import folder as folders
from dispatcher.keeper.folder import ASIDE, CacheFolder
from dispatcher.keeper.keeping import AGAIN_SECONDS, AT_ONCE, EVERY_SECONDS
from dispatcher.keeper.plan import DAY, Disk, Marks, RemovalCause
from dispatcher.model.errors import ClusterAway
from tests.integration.cache_places import in_namespace, of_ours
from tests.integration.kept import KEEPS_ALL, NOW, Kept, Pod, name

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
from dispatcher.keeper.keeping import CacheRounds
from dispatcher.keeper.folder import KeeperPace
from dispatcher.keeper.plan import DIGEST, Marks
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
        keeping = CacheRounds(folder, survey, cluster, Marks(0.8, 0.6, 0))
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


SCRIPT = """
import asyncio, json, os, subprocess, sys, threading
from contextlib import closing, suppress
from pathlib import Path
from dispatcher.keeper.folder import CacheFolder
from dispatcher.keeper.keeping import CacheRounds
from dispatcher.keeper.folder import KeeperPace
from dispatcher.keeper.plan import DIGEST, Marks
from dispatcher.keeper.folder import Survey
from tests.integration.kept import NOW, Cluster, name

MIB, NUMBER = 2**20, 500
disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", disk], check=True)
root, cluster = disk / "root", Cluster(disk / "root")
root.mkdir()
for at in range(NUMBER):
    (root / name(at)).mkdir()
    for part in range(3):
        (root / name(at) / f"part-{part}").write_bytes(bytes(600 * 1024))
    os.utime(root / name(at), (NOW - 10_000 + at, NOW - 10_000 + at))
used = range(0, NUMBER, 10)
cluster.bound = [cluster.pod(name(at)) for at in used]
stop, written = threading.Event(), dict.fromkeys(used, 0)


def work():
    while not stop.is_set():
        for at in used:
            with suppress(OSError):  # the disk is full
                (root / name(at) / "step").write_text(str(written[at]))
                os.rename(root / name(at) / "step", root / name(at) / "done")
                written[at] += 1
        stop.wait(0.001)


def state(folder, round_):
    left = {int(path.name, 16) for path in root.iterdir() if DIGEST.fullmatch(path.name)}
    gone = sorted(set(range(NUMBER)) - left)
    idle = [at for at in range(NUMBER) if at not in used]
    whole = all(len(list((root / name(at)).glob("part-*"))) == 3 for at in left)
    return {"used": round(folder.disk().used_part, 3), "gone": len(gone), "oldest": gone == idle[:len(gone)],
            "whole": whole, "stuck": round_.is_stuck}


async def rounds():
    found = []
    with closing(CacheFolder(str(root))) as folder:
        survey = Survey(folder, str(root), KeeperPace())
        keeping = CacheRounds(folder, survey, cluster, Marks(0.8, 0.7, 0))
        await survey.look(cluster.pods(), cluster.now())
        await survey.measure(cluster.now() + 1)
        found.append(folder.disk().used_part)
        await keeping.run_once()
        found.append(state(folder, keeping.found))
        (disk / "filler").write_bytes(bytes(150 * MIB))
        await keeping.run_once()
        found.append(state(folder, keeping.found))
        with (disk / "filler").open("ab", buffering=0) as filler:
            while filler.tell() < 780 * MIB:
                try:
                    filler.write(bytes(MIB))
                except OSError:
                    await keeping.run_once()
        await keeping.run_once()
        found.append(state(folder, keeping.found))
    return found


worker = threading.Thread(target=work)
worker.start()
try:
    found = asyncio.run(rounds())
finally:
    stop.set()
    worker.join()
print(json.dumps([*found, all((root / name(at) / "done").read_text() == str(written[at] - 1) for at in used)]))
"""


@pytest.mark.slow
def test_marks_are_kept_and_no_directory_of_a_running_task_is_touched(tmp_path: Path) -> None:
    told = in_namespace(SCRIPT, tmp_path).splitlines()[-1]
    full, first, filled, stuck, is_intact = json.loads(told)
    assert 0.8 < full < 0.9
    for found in (first, filled):
        assert found["used"] <= 0.7
        assert (found["oldest"], found["whole"], found["stuck"]) == (True, True, False)
    assert 50 < first["gone"] < filled["gone"] < 450
    assert (stuck["gone"], stuck["oldest"], stuck["whole"], stuck["stuck"]) == (450, True, True, True)
    assert is_intact, "the tasks went on working in their directories"


KILLED = 9
CALLS = ("mkdir", "rename", "replace", "unlink", "rmdir", "fsync", "open")
ORDERED, USED, COMES_BACK = range(5), 3, 4
"""Directories that somebody has ordered away: a Pod uses one, and begins to use another while it is set aside."""
STAYS = [3, 4, 5, 6, 7, 8, 9]


class Steps:
    """Ends the process before this step. A step is a call that changes the disk, or opens something on it."""

    def __init__(self, left: int) -> None:
        self._left = left

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            if self._left == 0:
                os._exit(KILLED)
            self._left -= 1
            return call(*given, **named)

        return step


async def a_round(kept: Kept, *first: Pod) -> None:
    """`first`: what the first live list finds besides the Pods that are watched."""
    kept.cluster.time = NOW + 1000
    kept.cluster.orders = {name(at): NOW + 500 for at in ORDERED}
    kept.cluster.bound = [kept.cluster.pod(name(USED))]
    kept.cluster.live = [first, [kept.cluster.pod(name(COMES_BACK))]]
    with closing(CacheFolder(str(kept.root))) as folder:
        await kept.keeping(folder, KEEPS_ALL).run_once()


def killed_round(kept: Kept, number: int) -> bool:
    """Runs a round in a process that is killed before this step. False: it had fewer steps."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            steps = Steps(number)
            for call in CALLS:
                setattr(os, call, steps.counted(getattr(os, call)))
            folders.rename_to_new = steps.counted(folders.rename_to_new)
            asyncio.run(a_round(kept))
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, KILLED}
    return status == KILLED


def check_state(kept: Kept) -> None:
    """No directory that a Pod could get has lost a file, and none that stays is condemned."""
    for at in range(kept.number):
        places = [kept.root / name(at), kept.root / f"{ASIDE}{name(at)}"]
        assert all((place / "data").stat().st_size == 65536 for place in places if place.exists()), at
        assert any(place.exists() for place in places) or at not in STAYS, f"{at} is gone"


@pytest.mark.slow
def test_round_that_is_killed_at_any_step_is_ended_by_the_next_start(tmp_path: Path) -> None:
    kills = 0
    for number in range(1000):
        folder = tmp_path / str(number)
        folder.mkdir()
        kept = Kept(folder)
        was_killed = killed_round(kept, number)
        check_state(kept)
        for _ in range(2):
            asyncio.run(a_round(kept, kept.cluster.pod(name(COMES_BACK))))
        assert (kept.left(), of_ours(kept.root)) == (STAYS, []), number
        kept.check()
        if not was_killed:
            break
        kills += 1
    assert kills > 40
