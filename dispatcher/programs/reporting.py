"""The extender's writes: statuses of reservations, Events, and annotations of waiting Pods.

An annotation makes kube-scheduler try the Pod again. Each kind of write has its own rounds, so that a burst of one kind
does not delay the others: a waiting Pod is annotated within a second after a node may have room for it.
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
from dispatcher.reservations.book import UNCERTAIN, ReservationBook
from dispatcher.reservations.fit import IS_RESERVED
from dispatcher.reservations.pod_request import PodRequest
from dispatcher.reservations.status import PHASES, ReservationStatus, phase_notices
from dispatcher.reservations.waiting_pods import WaitingPod
from dispatcher.runtime.metrics import EVENTS, FAULTS, RESERVATIONS

ROUND_SECONDS, BETWEEN_SECONDS, REFUSED_SECONDS = 0.25, 0.1, 5
ONCE: Final = 365 * 86_400
WRITES_AT_ONCE, STEPS = 20, 10
log = structlog.get_logger(component="reporting")


class Reporting:
    """All rounds of writes. Before everything was listed nothing is written, and no tick counts."""

    def __init__(self, client: KubeClient, facts: ClusterFacts, book: ReservationBook) -> None:
        self._reports = Reports(client)
        self._events = Events(client, "dispatcher-extender")
        self._facts = facts
        self._book = book
        self._notices = Notices()
        self._not_written: list[Reservation] = []
        self.node_filter = NodeFilter(book, facts, self._notices)

    def rounds(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, float]]]:
        return {
            "charges": self._tick, "waiting": self._find_earlier_refusals, "waking": self._wake,
            "statuses": self._write_statuses, "statuses again": self._retry_statuses, "events": self._write_events,
        }  # fmt: skip

    async def _tick(self) -> float:
        if self._facts.is_synced() and self._facts.hears_bindings():
            self._book.tick()
        return TICK_SECONDS

    async def _wake(self) -> float:
        """Annotates Pods that may have a node now."""
        if not self._facts.is_synced():
            return ROUND_SECONDS
        ready = self.node_filter.ready_to_retry()[:WRITES_AT_ONCE]
        self._check_faults("waking", await asyncio.gather(*map(self._wake_one, ready)))
        return BETWEEN_SECONDS if ready or self.node_filter.is_checking else ROUND_SECONDS

    async def _wake_one(self, pod: WaitingPod) -> ClusterError | None:
        """Returns the fault if the Pod could not be annotated. Then it is tried again later."""
        try:
            await self._reports.wake(pod.request.name)
        except ClusterError as fault:
            self.node_filter.retry_later(pod)
            return fault
        self.node_filter.forget(pod)
        return None

    async def _find_earlier_refusals(self) -> float:
        """Finds the Pods that the process before this one refused: once, as soon as nothing is uncertain."""
        if not self._facts.is_certain():
            return ROUND_SECONDS
        for one in await self._reports.waiting():
            if IS_RESERVED in one.why or UNCERTAIN in one.why:
                self.node_filter.note_earlier_refusal(PodRequest(one.name, (), {}, uid=one.uid))
        return ONCE

    async def _write_statuses(self) -> float:
        if self._facts.is_synced() and not self._facts.fault():
            for phase in PHASES:
                RESERVATIONS.labels(phase).set(self._book.reports.phases[phase])
            for _ in range(STEPS):
                due = [self._write_status(one, status) for one, status in self._book.reports.due(self._facts.now())]
                self._check_faults("statuses", await asyncio.gather(*due))
                await asyncio.sleep(0)  # lets the loop answer kube-scheduler in between
        return ROUND_SECONDS

    async def _retry_statuses(self) -> float:
        while self._not_written:
            self._book.reports.retry(self._not_written.pop())
        return REFUSED_SECONDS

    async def _write_status(self, one: Reservation, status: ReservationStatus) -> ClusterError | None:
        """Returns the fault if the status could not be written. Then it is tried again, REFUSED_SECONDS later."""
        try:
            await self._reports.tell(one, status.phase, status.message)
        except ClusterError as fault:
            self._not_written.append(one)
            return fault
        for notice in phase_notices(one, status):
            self._notices.say(notice)
        return None

    def _check_faults(self, rounds: str, outcomes: Sequence[ClusterError | None]) -> None:
        """Logs faults of single writes. ClusterError: all writes failed, and the first was not a refusal."""
        faults = [fault for fault in outcomes if fault is not None]
        if faults and len(faults) == len(outcomes) and not isinstance(faults[0], ClusterRefused):
            raise faults[0]
        if faults:
            FAULTS.labels(rounds).inc()
            log.warning("not written, tried again", rounds=rounds, number=len(faults), fault=str(faults[0]))

    async def _write_events(self) -> float:
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
