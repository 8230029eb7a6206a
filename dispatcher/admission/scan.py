"""Finds the waiting rows worth reading: past held rows without reading them, up to fifty thousand of a queue.

The index gives each row's kind, and rows of one kind get one verdict, so ten thousand bad rows cost ten thousand
look-ups. A queue whose head is all held is looked at further at once, and its window is remembered: the next cycle
asks for that much straight away. No cursor survives a cycle, because ids commit out of order.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from dispatcher.admission.gates import is_paused, over
from dispatcher.model import Candidate, Hold, HoldReason, Kind, Lane, Offer
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
    """What it asks of the templates, and of the memory of refused creates."""

    def offer(self, kind: Kind) -> Offer | Hold: ...
    def known_offer(self, digest: bytes) -> Offer | Hold | None: ...
    def parked(self, row: Candidate) -> Hold | None: ...


class Head(Struct, frozen=True):
    """The head of one queue: rows worth reading, how many might be, and the reasons of those passed over."""

    chosen: Sequence[Candidate] = ()
    able: int = 0
    held: Mapping[HoldReason, int] = {}


class Found(Struct, frozen=True):
    """Rows worth reading in this cycle, and how many others were passed over, by (queue, reason)."""

    ids: Sequence[int]
    held: Counter[tuple[str, HoldReason]]


class Scan:
    """Remembers how far each queue has to be looked at."""

    def __init__(self, offers: Offers, wanted: int) -> None:
        self._offers = offers
        self._wanted = wanted
        self._windows: dict[str, int] = {}
        self._unjudged = 0

    async def run(self, index: Index, snapshot: ClusterSnapshot, known: Mapping[int, int]) -> Found:
        """`known`: rows that are judged anyway, or need not be, at this attempt."""
        self._unjudged = KINDS_A_LOOK
        windows = {name: self._windows.get(name, FIRST_WINDOW) for name in open_queues(snapshot)}
        heads: dict[str, Head] = {}
        for _ in range(ROUNDS):
            rows = by_queue(await index.candidates(windows)) if windows else {}
            await self._learn(index, [row for queue in rows.values() for row in queue])
            heads |= {queue: self._divide(rows.get(queue, ()), snapshot, known) for queue in windows}
            windows = self._wider(windows, rows, heads)
        chosen = take_turns([head.chosen for head in heads.values()])[: 2 * self._wanted]
        held = {(queue, reason): n for queue, head in heads.items() for reason, n in head.held.items()}
        return Found([row.id for row in chosen], Counter(held))

    def _wider(
        self, windows: Mapping[str, int], rows: Mapping[str, Sequence[Candidate]], heads: Mapping[str, Head]
    ) -> dict[str, int]:
        """Queues whose head was passed over, to be looked at further; remembers what each needed."""
        wider: dict[str, int] = {}
        for queue, window in windows.items():
            there, able = len(rows.get(queue, ())), heads[queue].able
            self._windows[queue] = min(there - able + FIRST_WINDOW, WIDEST_WINDOW)
            if able < self._wanted and there >= window and window < WIDEST_WINDOW:
                wider[queue] = min(window * 8, WIDEST_WINDOW)
        return wider

    async def _learn(self, index: Index, rows: Iterable[Candidate]) -> None:
        """Judges the kinds that were never seen, each by one of its rows."""
        unknown = {row.kind: row.id for row in rows if self._offers.known_offer(row.kind) is None}
        samples = list(unknown.values())[: self._unjudged]
        self._unjudged -= len(samples)
        for kind in await index.kinds(samples) if samples else ():
            self._offers.offer(kind)

    def _divide(self, rows: Iterable[Candidate], snapshot: ClusterSnapshot, known: Mapping[int, int]) -> Head:
        """As many as there is room for in the queue, and the reasons of the others."""
        chosen: list[Candidate] = []
        held: Counter[HoldReason] = Counter()
        for row in rows:
            if known.get(row.id) == row.attempt:
                continue
            offer = self._offers.known_offer(row.kind)
            hold = offer if isinstance(offer, Hold) else self._offers.parked(row) or why_passed(row, offer, snapshot)
            if hold is None:
                chosen.append(row)
            else:
                held[hold.reason] += 1
        return Head(chosen[: self._room(chosen, snapshot)], len(chosen), held)

    def _room(self, chosen: Sequence[Candidate], snapshot: ClusterSnapshot) -> int:
        """No more than the queue's cap leaves, or its rows would keep those of others from being read."""
        if not chosen:
            return 0
        queue = snapshot.queue(chosen[0].queue)
        left = self._wanted if queue.max_jobs is None else queue.max_jobs - snapshot.load.by_queue.get(queue.name, 0)
        return min(self._wanted, left)


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
        queue.sort(key=turn)
    return found


def turn(row: Candidate) -> tuple[int, int]:
    """Lower priorities first, then older rows."""
    return row.priority, row.id


def take_turns(queues: Iterable[Sequence[Candidate]]) -> list[Candidate]:
    """The first of every queue, then the second: what only the gates know must not let one queue hide another."""
    ranked = [(rank, turn(row), row) for queue in queues for rank, row in enumerate(queue)]
    return [row for _, _, row in sorted(ranked, key=lambda place: place[:2])]


def why_passed(row: Candidate, offer: Offer | None, snapshot: ClusterSnapshot) -> Hold | None:
    """A hold that many rows share, seen without reading the row; the gates judge the others."""
    if offer is None:
        return Hold(HoldReason.NEXT_CYCLE)
    queue = snapshot.queue(row.queue)
    of_submitter = snapshot.load.by_submitter.get((row.queue, row.submitted_by), 0)
    if (hold := over(HoldReason.SUBMITTER_CAP, of_submitter, queue.max_jobs_per_submitter)) is not None:
        return hold
    lane = Lane(row.queue, offer.template, offer.image)
    if lane in snapshot.failing_lanes and lane in snapshot.busy_lanes:
        return Hold(HoldReason.TEMPLATE_FAILING)
    most = snapshot.max_pending if queue.max_pending is None else queue.max_pending
    if not snapshot.is_strict and snapshot.pending.stuck_by_shape.get(offer.shape, 0) > most:
        return Hold(HoldReason.PENDING_PODS)
    return None
