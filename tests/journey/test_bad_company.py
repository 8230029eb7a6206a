"""A failing template, a Job that cannot be deleted, a malformed row: all other rows go on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from tests.controlplane.waiting import wait_for
from tests.dispatching import Dispatcher, Place

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@asynccontextmanager
async def dead_webhook(place: Place, template: str) -> AsyncIterator[None]:
    """An admission webhook without a server, for the Jobs of one template."""
    hook = {
        "name": "down.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/x"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 2,
        "rules": [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}],
        "objectSelector": {"matchLabels": {"dispatcher.internal/template": template}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": place.namespace}},
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    body = {**kind, "metadata": {"name": place.namespace}, "webhooks": [hook]}
    await place.control_plane.admin("POST", HOOKS, body)
    try:
        yield
    finally:
        await place.control_plane.admin("DELETE", f"{HOOKS}/{place.namespace}")


async def has_jobs(place: Place, dispatcher: Dispatcher, count: int, seconds: float = 20) -> None:
    async def are_there() -> bool:
        return len(await place.jobs()) >= count

    await wait_for(are_there, f"{count} Jobs", seconds, check=dispatcher.check)


@pytest.mark.fault(18)
async def test_failing_webhook_of_one_template_stops_no_other_template(place: Place) -> None:
    place.template("hooked")
    async with dead_webhook(place, "hooked"), Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        for _ in range(30):
            await place.database.insert_task(template="hooked", priority=1)

        async def has_failed() -> bool:
            return await dispatcher.metric("dispatcher_job_creates_total", outcome="unknown") >= 1

        await wait_for(has_failed, "a create that the webhook failed", 20, check=dispatcher.check)
        for _ in range(20):
            await place.database.insert_task(priority=900)
        await has_jobs(place, dispatcher, 20)


async def test_jobs_that_are_slow_to_delete_stop_no_launch(place: Place) -> None:
    async with Dispatcher(place, KUBE_WRITES_PER_SECOND=20) as dispatcher:
        for _ in range(5):
            await place.database.insert_task()
        await has_jobs(place, dispatcher, 5)
        jobs = f"/apis/batch/v1/namespaces/{place.namespace}/jobs"
        for job in await place.jobs():
            name = job["metadata"]["name"]  # type: ignore[index]  # JSON
            await place.control_plane.admin(
                "PATCH", f"{jobs}/{name}", {"metadata": {"finalizers": ["example.com/stay"]}}
            )
        admin = await place.database.session("admin")
        over = datetime.now(UTC) - timedelta(seconds=61)
        await admin.execute("UPDATE dispatch.tasks SET status = 'cancelled', finished_at = $1", over)

        async def are_deleted() -> bool:
            return all("deletionTimestamp" in str(job["metadata"]) for job in await place.jobs())

        await wait_for(are_deleted, "the Jobs are being deleted", 20, check=dispatcher.check)
        for _ in range(60):
            await place.database.insert_task()
        await has_jobs(place, dispatcher, 65)
        for job in await place.jobs():
            name = job["metadata"]["name"]  # type: ignore[index]  # JSON
            await place.control_plane.admin("PATCH", f"{jobs}/{name}", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("moment", ["20000-01-01", "0044-03-15 BC", "infinity"])
async def test_run_at_beyond_the_range_of_clients_is_refused_at_insert(place: Place, moment: str) -> None:
    team = await place.database.connect("team_a")
    with pytest.raises(asyncpg.PostgresError) as refused:
        await team.execute(f"INSERT INTO dispatch.tasks (run_at) VALUES ('{moment}')")
    assert refused.value.sqlstate == "DI004"


@pytest.mark.fault(9)
async def test_far_pause_and_malformed_row_stop_no_other_row(place: Place) -> None:
    operator, admin = await place.database.connect("operator"), await place.database.session("admin")
    await operator.execute("INSERT INTO dispatch.queues (name, paused_until) VALUES ('night', '20000-01-01')")
    odd = await place.database.insert_task(priority=1)
    await admin.execute("UPDATE dispatch.tasks SET spec = '{\"cpu\": 2}', env = '{\"A\": 1}' WHERE id = $1", odd)
    async with Dispatcher(place) as dispatcher:
        await place.database.insert_task(queue="night")
        await place.database.insert_task()
        await has_jobs(place, dispatcher, 1)
        await dispatcher.ready()
