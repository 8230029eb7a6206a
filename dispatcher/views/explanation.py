"""Explains one row by the last cycle. Pure.

The names of the fields are public: they are the names in JSON.

`Estimate`: when the row will start, as a range, by the starts of the last hour. The times between the starts of a queue
contain everything that slows it: caps, room, other queues. A range is the 25th to the 75th percentile of how long a row
at this place would have waited, had it come at any moment of the last hour.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain, pairwise
from typing import Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from dispatcher.admission.last_cycle import UNHEARD, LastCycle, candidate_of, is_running
from dispatcher.model.history import LaunchFacts, Start
from dispatcher.model.reasons import ReasonInWords, Turn, advice_of, cause_of
from dispatcher.model.tasks import TERMINAL, LinePosition, Status, Task
from dispatcher.model.verdicts import PARKED, Hold, HoldReason, Stage
from dispatcher.views.launches import CacheNow, launches_of
from dispatcher.views.nodes import NodeGroup, group_nodes, limits_by_node

LATER: Final = frozenset({HoldReason.RATE_LIMITED, HoldReason.NEXT_CYCLE})
"""Reasons of a row that a cycle has judged and will launch later. A row that no cycle has judged yet is in line."""


BY_PRIORITY: Final = frozenset({
    HoldReason.SUBMITTER_CAP, HoldReason.QUEUE_CAP, HoldReason.JOB_CAP, HoldReason.NO_ROOM_NOW, HoldReason.IN_LINE,
    HoldReason.RATE_LIMITED, HoldReason.NEXT_CYCLE,
})  # fmt: skip
"""Reasons of waits in which rows of a better priority come first. A stream of them has no end by itself."""
ENDING: Final = PARKED | {HoldReason.FINISHING, HoldReason.NODE_LOST}
"""Reasons that the row's own run gives."""
OF_ROOM: Final = frozenset({HoldReason.NO_ROOM_NOW, HoldReason.PENDING_PODS})
"""Reasons of rows that wait for room."""
OF_TIME: Final = LATER | {
    HoldReason.IN_LINE, HoldReason.SUBMITTER_CAP, HoldReason.QUEUE_CAP, HoldReason.JOB_CAP, HoldReason.QUOTA_EXCEEDED
}  # fmt: skip
"""Reasons that go by themselves as Jobs end and rows start. Their rows get an estimate."""
IN_TURN: Final = LATER | {HoldReason.IN_LINE}
"""Reasons of rows that wait for their turn alone."""
FROM_JOBS: Final = frozenset({
    HoldReason.NAME_COLLISION, HoldReason.POISON, HoldReason.EXITED_WITHOUT_REPORT, HoldReason.LAUNCHES_EXHAUSTED,
    HoldReason.DISRUPTED_TOO_OFTEN,
    HoldReason.FAILURES_EXHAUSTED, HoldReason.FINISHING, HoldReason.BACKOFF, HoldReason.LAUNCHED, HoldReason.NODE_LOST,
})  # fmt: skip
"""Reasons that come from the row's own Jobs."""


class Estimate(Struct, frozen=True):
    """A range in which a row will probably start; one in two rows starts in it.

    starts: number of starts behind it.
    """

    earliest: datetime
    latest: datetime
    starts: int


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a row waits, or what became of it.

    task, status, queue, attempt: the row, as it is now.
    reason: why it waits; None: it does not wait.
    message: the same in words, with numbers and names.
    since: since when for this reason; None: not known.
    as_of: time of the cycle that judged it, by the database's clock.
    whose_turn: who can end the wait.
    next_step: what ends it.
    position, position_of: its place among the waiting rows of its queue, from 1 on, and their number. Both stop at
    10,000. None: it does not wait.
    before: reasons of the judged rows of its queue, with their numbers.
    nodes: the nodes by what keeps its Pod from them; empty: it does not wait, or room is not judged.
    also: what would hold it next if the reason went.
    estimate: when it will probably start; None: somebody has to act, or too few rows started in the last hour.
    launches: its newest launches, oldest first.
    cache: where the cache of its key is; left out if it has no cache key.
    leads: whether the replica that answers leads. Only the leader knows which Jobs and Pods are refused, or suspended.
    """

    task: int
    status: Status
    queue: str
    attempt: int
    reason: HoldReason | None
    message: str
    since: datetime | None
    as_of: datetime
    whose_turn: Turn
    next_step: str
    position: int | None
    position_of: int | None
    before: Mapping[HoldReason, int]
    nodes: Sequence[NodeGroup] = ()
    also: Sequence[ReasonInWords] = ()
    estimate: Estimate | None = None
    launches: Sequence[LaunchFacts] = ()
    cache: CacheNow | UnsetType = UNSET
    leads: bool = True


class RowFacts(Struct, frozen=True):
    """What the database says about one row.

    line: its place in its queue.
    starts: starts of its queue in the last hour.
    launches: its newest launches.
    cache: where the cache of its key is; None: it has no cache key.
    """

    task: Task
    line: LinePosition
    starts: Sequence[Start] = ()
    launches: Sequence[LaunchFacts] = ()
    cache: CacheNow | None = None


def explain(facts: RowFacts, cycle: LastCycle, jobs_namespace: str) -> Explanation:
    task, picture = facts.task, cycle.picture
    found = explain_row(task, cycle, facts.line)
    launches = launches_of(
        facts.launches, [(job, picture.cluster.pods.get(job.uid, ())) for job in picture.jobs_of(task)], jobs_namespace
    )
    found = replace(found, launches=launches, cache=facts.cache or UNSET, leads=cycle.leads)
    if found.reason is None or task.status is not Status.WAITING:
        return found
    message = "; ".join(filter(None, (found.message, overtaken(facts.starts) if found.reason in BY_PRIORITY else "")))
    estimate = estimate_of(facts, found.reason, cycle.at)
    return replace(found, message=message, nodes=nodes_for(task, cycle), estimate=estimate)


def overtaken(starts: Sequence[Start]) -> str:
    """Says how many rows came first by their priority, although they were inserted later; empty: none did."""
    later = [start.at for start in starts if start.overtook]
    if not later:
        return ""
    return f"rows of a better priority come first: {len(later)} since {min(later):%H:%M:%S %Z}"


def nodes_for(task: Task, cycle: LastCycle) -> Sequence[NodeGroup]:
    candidate, room = candidate_of(task, cycle.picture), cycle.snapshot.room
    needs, picture = candidate.pod.needs, cycle.picture
    if room is None or needs is None:
        return ()
    jobs = chain.from_iterable(picture.jobs.values())
    limits = limits_by_node(jobs, picture.cluster, needs.priority_class, cycle.at)
    return group_nodes(needs, room, task.id, limits, candidate.pod.origin)


def estimate_of(facts: RowFacts, reason: HoldReason, now: datetime) -> Estimate | None:
    """When the row will start, if only time is needed."""
    starts = [start.at for start in facts.starts if start.is_alike or reason not in OF_ROOM]
    place = place_for(facts.line, reason)
    return None if place is None else estimate_start(place, starts, now)


def place_for(line: LinePosition, reason: HoldReason) -> int | None:
    """The place by which a start is estimated: for room, among the rows of its kind. None: more than time is needed."""
    if reason in OF_ROOM:
        return line.alike + 1
    return line.before + 1 if reason in OF_TIME else None


def explain_row(task: Task, cycle: LastCycle, line: LinePosition) -> Explanation:
    """Why the row waits. `line`: its place in its queue."""
    holds = what_holds(task, cycle)
    if holds is None:
        return without_reason(
            task, cycle, f"it has {ENDED[task.status]}" if task.status in ENDED else runs(task, cycle)
        )
    return made(task, cycle, line, holds or [in_line(task, line)])


def what_holds(task: Task, cycle: LastCycle) -> list[Hold] | None:
    """The holds of the row, its reason first. Empty: the row is in line. None: it does not wait."""
    if task.status in TERMINAL:
        return None
    holds = distinct(cycle.holds(task))
    if task.status is not Status.WAITING and (not holds or is_running(task, holds[0], cycle.at)):
        return None
    told = cycle.told.get(task.id)
    if told is not None and told.attempt == task.attempt:
        return first_of(told.hold, holds)
    if task.id in cycle.launched:
        return [JUST_LAUNCHED if cycle.leads else NOT_KNOWN_HERE, *holds]
    return [hold for hold in holds if hold.reason not in LATER]


JUST_LAUNCHED: Final = Hold(HoldReason.LAUNCHED, Stage.ORDERED)
NOT_KNOWN_HERE: Final = Hold(
    HoldReason.IN_LINE,
    "as far as this replica knows; it does not lead, and the leader alone knows whether the API server refuses its Job",
)
ENDED: Final = {Status.SUCCEEDED: "succeeded", Status.FAILED: "failed", Status.CANCELLED: "been cancelled"}


def runs(task: Task, cycle: LastCycle) -> str:
    """The message for a row that has started. Its container may have ended, and its report may be late or lost."""
    jobs, started, limit, heard = cycle.picture.jobs_of(task), task.started_at, task.timeout_seconds, task.heartbeat_at
    if jobs and all(job.is_finished for job in jobs):
        return "its container has ended; its report may be on the way"
    if started is not None and limit is not None and started < cycle.at - timedelta(seconds=limit):
        return f"it started at {started:%Y-%m-%d %H:%M:%S %Z}, and its run limit of {limit} s is over"
    if heard is not None and heard < cycle.at - UNHEARD:
        return f"its container has not been heard since {heard:%Y-%m-%d %H:%M:%S %Z}"
    return "its container runs"


def made(task: Task, cycle: LastCycle, line: LinePosition, holds: Sequence[Hold]) -> Explanation:
    """The explanation by the first of the holds. The others would hold the row next."""
    hold = holds[0]
    started = of_started(task, cycle) if task.status is Status.PROCESSING and hold.reason not in ENDING else ""
    waits = task.status is Status.WAITING and hold.reason is not HoldReason.NOT_DUE
    return Explanation(
        task=task.id,
        status=task.status,
        queue=task.queue,
        attempt=task.attempt,
        reason=hold.reason,
        message=started + cause_of(hold).message,
        since=since_of(task, hold.reason, cycle),
        as_of=cycle.at,
        whose_turn=advice_of(hold).whose_turn,
        next_step=advice_of(hold).next_step,
        position=line.before + 1 if waits else None,
        position_of=line.of if waits else None,
        before={reason: n for (queue, reason), n in sorted(cycle.held.items()) if queue == task.queue},
        also=[cause_of(one) for one in holds[1:]],
    )


def of_started(task: Task, cycle: LastCycle) -> str:
    """What became of the run of a row that waits again."""
    jobs = cycle.picture.jobs_of(task)
    if any(job.uid == task.job_uid and not job.is_finished for job in jobs):
        return f"launch {task.launch} has started, and its container does not run now: "
    return f"launch {task.launch} has started, and was lost: "


def since_of(task: Task, reason: HoldReason, cycle: LastCycle) -> datetime | None:
    """Since when this reason holds the row; None: not known.

    A reason from the row's Jobs has a time for each row. The other reasons hold many rows of a queue alike.
    """
    due = max(task.created_at, task.run_at or task.created_at)
    if reason is HoldReason.NOT_DUE:
        return task.created_at
    if reason in IN_TURN:
        return None if task.is_retried else due
    if reason in FROM_JOBS:
        told = cycle.told.get(task.id)
        return told.since if told is not None and (told.attempt, told.hold.reason) == (task.attempt, reason) else None
    began = cycle.since.get((task.queue, reason))
    return None if began is None else max(began, due)


def without_reason(task: Task, cycle: LastCycle, message: str) -> Explanation:
    return Explanation(
        task=task.id, status=task.status, queue=task.queue, attempt=task.attempt, reason=None, message=message,
        since=task.finished_at or task.started_at, as_of=cycle.at, whose_turn=Turn.NOBODY, next_step="nothing",
        position=None, position_of=None, before={}, also=(),
    )  # fmt: skip


def in_line(task: Task, line: LinePosition) -> Hold:
    """The hold of a row that could be launched, but was not judged yet."""
    count = f"at least {line.most:,}" if line.before >= line.most else f"{line.before:,}"
    rows = "1 row" if line.before == 1 else f"{count} rows"
    return Hold(HoldReason.IN_LINE, f"{rows} of queue {task.queue} come first" if line.before else "it is the next one")


def first_of(told: Hold, holds: Sequence[Hold]) -> list[Hold]:
    """The told hold, in its newest words, before the others."""
    own = next((hold for hold in holds if hold.reason is told.reason), told)
    return [own, *(hold for hold in holds if hold is not own)]


def distinct(holds: Iterable[Hold]) -> list[Hold]:
    """The first hold of each reason. Two gates can give the same reason."""
    return list({hold.reason: hold for hold in reversed(list(holds))}.values())[::-1]


FEWEST_STARTS: Final = 20
"""Starts that an estimate needs, at least."""
SAMPLES: Final = 100
"""Moments of the last hour from which a wait is measured."""
FIRST_QUARTER, LAST_QUARTER = 0.25, 0.75


def estimate_start(place: int, starts: Sequence[datetime], now: datetime) -> Estimate | None:
    """When the row at this place of a line will start; None: there were too few starts.

    place: from 1 on.
    starts: starts of rows of this line in the last hour, in any order.
    """
    return estimate_by(place, telling_starts(starts, now), now)


def telling_starts(starts: Sequence[datetime], now: datetime) -> Sequence[datetime]:
    """The starts in their order; empty: the next starts do not follow from them."""
    ordered = sorted(starts)
    return () if len(ordered) < FEWEST_STARTS or stands_still(ordered, now) else ordered


def estimate_by(place: int, ordered: Sequence[datetime], now: datetime) -> Estimate | None:
    """As `estimate_start`, with starts already checked and sorted by `telling_starts`."""
    if place < 1 or not ordered:
        return None
    waits = sorted(waits_for(min(place, len(ordered) // 2), ordered))
    scale = max(1.0, place / (len(ordered) // 2))
    shortest, longest = (waits[round(part * (len(waits) - 1))] for part in (FIRST_QUARTER, LAST_QUARTER))
    return Estimate(now + shortest * scale, now + longest * scale, len(ordered))


def stands_still(starts: Sequence[datetime], now: datetime) -> bool:
    """Whether nothing has started for longer than any pause of the last hour. Then that hour is no measure."""
    return now - starts[-1] > max(later - earlier for earlier, later in pairwise(starts)) or starts[0] == starts[-1]


def waits_for(count: int, starts: Sequence[datetime]) -> list[timedelta]:
    """How long `count` starts took, from moments at equal distances between the first and the last start."""
    first, last = starts[0], starts[-count]
    moments = (first + (last - first) * sample / SAMPLES for sample in range(SAMPLES))
    return [starts[bisect_right(starts, moment) + count - 1] - moment for moment in moments]
