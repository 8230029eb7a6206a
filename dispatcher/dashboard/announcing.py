"""The leader writes Events about Jobs: that a row was launched again, or that it is parked.

etcd keeps Events for an hour, so few are written: each once, and a limited number in a round.
"""

from collections.abc import Callable
from typing import Final, Protocol

from dispatcher.dashboard.publishing import Cycles
from dispatcher.explain.notices import notices_of
from dispatcher.model.errors import ClusterError
from dispatcher.model.notices import Notice, Notices
from dispatcher.runtime.metrics import EVENTS

ROUND_SECONDS: Final = 2
WRITES_IN_A_ROUND: Final = 5
MOST_TOLD: Final = 10_000
Key = tuple[str, str]
"""(UID of the object, reason)."""


class Writer(Protocol):
    """Writes Events."""

    async def tell_once(self, notice: Notice) -> None: ...


class Announcing:
    """Writes each notice once. Between rounds it keeps which ones were written, and which ones wait."""

    def __init__(self, events: Writer, cycles: Cycles, leads: Callable[[], bool], jobs_namespace: str) -> None:
        self._events = events
        self._cycles = cycles
        self._leads = leads
        self._namespace = jobs_namespace
        self._notices = Notices()
        self._told: set[Key] = set()

    async def run_once(self) -> float:
        """One round. Returns the seconds until the next. Raises ClusterError."""
        if self._cycles.last is None or not self._leads():
            return ROUND_SECONDS
        self._collect(list(notices_of(self._cycles.last, self._namespace)))
        for notice in self._notices.due(WRITES_IN_A_ROUND):
            try:
                await self._events.tell_once(notice)
            except ClusterError:
                self._notices.put_off(notice)
                raise
            self._notices.told(notice)
        while self._notices.dropped:
            reason, count = self._notices.dropped.popitem()
            EVENTS.labels(reason, "dropped").inc(count)
        return ROUND_SECONDS

    def _collect(self, found: list[Notice]) -> None:
        keys = {(notice.uid, notice.reason) for notice in found}
        for notice in found:
            if (notice.uid, notice.reason) not in self._told:
                self._notices.say(notice)
        self._told = (self._told if len(self._told) < MOST_TOLD else set[Key]()) | keys
