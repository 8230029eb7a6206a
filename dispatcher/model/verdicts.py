"""Verdicts about a row: admit it, or hold it for a reason."""

import traceback
from enum import StrEnum
from pathlib import Path
from typing import Final

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
    DISRUPTED_TOO_OFTEN = "DisruptedTooOften"
    FAILURES_EXHAUSTED = "FailuresExhausted"
    FINISHING = "Finishing"
    BACKOFF = "Backoff"
    JOB_CHANGED = "JobChanged"
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
    # from the database alone: the dispatcher has not looked since
    UNJUDGED = "Unjudged"


class Stage(StrEnum):
    """How far a launch is: the beginning of each detail of `Launched`."""

    ORDERED = "its Job is being created"
    ASKED = "its create is under way"
    CREATED = "Created"
    UNSEEN = "its Job is there; the watch does not show it yet"
    STARTING = "Starting"
    SUSPENDED = "Suspended"
    POD_REFUSED = "PodRefused"
    POD_OUTAGE = "PodOutage"
    QUOTA_EXCEEDED = "QuotaExceeded"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL = "ImagePull"
    SIDECAR_CRASHES = "SidecarCrashes"
    SIDECAR_STAYS = "SidecarStays"
    RUNNING = "Running"
    EXITED = "the container ended with 0; its report may be on the way"
    EXIT_CODE = "its container has ended; the janitor brings its exit code"
    ENDING = "Ending"


class NotReady(StrEnum):
    """Why nothing is launched: the beginning of each detail of `DispatcherNotReady`."""

    STALE_CACHE = "StaleCache"
    NO_LEADER = "NoLeader"
    TASKS_REFUSED = "TasksRefused"
    API_THROTTLED = "ApiThrottled"
    FORBIDDEN = "Forbidden"
    UNAUTHORIZED = "Unauthorized"
    NAMESPACE_MISSING = "NamespaceMissing"
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    OWN_FAULT = "OwnFault"


MUCH_TEXT: Final = "its Job has much text"
"""Beginning of the detail if the Job of a row waits for its turn, because etcd keeps each version of it."""
BY_POLICY: Final = "a policy of the cluster refuses it"
"""Beginning of the detail if an admission policy or a webhook refuses the Job of a row."""
OVER_LIMIT: Final = "the run limit passed before task_start"
"""Beginning of the detail of `LaunchesExhausted` if the run limit passed before task_start."""
NO_CALL: Final = "its container ran, and ended before task_start"
"""Beginning of the detail of `LaunchesExhausted` if the program of the newest launch ended without that call."""
LATE_START: Final = "the start deadline passed"
"""Beginning of the detail if the last launch of a row did not begin, and no error tells why."""
NO_START: Final = "the database took no start"
"""Beginning of the detail if the container of the newest launch reached no database, or was refused by it."""
UNREADABLE: Final = "the folder of templates cannot be read"
"""Beginning of the detail of `UnknownTemplate` while nobody knows which templates there are."""
UNREAD_FILE: Final = "its file cannot be read now"
"""Beginning of the detail of `InvalidTemplate` if the file cannot be read now, so nothing is known of its content."""
PARKED = frozenset({
    HoldReason.UNKNOWN_TEMPLATE, HoldReason.INVALID_TEMPLATE, HoldReason.POLICY_DENIED, HoldReason.NAME_COLLISION,
    HoldReason.POISON, HoldReason.EXITED_WITHOUT_REPORT, HoldReason.LAUNCHES_EXHAUSTED,
    HoldReason.DISRUPTED_TOO_OFTEN, HoldReason.FAILURES_EXHAUSTED,
})  # fmt: skip
"""Reasons that hold a row until a person, the row or the template changes. The janitor ends such rows."""


class Hold(Struct, frozen=True):
    """The row is not launched now; `reason` and `detail` say why."""

    reason: HoldReason
    detail: str = ""


class Admit(Struct, frozen=True):
    """The row may be launched now."""


Verdict = Admit | Hold


def own_fault(bug: Exception) -> Hold:
    """The hold for a bug of ours: it holds one kind, one row or one launch, but never a cycle."""
    return Hold(HoldReason.DISPATCHER_NOT_READY, f"{NotReady.OWN_FAULT}: {named_bug(bug)}")


def named_bug(bug: Exception) -> str:
    """The type and place of a bug of ours. Its message is left out, because it may quote values."""
    frame = traceback.extract_tb(bug.__traceback__)[-1]
    return f"{type(bug).__name__} in {frame.name}, {Path(frame.filename).name}:{frame.lineno}"
