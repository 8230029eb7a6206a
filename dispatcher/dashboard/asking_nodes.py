"""Tells nodes and their room by the last cycle. The database knows warm caches; without it the rest is told."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from dispatcher.admission.last_cycle import LastCycle
from dispatcher.admission.room import Room
from dispatcher.dashboard.asking import NotYet
from dispatcher.explain.fitting import Fitting, fitting_of
from dispatcher.explain.node_room import KeptCaches, Known, NodesPage, WantedNodes, WarmKeys, names_of, nodes_page
from dispatcher.model.errors import DatabaseError
from dispatcher.model.needs import PodNeeds
from dispatcher.model.node_caches import NodeCaches

WARM_ENDS: Final = 2000
"""Newest ends of rows from which warm caches are counted: some milliseconds."""


class WarmRows(Protocol):
    """The rows in one snapshot of the database."""

    async def warm_keys(self, nodes: Sequence[str], most: int) -> Mapping[str, Mapping[str, int]]: ...


class AskingNodes:
    """Answers questions about nodes.

    rows: opens a snapshot of the rows.
    last: the last cycle; None: there was none.
    caches: what the cache keeper of a node tells; None: nothing.
    """

    def __init__(
        self, rows: Callable[[], AbstractAsyncContextManager[WarmRows]], last: Callable[[], LastCycle | None],
        caches: Callable[[str], NodeCaches | None],
    ) -> None:  # fmt: skip
        self._caches = caches
        self._rows = rows
        self._last = last
        self._fitting: tuple[Room, PodNeeds, Fitting] | None = None

    async def page(self, wanted: WantedNodes, needs: PodNeeds | None) -> NodesPage | None:
        """A page of nodes; None: they are not watched. Raises NotYet. `needs`: of the Pod whose size is asked for."""
        cycle = self._last()
        if cycle is None:
            raise NotYet
        room = cycle.snapshot.room
        if room is None:
            return None
        names = names_of(room, wanted)
        fitting = self._fitting_of(needs, room, wanted) if needs is not None else None
        known = Known(fitting, await self._warm(names), {name: kept for name in names if (kept := self._kept_on(name))})
        return nodes_page(names, wanted, cycle, room, known)

    def _kept_on(self, node: str) -> KeptCaches | None:
        told = self._caches(node)
        return None if told is None else KeptCaches(len(told.directories), told.size, told.whole)

    def _fitting_of(self, needs: PodNeeds, room: Room, wanted: WantedNodes) -> Fitting:
        """The last answer stays for its cycle: a look at 5,000 nodes takes some milliseconds."""
        if self._fitting is None or self._fitting[0] is not room or self._fitting[1] != needs:
            self._fitting = room, needs, fitting_of(needs, room, wanted.cpu, wanted.memory)
        return self._fitting[2]

    async def _warm(self, names: Sequence[str]) -> WarmKeys | None:
        """None: the database cannot be read, which /readyz tells. The nodes are told nevertheless."""
        try:
            async with self._rows() as rows:
                return WarmKeys(WARM_ENDS, await rows.warm_keys(names, WARM_ENDS))
        except DatabaseError:
            return None
