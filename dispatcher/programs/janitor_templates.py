"""Keeps the table `templates` in step with the files, so that INSERT refuses what a launch would be refused for.

New and changed templates count within a second or two. A template without a file is deleted only after the files have
been the same for a while: a janitor that starts with an empty folder must not refuse the rows of all teams.
"""

from typing import Final, Protocol

import msgspec
import structlog

from dispatcher.jobs.catalog import Catalog
from dispatcher.runtime.clock import Clock, elapsed

LOOK_SECONDS: Final = 1
WRITE_SECONDS: Final = 10
"""The table is compared so often, also if no file has changed: somebody may have edited it."""
log = structlog.get_logger(component="janitor.templates")


class Table(Protocol):
    """The janitor's call."""

    async def templates(self, offered: str, *, are_all: bool) -> int: ...


class KeepingTemplates:
    """Has a catalog of its own: that of the janitor must not change within a round."""

    def __init__(self, catalog: Catalog, steady_seconds: float, table: Table, clock: Clock = elapsed) -> None:
        self._catalog = catalog
        self._steady_seconds = steady_seconds
        self._table = table
        self._clock = clock
        self._changed_at = clock()
        self._written_at = float("-inf")

    async def run_once(self) -> float:
        """Writes the table if a file has changed, or after a while. Raises DatabaseError; the next round repeats it."""
        if self._catalog.refresh():
            self._changed_at, self._written_at = self._clock(), float("-inf")
        if not self._catalog.fault and self._clock() - self._written_at >= WRITE_SECONDS:
            offered = msgspec.json.encode(self._catalog.offered()).decode()
            are_steady = self._clock() - self._changed_at >= self._steady_seconds
            if changed := await self._table.templates(offered, are_all=are_steady):
                log.info("templates written into the database", changed=changed)
            self._written_at = self._clock()
        return LOOK_SECONDS
