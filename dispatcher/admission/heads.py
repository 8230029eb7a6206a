"""Judges waiting rows by what the index has of them, without reading the rows.

The index gives each row's kind, and rows of one kind get one verdict, so ten thousand bad rows cost ten thousand
look-ups in a dictionary.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from dispatcher.admission.gates import group_failing, over_submitter_cap, too_many_stuck
from dispatcher.admission.kinds import Kinds, KnownOffers, learn_kinds
from dispatcher.model.jobs import LaunchGroup
from dispatcher.model.launches import Offer
from dispatcher.model.snapshot import ClusterSnapshot
from dispatcher.model.tasks import IndexedRow
from dispatcher.model.verdicts import Hold, HoldReason

K = TypeVar("K")
FIRST_WINDOW: Final = 200
WIDEST_WINDOW: Final = 50_000
ROUNDS: Final = 4
KINDS_A_LOOK: Final = 3000
"""New kinds judged in one look, about 20 ms of work; rows of the others wait for the next."""
QueueSubmitter = tuple[str, str]
"""Queue and submitter: the rows of one submitter in one queue."""


class Index(Kinds, Protocol):
    """The indexes of waiting rows."""

    async def indexed_rows(self, windows: Mapping[str, int]) -> list[IndexedRow]: ...
    async def submitters(self, queues: Sequence[str]) -> list[QueueSubmitter]: ...
    async def indexed_rows_of(self, windows: Mapping[QueueSubmitter, int]) -> list[IndexedRow]: ...


class Offers(KnownOffers, Protocol):
    """What the templates offer, and which rows the API server refused."""

    def refused(self, row: IndexedRow) -> Hold | None: ...


class Head(Struct, frozen=True):
    """The first rows of a queue, or of one submitter in it.

    there: how many rows were read.
    able: those that may be launched, in their order.
    held: how many of the others wait for each reason.
    """

    there: int = 0
    able: Sequence[IndexedRow] = ()
    held: Mapping[HoldReason, int] = {}


class Judge:
    """Judges the rows of one look."""

    def __init__(self, offers: Offers, snapshot: ClusterSnapshot, known: Mapping[int, int]) -> None:
        """`known`: rows that are judged anyway, or need not be, at this attempt."""
        self.snapshot = snapshot
        self._offers = offers
        self._known = known
        self._unjudged = KINDS_A_LOOK

    async def learn(self, index: Index, groups: Iterable[Sequence[IndexedRow]]) -> None:
        """Judges the kinds that were never seen, each by its last row; the groups take turns."""
        unknown = [[row for row in group if self._offers.known_offer(row.kind) is None] for group in groups]
        samples = list({row.kind: row.id for row in take_turns(unknown)}.values())[: self._unjudged]
        self._unjudged -= len(samples)
        await learn_kinds(index, self._offers, samples)

    def head(self, rows: Sequence[IndexedRow]) -> Head:
        """Which of these rows may be launched together, and the reasons of the others."""
        able: list[IndexedRow] = []
        held: Counter[HoldReason] = Counter()
        chosen: Counter[QueueSubmitter] = Counter()
        for row in rows:
            if self._known.get(row.id) == row.attempt:
                continue
            hold = self._hold(row) or over_submitter_cap(
                *queue_submitter(row), self.snapshot, chosen[queue_submitter(row)]
            )
            if hold is None:
                able.append(row)
                chosen[queue_submitter(row)] += 1
            else:
                held[hold.reason] += 1
        return Head(len(rows), able, held)

    def _hold(self, row: IndexedRow) -> Hold | None:
        offer = self._offers.known_offer(row.kind)
        if isinstance(offer, Hold):
            return offer
        return self._offers.refused(row) or why_passed(row, offer, self.snapshot)


def is_hiding(head: Head, window: int, wanted: int) -> bool:
    """True: the window is full, and most of its rows are held, so that rows behind it may be launched before them."""
    return head.there >= window and len(head.able) < min(wanted, window // 2)


def grouped(rows: Iterable[IndexedRow], key: Callable[[IndexedRow], K]) -> dict[K, list[IndexedRow]]:
    """Each group's rows in their order; ready and due ones come from two indexes."""
    found: dict[K, list[IndexedRow]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    for group in found.values():
        group.sort(key=turn)
    return found


def queue_of(row: IndexedRow) -> str:
    return row.queue


def queue_submitter(row: IndexedRow) -> QueueSubmitter:
    return row.queue, row.submitted_by


def turn(row: IndexedRow) -> tuple[int, int]:
    """Lower priorities first, then older rows."""
    return row.priority, row.id


def take_turns(groups: Iterable[Sequence[IndexedRow]]) -> list[IndexedRow]:
    """The first row of every group, then the second: no group hides another."""
    ranked = [(rank, turn(row), row) for group in groups for rank, row in enumerate(group)]
    return [row for _, _, row in sorted(ranked, key=lambda place: place[:2])]


def why_passed(row: IndexedRow, offer: Offer | None, snapshot: ClusterSnapshot) -> Hold | None:
    """A hold that many rows share, seen without reading the row. The gates judge the rows that are read."""
    if offer is None:
        return Hold(HoldReason.NEXT_CYCLE)
    group = LaunchGroup(row.queue, offer.template, offer.image)
    return group_failing(group, snapshot) or too_many_stuck(row.queue, offer.shape, snapshot)
