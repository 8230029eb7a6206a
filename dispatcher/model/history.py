"""Rows and launches as people ask for them. Times are by the database's clock."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta, Struct

from dispatcher.model.tasks import LARGEST_ID, Status
from dispatcher.model.verdicts import HoldReason

PositiveId = Annotated[int, Meta(ge=1, le=LARGEST_ID)]
GroupKey = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
PageSize = Annotated[int, Meta(ge=1, le=500)]
Text = Annotated[str, Meta(extra_json_schema={"pattern": "^[^\\u0000]*$"})]
"""Postgres stores no NUL. The pattern is for readers of OpenAPI; the API itself refuses a NUL in words."""
WantedLabel = Annotated[str, Meta(extra_json_schema={"pattern": "^[^=\\u0000]+=[^\\u0000]*$"})]
MOST_MATCHING: Final = 10_000
"""Rows that match a filter are counted up to this number."""
MOST_FAILED: Final = 3000
"""Rows that failed lately are read up to this number."""


class LaunchFacts(Struct, frozen=True, kw_only=True):
    """One launch of a row.

    attempt, launch: its numbers.
    job: name of its Job; None: the Job is gone.
    pod, node: None: not known, or it had none.
    created_at: when its Job was created; None: the Job is gone.
    started_at: when its container called task_start; None: never.
    ended_at: None: it has not ended.
    outcome: what it reported: succeeded, failed, retry, cancelled; lost: nothing; unstarted: it never called
        task_start; None: it is under way, or nobody has written it down yet.
    exit_code: of its container.
    reason: what ended it, in words.
    error: the error that it reported, otherwise the end of its output.
    logs: the command that shows its log; None: its Pod is gone.
    cache: whether it found its cache, and why not; None: it has none, or its Job or its node is not known.
    """

    attempt: int
    launch: int
    job: str | None = None
    pod: str | None = None
    node: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    error: str | None = None
    logs: str | None = None
    cache: str | None = None


class ListedRow(Struct, frozen=True):
    """A row of a page.

    error: why it failed, or what its last run reported; the first 300 characters.
    progress, note: how much is done, from 0 to 1, and what it does, as its newest container says.
    reason, message: why it waits; None: it does not wait.
    """

    task: int
    queue: str
    status: str
    attempt: int
    priority: int
    template: str
    submitted_by: str
    created_at: datetime
    run_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    error: str | None
    batch: str | None = None
    progress: float | None = None
    note: str | None = None
    reason: HoldReason | None = None
    message: str | None = None


class RowMatches(Struct, frozen=True):
    """The newest rows that match.

    ids: those of one page.
    matching: number of all of them; more than the most that are counted: there are more.
    looked_to: the last row that was looked at; None: no row was left out.
    """

    ids: Sequence[int]
    matching: int
    looked_to: int | None = None


class RowMarks(Struct, frozen=True):
    """Batch and labels of a row, and what its container has reported: progress, note and error."""

    batch: str | None
    labels: Mapping[str, str]
    progress: float | None
    note: str | None
    error: str | None


class RowFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Which rows a list holds; None: every row.

    reason: why the row waits.
    label: NAME=VALUE, as in `tasks.labels`.
    group: key of a group of failures: of those of the batch if its queue and its submitter are given, else of those of
        the page of failures.
    after: the last row of the page before. The next one has the ids below it.
    limit: most rows of a page.
    """

    queue: Text | None = None
    status: Status | None = None
    reason: HoldReason | None = None
    submitted_by: Text | None = None
    batch: Text | None = None
    label: WantedLabel | None = None
    template: Text | None = None
    id: PositiveId | None = None
    group: GroupKey | None = None
    after: PositiveId | None = None
    limit: PageSize = 100


class WantedBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Which batch is asked for. Two submitters, or two queues, may use the same name."""

    queue: Text | None = None
    submitted_by: Text | None = None
    batch: Text | None = None


class BatchStatus(Struct, frozen=True, kw_only=True):
    """One batch.

    tasks: number of its rows.
    by_status: number of its rows by status.
    first_started_at: when the first of its present attempts started; None: none has.
    last_finished_at: when the last row ended; None: none has. The batch is over if no row waits or runs.
    is_whole: False: it has more rows, and only 100,000 of them were counted.
    """

    queue: str
    submitted_by: str
    batch: str
    tasks: int
    by_status: Mapping[str, int]
    first_started_at: datetime | None
    last_finished_at: datetime | None
    is_whole: bool


class JobSource(Struct, frozen=True):
    """What the Job of a row is made of. `image`: the row's own; None: its template's."""

    id: int
    template: str
    kind: bytes
    image: str | None


class FailedTask(JobSource, frozen=True):
    """A row that failed. `head`, `tail`: the first and the last 400 characters of its error."""

    at: datetime
    head: str | None
    tail: str | None


class QueueSettings(Struct, frozen=True):
    """The settings of a queue: a row of `dispatch.queues`, as it is or with the values that it inherits from row `*`.

    The names of the fields are public: they are the names in JSON.

    max_jobs, max_jobs_per_submitter: caps of unfinished Jobs; None: no cap.
    max_pending: Pods of one shape that may wait without a node.
    paused_until: end of the pause; None: it is not paused.
    owner_role: members see, cancel and retry all rows; None: only their submitters do.
    submit_role: who may insert rows; None: every submitter.
    max_waiting_per_submitter: None: no bound.
    note: its first 2,000 characters.
    inherited: names of the inherited settings.
    """

    weight: int
    max_jobs: int | None
    max_jobs_per_submitter: int | None
    max_pending: int | None
    paused_until: datetime | None
    owner_role: str | None
    submit_role: str | None
    max_waiting_per_submitter: int | None
    fair_submitters: bool
    note: str | None
    inherited: Sequence[str] = ()


class EndedTask(Struct, frozen=True):
    """A row that is over.

    outcome: its status.
    run_seconds: from the start of its last run to its end; None: its last attempt never started.
    node: where it ran last.
    """

    task: int
    outcome: str
    attempt: int
    submitted_by: str
    finished_at: datetime
    run_seconds: float | None
    node: str | None


class Percentiles(Struct, frozen=True):
    """Seconds that 50, 90 and 99 of a hundred values did not exceed. `count`: number of values; 0: none is known."""

    count: int
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class Start(Struct, frozen=True):
    """The start of a launch.

    is_alike: its row is of the same kind as the row that is asked about.
    overtook: its row was inserted later, and came first by its priority.
    """

    at: datetime
    is_alike: bool
    overtook: bool = False
