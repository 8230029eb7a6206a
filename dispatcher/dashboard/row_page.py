"""The page of one row. Pure.

The names of the fields are public: they are the names in JSON. Payload, result and values of env are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from dispatcher.dashboard.masking import masked
from dispatcher.dashboard.timeline import Span, timeline
from dispatcher.explain.explanation import Explanation
from dispatcher.model.history import RowMarks
from dispatcher.model.identity import LABEL_TASK_ID
from dispatcher.model.jobs import Manifest
from dispatcher.model.tasks import TERMINAL, Status, Task


class Command(Struct, frozen=True):
    """Something to copy. `what`: what it does; `text`: the command."""

    what: str
    text: str


class PreviewedJob(Struct, frozen=True):
    """The Job of the row's next launch, as `dispatcher render` shows it, but without values of env.

    job: the manifest; None: the template allows none.
    fault: why there is none.
    """

    job: Manifest | None
    fault: str = ""


class RowPage(Struct, frozen=True, kw_only=True):
    """One row with all that is known of it.

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
    commands: Sequence[Command]


COPIED: Final = (
    "queue", "template", "submitted_by", "priority", "attempt", "failures", "max_failures", "timeout_seconds",
    "created_at", "run_at", "started_at", "heartbeat_at", "finished_at", "cancel_requested_at",
)  # fmt: skip
"""Fields that are columns of the row."""


class Seen(Struct, frozen=True):
    """All that was read of a row, besides its state.

    now: when, by the database's clock.
    preview: its Job, with all values in it; a text: why there is none.
    """

    now: datetime
    marks: RowMarks
    explain: Explanation
    preview: Manifest | str


def row_page(task: Task, seen: Seen, max_launches: int, jobs_namespace: str) -> RowPage:
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


def commands(task: Task, found: Explanation, namespace: str) -> Iterator[Command]:
    """Commands for a person. A container may report any name of a Pod, so reported names are left out."""
    jobs = [one for one in found.launches if one.job]
    for one in jobs[-1:]:
        if one.logs:
            yield Command("the log of its container", one.logs)
        yield Command("the Job with its events", f"kubectl describe -n {namespace} job {one.job}")
    yield Command("its Jobs and Pods", f"kubectl get -n {namespace} job,pod -l {LABEL_TASK_ID}={task.id}")
    yield Command("why it waits, and what became of its launches", f"dispatcher explain {task.id}")
    yield Command("its log, or what is known without its Pod", f"dispatcher logs {task.id}")
    if task.status not in TERMINAL:
        yield Command("cancel it", call_of("task_cancel", task))
    yield Command("run it again: a container that still runs for it is fenced off", call_of("task_retry", task))


def call_of(function: str, task: Task) -> str:
    """A statement for a person with a login of their own. Ours may call no function that writes."""
    return " ".join(("SELECT", f"dispatch.{function}({task.id});"))
