"""Rounds of the cache keeper in a process of their own, on a real folder, beside a cluster without Pods.

    python -m benchmarks.keeping_alone quiet ROOT     three rounds in which nothing changes
    python -m benchmarks.keeping_alone drop ROOT      rounds until every directory is gone

The process has imported all that `dispatcher cache-keeper` imports. It prints one line of JSON.
"""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec import Struct

from dispatcher.keeper.folder import CacheFolder, KeeperPace, Survey
from dispatcher.keeper.keeping import CacheRounds
from dispatcher.keeper.plan import Marks, MountingPod
from dispatcher.keeper.program import marks_of

NEVER_FULL = Marks(0.999, 0.998, 0)
IMPORTED = marks_of  # with all that the program needs


class Told(Struct, frozen=True):
    """CPU seconds of the last round, memory now and at most, in MiB, and how many directories are left."""

    cpu_seconds: float
    memory_mib: float
    most_mib: float
    directories: int


class Nobody:
    """A cluster without Pods. `orders`: directories that somebody wants to go."""

    def __init__(self, orders: Mapping[str, float]) -> None:
        self._orders = orders

    def now(self) -> float:
        return time.time()

    def pods(self) -> Sequence[MountingPod]:
        return []

    async def live_pods(self) -> Sequence[MountingPod]:
        return []

    async def ordered(self) -> Mapping[str, float]:
        return self._orders


async def rounds(root: Path, wanted: Mapping[str, float]) -> Told:
    with closing(CacheFolder(str(root))) as folder:
        survey = Survey(folder, str(root), KeeperPace())
        keeping = CacheRounds(folder, survey, Nobody(wanted), NEVER_FULL)
        for _ in range(2):
            await keeping.run_once()
            await survey.measure(time.time())
        began = time.process_time()
        await keeping.run_once()
        await survey.measure(time.time())
        cpu = time.process_time() - began
        assert keeping.found is not None
        return Told(cpu, status_mib("VmRSS"), status_mib("VmHWM"), len(keeping.found.directories))


def status_mib(name: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    what, folder = sys.argv[1], Path(sys.argv[2])
    orders = {path.name: time.time() for path in folder.iterdir()} if what == "drop" else {}
    told = asyncio.run(rounds(folder, orders))
    print(msgspec.json.encode(told).decode())
