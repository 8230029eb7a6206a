"""Rounds of the cache keeper: looks at the directories, and removes those that go.

    Pods of this node ─▶ look ─▶ plan (pure) ─▶ Pods, live ─▶ set aside ─▶ Pods, live ─▶ put back, or remove

A directory is renamed before its removal. The Pods that are listed after the rename include every Pod that may have
begun to use it. So a directory that a Pod uses comes back whole, and a Pod that comes later gets a new, empty one.

The free space of the disk is read after each removal, and directories that need not go any more come back. While a
removal still frees the disk, no other directory goes for the disk, for half an hour at most. So a directory whose size
cannot be read, or whose removal takes long, does not make the keeper remove others meanwhile. A round waits for no
measurement, and for each removal a limited time.

Failure story: a kill at any moment leaves a directory whole, set aside, or condemned. The next round puts back what is
set aside, and goes on to remove what is condemned. If the Pods cannot be listed, what was set aside is put back. A disk
without a free byte or inode stops no round: only the record is not written.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from typing import Final, Protocol

import structlog
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.keeper.folder import CacheFolder, Survey
from dispatcher.keeper.plan import (
    Directory,
    Disk,
    Marks,
    MountingPod,
    Removal,
    RemovalCause,
    plan_removals,
    write_record,
)
from dispatcher.keeper.removal import RemovalRefused
from dispatcher.model.errors import ClusterError
from dispatcher.runtime.clock import elapsed

log = structlog.get_logger(component="keeper")

EVERY_SECONDS: Final = 60
"""Seconds between two rounds."""
AGAIN_SECONDS: Final = 5
"""Seconds before the next round if this one removed something: a disk that others fill may be above its mark again."""
AT_ONCE, FILES_AT_ONCE = 50, 10_000
"""Directories, and their files, that are set aside between two lists of Pods. A Pod that comes then starts cold."""
EMPTYING_SECONDS: Final = 300
"""Seconds a round waits for one removal; later rounds continue it."""
LEFT_PART: Final = 0.1
"""Part of that time for removals that earlier rounds left, unless the disk needs them."""
PATIENCE: Final = 6
"""Rounds that wait for removals to end, before other directories go for the disk: half an hour of work."""
FREED_SECONDS: Final = (0, 0.5, 0.5, 1)
"""Pauses before the free space is read: some file systems free removed files a moment later."""


class KeeperNode(Protocol):
    """The node and the cluster, as the keeper sees them. Times are Unix seconds by the API server's clock."""

    def now(self) -> float: ...
    def pods(self) -> Iterable[MountingPod]:
        """The living Pods of this node, as they were watched."""

    async def live_pods(self) -> Sequence[MountingPod]:
        """The living Pods of this node, and those without a node, as they are now. Raises ClusterError."""

    async def ordered(self) -> Mapping[str, float]:
        """Directories that somebody has ordered to go, with the times of the orders. Raises ClusterError."""


class Round(Struct, frozen=True):
    """What a round found and did.

    directories: all directories.
    in_use: names of directories that Pods use.
    disk: the disk in the end.
    removed: the directories that were removed, with the cause.
    refused: why something could not be removed, by name.
    is_stuck: the disk is above the high mark, and no directory may go.
    """

    directories: Sequence[Directory]
    in_use: Set[str]
    disk: Disk
    removed: Sequence[Removal] = ()
    refused: Mapping[str, str] = {}
    is_stuck: bool = False

    @property
    def unsure(self) -> int:
        """Number of directories without a measured size."""
        return sum(one.is_whole and not one.files for one in self.directories)


class CondemnedDirectories:
    """The condemned directories of one folder. `ended`: those that have been removed since the last read of it."""

    def __init__(self, folder: CacheFolder, survey: Survey, seconds: float) -> None:
        """`seconds`: the time that is waited for one removal."""
        self.ended: list[Removal] = []
        self._folder = folder
        self._survey = survey
        self._seconds = seconds
        self._under_way: dict[str, Removal] = {}

    def left(self) -> Set[str]:
        """Condemned directories that can be removed, and are not yet. Their removal gives the disk room."""
        return set(self._folder.condemned()) - self._folder.removing.refused.keys()

    def condemn(self, name: str) -> str:
        self._survey.forget(name)
        return self._folder.condemn(name)

    async def remove(self, one: Removal) -> None:
        condemned = self.condemn(one.directory.name)
        self._under_way[condemned] = one
        await self._empty(condemned, self._seconds)

    async def go_on(self, part: float) -> None:
        """Goes on with condemned directories. Each gets a part of the time, so that none keeps the others waiting."""
        names = self._folder.condemned()
        for name in names:
            await self._empty(name, self._seconds * part / len(names))

    async def _empty(self, condemned: str, seconds: float) -> None:
        """Removes the tree, and the trees that were too deep in it and stand beside it now."""
        ends_at, trees = elapsed() + seconds, {condemned}
        while trees:
            with closing(self._folder.removing.steps(min(trees))) as steps:
                _, is_done = await self._survey.pace.last_of(steps, None, ends_at - elapsed())
            if not is_done:
                return
            trees = {one for one in self.left() if one == condemned or one.startswith(f"{condemned}.")}
        one = self._under_way.pop(condemned, None)
        if one and condemned not in self._folder.removing.refused:
            self.ended.append(one)
            log.info("removed a cache directory", directory=one.directory.name, cause=one.cause)


class CacheRounds:
    """Runs rounds in one folder."""

    def __init__(
        self,
        folder: CacheFolder,
        survey: Survey,
        node: KeeperNode,
        marks: Marks,
        emptying_seconds: float = EMPTYING_SECONDS,
    ) -> None:
        self._folder = folder
        self._survey = survey
        self._node = node
        self._marks = marks
        self._emptying = CondemnedDirectories(folder, survey, emptying_seconds)
        self._waited = 0
        self._has_looked = self._is_stuck = self._frees_more = False
        self._record = b""

    async def run_once(self) -> float:
        """Runs one round. Returns the pause before the next one, in seconds."""
        self._emptying.ended = []
        for name in self._folder.aside():
            self._put_back(name)
        await self._emptying.go_on(1 if self._folder.disk().used_part > self._marks.low else LEFT_PART)
        await self._look()
        begins_at = self._marks.low if self._frees_more else self._marks.high
        await self._remove(await self._plan(replace(self._marks, high=begins_at, ordered=await self._node.ordered())))
        if self._emptying.ended:
            await self._look()
        used = self._folder.disk().used_part
        removed, is_removing = self._emptying.ended, bool(self._emptying.left())
        gets_room = removed or (is_removing and self._waited < PATIENCE)
        self._is_stuck = used > self._marks.high and not gets_room
        self._frees_more = used > self._marks.low and any(one.cause is RemovalCause.DISK for one in removed)
        self._waited = self._waited + 1 if is_removing else 0
        self._write_record()
        return AGAIN_SECONDS if removed or is_removing else EVERY_SECONDS

    @property
    def found(self) -> Round | None:
        """The present knowledge. None: there was no look yet."""
        if not self._has_looked:
            return None
        return Round(
            self._survey.directories(self._node.now()), self._survey.users.names, self._folder.disk(),
            tuple(self._emptying.ended), dict(self._folder.removing.refused), self._is_stuck,
        )  # fmt: skip

    async def _look(self) -> None:
        await self._survey.look(self._node.pods(), self._node.now())
        self._has_looked = True

    async def _plan(self, marks: Marks) -> Sequence[Removal]:
        """The directories that go. The live list is read only if one would: a thousand keepers must not list all the
        time.
        """
        in_use = self._survey.users.names
        if not self._removals(in_use, marks):
            return []
        return self._removals(in_use | await self._live_names(self._survey.entries.keys()), marks)

    def _removals(self, in_use: Set[str], marks: Marks) -> Sequence[Removal]:
        now = self._node.now()
        return plan_removals(self._survey.directories(now), in_use, self._folder.disk(), marks, now)

    async def _live_names(self, names: Set[str]) -> Set[str]:
        return self._survey.users_among(await self._node.live_pods(), names).names

    async def _remove(self, removals: Sequence[Removal]) -> None:
        for part in parts(removals):
            aside = [one.directory.name for one in part if self._is_needed(one) and self._set_aside(one)]
            may_go = await self._settle(aside) if aside else ()
            for one in part:
                if one.directory.name in may_go:
                    await self._remove_one(one)

    def _is_needed(self, one: Removal) -> bool:
        """Whether the directory must still go. Not if only the disk needs it, and the disk has room or gets some."""
        if one.cause is not RemovalCause.DISK:
            return True
        is_waiting = self._waited < PATIENCE and bool(self._emptying.left())
        return self._folder.disk().used_part > self._marks.low and not is_waiting

    async def _remove_one(self, one: Removal) -> None:
        """Removes a directory that is set aside, if it must still go."""
        if not self._is_needed(one):
            self._put_back(one.directory.name)
            return
        before = self._folder.disk()
        await self._emptying.remove(one)
        for seconds in FREED_SECONDS if one.directory.is_sure and one.cause is RemovalCause.DISK else ():
            await asyncio.sleep(seconds)
            if before.used - self._folder.disk().used >= one.directory.size / 2:
                break

    def _set_aside(self, one: Removal) -> bool:
        try:
            self._folder.set_aside(one.directory.name)
        except (OSError, RemovalRefused) as fault:
            log.warning("a cache directory cannot be set aside", directory=one.directory.name, fault=str(fault))
            return False
        return True

    async def _settle(self, aside: Sequence[str]) -> Set[str]:
        """Puts back the directories that are used. Returns the others."""
        try:
            in_use = await self._live_names(set(aside))
        except ClusterError:
            for name in aside:
                self._put_back(name)
            raise
        for name in in_use & set(aside):
            self._put_back(name)
        return set(aside) - in_use

    def _put_back(self, name: str) -> None:
        if not self._folder.put_back(name):
            self._emptying.condemn(name)  # a Pod has a new directory of that name already

    def _write_record(self) -> None:
        if (written := write_record(self._survey.entries)) == self._record:
            return
        try:
            self._folder.write_record(written)
        except OSError as fault:
            log.warning("the record of the cache directories cannot be written", fault=str(fault))
        else:
            self._record = written


def parts(removals: Sequence[Removal]) -> Iterator[list[Removal]]:
    """The removals in parts. A directory whose size is not sure, or is large, is a part of its own."""
    part, files = list[Removal](), 0
    for one in removals:
        more = one.directory.files if one.directory.is_sure else FILES_AT_ONCE
        if part and (len(part) >= AT_ONCE or files + more > FILES_AT_ONCE):
            yield part
            part, files = [], 0
        part.append(one)
        files += more
    if part:
        yield part
