"""Judges waiting rows by the columns of the index, without reading the rows.

`learn_kinds`: reads the kinds of rows that were never judged, and judges each kind once by the templates.

`Judge`: the index has each row's kind, and all rows of a kind get the same verdict. So ten thousand bad rows cost ten
thousand look-ups in a dictionary.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from dispatcher.admission.gates import (
    RowBehind,
    group_failing,
    holds_of_queue,
    is_at_cap,
    is_behind,
    over_quota,
    over_submitter_cap,
    too_many_held,
    too_many_stuck,
    wants_place,
    without_room,
)
from dispatcher.admission.snapshot import ClusterSnapshot
from dispatcher.model.jobs import LaunchGroup
from dispatcher.model.launches import Offer, PodKind
from dispatcher.model.needs import PodNeeds
from dispatcher.model.tasks import IndexedRow, Kind
from dispatcher.model.verdicts import Hold, HoldReason


class Kinds(Protocol):
    """The query for kinds."""

    async def kinds(self, ids: Sequence[int]) -> list[Kind]: ...


class KnownOffers(Protocol):
    """The templates' offers to kinds. A kind is judged once, and again if a template changes."""

    def offer(self, kind: Kind) -> Offer | Hold: ...
    def known_offer(self, digest: bytes) -> Offer | Hold | None: ...


async def learn_kinds(rows: Kinds, offers: KnownOffers, ids: Sequence[int]) -> None:
    """Judges the kinds of these rows. `ids`: one row of each kind."""
    for kind in await rows.kinds(ids) if ids else ():
        offers.offer(kind)


K = TypeVar("K")
FIRST_WINDOW: Final = 200
"""First rows of a queue that every cycle reads."""
FIRST_ROWS: Final = 5000
"""First rows of all queues together, at most. With more than 25 queues, their windows are smaller."""
LEAST_WINDOW: Final = 20
"""The smallest window of a queue, or of one submitter in a queue, in rows."""
LEAST_TOLD: Final = 5
"""Held rows of each queue whose holds are kept, at least."""
WIDEST_WINDOW: Final = 50_000
"""The largest window, in rows."""
ROUNDS: Final = 4
"""Times that one cycle widens windows, at most."""
KINDS_A_LOOK: Final = 3000
"""New kinds that one cycle judges: about 20 ms of work. Rows of further kinds wait for the next cycle."""
MOST_BEHIND: Final = 3
"""Rows of one submitter in one queue that are compared with the rows of waiting Pods, at most."""
MOST_ROOMLESS: Final = 50
"""Kinds of Pods of one submitter in one queue for which one cycle searches room in vain, at most."""
LEAST_ROOMLESS: Final = 5
"""The same after MOST_NODES_SEARCHED."""
MOST_NODES_SEARCHED: Final = 1_000_000
"""Nodes that one cycle searches in vain before submitters get fewer searches."""
TOLD_ROWS: Final = 500
"""Held rows of all queues together whose holds are kept for questions, at most."""
HeldRow = tuple[IndexedRow, Hold]
QueueSubmitter = tuple[str, str]
"""(queue, submitter): key of the rows of one submitter in one queue."""
NOT_JUDGED: Final = Hold(HoldReason.NEXT_CYCLE, "its kind is not judged yet")


class KnownRow(Protocol):
    """A row that the scan must skip: it is judged from its Jobs, or is unchanged. Nearly all of them have a Job."""

    @property
    def attempt(self) -> int: ...
    @property
    def queue(self) -> str: ...
    @property
    def submitted_by(self) -> str: ...
    @property
    def is_waiting(self) -> bool: ...


class KnownRows(Struct, frozen=True):
    """The known rows. `attempts`: attempt of each, by id. `waiting`: count of waiting ones by (queue, submitter)."""

    attempts: Mapping[int, int] = {}
    waiting: Mapping[QueueSubmitter, int] = {}


def known_rows(*every: Mapping[int, KnownRow]) -> KnownRows:
    """The known rows of several sources. `every`: rows by id. The last source that has an id counts."""
    rows: dict[int, KnownRow] = {id_: row for some in every for id_, row in some.items()}
    waiting = Counter((row.queue, row.submitted_by) for row in rows.values() if row.is_waiting)
    return KnownRows({id_: row.attempt for id_, row in rows.items()}, waiting)


class Index(Kinds, Protocol):
    """The indexes of waiting rows."""

    async def indexed_rows(self, windows: Mapping[str, int]) -> list[IndexedRow]: ...
    async def submitters(self, queues: Sequence[str]) -> list[QueueSubmitter]: ...
    async def indexed_rows_of(self, windows: Mapping[QueueSubmitter, int]) -> list[IndexedRow]: ...


class CycleOffers(KnownOffers, Protocol):
    """The templates' offers, and the rows that the API server refused."""

    def refused(self, row: IndexedRow) -> Hold | None: ...


class Head(Struct, frozen=True):
    """The first rows of a queue, or of one submitter in it.

    read_count: number of rows that were read, without the known ones.
    launchable: the rows that may be launched, in their order.
    held: number of the other rows by reason.
    told: the first held rows, each with its hold.
    roomless: the first row that waits for room, and for which a node is large enough; None: there is none.
    only_wait: rows that may be launched after all others, because their Pods would only wait.
    at_cap: number of the held rows that are at their submitter's cap.
    """

    read_count: int
    launchable: Sequence[IndexedRow]
    held: Mapping[HoldReason, int]
    told: Sequence[HeldRow]
    roomless: IndexedRow | None
    only_wait: Sequence[IndexedRow]
    at_cap: int = 0


class Judge:
    """Judges the rows of one cycle. `snapshot`: without waiting Pods that would give their places to other rows."""

    def __init__(self, offers: CycleOffers, whole: ClusterSnapshot, known: KnownRows) -> None:
        self.snapshot = snapshot = whole.without_demand()
        self._whole = whole
        self._offers = offers
        self._known = known
        self.told_of_a_queue = max(LEAST_TOLD, TOLD_ROWS // max(1, len(snapshot.queues)))
        self._unjudged = KINDS_A_LOOK
        self._roomless: dict[QueueSubmitter, set[PodNeeds | None]] = defaultdict(set)
        self._nodes_searched = 0
        self._noted: set[tuple[str, str, str]] = set()
        self.wanting: dict[str, PodKind] = {}
        """Kinds of Pods that find no place to wait as demand, by shape."""
        self._in_line: Counter[tuple[str, str, str]] = Counter()
        self.in_line: dict[QueueSubmitter, list[PodKind]] = defaultdict(list)
        """The first kinds of Pods without room for which a node is large enough."""
        self.further: dict[QueueSubmitter, list[PodKind]] = defaultdict(list)
        """The first kinds of Pods that have room, and more rows than one. Such a place may be the last one."""
        self.behind: dict[QueueSubmitter, list[RowBehind]] = defaultdict(list)

    async def learn(self, index: Index, groups: Iterable[Sequence[IndexedRow]]) -> None:
        """Judges kinds that were never seen, by one row of each. The groups take turns, up to KINDS_A_LOOK kinds."""
        unknown = [[row for row in group if self._offers.known_offer(row.kind) is None] for group in groups]
        samples = list({row.kind: row.id for row in take_turns(unknown)}.values())[: self._unjudged]
        self._unjudged -= len(samples)
        await learn_kinds(index, self._offers, samples)

    def head(self, rows: Sequence[IndexedRow]) -> Head:
        """The rows that may be launched together, and the reasons of the other rows."""
        launchable: list[IndexedRow] = []
        held: Counter[HoldReason] = Counter()
        told: list[HeldRow] = []
        chosen: Counter[QueueSubmitter] = Counter()
        roomless: IndexedRow | None = None
        only_wait: list[IndexedRow] = []
        at_cap = 0
        unknown = [row for row in rows if self._known.attempts.get(row.id) != row.attempt]
        for row in unknown:
            hold = self._hold(row, chosen[queue_submitter(row)])
            if hold is None or hold.reason is HoldReason.NO_ROOM_NOW:
                self._line_up(row)
            if hold is None:
                (only_wait if self.pod_of(row).shape in self.snapshot.stuck_shapes else launchable).append(row)
                chosen[queue_submitter(row)] += 1
                continue
            held[hold.reason] += 1
            at_cap += is_at_cap(hold)
            if len(told) < self.told_of_a_queue:
                told.append((row, hold))
            if roomless is None and hold.reason is HoldReason.NO_ROOM_NOW and self._could_fit(row):
                roomless = row
        return Head(len(unknown), launchable, held, told, roomless, only_wait, at_cap)

    def windows_of_queues(self, queues: Iterable[str], window: int) -> dict[str, int]:
        """A window for each queue: `window` rows besides the known ones, which would hide the rows behind them."""
        found = dict.fromkeys(queues, window)
        for (queue, _), count in self._known.waiting.items():
            if queue in found:
                found[queue] += count
        return found

    def windows(self, windows: Mapping[QueueSubmitter, int]) -> dict[QueueSubmitter, int]:
        """A window for each submitter, larger by its known rows."""
        return {key: window + self._known.waiting.get(key, 0) for key, window in windows.items()}

    def pod_of(self, row: IndexedRow) -> PodKind:
        """The Pod that a launch of the row would have."""
        return pod_of(row, self._offers.known_offer(row.kind))

    def _could_fit(self, row: IndexedRow) -> bool:
        """Whether a node is large enough for its Pod. No other row may keep a claim from the rows behind it."""
        room, needs = self.snapshot.room, self.pod_of(row).needs
        return room is None or needs is None or room.view.why_not(needs)[0]

    def _hold(self, row: IndexedRow, chosen: int) -> Hold | None:
        """The first hold in the order of the gates. `chosen`: launchable rows of its submitter before it."""
        offer = self._offers.known_offer(row.kind)
        if isinstance(offer, Hold):
            return offer
        if offer is None:
            return NOT_JUDGED
        group = LaunchGroup(row.queue, offer.template, offer.image, row.submitted_by)
        if hold := self._offers.refused(row) or group_failing(group, self.snapshot):
            return hold
        hold = self._lack(row, offer, chosen)
        return hold and (self.snapshot.not_ready or hold)

    def _lack(self, row: IndexedRow, offer: Offer, chosen: int) -> Hold | None:
        """The first hold of: NeverFits, submitter cap, queue (if the Pod would only wait), `shared_hold`, room."""
        room = self._without_room(row, offer)
        if room is not None and room.reason is HoldReason.NEVER_FITS:
            return room
        would_only_wait = offer.shape in self.snapshot.stuck_shapes  # no place in a cap is given back for it
        snapshot = self._whole if would_only_wait else self.snapshot
        cap = over_submitter_cap(*queue_submitter(row), snapshot, chosen)
        of_queue = next(holds_of_queue(row.queue, snapshot), None) if would_only_wait else None
        return cap or of_queue or shared_hold(row, offer, snapshot) or room

    def _without_room(self, row: IndexedRow, offer: Offer) -> Hold | None:
        """The hold of a row that no node has room for.

        A search takes up to some milliseconds, and rows can ask for any amount. So a submitter with many kinds of Pods
        without room gets no further search: its other rows stay in line. Many such submitters get fewer searches each.
        """
        room, needs = self.snapshot.room, offer.needs
        if room is None or room.is_kept_for(row.id):
            return None
        roomless = self._roomless[queue_submitter(row)]
        if needs not in roomless:
            if len(roomless) >= (MOST_ROOMLESS if self._nodes_searched < MOST_NODES_SEARCHED else LEAST_ROOMLESS):
                words = f"behind {len(roomless)} kinds of Pods of this submitter without room"
                return Hold(HoldReason.IN_LINE, words)
            if room.has_room_for(pod_of(row, offer)):
                return None
            roomless.add(needs)
            self._nodes_searched += len(room.view.nodes)
        if (*queue_submitter(row), offer.shape) not in self._noted:
            self._note(row, pod_of(row, offer))
        return without_room(row.id, pod_of(row, offer), self.snapshot)

    def _line_up(self, row: IndexedRow) -> None:
        """Notes the first kinds of Pods that only room holds."""
        key, pod = queue_submitter(row), self.pod_of(row)
        has_room = pod.needs not in self._roomless[key]
        self._in_line[*key, pod.shape] += 1
        if self._in_line[*key, pod.shape] == (2 if has_room else 1):
            first = self.further[key] if has_room else self.in_line[key]
            if len(first) < MOST_BEHIND and self._could_fit(row):
                first.append(pod)

    def _note(self, row: IndexedRow, pod: PodKind) -> None:
        """Notes the first row of a shape without room. Shapes with equal needs are noted separately."""
        self._noted.add((*queue_submitter(row), pod.shape))
        if wants_place(pod, self.snapshot):
            self.wanting[pod.shape] = pod
        elif len(own := self.behind[queue_submitter(row)]) < MOST_BEHIND and is_behind(pod, self.snapshot):
            own.append(RowBehind(pod, row.priority))


def first_window(queues: int) -> int:
    """Number of first rows of each queue that are read, for this number of queues."""
    return max(LEAST_WINDOW, min(FIRST_WINDOW, FIRST_ROWS // max(queues, 1)))


def may_hide_rows(head: Head, window: int, wanted: int) -> bool:
    """Whether held rows may hide rows that could be launched: the window is full, and most of its rows are held."""
    return head.read_count >= window and len(head.launchable) < min(wanted, window // 2)


def grouped(rows: Iterable[IndexedRow], key: Callable[[IndexedRow], K]) -> dict[K, list[IndexedRow]]:
    """The rows of each group in their order. They come unsorted, because ready and due rows are in two indexes."""
    found: dict[K, list[IndexedRow]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    for group in found.values():
        group.sort(key=sort_key)
    return found


def queue_submitter(row: IndexedRow) -> QueueSubmitter:
    return row.queue, row.submitted_by


def sort_key(row: IndexedRow) -> tuple[int, int]:
    """Lower priorities first, then older rows."""
    return row.priority, row.id


def take_turns(groups: Iterable[Sequence[IndexedRow]]) -> list[IndexedRow]:
    """The first row of every group, then the second row of every group, and so on, so that no group hides another."""
    ranked = [(rank, sort_key(row), row) for group in groups for rank, row in enumerate(group)]
    return [row for _, _, row in sorted(ranked, key=lambda place: place[:2])]


def shared_hold(row: IndexedRow, offer: Offer, snapshot: ClusterSnapshot) -> Hold | None:
    """A hold that all rows of a submitter in a queue with equal needs share."""
    held = over_quota(offer.needs, snapshot) or too_many_held(row.queue, row.submitted_by, snapshot)
    return held or too_many_stuck(row.queue, offer.shape, snapshot)


def pod_of(row: IndexedRow, offer: Offer | Hold | None) -> PodKind:
    shape, needs = (offer.shape, offer.needs) if isinstance(offer, Offer) else ("", None)
    return PodKind(row.queue, row.submitted_by, shape, needs)
