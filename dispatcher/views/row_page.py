"""The page of one row: its Job without secret values, its time in parts, and commands. Pure.

The names of the fields are public: they are the names in JSON. Payload, result and values of env are left out.

`masked`: names stay, also the names of Secrets, ConfigMaps and their keys: they show where a value comes from.

`timeline`: waits, starts and runs, one after the other. The database does not keep why a row waited in the past. Only
the present reason is known, and since when it holds.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import zip_longest
from typing import Any, Final

from msgspec import Struct

from dispatcher.model.history import LaunchFacts, RowMarks
from dispatcher.model.jobs import Manifest
from dispatcher.model.launches import CACHE_KEY, LABEL_TASK_ID
from dispatcher.model.tasks import TERMINAL, Status, Task
from dispatcher.model.verdicts import HoldReason
from dispatcher.views.explanation import Explanation

HIDDEN: Final = "(hidden)"
WITH_VALUES: Final = frozenset({"env", "httpHeaders"})
"""Lists whose items have a name and a value."""
UNSHOWN: Final = frozenset({CACHE_KEY, "kubectl.kubernetes.io/last-applied-configuration"})
"""Annotations that are left out. That of kubectl has the whole manifest in it."""


def masked(job: Manifest) -> Manifest:
    """The Job with every value of its env, of every container, replaced. The given Job is not changed."""
    found: Manifest = walked(job)
    return found


def walked(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: HIDDEN if key in UNSHOWN else field(key, value) for key, value in part.items()}
    return [walked(one) for one in part] if isinstance(part, list | tuple) else part


def field(key: str, value: Any) -> Any:
    """One field. A label or an annotation may be called `env`, too: its value is a text, and stays."""
    is_list = key in WITH_VALUES and isinstance(value, list | tuple)
    return [without_value(one) for one in value] if is_list else walked(value)


def without_value(variable: Any) -> Any:
    if not isinstance(variable, dict):
        return HIDDEN
    return {key: HIDDEN if key == "value" else walked(value) for key, value in variable.items()}


class TimeKind(StrEnum):
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

    step: TimeKind
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
    """The launches with a known time. If none is remembered, the row itself gives its last launch."""
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
    """The known end of a launch; None: it goes on."""
    known = one.ended_at or (first_moment(following) if following else task.finished_at)
    return known if known or one.attempt == task.attempt else first_moment(one)


def of_launch(one: LaunchFacts, ends: datetime | None, now: datetime) -> Iterator[Span]:
    if one.created_at:
        yield a_span(TimeKind.STARTING, (one.created_at, one.started_at or ends), now, one)
    if one.started_at:
        yield a_span(TimeKind.RUNNING, (one.started_at, ends), now, one)


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
    if since and began < since < now and step is TimeKind.WAITING:
        yield a_span(step, (began, since), now)
        began = since
    yield a_span(step, (began, task.finished_at), now, reason=reason)


Moments = tuple[TimeKind, datetime, datetime | None]


def waits(began: datetime, ended: datetime, due: datetime | None, now: datetime) -> Iterator[Span]:
    yield from (a_span(step, (start, end), now) for step, start, end in moments(began, ended, due, now))


def moments(began: datetime, ended: datetime | None, due: datetime | None, now: datetime) -> list[Moments]:
    """A wait, as one part or two. `due`: its `run_at`."""
    if due is None or due <= began:
        return [(TimeKind.WAITING, began, ended)]
    if due >= (ended or now):
        return [(TimeKind.NOT_DUE, began, ended)]
    return [(TimeKind.NOT_DUE, began, due), (TimeKind.WAITING, due, ended)]


def a_span(
    step: TimeKind, moments: tuple[datetime, datetime | None], now: datetime,
    one: LaunchFacts | None = None, reason: HoldReason | None = None,
) -> Span:  # fmt: skip
    began, ended = moments
    seconds = max(0.0, ((ended or now) - began).total_seconds())
    if one is None:
        return Span(step=step, began=began, ended=ended, seconds=seconds, reason=reason)
    has_ended = ended is not None and not (step is TimeKind.STARTING and one.started_at)
    outcome = one.outcome if has_ended else None
    return Span(
        step=step, began=began, ended=ended, seconds=seconds, attempt=one.attempt, launch=one.launch, outcome=outcome
    )


class CopyCommand(Struct, frozen=True):
    """Something to copy. `what`: what it does; `text`: the command."""

    what: str
    text: str


class PreviewedJob(Struct, frozen=True):
    """The Job of the row's next launch, as `dispatcher render` shows it, but without values of env.

    job: the manifest; None: there is none.
    fault: why there is none.
    """

    job: Manifest | None
    fault: str = ""


class RowPage(Struct, frozen=True, kw_only=True):
    """One row with everything that is known of it.

    as_of: when the rows were read, by the database's clock.
    failures, max_failures: reported failures, and how many end the row.
    launches_used, max_launches: number of the newest launch of this attempt, and how many may end without a start.
    progress: how much is done, from 0 to 1, as its container says.
    error: what it reported, or why it ended.
    explain: why it waits, and what became of its launches.
    """

    as_of: datetime
    task: int
    queue: str
    status: Status
    template: str
    submitted_by: str
    priority: int
    batch: str | None
    labels: Mapping[str, str]
    progress: float | None
    note: str | None
    attempt: int
    failures: int
    max_failures: int
    launches_used: int
    max_launches: int
    timeout_seconds: int | None
    created_at: datetime
    run_at: datetime | None
    started_at: datetime | None
    heartbeat_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    error: str | None
    explain: Explanation
    timeline: Sequence[Span]
    preview: PreviewedJob
    commands: Sequence[CopyCommand]


COPIED: Final = (
    "queue", "template", "submitted_by", "priority", "attempt", "failures", "max_failures", "timeout_seconds",
    "created_at", "run_at", "started_at", "heartbeat_at", "finished_at", "cancel_requested_at",
)  # fmt: skip
"""Fields that are columns of the row."""


class RowReadings(Struct, frozen=True):
    """Everything that was read of a row, besides its state.

    now: when, by the database's clock.
    preview: its Job, with all values in it; a text: why there is none.
    """

    now: datetime
    marks: RowMarks
    explain: Explanation
    preview: Manifest | str


def row_page(task: Task, seen: RowReadings, max_launches: int, jobs_namespace: str) -> RowPage:
    found, marks = seen.explain, seen.marks
    numbers = [one.launch for one in found.launches if one.attempt == task.attempt]
    job = seen.preview
    return RowPage(
        **{name: getattr(task, name) for name in COPIED}, task=task.id, status=task.status, as_of=seen.now,
        launches_used=max(numbers, default=task.launch), max_launches=max_launches,
        batch=marks.batch, labels=marks.labels, progress=marks.progress, note=marks.note, error=marks.error,
        explain=found, timeline=timeline(task, found, seen.now),
        preview=PreviewedJob(None, job) if isinstance(job, str) else PreviewedJob(masked(job)),
        commands=list(commands(task, found, jobs_namespace)),
    )  # fmt: skip


def commands(task: Task, found: Explanation, namespace: str) -> Iterator[CopyCommand]:
    """Commands for a person. A container may report any name of a Pod, so reported names are left out."""
    last = next((one for one in reversed(found.launches) if one.job), None)
    if last is not None:
        if last.logs:
            yield CopyCommand("the log of its container", last.logs)
        yield CopyCommand("the Job with its events", f"kubectl describe -n {namespace} job {last.job}")
    yield CopyCommand("its Jobs and Pods", f"kubectl get -n {namespace} job,pod -l {LABEL_TASK_ID}={task.id}")
    yield CopyCommand("why it waits, and what became of its launches", f"dispatcher explain {task.id}")
    yield CopyCommand("its log, or what is known without its Pod", f"dispatcher logs {task.id}")
    if task.status not in TERMINAL:
        yield CopyCommand("cancel it", call_of("task_cancel", task))
    yield CopyCommand("run it again: a container that still runs for it is fenced off", call_of("task_retry", task))


def call_of(function: str, task: Task) -> str:
    """A statement for a person with their own login. Ours may call no function that writes."""
    return f"SELECT dispatch.{function}({task.id});"  # house: a text to copy, which we never send
