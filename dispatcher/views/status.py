"""The state of a whole installation, for who is on call: queues, parked rows, demand, and what is unhealthy. Pure.

The names of the fields are public: they are the names in JSON.

`count_reasons`: counts every waiting row once, under one reason. A cycle judges the first rows of each queue. The rows
behind them wait for what holds their whole queue, or for their turn.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType, field, structs

from dispatcher.admission.gates import holds_of_queue
from dispatcher.admission.last_cycle import LastCycle, QueueReason, RowReason, parked_in_turns
from dispatcher.admission.room_view import told
from dispatcher.admission.snapshot import ClusterSnapshot
from dispatcher.model.caches import CacheTotal
from dispatcher.model.reasons import ReasonInWords, cause_of
from dispatcher.model.tasks import COUNTED_MINUTES, QueueCount
from dispatcher.model.verdicts import PARKED, Hold, HoldReason


def every_count(counts: Iterable[QueueCount], cycle: LastCycle) -> list[QueueCount]:
    """The counts of all queues by name, also of queues that were declared since the count."""
    counted = {count.queue: count for count in counts}
    return [counted.get(name, QueueCount(name)) for name in sorted({*counted, *cycle.snapshot.queues})]


def count_reasons(counts: Iterable[QueueCount], cycle: LastCycle, at: datetime) -> Mapping[QueueReason, int]:
    """Number of waiting rows by queue and reason. Their sum is the number of waiting rows, if no row moved since.

    at: when they were counted.
    """
    judged: dict[str, dict[HoldReason, int]] = defaultdict(dict)
    for (queue, reason), number in cycle.held.items():
        judged[queue][reason] = number
    told = ((count.queue, of_queue(count, judged[count.queue], cycle, at)) for count in counts)
    return {(queue, reason): number for queue, reasons in told for reason, number in reasons if number > 0}


def of_queue(
    count: QueueCount, held: Mapping[HoldReason, int], cycle: LastCycle, at: datetime
) -> Iterator[tuple[HoldReason, int]]:
    """The reasons of one queue.

    A count may be older than the cycle. So it adds nothing to a queue of which the cycle has judged every due row. Rows
    that are not due are known only from the count.
    """
    judged = Counter[HoldReason](held)
    del judged[HoldReason.NOT_DUE]
    if count.queue not in cycle.whole:
        judged[reason_of_rest(count.queue, cycle.snapshot)] += max(0, count.due - judged.total())
    yield from judged.items()
    due_since = max(0, judged.total() - count.due) if at < cycle.at else 0  # later, such rows have started
    yield HoldReason.NOT_DUE, max(0, count.not_due - due_since)


def reason_of_rest(queue: str, snapshot: ClusterSnapshot) -> HoldReason:
    """Why the due rows that the cycle did not judge wait."""
    rest = rest_hold(queue, snapshot)
    return rest.reason if rest else HoldReason.IN_LINE


def rest_hold(queue: str, snapshot: ClusterSnapshot) -> Hold | None:
    """The hold of the rows that the cycle did not judge. None: they wait for their turn.

    A cycle reads no rows of a paused queue or of one at its cap.
    """
    return next(holds_of_queue(queue, snapshot), None)


MOST_SHAPES: Final = 20
"""Shapes of the demand, at most."""
Moment = Annotated[datetime, Meta(tz=True)]


class ShapeDemand(Struct, frozen=True, kw_only=True):
    """The demand of one shape.

    asks: requests of a Pod, in words; empty: not known.
    pods: number of Pods that wait.
    has_grown: whether its whole need goes out.
    since: since when kube-scheduler finds no node for them; None: not known yet.
    answer: what became of it, in words; empty: nothing yet.
    """

    asks: str
    pods: int
    has_grown: bool
    since: Moment | None
    answer: str


def demand_of(cycle: LastCycle) -> list[ShapeDemand]:
    """The demand, the largest first; at most MOST_SHAPES shapes."""
    waiting, pods, needs = cycle.snapshot.waiting, Counter[str](), dict[str, str]()
    demand = waiting.demand
    for pod, count in waiting.every.items():
        pods[pod.shape] += count
        needs[pod.shape] = told(pod.needs.asks) if pod.needs is not None else ""
    return [
        ShapeDemand(
            asks=needs[shape],
            pods=count,
            has_grown=demand.has_grown(shape),
            since=one.since if (one := demand.asked.get(shape)) is not None else None,
            answer=demand.told(shape),
        )
        for shape, count in pods.most_common(MOST_SHAPES)
    ]


MOST_PARKED: Final = 100
"""Parked rows of the status, at most."""
MOST_SLOWED: Final = 20
"""Lines of `slowed`, at most."""
LONGEST_TEXT: Final = 300
"""Characters of notes, faults and names of images, at most: the status is written into a ConfigMap."""


class Counts(Struct, frozen=True):
    """The waiting rows of all queues. `at`: when they were counted, by the database's clock."""

    at: datetime
    queues: Sequence[QueueCount]


class InstallationIdentity(Struct, frozen=True):
    """Name and version of this installation, the namespace of its Jobs, and this replica."""

    installation: str
    version: str
    jobs_namespace: str
    replica: str


class QueueHold(Struct, frozen=True):
    """The hold that all rows of a queue share. `since`: since when; None: not known."""

    reason: HoldReason
    message: str
    since: Moment | None


class QueueStatus(Struct, frozen=True, kw_only=True):
    """One queue.

    waiting: number of waiting rows, by the last count.
    reasons: number of waiting rows by reason.
    oldest_wait_seconds: for how long its oldest due row has waited; None: no row waits, or their containers run.
    in_flight: unfinished Jobs, as the caps count them.
    max_jobs: the queue's cap; None: no cap.
    share: largest part of any one resource of the cluster that its Jobs ask for.
    paused_until: end of its pause; None: it is not paused.
    paused_since: since when this process has seen the pause.
    note: the operator's note.
    starts_per_minute, ends_per_minute: launches that started, and rows that ended, on average of five minutes.
    behind: what holds the rows that the cycle did not judge one by one; None: they wait for their turn.
    started: rows that have started, and have no container now: their next launch waits. `waiting` has none of them.
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
    started: int = 0


class ParkedRow(Struct, frozen=True, kw_only=True):
    """A row that waits until a person, the row or its template changes."""

    task: int
    queue: str
    attempt: int
    reason: HoldReason
    message: str
    since: Moment


RIGHTS, REMOVALS = BESIDE = ("rights", "removals")
"""What launches do not need: rights that are missing, and removals that are refused. /readyz does not ask for it."""


class InstallationStatus(InstallationIdentity, frozen=True, kw_only=True):
    """The installation at the end of one cycle.

    as_of: time of the cycle, by the database's clock.
    counted_at: when the waiting rows were counted.
    replica: the process that answers.
    leads: whether it launches Jobs.
    unhealthy: what is missing, by the name of the check in /readyz, or of BESIDE; empty: nothing is.
    not_ready: why nothing is launched now; None: Jobs are launched.
    slowed: why fewer Jobs are launched than could be.
    in_flight, max_jobs: unfinished Jobs of all queues, and the cap.
    queues_left_out: queues that the ConfigMap has no room for.
    parked: number of parked rows that were judged.
    parked_rows: the first of them.
    templates_differ: templates that differ from the janitor's. INSERT is judged by the janitor's.
    demand: Pods that wait for nodes, shape by shape.
    caches: the sum of the cache keepers' reports; left out if there is none.
    """

    leads: bool
    as_of: Moment
    counted_at: Moment
    unhealthy: Mapping[str, str]
    not_ready: ReasonInWords | None
    slowed: Sequence[str]
    in_flight: int
    max_jobs: int
    queues: Sequence[QueueStatus]
    parked: int
    parked_rows: Sequence[ParkedRow]
    queues_left_out: int = 0
    templates_differ: Sequence[str] = field(default_factory=list)
    demand: Sequence[ShapeDemand] = field(default_factory=list)
    caches: CacheTotal | UnsetType = UNSET


def build_status(
    installation: InstallationIdentity, cycle: LastCycle, counts: Counts, unhealthy: Mapping[str, str]
) -> InstallationStatus:
    snapshot, slowed = cycle.snapshot, list(what_slows(cycle))
    queues = every_count(counts.queues, cycle)
    reasons = count_reasons(queues, cycle, counts.at)
    by_queue: dict[str, dict[HoldReason, int]] = defaultdict(dict)
    for (name, reason), number in sorted(reasons.items()):
        by_queue[name][reason] = number
    started = Counter(told.queue for told in cycle.told.values() if told.has_started)
    return InstallationStatus(
        **structs.asdict(installation),
        leads=cycle.leads,
        as_of=cycle.at,
        counted_at=counts.at,
        unhealthy={name: fault[:LONGEST_TEXT] for name, fault in unhealthy.items()},
        not_ready=cause_of(snapshot.not_ready) if snapshot.not_ready else None,
        slowed=[*(what[:LONGEST_TEXT] for what in slowed[:MOST_SLOWED]), *more(len(slowed) - MOST_SLOWED)],
        in_flight=snapshot.load.total,
        max_jobs=snapshot.max_jobs,
        queues=[queue_status(count, cycle, by_queue[count.queue], started[count.queue]) for count in queues],
        parked=sum(number for (_, reason), number in reasons.items() if reason in PARKED),
        parked_rows=list(islice(parked_rows(cycle.told), MOST_PARKED)),
        demand=demand_of(cycle),
    )


def queue_status(
    count: QueueCount, cycle: LastCycle, reasons: Mapping[HoldReason, int], started: int = 0
) -> QueueStatus:
    name, snapshot = count.queue, cycle.snapshot
    queue, waiting, oldest = snapshot.queue(name), sum(reasons.values()), count.oldest
    paused = queue.pause_at(cycle.at)
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
        started=started,
    )


def queue_hold(name: str, cycle: LastCycle) -> QueueHold | None:
    hold = rest_hold(name, cycle.snapshot)
    if hold is None:
        return None
    return QueueHold(hold.reason, cause_of(hold).message[:LONGEST_TEXT], cycle.since.get((name, hold.reason)))


def more(number: int) -> list[str]:
    return [f"and {number} more"] if number > 0 else []


def parked_rows(told: Mapping[int, RowReason]) -> Iterator[ParkedRow]:
    """The parked rows among the judged rows, in turns of submitters."""
    for id_, one in parked_in_turns(told):
        cause = cause_of(one.hold)
        yield ParkedRow(
            task=id_, queue=one.queue, attempt=one.attempt, reason=cause.reason, message=cause.message, since=one.since
        )


def what_slows(cycle: LastCycle) -> Iterator[str]:
    """Pauses and limits that concern more than one row."""
    snapshot = cycle.snapshot
    if snapshot.is_probing:
        yield "one create at a time, until the API server accepts one"
    if snapshot.quota is not None:
        yield cause_of(snapshot.quota).message
    for one in sorted(snapshot.failing_groups, key=structs.astuple):
        whose = f"template {one.template}, queue {one.queue}, submitter {one.submitted_by}"
        yield f"one launch at a time of image {one.image} ({whose}): no Pod starts"
