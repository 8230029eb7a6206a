"""The leader writes the status and the reasons into ConfigMaps, for everybody with kubectl, and for the janitor.

A fault here stops nothing else. The next round writes again, whatever stands in the ConfigMaps by then.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import structlog

from dispatcher.admission.last_cycle import LastCycle
from dispatcher.dashboard.asking import NotYet
from dispatcher.dashboard.overview import Overview
from dispatcher.explain.published import (
    Reasons,
    read_reasons,
    reasons_json,
    reasons_of,
    recalled,
    status_json,
    what_matters,
)
from dispatcher.runtime.clock import Clock, elapsed

LOOK_SECONDS: Final = 2
STATUS_SECONDS: Final = 10
"""The status is written so often at most."""
ALIVE_SECONDS: Final = 30
"""The status is written so often at least. The reasons are written so often at most."""
REPAIR_SECONDS: Final = 300
"""The reasons are written so often at least: somebody else may have overwritten them."""
STATUS, REASONS = "status", "reasons"
log = structlog.get_logger(component="dashboard.publishing")


class Texts(Protocol):
    """The ConfigMaps of this installation."""

    async def read(self, name: str, key: str) -> str | None: ...
    async def write(self, name: str, key: str, text: str) -> bool: ...


class Cycles(Protocol):
    """The last cycle of this replica; None: there was none."""

    last: LastCycle | None


class Publishing:
    """Writes the ConfigMaps. Between rounds it keeps what it wrote last, and when."""

    def __init__(
        self, maps: Texts, overview: Overview, cycles: Cycles, leads: Callable[[], bool], clock: Clock = elapsed
    ) -> None:
        self._maps = maps
        self._overview = overview
        self._cycles = cycles
        self._leads = leads
        self._clock = clock
        self._is_recalled = False
        self._written: dict[str, tuple[float, Any]] = {}

    async def run_once(self) -> float:
        """One round. Returns the seconds until the next. Raises ClusterError and DatabaseError."""
        if self._cycles.last is None:
            return LOOK_SECONDS
        if not self._is_recalled:
            await self._recall()
        if not self._leads():
            self._written.clear()  # another leader writes by now
            return LOOK_SECONDS
        await self._write_reasons(self._cycles.last)  # first, because they need no count of the rows
        await self._write_status()
        return LOOK_SECONDS

    async def _recall(self) -> None:
        """Takes the times over that an earlier leader wrote, once."""
        text = await self._maps.read(REASONS, "reasons.json")
        self._is_recalled = True  # whatever the text is, it is read once
        earlier, cycle = read_reasons(text) if text else None, self._cycles.last
        if text and earlier is None:
            log.warning("the reasons of an earlier leader are unreadable", bytes=len(text))
        if earlier is not None and cycle is not None:
            self._cycles.last = recalled(cycle, earlier)

    async def _write_status(self) -> None:
        try:
            status = await self._overview.status()
        except NotYet:
            return
        news, age = what_matters(status), self._age(STATUS)
        if age >= ALIVE_SECONDS or (age >= STATUS_SECONDS and news != self._written[STATUS][1]):
            await self._write(STATUS, status_json(status).decode(), news)

    async def _write_reasons(self, cycle: LastCycle) -> None:
        news = what_rows_wait_for(reasons_of(cycle))
        age = self._age(REASONS)
        if age >= REPAIR_SECONDS or (age >= ALIVE_SECONDS and news != self._written[REASONS][1]):
            await self._write(REASONS, reasons_json(cycle).decode(), news)

    def _age(self, name: str) -> float:
        return self._clock() - self._written[name][0] if name in self._written else float("inf")

    async def _write(self, name: str, text: str, news: Any) -> None:
        if await self._maps.write(name, f"{name}.json", text):
            self._written[name] = self._clock(), news


def what_rows_wait_for(reasons: Reasons) -> Any:
    return reasons.rows, reasons.messages, reasons.since, reasons.left_out
