"""The nouns: tasks, Jobs, Pods, nodes as decisions see them, and what decisions say.

Adapters fill these from rows and API objects; stages read nothing else. All are frozen, so that a cycle's picture
cannot change while it is judged. Times are aware datetimes: a task's by the database's clock, a Job's by the API
server's; ages are only ever taken against the clock that set them.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from dispatcher.past import Placement

Manifest = dict[str, Any]


class Status(StrEnum):
    """`tasks.status`."""

    WAITING = "waiting"
    PROCESSING = "processing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"  # of a newer schema: nothing is done about such a row


TERMINAL = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED})


class HoldReason(StrEnum):
    """Why a row is not launched now: stable codes, in the order in which they are looked for (DESIGN 6)."""

    # from the row alone
    UNKNOWN_TEMPLATE = "UnknownTemplate"
    POLICY_DENIED = "PolicyDenied"
    NOT_DUE = "NotDue"
    PAUSED = "Paused"
    # from its Jobs
    NAME_COLLISION = "NameCollision"
    POISON = "Poison"
    EXITED_WITHOUT_REPORT = "ExitedWithoutReport"
    LAUNCHES_EXHAUSTED = "LaunchesExhausted"
    FAILURES_EXHAUSTED = "FailuresExhausted"
    FINISHING = "Finishing"
    BACKOFF = "Backoff"
    TEMPLATE_FAILING = "TemplateFailing"
    LAUNCHED = "Launched"
    NODE_LOST = "NodeLost"
    # from everything else
    DISPATCHER_NOT_READY = "DispatcherNotReady"
    SUBMITTER_CAP = "SubmitterCap"
    QUEUE_CAP = "QueueCap"
    JOB_CAP = "JobCap"
    QUOTA_EXCEEDED = "QuotaExceeded"
    PENDING_PODS = "PendingPods"
    RATE_LIMITED = "RateLimited"
    NEXT_CYCLE = "NextCycle"


PARKED = frozenset({
    HoldReason.UNKNOWN_TEMPLATE, HoldReason.POLICY_DENIED, HoldReason.NAME_COLLISION, HoldReason.POISON,
    HoldReason.EXITED_WITHOUT_REPORT, HoldReason.LAUNCHES_EXHAUSTED, HoldReason.FAILURES_EXHAUSTED,
})  # fmt: skip
"""Held until a person, the row or the template changes; the janitor ends such rows."""


class Hold(Struct, frozen=True):
    """Not now, and why."""

    reason: HoldReason
    detail: str = ""


class Admit(Struct, frozen=True):
    """Launch it now."""


Verdict = Admit | Hold


class Task(Struct, frozen=True, kw_only=True):
    """A row, without what only its Job is made from."""

    id: int
    queue: str
    priority: int
    run_at: datetime | None
    timeout_seconds: int | None
    max_failures: int
    template: str
    status: Status
    attempt: int
    launch: int
    failures: int
    job_uid: str | None
    submitted_by: str
    created_at: datetime
    started_at: datetime | None
    heartbeat_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    kind: bytes


class Candidate(Struct, frozen=True, gc=False):
    """A waiting row as the index has it: enough to drop it without reading the row."""

    id: int
    attempt: int
    priority: int
    queue: str
    kind: bytes
    submitted_by: str


class Kind(Struct, frozen=True):
    """What a template's bounds are judged by; rows of one kind get one verdict."""

    digest: bytes
    template: str
    timeout_seconds: int | None
    spec: dict[str, str]  # without command and args
    spec_names: frozenset[str]
    env_names: frozenset[str]


class Request(Struct, frozen=True):
    """What a row asks for: read only for rows that are about to be launched."""

    task_id: int
    attempt: int
    env: dict[str, str]
    spec: dict[str, Any]
    cache_key: str | None


class Queue(Struct, frozen=True):
    """A declared queue, the defaults of `*` filled in; None: no cap."""

    name: str
    weight: int = 1
    max_jobs: int | None = None
    max_jobs_per_submitter: int | None = None
    max_pending: int | None = None
    paused_until: datetime | None = None


class Offer(Struct, frozen=True):
    """What a kind of row would get: the bounds of its template allow it."""

    image: str
    shape: str
    template: str


class Lane(Struct, frozen=True):
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
    def lane(self) -> Lane:
        """Where a failure of this launch counts."""
        return Lane(self.queue, self.template, self.image)


class Pod(Struct, frozen=True, kw_only=True):
    """A Pod of this installation."""

    name: str
    uid: str
    job_uid: str
    queue: str
    shape: str
    created_at: datetime
    phase: str = "Pending"
    node_name: str = ""
    unschedulable_since: datetime | None = None
    waiting_reason: str = ""
    had_run: bool = False
    deleting: bool = False


class Node(Struct, frozen=True, kw_only=True):
    """A node; unreachable: its kubelet has not reported for so long that the cluster gave up on it."""

    name: str
    ready: bool
    unreachable: bool


class Ask(StrEnum):
    """What has to be asked live before a launch, because a view may lag (PROTOCOL 3.2)."""

    NOTHING = "nothing"
    THAT_JOB = "that-job"
    ALL_JOBS = "all-jobs"


class Launch(Struct, frozen=True):
    """The next launch of a row: its number, what its Job remembers of those before, what to ask first."""

    number: int
    unstarted: int = 0
    disrupted: int = 0
    ask: Ask = Ask.NOTHING
    is_repeat: bool = False  # the same POST was sent before, and its answer never came


class Order(Struct, frozen=True):
    """One launch of one row of one database; `start_key`: what its container proves itself with."""

    task: Task
    request: Request
    launch: Launch
    offer: Offer
    database_id: str
    placement: Placement = Placement()
    start_key: str = ""


class End(Struct, frozen=True):
    """An object to remove, with the preconditions that make a late or repeated delete harmless."""

    kind: str  # jobs | pods
    name: str
    uid: str
    cause: str
    resource_version: str | None = None
    grace_seconds: int | None = None


class Standing(Struct, frozen=True):
    """What a row and its Jobs mean together (PROTOCOL 5): launch, hold, or nothing to do; and what to remove."""

    verdict: Launch | Hold | None
    ends: tuple[End, ...] = ()


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
