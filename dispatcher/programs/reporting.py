"""What the extender writes: statuses of reservations, Events, and the note on a Pod that has it tried again.

Each kind in rounds of its own, so that a burst of one does not delay the others: whoever can have a node now hears of
it within a second.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from itertools import islice
from typing import Any, Final

from dispatcher.errors import ClusterError
from dispatcher.kube.client import KubeClient
from dispatcher.kube.events import Events
from dispatcher.kube.reservations import Reports
from dispatcher.metrics import EVENTS, RESERVATIONS
from dispatcher.notices import Notices
from dispatcher.placement.charges import TICK_SECONDS
from dispatcher.placement.gate import Gate, Known
from dispatcher.placement.reservation_status import PHASES, turned
from dispatcher.placement.reservations import KEPT_AWAY, UNCERTAIN, Asker, Holds

ROUND_SECONDS: Final = 0.25
ONCE: Final = 365 * 86_400
WRITES_AT_ONCE, STEPS = 20, 10


class Reporting:
    """Nothing is written, and no second counts, before everything was listed."""

    def __init__(self, client: KubeClient, known: Known, holds: Holds) -> None:
        self._reports = Reports(client)
        self._events = Events(client, "dispatcher-extender")
        self._known = known
        self._holds = holds
        self._notices = Notices()
        self.gate = Gate(holds, known, self._notices)

    def rounds(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, float]]]:
        return {
            "charges": self._tick, "waiting": self._ask_who_waits, "waking": self._wake,
            "statuses": self._tell_statuses, "events": self._tell_events,
        }  # fmt: skip

    async def _tick(self) -> float:
        if self._known.is_synced() and self._known.hears():
            self._holds.tick()
        return TICK_SECONDS

    async def _wake(self) -> float:
        """Who was turned away and could come now is told so."""
        if self._known.is_synced():
            for attempt in islice(self.gate.who_could(), WRITES_AT_ONCE):
                try:
                    await self._reports.wake(attempt.asker.name)
                except ClusterError:
                    self.gate.put_off(attempt)
                    raise
                self.gate.told(attempt)
        return ROUND_SECONDS

    async def _ask_who_waits(self) -> float:
        """Whom the process before this one turned away: once, when it can be said what they could have."""
        if not self._known.is_certain():
            return ROUND_SECONDS
        for one in await self._reports.waiting():
            if KEPT_AWAY in one.why or UNCERTAIN in one.why:
                self.gate.was_waiting(Asker(one.name, (), {}, uid=one.uid))
        return ONCE

    async def _tell_statuses(self) -> float:
        if self._known.is_synced() and not self._known.fault():
            for _ in range(STEPS):
                await self._tell_some()
                await asyncio.sleep(0)  # between them the loop belongs to kube-scheduler
            for phase in PHASES:
                RESERVATIONS.labels(phase).set(self._holds.phases[phase])
        return ROUND_SECONDS

    async def _tell_some(self) -> None:
        for one, told in self._holds.statuses(self._known.now()):
            try:
                await self._reports.tell(one, told.phase, told.message)
            except ClusterError:
                self._holds.again(one)
                raise
            for notice in turned(one, told):
                self._notices.say(notice)

    async def _tell_events(self) -> float:
        for notice in self._notices.due(WRITES_AT_ONCE):
            try:
                await self._events.tell(notice)
            except ClusterError:
                self._notices.put_off(notice)
                raise
            self._notices.told(notice)
        while self._notices.dropped:
            reason, count = self._notices.dropped.popitem()
            EVENTS.labels(reason, "dropped").inc(count)
        return ROUND_SECONDS
