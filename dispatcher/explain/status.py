"""The state of a whole installation, for who is on call: queues, parked rows, and what is unhealthy. Pure.

The names of the fields are public: they are the names in JSON.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType, field

from dispatcher.admission.last_cycle import LastCycle, Told
from dispatcher.explain.counting import count_reasons, rest_hold
from dispatcher.explain.reasons import Cause, cause_of
from dispatcher.model.node_caches import CacheTotal
from dispatcher.model.tasks import COUNTED_MINUTES, Queue, QueueCount
from dispatcher.model.verdicts import PARKED, HoldReason

MOST_PARKED: Final = 100
MOST_SLOWED: Final = 20
LONGEST_TEXT: Final = 300
"""Notes, faults and names of images have any length. The status is written into a ConfigMap, so they are cut."""
Moment = Annotated[datetime, Meta(tz=True)]
"""A time with its zone. A time without one cannot be compared."""


class Counts(Struct, frozen=True):
    """The waiting rows of all queues. `at`: when they were counted, by the database's clock."""

    at: datetime
    queues: Sequence[QueueCount]


class Installation(Struct, frozen=True):
    """Name and version of this installation, the namespace of its Jobs, and this replica."""

    installation: str
    version: str
    jobs_namespace: str
    replica: str


class QueueHold(Struct, frozen=True):
    """What holds all rows of a queue alike. `since`: since when; None: not known."""

    reason: HoldReason
    message: str
    since: Moment | None


class QueueStatus(Struct, frozen=True, kw_only=True):
    """One queue.

    waiting: number of waiting rows, by the last count.
    reasons: the same by reason.
    oldest_wait_seconds: for how long its oldest due row has waited; None: no row waits.
    in_flight: unfinished Jobs, as the caps count them.
    max_jobs: the queue's cap; None: no cap.
    share: largest part of any one resource of the cluster that its Jobs ask for.
    paused_until: end of its pause; None: it is not paused.
    paused_since: since when this process has seen the pause.
    note: the operator's note.
    starts_per_minute, ends_per_minute: launches that started, and rows that ended, on average of five minutes.
    behind: what holds the rows that the cycle did not judge one by one; None: they wait for their turn.
    """

    queue: str
    waiting: int
    reasons: Mapping[HoldReason, int]
    oldest_wait_seconds: float | None
    in_flight: int
    max_jobs: int | None
    weight: int
    share: float
    paused_until: Moment | None
    paused_since: Moment | None
    note: str | None
    starts_per_minute: float
    ends_per_minute: float
    behind: QueueHold | None = None


class ParkedRow(Struct, frozen=True, kw_only=True):
    """A row that waits until a person, the row or its template changes."""

    task: int
    queue: str
    attempt: int
    reason: HoldReason
    message: str
    since: Moment


class InstallationStatus(Struct, frozen=True, kw_only=True):
    """The installation at the end of one cycle.

    as_of: time of the cycle, by the database's clock.
    counted_at: when the waiting rows were counted.
    replica: the process that answers.
    leads: whether it launches Jobs.
    unhealthy: what is missing, by the name of the check in /readyz; empty: it can do its work.
    not_ready: why nothing is launched now; None: Jobs are launched.
    slowed: why fewer Jobs are launched than could be.
    in_flight, max_jobs: unfinished Jobs of all queues, and the cap.
    queues_left_out: queues that the ConfigMap has no room for.
    parked: number of parked rows that were judged.
    parked_rows: the first of them.
    templates_differ: templates that the janitor does not have alike. INSERT is judged by the janitor's.
    caches: what cache keepers tell of all nodes; left out if none tells anything.
    """

    installation: str
    version: str
    jobs_namespace: str
    replica: str
    leads: bool
    as_of: Moment
    counted_at: Moment
    unhealthy: Mapping[str, str]
    not_ready: Cause | None
    slowed: Sequence[str]
    in_flight: int
    max_jobs: int
    queues: Sequence[QueueStatus]
    parked: int
    parked_rows: Sequence[ParkedRow]
    queues_left_out: int = 0
    templates_differ: Sequence[str] = field(default_factory=list)
    caches: CacheTotal | UnsetType = UNSET


def build_status(
    installation: Installation, cycle: LastCycle, counts: Counts, unhealthy: Mapping[str, str]
) -> InstallationStatus:
    snapshot, slowed = cycle.snapshot, list(what_slows(cycle))
    reasons = count_reasons(counts.queues, cycle)
    by_queue: dict[str, dict[HoldReason, int]] = defaultdict(dict)
    for (name, reason), number in sorted(reasons.items()):
        by_queue[name][reason] = number
    return InstallationStatus(
        installation=installation.installation,
        version=installation.version,
        jobs_namespace=installation.jobs_namespace,
        replica=installation.replica,
        leads=cycle.leads,
        as_of=cycle.at,
        counted_at=counts.at,
        unhealthy={name: fault[:LONGEST_TEXT] for name, fault in unhealthy.items()},
        not_ready=cause_of(snapshot.not_ready) if snapshot.not_ready else None,
        slowed=[*(what[:LONGEST_TEXT] for what in slowed[:MOST_SLOWED]), *more(len(slowed) - MOST_SLOWED)],
        in_flight=snapshot.load.total,
        max_jobs=snapshot.max_jobs,
        queues=[queue_status(count, cycle, by_queue[count.queue]) for count in counts.queues],
        parked=sum(number for (_, reason), number in reasons.items() if reason in PARKED),
        parked_rows=list(parked_rows(cycle.told))[:MOST_PARKED],
    )


def queue_status(count: QueueCount, cycle: LastCycle, reasons: Mapping[HoldReason, int]) -> QueueStatus:
    name, snapshot = count.queue, cycle.snapshot
    queue = snapshot.queues.get(name, Queue(name))
    waiting, oldest = sum(reasons.values()), count.oldest
    paused = queue.paused_until if queue.paused_until and queue.paused_until > cycle.at else None
    return QueueStatus(
        queue=name,
        waiting=waiting,
        reasons=reasons,
        oldest_wait_seconds=max(0.0, (cycle.at - oldest).total_seconds()) if oldest and waiting else None,
        in_flight=snapshot.load.by_queue.get(name, 0),
        max_jobs=queue.max_jobs,
        weight=queue.weight,
        share=snapshot.shares.of_queue(name),
        paused_until=paused,
        paused_since=cycle.since.get((name, HoldReason.PAUSED)) if paused else None,
        note=count.note[:LONGEST_TEXT] if count.note else None,
        starts_per_minute=count.starts / COUNTED_MINUTES,
        ends_per_minute=count.ends / COUNTED_MINUTES,
        behind=queue_hold(name, cycle),
    )


def queue_hold(name: str, cycle: LastCycle) -> QueueHold | None:
    hold = rest_hold(name, cycle.snapshot)
    if hold is None:
        return None
    return QueueHold(hold.reason, cause_of(hold).message[:LONGEST_TEXT], cycle.since.get((name, hold.reason)))


def more(number: int) -> list[str]:
    return [f"and {number} more"] if number > 0 else []


def parked_rows(told: Mapping[int, Told]) -> Iterator[ParkedRow]:
    """The parked rows among the judged rows, by id."""
    for id_, one in sorted(told.items()):
        if one.hold.reason in PARKED:
            cause = cause_of(one.hold)
            yield ParkedRow(
                task=id_, queue=one.queue, attempt=one.attempt, reason=cause.reason, message=cause.message,
                since=one.since,
            )  # fmt: skip


def what_slows(cycle: LastCycle) -> Iterator[str]:
    """Pauses and limits that concern more than one row."""
    snapshot = cycle.snapshot
    if snapshot.is_probing:
        yield "one create at a time, until the API server accepts one"
    if snapshot.quota is not None:
        yield cause_of(snapshot.quota).message
    for one in sorted(snapshot.failing_groups, key=lambda group: (group.queue, group.template, group.image)):
        yield f"one launch at a time of image {one.image} (template {one.template}, queue {one.queue}): no Pod starts"
