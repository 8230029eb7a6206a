"""Rows and launches as people ask for them. Times are by the database's clock."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from dispatcher.model.tasks import Status
from dispatcher.model.verdicts import HoldReason

PositiveId = Annotated[int, Meta(ge=1, le=2**63 - 1)]
PageSize = Annotated[int, Meta(ge=1, le=500)]


class RecordedLaunch(Struct, frozen=True):
    """A launch that started, or of which the janitor knows the end. The fields are columns of `task_launches`."""

    attempt: int
    launch: int
    pod_name: str | None
    node_name: str | None
    started_at: datetime | None
    ended_at: datetime | None
    outcome: str | None
    exit_code: int | None
    reason: str | None
    error: str | None


class ListedTask(Struct, frozen=True):
    """A row in a list of rows. `error`: its first 300 characters."""

    id: int
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


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """Which rows a list holds; None: every row.

    reason: of the rows that the last cycle judged one by one.
    after: the last row of the page before. The next one has the ids below it.
    limit: most rows of a page.
    """

    queue: str | None = None
    status: Status | None = None
    reason: HoldReason | None = None
    submitted_by: str | None = None
    after: PositiveId | None = None
    limit: PageSize = 100


class Start(Struct, frozen=True):
    """The start of a launch. `is_alike`: its row is of the same kind as the row that is asked about."""

    at: datetime
    is_alike: bool
