"""The statuses of reservations that have to be written."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final

from dispatcher.model.reservations import Reservation
from dispatcher.reservations.change_log import ChangeLog
from dispatcher.reservations.lifecycle import ReservationLifecycle
from dispatcher.reservations.status import ReservationStatus, must_be_written, status_of

CHECKED_AT_ONCE: Final = 20


class StatusReports:
    """Compares the written statuses with what the extender sees. `phases`: the number of written ones by phase."""

    def __init__(self, lifecycle: ReservationLifecycle, log: ChangeLog) -> None:
        self._lifecycle = lifecycle
        self._log = log
        self.phases: Counter[str] = Counter()

    def hear_reservation(self, before: Reservation | None, after: Reservation | None) -> None:
        for one, sign in ((before, -1), (after, 1)):
            if one is not None:
                self.phases[one.phase or "Active"] += sign

    def due(self, now: float) -> Iterator[tuple[Reservation, ReservationStatus]]:
        """Statuses to write. One call checks CHECKED_AT_ONCE nodes and reservations, the next call goes on."""
        self._lifecycle.pass_time(now)
        for node in list(islice(self._log.nodes, CHECKED_AT_ONCE)):
            del self._log.nodes[node]
            self._log.note_reservations(self._lifecycle.index.reservations_on(node))
        for name in list(islice(self._log.reservations, CHECKED_AT_ONCE)):
            del self._log.reservations[name]
            one = self._lifecycle.get(name)
            if one is not None:
                status = status_of(one, self._lifecycle.observe(one))
                if must_be_written(one, status, now):
                    yield one, status

    def retry(self, one: Reservation) -> None:
        """Checks the reservation again: its status could not be written."""
        self._log.note_reservations([one.name])
