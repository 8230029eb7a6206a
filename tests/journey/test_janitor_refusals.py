"""The janitor ends a row by a refusal of the API server only if the refusal lasts and is about the row itself."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.admission import denied, is_refused
from tests.rig.dispatching import Place
from tests.rig.janitoring import QuickJanitor, becomes, requests, take_name
from tests.rig.steps import plain_job


async def long_waiting(place: Place, template: str = "default") -> int:
    """The id of a row that was created an hour ago."""
    task_id = await place.database.insert_task(template=template)
    admin = await place.database.session("admin")
    at = datetime.now(UTC) - timedelta(hours=1)
    await admin.execute("UPDATE dispatch_private.tasks SET created_at = $2 WHERE id = $1", task_id, at)
    return task_id


@pytest.mark.slow
@pytest.mark.fault(18)
async def test_refusal_that_has_ended_does_not_fail_the_row(place: Place) -> None:
    """The admission policy denies for a few seconds only. Once it admits the Job again, the row is not failed."""
    place.template("gpu")
    task_id = await long_waiting(place, template="gpu")
    async with QuickJanitor(place, PARK_SECONDS=60) as janitor:
        async with denied(place, "gpu"):
            await wait_for(lambda: requests(place, "create", "jobs"), "it was tried", 60, check=janitor.check)
        tried = len(requests(place, "create", "jobs"))
        again = "it was tried again"
        await wait_for(lambda: len(requests(place, "create", "jobs")) > tried, again, 60, check=janitor.check)
        await janitor.another_round()
        row = await place.database.task(task_id)
        assert (row["status"], row["error"]) == ("waiting", None)


@pytest.mark.slow
@pytest.mark.fault(51)
async def test_foreign_job_with_our_labels_and_the_rows_name_is_a_collision(place: Place) -> None:
    """The Job is a copy of one of ours with all labels, but its identity is that of another row."""
    task_id = await long_waiting(place)
    ours = {"app.kubernetes.io/managed-by": "dispatcher", "dispatcher.internal/installation": "dispatcher"}
    numbers = {"task-id": task_id, "attempt": 1, "launch": 1}
    labels = ours | {f"dispatcher.internal/{name}": str(number) for name, number in numbers.items()}
    notes = {"dispatcher.internal/identity": "0" * 64, "dispatcher.internal/database-id": "elsewhere"}
    await take_name(place, task_id, labels=labels, notes=notes)
    async with QuickJanitor(place) as janitor:
        await becomes(place, task_id, "failed", janitor)
    assert (await place.database.task(task_id))["error"].startswith("NameCollision: ")


@pytest.mark.slow
@pytest.mark.fault(15)
async def test_full_quota_fails_no_row(place: Place) -> None:
    quotas = f"/api/v1/namespaces/{place.namespace}/resourcequotas"
    quota = {"metadata": {"name": "full"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    await place.control_plane.admin("POST", quotas, quota)
    full = plain_job("probe")
    await wait_for(lambda: is_refused(place, full, "exceeded quota"), "the quota is in force", 30)
    task_id = await long_waiting(place)
    async with QuickJanitor(place) as janitor:
        await wait_for(lambda: requests(place, "create", "jobs"), "it was tried", 60, check=janitor.check)
        await janitor.another_round()
        assert (await place.database.task(task_id))["status"] == "waiting"
    refused = requests(place, "create", "jobs")
    assert {event.code for event in refused} == {403}


@pytest.mark.slow
async def test_janitor_with_wrong_templates_fails_no_row_at_once(place: Place) -> None:
    """A refusal counts only after a sixth of PARK_SECONDS."""
    task_id = await long_waiting(place, template="gpu")
    async with QuickJanitor(place, PARK_SECONDS=3600) as janitor:
        for _ in range(2):
            await janitor.another_round()
        assert (await place.database.task(task_id))["status"] == "waiting"
        assert not requests(place, "create", "jobs")


@pytest.mark.slow
async def test_unreadable_templates_fail_no_row(place: Place) -> None:
    task_id = await long_waiting(place, template="gpu")
    async with QuickJanitor(place, TEMPLATES_DIR=place.folder / "absent") as janitor:
        await janitor.unready("templates: ")
        await janitor.another_round()
        assert (await place.database.task(task_id))["status"] == "waiting"
