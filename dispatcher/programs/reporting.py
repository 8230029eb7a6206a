"""What the extender writes: statuses of reservations, Events, and the note on a Pod that has it tried again.

Each kind in rounds of its own, so that a burst of one does not delay the others: whoever can have a node now hears of
it within a second.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import structlog

from dispatcher.extender.node_filter import ClusterFacts, NodeFilter
from dispatcher.kube.client import KubeClient
from dispatcher.kube.events import Events
from dispatcher.kube.reservations import Reports
from dispatcher.model.errors import ClusterError, ClusterRefused
from dispatcher.model.notices import Notices
from dispatcher.model.reservations import Reservation
from dispatcher.reservations.assumed_pods import TICK_SECONDS
from dispatcher.reservations.book import KEPT_AWAY, UNCERTAIN, ReservationBook
from dispatcher.reservations.pod_request import PodRequest
from dispatcher.reservations.status import PHASES, ReservationStatus, turned
from dispatcher.reservations.waiting_pods import WaitingPod
from dispatcher.runtime.metrics import EVENTS, FAULTS, RESERVATIONS

ROUND_SECONDS, BETWEEN_SECONDS, REFUSED_SECONDS = 0.25, 0.1, 5
ONCE: Final = 365 * 86_400
WRITES_AT_ONCE, STEPS = 20, 10
log = structlog.get_logger(component="reporting")


class Reporting:
    """Nothing is written, and no second counts, before everything was listed."""

    def __init__(self, client: KubeClient, known: ClusterFacts, holds: ReservationBook) -> None:
        self._reports = Reports(client)
        self._events = Events(client, "dispatcher-extender")
        self._facts = known
        self._book = holds
        self._notices = Notices()
        self._refused: list[Reservation] = []
        self.gate = NodeFilter(holds, known, self._notices)

    def rounds(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, float]]]:
        return {
            "charges": self._tick, "waiting": self._ask_who_waits, "waking": self._wake,
            "statuses": self._tell_statuses, "statuses again": self._tell_again, "events": self._tell_events,
        }  # fmt: skip

    async def _tick(self) -> float:
        if self._facts.is_synced() and self._facts.hears():
            self._book.tick()
        return TICK_SECONDS

    async def _wake(self) -> float:
        """Who was turned away and could come now is told so."""
        if not self._facts.is_synced():
            return ROUND_SECONDS
        could = self.gate.ready_to_retry()[:WRITES_AT_ONCE]
        self._look_at("waking", await asyncio.gather(*map(self._wake_one, could)))
        return BETWEEN_SECONDS if could or self.gate.is_looking else ROUND_SECONDS

    async def _wake_one(self, attempt: WaitingPod) -> ClusterError | None:
        """What keeps it from being told; then it is put off."""
        try:
            await self._reports.wake(attempt.request.name)
        except ClusterError as fault:
            self.gate.put_off(attempt)
            return fault
        self.gate.told(attempt)
        return None

    async def _ask_who_waits(self) -> float:
        """Whom the process before this one turned away: once, when it can be said what they could have."""
        if not self._facts.is_certain():
            return ROUND_SECONDS
        for one in await self._reports.waiting():
            if KEPT_AWAY in one.why or UNCERTAIN in one.why:
                self.gate.was_waiting(PodRequest(one.name, (), {}, uid=one.uid))
        return ONCE

    async def _tell_statuses(self) -> float:
        if self._facts.is_synced() and not self._facts.fault():
            for phase in PHASES:
                RESERVATIONS.labels(phase).set(self._book.phases[phase])
            for _ in range(STEPS):
                due = [self._tell_one(one, told) for one, told in self._book.statuses(self._facts.now())]
                self._look_at("statuses", await asyncio.gather(*due))
                await asyncio.sleep(0)  # between them the loop belongs to kube-scheduler
        return ROUND_SECONDS

    async def _tell_again(self) -> float:
        while self._refused:
            self._book.again(self._refused.pop())
        return REFUSED_SECONDS

    async def _tell_one(self, one: Reservation, told: ReservationStatus) -> ClusterError | None:
        """What keeps it from being told; then it is told again, after a while."""
        try:
            await self._reports.tell(one, told.phase, told.message)
        except ClusterError as fault:
            self._refused.append(one)
            return fault
        for notice in turned(one, told):
            self._notices.say(notice)
        return None

    def _look_at(self, rounds: str, outcomes: Sequence[ClusterError | None]) -> None:
        """What is refused to one, or lost, is nothing to the others. ClusterError: nobody answers; try again."""
        faults = [fault for fault in outcomes if fault is not None]
        if faults and len(faults) == len(outcomes) and not isinstance(faults[0], ClusterRefused):
            raise faults[0]
        if faults:
            FAULTS.labels(rounds).inc()
            log.warning("not written, tried again", rounds=rounds, number=len(faults), fault=str(faults[0]))

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
