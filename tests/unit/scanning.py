"""Fakes for the scan of waiting rows. They record the calls of the scan."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dispatcher.admission.gates import Candidate
from dispatcher.admission.heads import KnownRows
from dispatcher.admission.scan import Scan, ScanResult
from dispatcher.admission.snapshot import ClusterSnapshot, InLine
from dispatcher.model.jobs import ObjectWrite
from dispatcher.model.launches import JobsVerdict, Offer
from dispatcher.model.tasks import IndexedRow, Kind
from dispatcher.model.verdicts import Hold, HoldReason
from tests.rig.builders import FIRST_LAUNCH, a_kind, a_snapshot, a_task, an_indexed_row
from tests.rig.indexing import RowIndex

GOOD = Offer("app:1", "small", "default")
BAD = Hold(HoldReason.POLICY_DENIED, "too much")
WANTED = 10


class Table(RowIndex):
    """Waiting rows, as the index shows them.

    windows: windows of each read by queue.
    of_submitters: windows of each read by submitter.
    judged: ids of rows whose kind was read.
    """

    def __init__(self, rows: Sequence[IndexedRow]) -> None:
        super().__init__(rows)
        self.windows: list[dict[str, int]] = []
        self.of_submitters: list[dict[str, int]] = []
        self.judged: list[int] = []

    async def indexed_rows(self, windows: Mapping[str, int]) -> list[IndexedRow]:
        self.windows.append(dict(windows))
        return await super().indexed_rows(windows)

    async def indexed_rows_of(self, windows: Mapping[tuple[str, str], int]) -> list[IndexedRow]:
        self.of_submitters.append({submitter: most for (_, submitter), most in windows.items()})
        return await super().indexed_rows_of(windows)

    async def kinds(self, ids: Sequence[int]) -> list[Kind]:
        self.judged.extend(ids)
        wanted = set(ids)
        return [a_kind(digest=row.kind) for row in self.rows if row.id in wanted]


@dataclass
class KindJudge:
    """Offers by kind.

    offers: the answer for a kind; GOOD if it is not listed.
    refused: rows that the API server refused.
    known: kinds that were judged so far.
    """

    offers: Mapping[bytes, Offer | Hold]
    refusals: Mapping[int, Hold] = field(default_factory=dict)
    known: dict[bytes, Offer | Hold] = field(default_factory=dict)

    def offer(self, kind: Kind) -> Offer | Hold:
        return self.known.setdefault(kind.digest, self.offers.get(kind.digest, GOOD))

    def known_offer(self, digest: bytes) -> Offer | Hold | None:
        return self.known.get(digest)

    def refused(self, row: IndexedRow) -> Hold | None:
        return self.refusals.get(row.id)


def rows(ids: Iterable[int], **changes: Any) -> list[IndexedRow]:
    return [an_indexed_row(number, **changes) for number in ids]


class Looking:
    """A scan that asks the same book in every look."""

    def __init__(self, book: KindJudge, wanted: int) -> None:
        self._book = book
        self._scan = Scan(wanted)

    @property
    def in_line(self) -> InLine:
        return self._scan.in_line

    async def run(self, table: Table, snapshot: ClusterSnapshot, known: Mapping[int, int]) -> ScanResult:
        """`known`: attempts of rows that have a Job, by id."""
        waiting = Counter((row.queue, row.submitted_by) for row in table.rows if row.id in known)
        return await self._scan.run(table, self._book, snapshot, KnownRows(known, waiting))


async def scan(
    table: Table,
    judge: KindJudge | None = None,
    snapshot: ClusterSnapshot | None = None,
    known: Mapping[int, int] = {},
) -> ScanResult:
    return await Looking(judge or KindJudge({}), WANTED).run(table, snapshot or a_snapshot(), known)


def a_candidate(
    number: int, *, verdict: Any = FIRST_LAUNCH, ends: tuple[ObjectWrite, ...] = (), **row: Any
) -> Candidate:
    return Candidate(a_task(id=number, **row), Offer("app:1", "small", "default"), JobsVerdict(verdict, ends))
