"""The values between judging a row and making its Job, and all names, labels and annotations of our objects. Pure.

`job_name`: a Job's name is made from the row's identity, attempt and launch, never from image, version or time: two
dispatchers, and two versions of this program, must make the same name.

`is_same`: we find our objects by labels. The identity annotation proves that an object is ours, because 8 hex digits in
a name may be equal by chance, and anybody can set a label. If somebody has removed the annotation, the digits have to
do: the Job may run, and a name is the one thing that stays.
"""

import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct

from dispatcher.model.caches import Placement
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job, ObjectWrite
from dispatcher.model.needs import PodNeeds
from dispatcher.model.resources import Amounts
from dispatcher.model.tasks import Request, Task
from dispatcher.model.verdicts import PARKED, Hold


class Offer(Struct, frozen=True):
    """The offer of a template to a kind of row that keeps the template's bounds.

    image: image of the task's container.
    shape: digest of resources and placement constraints.
    template: name of the template.
    needs: what its Pods need of a node; None: not known.
    """

    image: str
    shape: str
    template: str
    needs: PodNeeds | None = None


PodOrigin = tuple[str, str]
"""Submitter and shape of a Pod."""


class PodKind(Struct, frozen=True, cache_hash=True):
    """What Pods of launches have in common. `shape`, `needs`: those of their offer."""

    queue: str
    submitted_by: str
    shape: str
    needs: PodNeeds | None

    @property
    def origin(self) -> PodOrigin:
        return self.submitted_by, self.shape


class InFlight(Struct, frozen=True):
    """How many unfinished Jobs and unseen creates there are of each kind.

    every: all of them.
    unplaced: those whose Pods have no node yet, and need one.
    ended: those whose Pods have ended, so that they hold no room.
    held: those that somebody else keeps from running: suspended, without parallelism, or with refused Pods.
    unseen: number of creates that the view does not show yet.
    podless: number of unfinished Jobs whose Pods are to come.
    overlooked: number of unfinished Jobs whose Pods no scheduler looks at.
    """

    every: Mapping[PodKind, int] = {}
    unplaced: Mapping[PodKind, int] = {}
    ended: Mapping[PodKind, int] = {}
    held: Mapping[PodKind, int] = {}
    unseen: int = 0
    podless: int = 0
    overlooked: int = 0

    @property
    def with_room(self) -> Mapping[PodKind, int]:
        """Those that hold room on nodes, or ask for it."""
        idle, held = self.ended, self.held
        return {
            pod: left for pod, count in self.every.items() if (left := count - idle.get(pod, 0) - held.get(pod, 0)) > 0
        }


class UncountedPods(Struct, frozen=True):
    """How many Jobs and Pods of each kind ResourceQuotas may not count yet.

    pods: Pods of Jobs that have none yet.
    jobs: Jobs, each with its Pod, that the view does not show yet.
    refused: Pods that a quota has refused. Each comes when the quota has room for it.
    """

    pods: Mapping[PodKind, int] = {}
    jobs: Mapping[PodKind, int] = {}
    refused: Mapping[PodKind, int] = {}


class Probe(Struct, frozen=True):
    """A Job whose Pod waits for a node. `made`: what its Pod needs, as the API server made it; None: not known."""

    job: Job
    pod: Pod
    made: PodNeeds | None = None

    @property
    def needs(self) -> PodNeeds | None:
        return self.made or self.job.needs


class PodRun(Struct, frozen=True):
    """A Pod of ours on a node.

    asks: its requests.
    ends_at: when its run limit ends it at the latest, by the API server's clock.
    """

    node: str
    asks: Amounts
    ends_at: datetime


class Ask(StrEnum):
    """The question to the API server before a launch, because a view may lag (docs/protocol.md, section 4)."""

    NOTHING = "nothing"
    THAT_JOB = "that-job"
    ALL_JOBS = "all-jobs"


class Launch(Struct, frozen=True):
    """The next launch of a row.

    number: number of the launch within its attempt.
    unstarted: earlier launches of the attempt that never started.
    disrupted: earlier launches of the attempt that were disrupted, within a day.
    ask: the question to ask before the create.
    is_repeat: the same POST was sent before, and its answer never came.
    unplaced: earlier launches of the attempt that got no node and were taken back.
    left: UIDs of Jobs of earlier attempts whose Pods have ended, kept by a foreign finalizer.
    avoid: nodes whose kubelet has rejected a Pod of this attempt.
    disrupted_at: times of the newest disruptions, in their order.
    """

    number: int
    unstarted: int = 0
    disrupted: int = 0
    ask: Ask = Ask.NOTHING
    is_repeat: bool = False
    unplaced: int = 0
    left: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    disrupted_at: tuple[datetime, ...] = ()


class LaunchSpec(Struct, frozen=True):
    """One launch of one row, with all inputs of its Job.

    task: the row.
    request: the row's own values for the container.
    launch: the launch.
    offer: the offer of the row's template.
    database_id: the database that the row is from.
    placement: the choice of nodes.
    start_key: key by which the container proves that it belongs to the row.
    """

    task: Task
    request: Request
    launch: Launch
    offer: Offer
    database_id: str
    placement: Placement = Placement()
    start_key: str = ""


class JobsVerdict(Struct, frozen=True):
    """The verdict of the table of outcomes about a row and its Jobs (docs/protocol.md, section 6).

    verdict: the next launch, or a hold; None: there is nothing to do.
    ends: objects to delete.
    seen: states that have no timestamp of their own. Cycles remember when they first saw each of them.
    """

    verdict: Launch | Hold | None
    ends: tuple[ObjectWrite, ...] = ()
    seen: tuple[str, ...] = ()

    @property
    def is_parked(self) -> bool:
        """Whether the Jobs of the row hold it until a person acts."""
        return isinstance(self.verdict, Hold) and self.verdict.reason in PARKED


DOMAIN: Final = "dispatcher.internal"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "dispatcher"

LABEL_INSTALLATION: Final = f"{DOMAIN}/installation"
LABEL_TASK_ID: Final = f"{DOMAIN}/task-id"
LABEL_QUEUE: Final = f"{DOMAIN}/queue"
LABEL_ATTEMPT: Final = f"{DOMAIN}/attempt"
LABEL_LAUNCH: Final = f"{DOMAIN}/launch"
LABEL_TEMPLATE: Final = f"{DOMAIN}/template"

IDENTITY: Final = f"{DOMAIN}/identity"
DATABASE_ID: Final = f"{DOMAIN}/database-id"
SUBMITTED_BY: Final = f"{DOMAIN}/submitted-by"
UNSTARTED: Final = f"{DOMAIN}/unstarted"
DISRUPTED: Final = f"{DOMAIN}/disrupted"
DISRUPTED_AT: Final = f"{DOMAIN}/disrupted-at"
"""Times of the newest disruptions that count, as a list."""
UNPLACED: Final = f"{DOMAIN}/unplaced"
"""Marks a Job that was taken back: its Pod got no node, and is not wanted now."""
ENDED_BY: Final = f"{DOMAIN}/ended-by"
"""On a Job: who deletes its Pod. The Job's conditions do not say so once the Pod is gone."""
UNPLACED_BEFORE: Final = f"{DOMAIN}/unplaced-before"
REPORT: Final = f"{DOMAIN}/report"
IMAGE: Final = f"{DOMAIN}/image"
"""The image as we asked for it. Policies may send it to another registry."""
CACHE_KEY: Final = f"{DOMAIN}/cache-key"
SHAPE: Final = f"{DOMAIN}/shape"
CONTAINER: Final = f"{DOMAIN}/container"
"""The name of the task's container, of a template and its Pods. Others may add containers before it."""
HISTORY_NODES: Final = f"{DOMAIN}/history-nodes"
WOKEN_AT: Final = f"{DOMAIN}/woken-at"
COLD_NODES: Final = f"{DOMAIN}/cold-nodes"
"""Preferred nodes that have no cache yet. They are preferred because no node with the cache had room."""
REAL_RESOURCES: Final = f"{DOMAIN}/real-resources"

ROW_MAY_SET: Final = f"{DOMAIN}/row-may-set"
MAX_CPU: Final = f"{DOMAIN}/max-cpu"
MAX_MEMORY: Final = f"{DOMAIN}/max-memory"
MAX_SECONDS: Final = f"{DOMAIN}/max-seconds"
TIMEOUT_SECONDS: Final = f"{DOMAIN}/timeout-seconds"
MAX_FAILURES: Final = f"{DOMAIN}/max-failures"
FINAL_CODES: Final = f"{DOMAIN}/final-codes"
"""The statuses after which no second try helps, of a template that reports by exit code, and of its Jobs."""
MAX_BYTES: Final = f"{DOMAIN}/max-bytes"
IMAGES: Final = f"{DOMAIN}/images"
MACHINES: Final = f"{DOMAIN}/machines"
OPENINGS: Final = frozenset({
    ROW_MAY_SET, MAX_CPU, MAX_MEMORY, MAX_SECONDS, TIMEOUT_SECONDS, MAX_FAILURES, MAX_BYTES, IMAGES, MACHINES, REPORT,
    FINAL_CODES, CONTAINER,
})  # fmt: skip
"""Annotations that a template may carry. Any other annotation of our domain is a fault."""

NO_KEY: Final = "00000000-0000-0000-0000-000000000000"
"""Stands for the start key where no Job is made. The janitor may not read the secret."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
IN_NAME: Final = 8
"""Characters of the identity that stand in the name of a Job."""
CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"


@lru_cache(maxsize=10_000)  # each cycle needs it several times for every row with a Job
def task_identity(database_id: str, task_id: int, created_at: datetime) -> str:
    """Digest that identifies a row among all rows of all databases, also of databases that were made again."""
    moment = created_at.astimezone(UTC).isoformat(timespec="microseconds")
    return hashlib.sha256(f"{database_id}/{task_id}/{moment}".encode()).hexdigest()


def start_key(secret: tuple[bytes, bytes], task_id: int, created_at: datetime) -> str:
    """The key that proves a container's right to start its row, as a UUID.

    Its halves are created_at of the row in microseconds, and the first 8 bytes of an HMAC-SHA-256 of id and created_at.
    So the server can check the key without a look at the row. `start_keys` in sql/ derives the same key.

    secret: the inner and the outer block of the HMAC key.
    """
    inner, outer = secret
    moment = ((created_at - EPOCH) // timedelta(microseconds=1)).to_bytes(8, "big", signed=True)
    message = b"start" + task_id.to_bytes(8, "big", signed=True) + moment
    digest = hashlib.sha256(outer + hashlib.sha256(inner + message).digest()).digest()
    return str(uuid.UUID(bytes=moment + digest[:8]))


def job_name(installation: str, task_id: int, identity: str, attempt: int, launch: int) -> str:
    """Name of a Job. It has at most 57 characters, so that the names of its Pods are legal."""
    suffix = "" if launch == 1 else f"r{launch}"
    return f"{installation}-{task_id}-{identity[:IN_NAME]}-{attempt}{suffix}"


def written_times(times: Sequence[datetime]) -> str:
    return ",".join(at.isoformat() for at in times)


def read_times(written: str) -> tuple[datetime, ...]:
    """The times in a text that `written_times` wrote. Any other text has none."""
    try:
        found = tuple(datetime.fromisoformat(part) for part in written.split(",")) if written else ()
    except ValueError:
        return ()
    return found if all(at.tzinfo is not None for at in found) else ()


def identity_of(order: LaunchSpec) -> str:
    return task_identity(order.database_id, order.task.id, order.task.created_at)


def name_of(order: LaunchSpec, installation: str, launch: int | None = None) -> str:
    """Name of an order's Job, or of the Job of another launch of the same attempt."""
    number = order.launch.number if launch is None else launch
    return job_name(installation, order.task.id, identity_of(order), order.task.attempt, number)


NAME: Final = re.compile(r"(.+)-(\d{1,19})-([0-9a-f]{8})-(\d{1,5})(?:r(\d{1,5}))?")


def numbers_in(name: str) -> tuple[str, int, int, int] | None:
    """Installation, task, attempt and launch, as `job_name` wrote them. A name never changes; labels can."""
    parts = NAME.fullmatch(name)
    return (parts[1], int(parts[2]), int(parts[4]), int(parts[5] or 1)) if parts else None


def identity_in(name: str) -> str:
    """The beginning of the identity, as `job_name` wrote it. It names the row if the annotation is gone."""
    parts = NAME.fullmatch(name)
    return parts[3] if parts else ""


WHOLE: Final = re.compile(r"[0-9a-f]{64}")
"""A whole identity. A Job with the identity of another row is not ours, whatever its name and labels say."""


def is_same(found: str, identity: str) -> bool:
    """Whether the identity found on a Job, whole or only its beginning from the name, is this one."""
    return found == identity or (len(found) == IN_NAME and identity.startswith(found))


def job_selector(installation: str, task_id: int | None = None) -> str:
    """Label selector of all Jobs and Pods of an installation, or of one task."""
    ours = f"{LABEL_INSTALLATION}={installation}"
    return ours if task_id is None else f"{ours},{LABEL_TASK_ID}={task_id}"


class CreatePauses(Struct, frozen=True):
    """Pauses of all creates that the API server's answers ask for.

    api: the hold after throttling, a lost answer or a missing right; None: no pause.
    quota: the hold after an exceeded quota; None: no pause.
    is_probing: a create failed and none has succeeded since, so that one create at a time is sent.
    under_way: number of creates whose answers are awaited.
    """

    api: Hold | None = None
    quota: Hold | None = None
    is_probing: bool = False
    under_way: int = 0

    def places(self, batch: int) -> int:
        """Number of creates that a cycle may begin, at most `batch`."""
        return max(0, 1 - self.under_way) if self.is_probing else batch
