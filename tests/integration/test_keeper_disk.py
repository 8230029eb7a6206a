"""A disk of 1 GiB with five hundred cache directories: tasks work in fifty of them, and somebody else fills it."""

import json
from pathlib import Path

import pytest

from tests.integration.cache_places import in_namespace

SCRIPT = """
import asyncio, json, os, subprocess, sys, threading
from contextlib import closing, suppress
from pathlib import Path
from dispatcher.keeper.folder import NAME, CacheFolder
from dispatcher.keeper.keeping import Keeping
from dispatcher.keeper.folder import KeeperPace
from dispatcher.keeper.plan import Marks
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
    left = {int(path.name, 16) for path in root.iterdir() if NAME.fullmatch(path.name)}
    gone = sorted(set(range(NUMBER)) - left)
    idle = [at for at in range(NUMBER) if at not in used]
    whole = all(len(list((root / name(at)).glob("part-*"))) == 3 for at in left)
    return {"used": round(folder.disk().used_part, 3), "gone": len(gone), "oldest": gone == idle[:len(gone)],
            "whole": whole, "stuck": round_.is_stuck}


async def rounds():
    found = []
    with closing(CacheFolder(str(root))) as folder:
        survey = Survey(folder, str(root), KeeperPace())
        keeping = Keeping(folder, survey, cluster, Marks(0.8, 0.7, 0))
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
