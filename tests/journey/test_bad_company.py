"""A Job that cannot be deleted, a malformed row: all other rows go on."""

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import Database
from tests.rig.steps import has_jobs, insert, jobs_path


@pytest.mark.slow
async def test_jobs_that_are_slow_to_delete_stop_no_launch(place: Place) -> None:
    async with Dispatcher(place, KUBE_WRITES_PER_SECOND=20) as dispatcher:
        await insert(place, 5)
        jobs = await has_jobs(place, dispatcher, 5)
        await keep(place, jobs, ["example.com/stay"])
        admin = await place.database.session("admin")
        over = datetime.now(UTC) - timedelta(seconds=61)
        await admin.execute("UPDATE dispatch_private.tasks SET status = 'cancelled', finished_at = $1", over)

        async def are_deleted() -> bool:
            return all("deletionTimestamp" in str(job["metadata"]) for job in await place.jobs())

        await wait_for(are_deleted, "the Jobs are being deleted", 20, check=dispatcher.check)
        await insert(place, 60)
        await has_jobs(place, dispatcher, 65)
        await keep(place, jobs, None)


async def keep(place: Place, jobs: list[Json], finalizers: list[str] | None) -> None:
    for job in jobs:
        path = jobs_path(place, job["metadata"]["name"])
        await place.control_plane.admin("PATCH", path, {"metadata": {"finalizers": finalizers}})


@pytest.mark.parametrize("moment", ["20000-01-01", "0044-03-15 BC", "infinity"])
async def test_run_at_beyond_the_range_of_clients_is_refused_at_insert(database: Database, moment: str) -> None:
    team = await database.connect("team_a")
    with pytest.raises(asyncpg.PostgresError) as refused:
        await team.execute(f"INSERT INTO dispatch.tasks (run_at) VALUES ('{moment}')")
    assert refused.value.sqlstate == "DI004"


@pytest.mark.slow
@pytest.mark.fault(9)
async def test_far_pause_and_malformed_row_stop_no_other_row(place: Place) -> None:
    operator, admin = await place.database.connect("operator"), await place.database.session("admin")
    await operator.execute("INSERT INTO dispatch.queues (name, paused_until) VALUES ('night', '20000-01-01')")
    odd = await place.database.insert_task(priority=1)
    await admin.execute(
        "UPDATE dispatch_private.tasks SET spec = '{\"cpu\": 2}', env = '{\"A\": 1}' WHERE id = $1", odd
    )
    async with Dispatcher(place) as dispatcher:
        await place.database.insert_task(queue="night")
        await place.database.insert_task()
        await has_jobs(place, dispatcher, 1)
        await dispatcher.ready()
