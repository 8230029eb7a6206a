"""What rows and queues wait for, in words for people who know no code. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from dispatcher.explain.reasons import ADVICE, Cause
from dispatcher.model.texts import for_terminal
from dispatcher.model.verdicts import PARKED, HoldReason
from dispatcher.programs.demo.view import DemoView, QueueLoad, Row, State, error_line, outcome

NOT_JUDGED: Final = "not judged yet"
SHORTEST_SECONDS: Final = 4.0
FEWEST_ENDS: Final = 5
STUCK: Final = ("Unschedulable", "ImagePull", "PodRefused", "Suspended")
"""What keeps the container of a Job from its start for longer than a moment."""
WAITS: Final[Mapping[HoldReason, str]] = {
    HoldReason.NOT_DUE: "until it is time",
    HoldReason.PAUSED: "because the queue is paused",
    HoldReason.FINISHING: "until the old container has ended",
    HoldReason.BACKOFF: "to be tried again",
    HoldReason.SUBMITTER_CAP: "for a free slot of the submitter",
    HoldReason.PENDING_PODS: "behind a Pod that has no node",
    HoldReason.NO_ROOM_NOW: "for room: the nodes are full",
    HoldReason.NEVER_FITS: "for a larger node",
    HoldReason.RATE_LIMITED: "for the next second",
    HoldReason.NEXT_CYCLE: "for the next look",
    HoldReason.IN_LINE: "in line",
}
"""What follows `3 wait`. The other reasons have numbers or words of their own."""


class Moment(Struct, frozen=True):
    """How many rows of each queue had ended at some second of the demo."""

    seconds: float
    ended: Mapping[str, int]


def moment_of(view: DemoView, seconds: float) -> Moment:
    ended: dict[str, int] = {}
    for row in view.rows:
        ended[row.queue] = ended.get(row.queue, 0) + row.is_ended
    return Moment(seconds, ended)


def seconds_left(history: Sequence[Moment], view: DemoView) -> dict[str, float]:
    """How long each queue takes at the pace of `history`, oldest first. A queue without a pace has no entry."""
    if len(history) < 2 or history[-1].seconds - history[0].seconds < SHORTEST_SECONDS:
        return {}
    first, last = history[0], history[-1]
    left = {}
    for queue, ended in last.ended.items():
        done = ended - first.ended.get(queue, 0)
        rest = sum(row.queue == queue and not row.is_ended and row.state is not State.NEEDS_YOU for row in view.rows)
        if done >= FEWEST_ENDS and rest:
            left[queue] = rest * (last.seconds - first.seconds) / done
    return left


def queue_in_words(load: QueueLoad, view: DemoView, left: float | None) -> str:
    """`9,896 wait for a free slot: 6 of 6 used, 2 start, about 14 min left`; empty: no row of it waits."""
    reasons = sorted(load.reasons.items(), key=lambda one: -one[1])
    told = [reason_in_words(reason, n, load, view) for reason, n in reasons if n]
    if load.unjudged:
        told.append(f"{load.unjudged:,} {NOT_JUDGED}")
    if told and left is not None:
        told.append(f"about {rounded(left)} left")
    return ", ".join(told)


def rounded(seconds: float) -> str:
    """`50 s`, `14 min`, `2 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{round(seconds / 3600)} h"


def reason_in_words(reason: HoldReason, n: int, load: QueueLoad, view: DemoView) -> str:
    wait = f"{n:,} waits" if n == 1 else f"{n:,} wait"
    if reason in PARKED - view.passing:
        return f"{n:,} {'needs' if n == 1 else 'need'} you"
    if reason is HoldReason.LAUNCHED:
        return f"{n:,} {'starts' if n == 1 else 'start'}"
    if reason is HoldReason.JOB_CAP:
        return f"{wait} for a free slot: {view.in_flight} of {view.max_jobs} used"
    if reason is HoldReason.QUEUE_CAP:
        return f"{wait} for a free slot of this queue: {load.in_flight} of {load.max_jobs} used"
    return f"{wait} {WAITS[reason]}" if reason in WAITS else f"{wait}: {ADVICE[reason].meaning}"


def row_in_words(row: Row, shows: str = "") -> str:
    """Why the row waits, what it does, or what came of it. `shows`: what it is for."""
    if row.status == "waiting":
        told = cause_in_words(row.cause) if row.cause else NOT_JUDGED
        failed = error_line(row.error) if row.state is State.AGAIN else ""
        return f"{failed}; {told}" if failed else told
    if row.status == "processing":
        return running_in_words(row) or shows
    return outcome(row) or shows


def cause_in_words(cause: Cause) -> str:
    if cause.reason is HoldReason.LAUNCHED and not any(word in cause.message for word in STUCK):
        return "its Job is made, its container starts"
    return for_terminal(cause.message)


def running_in_words(row: Row) -> str:
    again = [f"attempt {row.attempt}"] if row.attempt > 1 else []
    progress = [] if row.progress is None else [f"{row.progress:.0%}"]
    note = [for_terminal(row.note)] if row.note else []
    return ", ".join([*again, *progress, *note])
