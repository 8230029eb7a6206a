"""What the last cycle decided, for those who ask afterwards why a row waits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import Protocol

import msgspec
from msgspec import Struct

from dispatcher.admission.gates import Candidate, every_hold, holds_of_queue
from dispatcher.admission.heads import NOT_JUDGED
from dispatcher.admission.kinds import KnownOffers
from dispatcher.admission.snapshot import ClusterSnapshot
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job
from dispatcher.model.launches import JobsVerdict
from dispatcher.model.tasks import IndexedRow, Task
from dispatcher.model.verdicts import Hold, HoldReason

QueueReason = tuple[str, HoldReason]


class SeenPods(Protocol):
    """The Pods of the picture, by the UID of their Job, and the API server's clock."""

    @property
    def pods(self) -> Mapping[str, Sequence[Pod]]: ...
    @property
    def cluster_now(self) -> datetime: ...


class AskedPicture(KnownOffers, Protocol):
    """The Jobs stage's picture, as far as one row is judged by it, and its Jobs are shown."""

    @property
    def cluster(self) -> SeenPods: ...
    @property
    def jobs(self) -> Mapping[int, Sequence[Job]]: ...
    def jobs_of(self, task: Task) -> Sequence[Job]: ...
    def tried_at(self, task_id: int) -> float: ...
    def judge_row(self, task: Task) -> JobsVerdict: ...


class Told(Struct, frozen=True):
    """Why one row waits, and since when for this reason. `attempt`: the attempt that was judged."""

    queue: str
    attempt: int
    hold: Hold
    since: datetime


class LastCycle(Struct, frozen=True):
    """The decision of one cycle.

    snapshot: the snapshot after all admissions.
    picture: the Jobs stage's picture.
    told: the holds of the rows that were judged one by one, by task.
    launched: the rows that were launched.
    held: number of held waiting rows by queue and reason, as far as rows were judged.
    since: since when rows of a queue have been held for a reason, without a break.
    leads: whether this replica launched them.
    whole: queues of which every due row was judged.
    """

    snapshot: ClusterSnapshot
    picture: AskedPicture
    told: Mapping[int, Told]
    launched: frozenset[int]
    held: Mapping[QueueReason, int]
    since: Mapping[QueueReason, datetime]
    leads: bool
    whole: Set[str] = frozenset()

    @property
    def at(self) -> datetime:
        """Time of the cycle, by the database's clock."""
        return self.snapshot.now

    def holds(self, task: Task) -> Iterator[Hold]:
        """What holds a row, by the state after the cycle. The first one is the reason."""
        return every_hold(candidate_of(task, self.picture), self.snapshot)


def candidate_of(task: Task, picture: AskedPicture) -> Candidate:
    """The row with all that the gates judge it by."""
    offer = picture.known_offer(task.kind) or NOT_JUDGED
    return Candidate(task, offer, picture.judge_row(task), picture.tried_at(task.id))


def tell(holds: Iterable[tuple[Task | IndexedRow, Hold]], before: Mapping[int, Told], now: datetime) -> dict[int, Told]:
    """The holds of a cycle by task. A reason that the last cycle told as well keeps its time."""
    return {row.id: told_again(before.get(row.id), Told(row.queue, row.attempt, hold, now)) for row, hold in holds}


def told_again(before: Told | None, told: Told) -> Told:
    if before is None or (before.attempt, before.hold.reason) != (told.attempt, told.hold.reason):
        return told
    return before if before.hold is told.hold else msgspec.structs.replace(told, since=before.since)


def held_since(
    held: Iterable[QueueReason], snapshot: ClusterSnapshot, before: Mapping[QueueReason, datetime]
) -> Mapping[QueueReason, datetime]:
    """Since when rows of each queue are held for each reason. A scan does not read paused or full queues."""
    unread = ((name, hold.reason) for name in snapshot.queues for hold in holds_of_queue(name, snapshot))
    return {key: before.get(key, snapshot.now) for key in (*held, *unread)}
