"""Finds the waiting rows worth reading: past held rows without reading them, however many stand before.

The index gives each row's kind, and rows of one kind get one verdict, so ten thousand bad rows cost ten thousand
look-ups. A queue whose head is all held is looked at further at once, and its window is remembered: the next cycle
asks for that much straight away. No cursor survives a cycle, because ids commit out of order.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from dispatcher.admission.gates import is_paused, over
from dispatcher.model import Candidate, Hold, HoldReason, Kind, Offer
from dispatcher.snapshot import ClusterSnapshot

FIRST_WINDOW: Final = 200
WIDEST_WINDOW: Final = 50_000
ROUNDS: Final = 4
KINDS_A_LOOK: Final = 3000
"""New kinds judged in one look, about 20 ms of work; rows of the others wait for the next."""


class Index(Protocol):
    """What it asks of the rows."""

    async def candidates(self, windows: Mapping[str, int]) -> list[Candidate]: ...
    async def kinds(self, ids: Sequence[int]) -> list[Kind]: ...


class Offers(Protocol):
    """What it asks of the templates."""

    def offer(self, kind: Kind) -> Offer | Hold: ...
    def known_offer(self, digest: bytes) -> Offer | Hold | None: ...


class Found(Struct):
    """Rows worth reading, and how many others were passed over: by (queue, reason)."""

    ids: list[int]
    held: Counter[tuple[str, HoldReason]]


class Scan:
    """Remembers how far each queue has to be looked at."""

    def __init__(self, offers: Offers, wanted: int) -> None:
        self._offers = offers
        self._wanted = wanted
        self._windows: dict[str, int] = {}
        self._unjudged = 0

    async def run(self, index: Index, snapshot: ClusterSnapshot, is_known: Callable[[Candidate], bool]) -> Found:
        """`is_known`: rows that are judged anyway, or parked."""
        self._unjudged = KINDS_A_LOOK
        windows = {name: self._windows.get(name, FIRST_WINDOW) for name in open_queues(snapshot)}
        chosen: dict[str, list[Candidate]] = {}
        held: dict[str, Counter[HoldReason]] = {}
        for _ in range(ROUNDS):
            if not windows:
                break
            rows = by_queue(await index.candidates(windows))
            await self._learn(index, [row for queue in rows.values() for row in queue])
            for queue, window in list(windows.items()):
                there = rows.get(queue, [])
                fresh = [row for row in there if not is_known(row)]
                chosen[queue], held[queue] = self._divide(fresh, snapshot)
                self._windows[queue] = min(len(there) - len(chosen[queue]) + FIRST_WINDOW, WIDEST_WINDOW)
                windows.pop(queue)
                if len(chosen[queue]) < self._wanted and len(there) >= window and window < WIDEST_WINDOW:
                    windows[queue] = min(window * 8, WIDEST_WINDOW)
        ids = [row.id for queue in chosen.values() for row in queue[: self._wanted]]
        return Found(ids, Counter({(q, reason): n for q, counts in held.items() for reason, n in counts.items()}))

    async def _learn(self, index: Index, rows: Iterable[Candidate]) -> None:
        """Judges the kinds that were never seen, each by one of its rows."""
        unknown = {row.kind: row.id for row in rows if self._offers.known_offer(row.kind) is None}
        samples = list(unknown.values())[: self._unjudged]
        self._unjudged -= len(samples)
        for kind in await index.kinds(samples) if samples else ():
            self._offers.offer(kind)

    def _divide(
        self, rows: Iterable[Candidate], snapshot: ClusterSnapshot
    ) -> tuple[list[Candidate], Counter[HoldReason]]:
        """Rows worth reading, and the reasons of the others."""
        chosen: list[Candidate] = []
        held: Counter[HoldReason] = Counter()
        for row in rows:
            offer = self._offers.known_offer(row.kind)
            reason = offer.reason if isinstance(offer, Hold) else why_passed(row, offer, snapshot)
            if reason is None:
                chosen.append(row)
            else:
                held[reason] += 1
        return chosen, held


def open_queues(snapshot: ClusterSnapshot) -> list[str]:
    """Queues that could launch something now."""
    return [
        queue.name
        for queue in snapshot.queues.values()
        if not is_paused(queue.paused_until, snapshot.now)
        and not over(HoldReason.QUEUE_CAP, snapshot.load.by_queue.get(queue.name, 0), queue.max_jobs)
    ]


def by_queue(rows: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    """Each queue's rows in their order; ready and due ones come from two indexes."""
    found: dict[str, list[Candidate]] = defaultdict(list)
    for row in rows:
        found[row.queue].append(row)
    for queue in found.values():
        queue.sort(key=lambda row: (row.priority, row.id))
    return found


def why_passed(row: Candidate, offer: Offer | None, snapshot: ClusterSnapshot) -> HoldReason | None:
    """A hold that many rows share, seen without reading the row; the gates judge the others."""
    if offer is None:
        return HoldReason.NEXT_CYCLE
    queue = snapshot.queue(row.queue)
    if over(HoldReason.SUBMITTER_CAP, snapshot.load.by_submitter.get((row.queue, row.submitted_by), 0),
            queue.max_jobs_per_submitter):  # fmt: skip
        return HoldReason.SUBMITTER_CAP
    most = snapshot.max_pending if queue.max_pending is None else queue.max_pending
    if not snapshot.is_strict and snapshot.pending.stuck_by_shape.get(offer.shape, 0) > most:
        return HoldReason.PENDING_PODS
    return None
