"""Rounds of the cache keeper: looks at the directories, and removes those that go.

    Pods of this node ─▶ look ─▶ plan (pure) ─▶ Pods, live ─▶ set aside ─▶ Pods, live ─▶ put back, or remove

A directory is renamed before its removal. The Pods that are listed after the rename include every Pod that may have
begun to use it. So a directory that a Pod uses comes back whole, and a Pod that comes later gets a new, empty one.

Failure story: a kill at any moment leaves a directory whole, set aside, or condemned. The next round puts back what is
set aside and used, and removes the rest. If the Pods cannot be listed, what was set aside is put back.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Final, Protocol

import structlog
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.keeper.folder import CacheFolder
from dispatcher.keeper.pace import Pace
from dispatcher.keeper.plan import Cause, Directory, Disk, Marks, Removal, plan_removals
from dispatcher.keeper.record import Users, directories_of, write_record
from dispatcher.keeper.removal import Refused
from dispatcher.keeper.survey import Seen, Survey
from dispatcher.keeper.users import MountingPod, users_of
from dispatcher.model.errors import ClusterError

log = structlog.get_logger(component="keeper")

EVERY_SECONDS: Final = 60
AGAIN_SECONDS: Final = 5
"""The pause after a round that removed something: a disk that somebody else fills may be above its mark again."""
AT_ONCE: Final = 50
"""So many directories are set aside between two lists of Pods."""


class Node(Protocol):
    """What the keeper knows of its node and of the cluster. Times are Unix seconds by the API server's clock."""

    def now(self) -> float: ...
    def pods(self) -> Iterable[MountingPod]:
        """The living Pods of this node, as they were watched."""

    async def live_pods(self) -> Sequence[MountingPod]:
        """The living Pods of this node, and those without a node, as they are now. Raises ClusterError."""

    async def ordered(self) -> Mapping[str, float]:
        """Directories that somebody wants to go, and when that was said. Raises ClusterError."""


class Round(Struct, frozen=True):
    """What a round found and did.

    directories: all that were measured, in the end.
    in_use: names of those that Pods use.
    disk: the disk in the end.
    removed: the directories that were removed, with the cause.
    refused: why something could not be removed, by name.
    is_stuck: the disk is above the high mark, and the low one cannot be reached.
    """

    directories: Sequence[Directory]
    in_use: Set[str]
    disk: Disk
    removed: Sequence[Removal] = ()
    refused: Mapping[str, str] = {}
    is_stuck: bool = False


class Keeping:
    """Runs rounds in one folder. `last`: the last round; None: there was none."""

    def __init__(self, folder: CacheFolder, path: str, node: Node, marks: Marks, pace: Pace) -> None:
        """`path`: the folder's path on the node."""
        self.last: Round | None = None
        self._folder = folder
        self._path = path
        self._node = node
        self._marks = marks
        self._pace = pace
        self._survey = Survey(folder, path, pace)
        self._entries = self._survey.read_record()
        self._users = Users()
        self._record = b""

    async def run_once(self) -> float:
        """One round. Returns the pause before the next one, in seconds."""
        await self._finish()
        marks = replace(self._marks, ordered=await self._node.ordered())
        seen = await self._look()
        removed = await self._remove(await self._plan(seen, marks))
        if removed:
            seen = await self._look()
        self._write_record()
        self.last = self._report(seen, removed, marks)
        return AGAIN_SECONDS if removed else EVERY_SECONDS

    async def _finish(self) -> None:
        """Ends what a round before began: it was killed, or the Pods could not be listed."""
        if aside := self._folder.aside():
            await self._settle(aside)
        await self._pace.last_of(self._folder.removing.steps(), None)

    async def _look(self) -> Seen:
        seen = await self._survey.look(self._node.pods(), self._entries, self._users, self._node.now())
        self._entries, self._users = seen.entries, seen.users
        return seen

    async def _plan(self, seen: Seen, marks: Marks) -> Sequence[Removal]:
        """What goes. The live list is asked only if something would: a thousand keepers must not list all the time."""
        if not self._removals(seen.users.names, marks):
            return []
        return self._removals(seen.users.names | await self._live_names(seen.entries.keys()), marks)

    def _removals(self, in_use: Set[str], marks: Marks) -> Sequence[Removal]:
        return plan_removals(directories_of(self._entries), in_use, self._folder.disk(), marks, self._node.now())

    async def _live_names(self, names: Set[str]) -> Set[str]:
        return users_of(await self._node.live_pods(), self._path, names).names

    async def _remove(self, removals: Sequence[Removal]) -> Sequence[Removal]:
        """Returns what was removed."""
        removed = list[Removal]()
        for part in parts(removals, AT_ONCE):
            aside = [one.directory.name for one in part if self._set_aside(one)]
            gone = await self._settle(aside)
            removed += [one for one in part if one.directory.name in gone]
            await self._pace.last_of(self._folder.removing.steps(), None)
        for one in removed:
            log.info(
                "removed a cache directory", directory=one.directory.name, cause=one.cause, bytes=one.directory.size
            )
        return removed

    def _set_aside(self, one: Removal) -> bool:
        try:
            self._folder.set_aside(one.directory.name)
        except (OSError, Refused) as fault:
            log.warning("a cache directory cannot be set aside", directory=one.directory.name, fault=str(fault))
            return False
        return True

    async def _settle(self, aside: Sequence[str]) -> Set[str]:
        """Puts back the directories that are used, and condemns the others. Returns the condemned ones."""
        try:
            in_use = await self._live_names(set(aside))
        except ClusterError:
            for name in aside:
                self._put_back(name)
            raise
        for name in aside:
            if name in in_use:
                self._put_back(name)
            else:
                self._folder.condemn(name)
        return set(aside) - in_use

    def _put_back(self, name: str) -> None:
        if not self._folder.put_back(name):
            self._folder.condemn(name)  # a Pod has a new directory of that name already

    def _write_record(self) -> None:
        if (written := write_record(self._entries)) != self._record:
            self._folder.write_record(written)
            self._record = written

    def _report(self, seen: Seen, removed: Sequence[Removal], marks: Marks) -> Round:
        disk, directories = self._folder.disk(), directories_of(seen.entries)
        left = plan_removals(directories, seen.users.names, disk, marks, self._node.now())
        for one in left:
            disk = disk.without(one.directory)
        return Round(
            directories, seen.users.names, self._folder.disk(), removed, dict(self._folder.removing.refused),
            is_stuck=self._folder.disk().used_part > marks.high and disk.used_part > marks.low,
        )  # fmt: skip


def parts(removals: Sequence[Removal], size: int) -> Iterator[list[Removal]]:
    rest = iter(removals)
    while part := list(islice(rest, size)):
        yield part


def by_cause(removals: Iterable[Removal]) -> Counter[Cause]:
    return Counter(one.cause for one in removals)
