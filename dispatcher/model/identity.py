"""The only home of names, labels and annotations.

A Job's name is a function of the row's identity, attempt and launch, never of image, version or time: two dispatchers,
and two versions of this program, must agree on it. Labels are how we find things; the identity annotation proves that
a thing is ours, because a name of 8 hex digits can be met by chance and a label can be set by anybody.
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
REPORT: Final = f"{DOMAIN}/report"
CACHE_KEY: Final = f"{DOMAIN}/cache-key"
SHAPE: Final = f"{DOMAIN}/shape"
HISTORY_NODES: Final = f"{DOMAIN}/history-nodes"
WOKEN_AT: Final = f"{DOMAIN}/woken-at"
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
"""In place of a start key, where no Job is made: the janitor may not read the secret."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"


@lru_cache(maxsize=10_000)  # asked for several times a cycle of every row with a Job
def task_identity(database_id: str, task_id: int, created_at: datetime) -> str:
    """Digest of what makes a row this row, and no other of another or a re-made database."""
    moment = created_at.astimezone(UTC).isoformat(timespec="microseconds")
    return hashlib.sha256(f"{database_id}/{task_id}/{moment}".encode()).hexdigest()


def start_key(secret: tuple[bytes, bytes], task_id: int, created_at: datetime) -> str:
    """The key that the container of a row proves itself with: HMAC-SHA-256, its first 16 bytes as a UUID. `secret`: the
    inner and outer block of the key. `dispatch.start_keys` in sql/ derives the same.
    """
    inner, outer = secret
    moment = (created_at - EPOCH) // timedelta(microseconds=1)
    message = b"start" + task_id.to_bytes(8, "big", signed=True) + moment.to_bytes(8, "big", signed=True)
    digest = hashlib.sha256(outer + hashlib.sha256(inner + message).digest()).digest()
    return str(uuid.UUID(bytes=digest[:16]))


def job_name(installation: str, task_id: int, identity: str, attempt: int, launch: int) -> str:
    """At most 57 characters, so that Pod names made from it stay legal."""
    suffix = "" if launch == 1 else f"r{launch}"
    return f"{installation}-{task_id}-{identity[:8]}-{attempt}{suffix}"


def identity_of(order: Order) -> str:
    return task_identity(order.database_id, order.task.id, order.task.created_at)


def name_of(order: Order, installation: str, launch: int | None = None) -> str:
    """Name of an order's Job, or of another launch's."""
    number = order.launch.number if launch is None else launch
    return job_name(installation, order.task.id, identity_of(order), order.task.attempt, number)


def job_selector(installation: str, task_id: int | None = None) -> str:
    """Label selector of all Jobs and Pods of an installation, or of one task."""
    ours = f"{MANAGED_BY}={MANAGER},{LABEL_INSTALLATION}={installation}"
    return ours if task_id is None else f"{ours},{LABEL_TASK_ID}={task_id}"
