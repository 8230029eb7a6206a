"""The decision of the last cycle, for those who ask afterwards why a row waits."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from dispatcher.admission.gates import Candidate, every_hold, holds_of_queue, over_job_cap
from dispatcher.admission.heads import NOT_JUDGED, KnownOffers, KnownRow
from dispatcher.admission.snapshot import ClusterSnapshot
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job
from dispatcher.model.launches import JobsVerdict, Offer
from dispatcher.model.needs import PodNeeds
from dispatcher.model.tasks import Frame, IndexedRow, Status, Task
from dispatcher.model.verdicts import PARKED, Hold, HoldReason, NotReady, Stage

QueueReason = tuple[str, HoldReason]
SCARCE: Final = timedelta(minutes=1)
"""MAX_JOBS counts as a resource in shares during this time after it was last used up, so that the order does
not flap.
"""


class SeenPods(Protocol):
    """The Pods of the picture, by the UID of their Job, what they need of a node, and the API server's clock."""

    @property
    def pods(self) -> Mapping[str, Sequence[Pod]]: ...
    @property
    def cluster_now(self) -> datetime: ...
    def needs_of(self, job: Job) -> PodNeeds | None: ...


class AskedPicture(KnownOffers, Protocol):
    """The Jobs stage's picture, with what judging one row and showing its Jobs needs."""

    @property
    def cluster(self) -> SeenPods: ...
    @property
    def jobs(self) -> Mapping[int, Sequence[Job]]: ...
    def jobs_of(self, task: Task) -> Sequence[Job]: ...
    def tried_at(self, task_id: int) -> float: ...
    def judge_row(self, task: Task) -> JobsVerdict: ...


class RowReason(Struct, frozen=True):
    """Why one row waits, and since when for this reason.

    attempt: the attempt that was judged.
    has_started: whether the row has started, and waits to run again.
    submitted_by: whose row it is.
    """

    queue: str
    attempt: int
    hold: Hold
    since: datetime
    has_started: bool = False
    submitted_by: str = ""


class LastCycle(Struct, frozen=True):
    """The decision of one cycle.

    snapshot: the snapshot after all admissions.
    picture: the Jobs stage's picture.
    told: the holds of the rows that were judged one by one, by task.
    launched: the rows that were launched.
    held: number of judged waiting rows by queue and reason, with the launched ones.
    since: since when rows of a queue have been held for a reason, without a break.
    leads: whether this replica launched them.
    whole: queues of which every due row was judged.
    capped_at: when MAX_JOBS was used up last; None: never.
    launched_at: when this replica launched a row of each (queue, submitter) last.
    """

    snapshot: ClusterSnapshot
    picture: AskedPicture
    told: Mapping[int, RowReason]
    launched: frozenset[int]
    held: Mapping[QueueReason, int]
    since: Mapping[QueueReason, datetime]
    leads: bool
    whole: Set[str] = frozenset()
    capped_at: datetime | None = None
    launched_at: Mapping[tuple[str, str], datetime] = {}

    @property
    def tasks_refused(self) -> str:
        """Why nothing is launched because the database would refuse the reports of containers; empty: it would not."""
        hold = self.snapshot.not_ready
        return hold.detail if hold is not None and hold.detail.startswith(NotReady.TASKS_REFUSED) else ""

    @property
    def lacks_places(self) -> bool:
        """Whether MAX_JOBS is used up, or was within SCARCE: some Jobs end at any time."""
        return self.capped_at is not None and abs(self.at - self.capped_at) <= SCARCE

    @property
    def lacks_writes(self) -> bool:
        """Whether the write rate was used up, or the batch of the cycle: rows of one queue could take all launches."""
        return self.snapshot.allowance.batch < 1 or any(reason is HoldReason.RATE_LIMITED for _, reason in self.held)

    def after(self, before: "LastCycle | None") -> "LastCycle":
        """The cycle, with the values that it takes over from the cycle before it."""
        known, launched_at = (before.capped_at, before.launched_at) if before is not None else (None, {})
        capped_at = self.at if over_job_cap(self.snapshot) else known
        return msgspec.structs.replace(self, capped_at=capped_at, launched_at={**launched_at, **self.launched_at})

    @property
    def at(self) -> datetime:
        """Time of the cycle, by the database's clock."""
        return self.snapshot.now

    def holds(self, task: Task) -> Iterator[Hold]:
        """The holds of a row, by the state after the cycle. The first one is the reason."""
        return every_hold(candidate_of(task, self.picture), self.snapshot)


def candidate_of(task: Task, picture: AskedPicture) -> Candidate:
    """The row with everything that the gates judge it by."""
    offer = picture.known_offer(task.kind) or NOT_JUDGED
    if isinstance(offer, Offer) and offer.template != task.template:  # an administrator has changed the row
        offer = Hold(HoldReason.POLICY_DENIED, "its kind is that of other rows: kind does not fit the other columns")
    return Candidate(task, offer, picture.judge_row(task), picture.tried_at(task.id))


class RestingRow(KnownRow, Protocol):
    """A row that need not be read. `is_parked`: it waits for a person."""

    @property
    def priority(self) -> int | None: ...
    @property
    def is_parked(self) -> bool: ...


class StillWaiting(Protocol):
    """What tells of rows that were not read: the frame has those that a container holds or held."""

    frame: Frame

    async def still_waiting(self, ids: Sequence[int]) -> dict[int, int]: ...


async def still_resting(
    rows: StillWaiting, resting: Mapping[int, RestingRow], read: Set[int], last: LastCycle | None
) -> dict[int, tuple[str, HoldReason, bool]]:
    """The resting rows that still wait or are parked, each with its queue, its reason, and whether it waits.

    A row that was not read may have ended, or wait again. read: the rows that were read.
    """
    held, told = set(rows.frame.held).difference(read), last.told if last is not None else {}
    asked = [id_ for id_, row in resting.items() if row.is_waiting and id_ not in held and id_ not in read]
    found = {id_ for id_, attempt in (await rows.still_waiting(asked)).items() if attempt == resting[id_].attempt}
    found |= {id_ for id_, row in resting.items() if row.is_parked and not row.is_waiting and id_ in held}
    parked = {id_: told[id_].hold.reason for id_ in found if resting[id_].is_parked and id_ in told}
    still = {id_: row for id_, row in resting.items() if id_ in found}
    return {id_: (row.queue, parked.get(id_, HoldReason.LAUNCHED), row.is_waiting) for id_, row in still.items()}


UNHEARD: Final = timedelta(seconds=60)
"""Time without a heartbeat after which a container counts as silent. It sends one each 15 s (as view task_explain)."""
AT_WORK: Final = (Stage.RUNNING, Stage.EXITED, Stage.EXIT_CODE, Stage.ENDING)
"""Stages in which a container runs, or has just ended."""


def is_running(task: Task, hold: Hold, now: datetime) -> bool:
    """Whether the row is held because its container runs, or has just ended. Such a row does not wait.

    A row that has started waits again while its Job has no Pod, or while the Pod of its next launch waits.
    """
    if task.status is not Status.PROCESSING or hold.reason is not HoldReason.LAUNCHED:
        return False
    is_heard = task.heartbeat_at is not None and now - task.heartbeat_at <= UNHEARD
    return is_heard or hold.detail.startswith(AT_WORK)


def tell(
    holds: Iterable[tuple[Task | IndexedRow, Hold]], before: Mapping[int, RowReason], now: datetime
) -> dict[int, RowReason]:
    """The holds of a cycle by task. A reason that the last cycle had, too, keeps its time."""
    return {
        row.id: told_again(
            before.get(row.id), RowReason(row.queue, row.attempt, hold, now, has_started(row), row.submitted_by)
        )
        for row, hold in holds
    }


def in_turns(told: Mapping[int, RowReason], rank: Callable[[RowReason], int]) -> list[tuple[int, RowReason]]:
    """The rows by their rank, then in turns of their submitters, then by id.

    Where not all rows are shown, many rows of one team must not hide the rows of others.
    """
    taken, places = Counter[tuple[int, str]](), list[tuple[int, int, int]]()
    for id_, one in sorted(told.items(), key=itemgetter(0)):
        key = rank(one), one.submitted_by
        places.append((key[0], taken[key], id_))
        taken[key] += 1
    return [(id_, told[id_]) for _, _, id_ in sorted(places)]


def parked_in_turns(told: Mapping[int, RowReason]) -> list[tuple[int, RowReason]]:
    return in_turns({id_: one for id_, one in told.items() if one.hold.reason in PARKED}, lambda _: 0)


def has_started(row: Task | IndexedRow) -> bool:
    return isinstance(row, Task) and row.status is Status.PROCESSING


def told_again(before: RowReason | None, told: RowReason) -> RowReason:
    if before is None or (before.attempt, before.hold.reason) != (told.attempt, told.hold.reason):
        return told
    since = min(before.since, told.since)  # not in the future, after a clock that was set back
    is_same = before.hold is told.hold and before.since is since
    return before if is_same else msgspec.structs.replace(told, since=since)


def held_since(
    held: Iterable[QueueReason], snapshot: ClusterSnapshot, before: Mapping[QueueReason, datetime]
) -> Mapping[QueueReason, datetime]:
    """Since when rows of each queue are held for each reason. A scan does not read paused or full queues."""
    unread = ((name, hold.reason) for name in snapshot.queues for hold in holds_of_queue(name, snapshot))
    return {key: min(before.get(key, snapshot.now), snapshot.now) for key in (*held, *unread)}
