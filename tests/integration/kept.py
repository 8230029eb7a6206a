"""Rounds of a cache keeper on a real folder, and the Pods that it is told of."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from dispatcher.keeper.folder import CacheFolder, KeeperPace, Survey
from dispatcher.keeper.keeping import CacheRounds, Round
from dispatcher.keeper.plan import DAY, DIGEST, Marks
from dispatcher.model.errors import ClusterAway
from tests.integration.cache_places import Place

NOW = 1_800_000_000.0
KEEPS_ALL = Marks(0.99, 0.98, 0)


class Pod(Struct, frozen=True):
    uid: str
    paths: Sequence[str]


class Cluster:
    """Pods and orders. `bound`: watched Pods of the node. `live`: what each live list finds, the last one for ever."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.time = NOW
        self.bound: list[Pod] = []
        self.live: list[Sequence[Pod] | None] = [[]]
        self.lists = 0
        self.orders: Mapping[str, float] = {}

    def now(self) -> float:
        return self.time

    def pod(self, name: str) -> Pod:
        return Pod(f"uid-of-{name}", [f"{self.root}/{name}"])

    def pods(self) -> Sequence[Pod]:
        return self.bound

    async def live_pods(self) -> Sequence[Pod]:
        self.lists += 1
        found = self.live.pop(0) if len(self.live) > 1 else self.live[0]
        if found is None:
            raise ClusterAway("list pods: no answer")
        return [*self.bound, *found]

    async def ordered(self) -> Mapping[str, float]:
        return self.orders


def name(number: int) -> str:
    return f"{number:040x}"


class Kept(Place):
    """A root with ten directories of a known size. Directory 0 was used least recently."""

    def __init__(self, folder: Path, number: int = 10) -> None:
        super().__init__(folder)
        self.cluster = Cluster(self.root)
        for at in range(number):
            (self.cache(name(at)) / "data").write_bytes(b"x" * 65536)
            os.utime(self.root / name(at), (NOW, NOW))
        self.number = number

    def keeping(self, folder: CacheFolder, marks: Marks, *, seconds: float = 300) -> Rounds:
        """`seconds`: of one measurement, and of one removal, at most."""
        return Rounds(self, folder, marks, seconds)

    def left(self) -> list[int]:
        return sorted(int(path.name, 16) for path in self.root.iterdir() if DIGEST.fullmatch(path.name))

    async def uses_in_turn(self, keeping: Rounds) -> None:
        """One Pod after the other uses a directory, one a day."""
        for at in range(self.number):
            self.cluster.bound = [self.cluster.pod(name(at))]
            self.cluster.time = NOW + at * DAY
            await keeping.run_once()
        self.cluster.bound = []


class Rounds:
    """Rounds of the keeper, each after a measurement of all directories."""

    def __init__(self, kept: Kept, folder: CacheFolder, marks: Marks, seconds: float) -> None:
        self.survey = Survey(folder, str(kept.root), KeeperPace(), seconds)
        self.keeping = CacheRounds(folder, self.survey, kept.cluster, marks, seconds)
        self._cluster = kept.cluster

    async def run_once(self) -> float:
        await self.survey.look(self._cluster.pods(), self._cluster.now())
        await self.survey.measure(self._cluster.now() + 1)
        return await self.keeping.run_once()

    @property
    def found(self) -> Round:
        assert self.keeping.found is not None
        return self.keeping.found
