"""A dispatcher that starts with hundreds of finished Jobs: launches come first, deletes follow at the write rate."""

import asyncio
import time
from datetime import UTC, datetime

import pytest

from dispatcher.model import launches as ids
from tests.controlplane.api import Json
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import Record
from tests.rig.steps import creates, insert, jobs_path, no_jobs, succeeded

MANY = 200
RATE = 20
SUCCEEDED = """
INSERT INTO dispatch_private.tasks (queue, status, launch, finished_at, kind)
SELECT 'default', 'succeeded', 1, now(), '\\x00' FROM generate_series(1, $1::int)
RETURNING id, created_at
"""


def finished_job(row: Record, database_id: str) -> Json:
    """The Job as this dispatcher would create it, but suspended, so that the Job controller makes no Pod."""
    identity = ids.task_identity(database_id, row["id"], row["created_at"])
    numbers = {ids.LABEL_TASK_ID: str(row["id"]), ids.LABEL_ATTEMPT: "1", ids.LABEL_LAUNCH: "1"}
    labels = {ids.MANAGED_BY: ids.MANAGER, ids.LABEL_INSTALLATION: "dispatcher", ids.LABEL_QUEUE: "default", **numbers}
    notes = {ids.IDENTITY: identity, ids.DATABASE_ID: database_id, ids.SUBMITTED_BY: "team_a"}
    name = ids.job_name("dispatcher", row["id"], identity, 1, 1)
    pod = {"restartPolicy": "Never", "containers": [{"name": "task", "image": "a"}]}
    meta = {"name": name, "labels": labels, "annotations": notes}
    return {"metadata": meta, "spec": {"suspend": True, "template": {"spec": pod}}}


async def create_finished_jobs(place: Place) -> None:
    """Inserts succeeded rows, and creates their finished Jobs."""
    admin = await place.database.session("admin")
    async with admin.transaction():
        await admin.execute("SET LOCAL session_replication_role = replica")
        rows = await admin.fetch(SUCCEEDED, MANY)
    database_id = str(await admin.fetchval("SELECT database_id FROM dispatch.schema_version LIMIT 1"))
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ends = [{"type": type_, "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": now}
            for type_ in ("FailureTarget", "Failed")]  # fmt: skip
    places = asyncio.Semaphore(16)

    async def make(row: Record) -> None:
        async with places:
            job = finished_job(row, database_id)
            await place.control_plane.admin("POST", jobs_path(place), job)
            path = jobs_path(place, f"{job['metadata']['name']}/status")
            await place.control_plane.admin("PATCH", path, {"status": {"startTime": now, "conditions": ends}})

    await asyncio.gather(*(make(row) for row in rows))


@pytest.mark.slow
@pytest.mark.fault(52)
async def test_many_finished_jobs_delay_no_launch_and_are_swept_at_their_rate(place: Place) -> None:
    await create_finished_jobs(place)
    settings = {"TOMBSTONE_SECONDS": 0, "KUBE_WRITES_PER_SECOND": RATE, "MAX_JOBS": 10}
    await insert(place, 5)
    began = time.monotonic()
    async with place.playing(), Dispatcher(place, **settings) as dispatcher:
        await succeeded(place, dispatcher, MANY + 5)
        await no_jobs(place, dispatcher, 60)
        spent = time.monotonic() - began
    deleted = place.control_plane.audit(verb="delete", resource="jobs", namespace=place.namespace)
    assert len({event.object_ref.name for event in deleted}) == MANY + 5
    assert len(deleted) + 5 <= 2 * RATE + RATE * spent
    last_create = max(event.received_at for event in creates(place))
    assert len([event for event in deleted if event.received_at < last_create]) < MANY / 2
