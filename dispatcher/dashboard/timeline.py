"""The time of a row, in parts: waits, starts and runs, one after the other. Pure.

The database does not keep why a row waited in the past. Only the reason of now is known, and since when it holds.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import zip_longest

from msgspec import Struct

from dispatcher.explain.explanation import Explanation
from dispatcher.explain.launches import LaunchFacts
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import HoldReason


class Step(StrEnum):
    """The kinds of time that a row can have.

    NOT_DUE: its `run_at` was in the future.
    WAITING: no launch of it was under way.
    STARTING: its Job existed, and its container had not called task_start.
    RUNNING: its container had called task_start.
    """

    NOT_DUE = "not due"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"


class Span(Struct, frozen=True, kw_only=True):
    """One part of a row's time.

    ended: None: it goes on.
    seconds: its length; if it goes on, its length until now.
    reason: why the row waits now; None: not known, or it does not wait.
    attempt, launch: the launch that starts or runs; None: none does.
    outcome: what the launch reported at its end; None: nothing, or it goes on.
    """

    step: Step
    began: datetime
    ended: datetime | None
    seconds: float
    reason: HoldReason | None = None
    attempt: int | None = None
    launch: int | None = None
    outcome: str | None = None


def timeline(task: Task, found: Explanation, now: datetime) -> list[Span]:
    """The row's whole time, in order. Spans that have ended and have no length are left out."""
    launches = launches_with_times(task, found)
    spans = [*past(task, launches, now), *since_the_last(task, launches, found, now)]
    return [span for span in spans if span.seconds > 0 or span.ended is None]


def launches_with_times(task: Task, found: Explanation) -> list[LaunchFacts]:
    """The launches of which a time is known. If none is remembered, the row itself tells of its last one."""
    launches = [one for one in found.launches if first_moment(one)]
    if not launches and task.started_at is not None:
        own = LaunchFacts(
            attempt=task.attempt, launch=task.launch, started_at=task.started_at, ended_at=task.finished_at
        )
        return [own]
    return launches


def first_moment(one: LaunchFacts) -> datetime | None:
    return one.created_at or one.started_at or one.ended_at


def past(task: Task, launches: Sequence[LaunchFacts], now: datetime) -> Iterator[Span]:
    """Each launch, and the wait before it."""
    moment = task.created_at
    for one, following in zip_longest(launches, launches[1:]):
        begins, ends = first_moment(one) or moment, end_of(one, following, task)
        due = task.run_at if one.attempt == task.attempt else None
        yield from waits(moment, begins, due, now)
        yield from of_launch(one, ends, now)
        moment = max(moment, begins, ends or now)


def end_of(one: LaunchFacts, following: LaunchFacts | None, task: Task) -> datetime | None:
    """The end of a launch, as far as it is known; None: it goes on."""
    known = one.ended_at or (first_moment(following) if following else task.finished_at)
    return known if known or one.attempt == task.attempt else first_moment(one)


def of_launch(one: LaunchFacts, ends: datetime | None, now: datetime) -> Iterator[Span]:
    if one.created_at:
        yield a_span(Step.STARTING, (one.created_at, one.started_at or ends), now, one)
    if one.started_at:
        yield a_span(Step.RUNNING, (one.started_at, ends), now, one)


def since_the_last(
    task: Task, launches: Sequence[LaunchFacts], found: Explanation, now: datetime
) -> Iterator[Span]:  # fmt: skip
    """The wait after the last launch, if that has ended."""
    last = launches[-1] if launches else None
    ends = end_of(last, None, task) if last else task.created_at
    if ends is None:
        return
    due = task.run_at if last is None or last.attempt != task.attempt else None
    *before, (step, began, _) = moments(ends, task.finished_at, due, now)
    yield from (a_span(one, (start, end), now) for one, start, end in before)
    reason, since = (found.reason, found.since) if task.finished_at is None else (None, None)
    if since and began < since < now and step is Step.WAITING:
        yield a_span(step, (began, since), now)
        began = since
    yield a_span(step, (began, task.finished_at), now, reason=reason)


Moments = tuple[Step, datetime, datetime | None]


def waits(began: datetime, ended: datetime, due: datetime | None, now: datetime) -> Iterator[Span]:
    yield from (a_span(step, (start, end), now) for step, start, end in moments(began, ended, due, now))


def moments(began: datetime, ended: datetime | None, due: datetime | None, now: datetime) -> list[Moments]:
    """A wait, as one part or two. `due`: its `run_at`."""
    if due is None or due <= began:
        return [(Step.WAITING, began, ended)]
    if due >= (ended or now):
        return [(Step.NOT_DUE, began, ended)]
    return [(Step.NOT_DUE, began, due), (Step.WAITING, due, ended)]


def a_span(
    step: Step, moments: tuple[datetime, datetime | None], now: datetime,
    one: LaunchFacts | None = None, reason: HoldReason | None = None,
) -> Span:  # fmt: skip
    began, ended = moments
    seconds = max(0.0, ((ended or now) - began).total_seconds())
    if one is None:
        return Span(step=step, began=began, ended=ended, seconds=seconds, reason=reason)
    has_ended = ended is not None and not (step is Step.STARTING and one.started_at)
    outcome = one.outcome if has_ended else None
    return Span(
        step=step, began=began, ended=ended, seconds=seconds, attempt=one.attempt, launch=one.launch, outcome=outcome
    )
