"""All names, labels and annotations of our objects are defined here.

A Job's name is made from the row's identity, attempt and launch, never from image, version or time: two dispatchers,
and two versions of this program, must make the same name. We find our objects by labels. The identity annotation
proves that an object is ours, because 8 hex digits in a name may be equal by chance, and anybody can set a label.
"""

import hashlib
import uuid
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from dispatcher.model.launches import Order

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
UNPLACED: Final = f"{DOMAIN}/unplaced"
"""Marks a Job that was taken back, because its Pod got no node and nobody waits for it any more."""
UNPLACED_BEFORE: Final = f"{DOMAIN}/unplaced-before"
REPORT: Final = f"{DOMAIN}/report"
CACHE_KEY: Final = f"{DOMAIN}/cache-key"
SHAPE: Final = f"{DOMAIN}/shape"
HISTORY_NODES: Final = f"{DOMAIN}/history-nodes"
WOKEN_AT: Final = f"{DOMAIN}/woken-at"
COLD_NODES: Final = f"{DOMAIN}/cold-nodes"
"""Nodes of the history that have no cache yet. The launch was drawn to them, because the others had no room."""
REAL_RESOURCES: Final = f"{DOMAIN}/real-resources"

ROW_MAY_SET: Final = f"{DOMAIN}/row-may-set"
MAX_CPU: Final = f"{DOMAIN}/max-cpu"
MAX_MEMORY: Final = f"{DOMAIN}/max-memory"
MAX_SECONDS: Final = f"{DOMAIN}/max-seconds"
IMAGES: Final = f"{DOMAIN}/images"
MACHINES: Final = f"{DOMAIN}/machines"
OPENINGS: Final = frozenset({ROW_MAY_SET, MAX_CPU, MAX_MEMORY, MAX_SECONDS, IMAGES, MACHINES, REPORT})
"""Annotations that a template may carry; any other of our domain is a fault."""

NO_KEY: Final = "00000000-0000-0000-0000-000000000000"
"""Stands for the start key where no Job is made. The janitor may not read the secret."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"


@lru_cache(maxsize=10_000)  # each cycle needs it several times for every row with a Job
def task_identity(database_id: str, task_id: int, created_at: datetime) -> str:
    """Digest that identifies a row among all rows of all databases, also of databases that were made again."""
    moment = created_at.astimezone(UTC).isoformat(timespec="microseconds")
    return hashlib.sha256(f"{database_id}/{task_id}/{moment}".encode()).hexdigest()


def start_key(secret: tuple[bytes, bytes], task_id: int, created_at: datetime) -> str:
    """The key that proves a container's right to start its row: the first 16 bytes of an HMAC-SHA-256, as a UUID.

    `secret`: the inner and the outer block of the HMAC key. `dispatch.start_keys` in sql/ derives the same key.
    """
    inner, outer = secret
    moment = (created_at - EPOCH) // timedelta(microseconds=1)
    message = b"start" + task_id.to_bytes(8, "big", signed=True) + moment.to_bytes(8, "big", signed=True)
    digest = hashlib.sha256(outer + hashlib.sha256(inner + message).digest()).digest()
    return str(uuid.UUID(bytes=digest[:16]))


def job_name(installation: str, task_id: int, identity: str, attempt: int, launch: int) -> str:
    """Name of a Job. It has at most 57 characters, so that the names of its Pods are legal."""
    suffix = "" if launch == 1 else f"r{launch}"
    return f"{installation}-{task_id}-{identity[:8]}-{attempt}{suffix}"


def identity_of(order: Order) -> str:
    return task_identity(order.database_id, order.task.id, order.task.created_at)


def name_of(order: Order, installation: str, launch: int | None = None) -> str:
    """Name of an order's Job, or of the Job of another launch of the same attempt."""
    number = order.launch.number if launch is None else launch
    return job_name(installation, order.task.id, identity_of(order), order.task.attempt, number)


def job_selector(installation: str, task_id: int | None = None) -> str:
    """Label selector of all Jobs and Pods of an installation, or of one task."""
    ours = f"{MANAGED_BY}={MANAGER},{LABEL_INSTALLATION}={installation}"
    return ours if task_id is None else f"{ours},{LABEL_TASK_ID}={task_id}"
