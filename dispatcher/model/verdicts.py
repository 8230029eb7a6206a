"""Verdicts about a row: admit it, or hold it for a reason."""

from enum import StrEnum

from msgspec import Struct


class HoldReason(StrEnum):
    """Why a row is not launched now: stable codes, in the order of the gates (docs/protocol.md, section 6)."""

    # from the row alone
    UNKNOWN_TEMPLATE = "UnknownTemplate"
    INVALID_TEMPLATE = "InvalidTemplate"
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
    NEVER_FITS = "NeverFits"
    SUBMITTER_CAP = "SubmitterCap"
    QUEUE_CAP = "QueueCap"
    JOB_CAP = "JobCap"
    QUOTA_EXCEEDED = "QuotaExceeded"
    PENDING_PODS = "PendingPods"
    NO_ROOM_NOW = "NoRoomNow"
    RATE_LIMITED = "RateLimited"
    NEXT_CYCLE = "NextCycle"
    IN_LINE = "InLine"


class Stage(StrEnum):
    """How far a launch is: the beginning of each detail of `Launched`."""

    ORDERED = "its Job is being created"
    ASKED = "its create is under way"
    CREATED = "Created"
    UNSEEN = "its Job is there; the watch does not show it yet"
    STARTING = "Starting"
    SUSPENDED = "Suspended"
    POD_REFUSED = "PodRefused"
    QUOTA_EXCEEDED = "QuotaExceeded"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL = "ImagePull"
    RUNNING = "Running"
    EXITED = "the container ended with 0; its report may be on the way"
    ENDING = "Ending"


class NotReady(StrEnum):
    """Why nothing is launched: the beginning of each detail of `DispatcherNotReady`."""

    STALE_CACHE = "StaleCache"
    NO_LEADER = "NoLeader"
    API_THROTTLED = "ApiThrottled"
    FORBIDDEN = "Forbidden"
    UNAUTHORIZED = "Unauthorized"
    NAMESPACE_MISSING = "NamespaceMissing"
    NAMESPACE_TERMINATING = "NamespaceTerminating"


PARKED = frozenset({
    HoldReason.UNKNOWN_TEMPLATE, HoldReason.INVALID_TEMPLATE, HoldReason.POLICY_DENIED, HoldReason.NAME_COLLISION,
    HoldReason.POISON, HoldReason.EXITED_WITHOUT_REPORT, HoldReason.LAUNCHES_EXHAUSTED, HoldReason.FAILURES_EXHAUSTED,
})  # fmt: skip
"""Held until a person, the row or the template changes; the janitor ends such rows."""


class Hold(Struct, frozen=True):
    """The row is not launched now; `reason` and `detail` say why."""

    reason: HoldReason
    detail: str = ""


class Admit(Struct, frozen=True):
    """The row may be launched now."""


Verdict = Admit | Hold
