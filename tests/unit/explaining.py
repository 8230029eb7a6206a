"""What an explanation rests on, in tests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dispatcher.admission.last_cycle import LastCycle, RowReason
from dispatcher.model.launches import Offer
from dispatcher.model.reasons import Turn
from dispatcher.model.tasks import QueueCount, Status
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views.explanation import Explanation
from dispatcher.views.status import Counts, InstallationIdentity, InstallationStatus, build_status
from tests.rig.builders import NOW, a_last_cycle, a_queue, a_snapshot, ago

OURS = InstallationIdentity("dispatcher", "1", "jobs", "me")


class Offers:
    """Every kind has this offer."""

    def __init__(self, offer: Offer | Hold) -> None:
        self._offer = offer

    def offer(self, _: object) -> Offer | Hold:
        return self._offer

    def known_offer(self, _: bytes) -> Offer | Hold | None:
        return self._offer


def an_explanation(**changes: object) -> Explanation:
    facts = {
        "task": 42, "status": Status.WAITING, "queue": "builds", "attempt": 2, "reason": HoldReason.NO_ROOM_NOW,
        "message": "the nodes are full", "since": ago(60), "as_of": NOW, "whose_turn": Turn.CLUSTER,
        "next_step": "add a node", "position": 3, "position_of": 1200, "before": {},
    }  # fmt: skip
    return Explanation(**{**facts, **changes})  # type: ignore[arg-type] # facts of many types


def told(reason: str, detail: str = "", since: datetime = NOW, attempt: int = 1) -> RowReason:
    return RowReason("default", attempt, Hold(HoldReason(reason), detail), since)


def a_cycle(
    rows: Mapping[int, RowReason] = {}, since: Mapping[tuple[str, HoldReason], datetime] = {}, queues: int = 1
) -> LastCycle:
    snapshot = a_snapshot(*(a_queue(f"queue-{n:04}") for n in range(queues)))
    return a_last_cycle(snapshot, told=rows, since=since)


def a_status(cycle: LastCycle, at: datetime = NOW, waits: float = 5) -> InstallationStatus:
    counts = [QueueCount(name, n, oldest=ago(waits)) for n, name in enumerate(cycle.snapshot.queues)]
    return build_status(OURS, cycle, Counts(at, counts), {})
