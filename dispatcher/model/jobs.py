"""Jobs of Kubernetes, as decisions see them, and what the API server answers. Times are by the API server's clock."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

Manifest = dict[str, Any]


class LaunchGroup(Struct, frozen=True):
    """Launches that fail together: the same image under the same template for the same queue."""

    queue: str
    template: str
    image: str


class Phase(StrEnum):
    """What a Job's conditions say. Counts are never asked: Pods go, conditions stay."""

    ACTIVE = "active"
    FAILING = "failing"  # FailureTarget: its Pod is not gone yet
    COMPLETE = "complete"
    FAILED = "failed"


class Job(Struct, frozen=True, kw_only=True):
    """A batch/v1 Job of this installation."""

    name: str
    uid: str
    resource_version: str
    task_id: int
    attempt: int
    launch: int
    queue: str
    template: str
    image: str
    identity: str
    database_id: str
    submitted_by: str
    created_at: datetime
    phase: Phase = Phase.ACTIVE
    reason: str = ""
    ended_at: datetime | None = None
    deleting: bool = False
    suspended: bool = False
    unstarted: int = 0
    disrupted: int = 0
    report: str = "sql"

    @property
    def is_finished(self) -> bool:
        """Over by its conditions; a Job being deleted still counts until it is gone."""
        return self.phase in {Phase.COMPLETE, Phase.FAILED}

    @property
    def was_disrupted(self) -> bool:
        """Its one podFailurePolicy rule, FailJob on DisruptionTarget, is what failed it."""
        return self.phase is Phase.FAILED and self.reason == "PodFailurePolicy"

    @property
    def group(self) -> LaunchGroup:
        """Where a failure of this launch counts."""
        return LaunchGroup(self.queue, self.template, self.image)


class End(Struct, frozen=True):
    """An object to remove, with the preconditions that make a late or repeated delete harmless."""

    kind: str  # jobs | pods
    name: str
    uid: str
    cause: str
    resource_version: str | None = None
    grace_seconds: int | None = None


class ApiAnswer(Struct, frozen=True):
    """What the API server said to one write or GET; status 0: nothing, so it may or may not have been done."""

    status: int
    reason: str = ""
    message: str = ""
    causes: tuple[str, ...] = ()
    retry_after: float = 0
    job: Job | None = None
    is_sent: bool = True  # False: it was held back, nothing was asked of anybody
    is_told: bool = True  # by the API server itself: what a proxy answers in its place is nobody's word
