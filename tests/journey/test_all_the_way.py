"""One row on real servers: Job, container, report, sweep."""

import pytest

from tests.controlplane.waiting import wait_for
from tests.dispatching import Dispatcher, Place


@pytest.mark.fault(55)
@pytest.mark.museum("env $ unescaped")
async def test_row_becomes_a_job_that_runs_and_is_swept(place: Place) -> None:
    async with place.playing() as player, Dispatcher(place, TOMBSTONE_SECONDS=1) as dispatcher:
        await dispatcher.ready()
        task_id = await place.database.insert_task(env={"GREETING": "hello $(HOME) $$ ü\n"})

        async def is_over() -> bool:
            return bool((await place.database.task(task_id))["status"] == "succeeded")

        await wait_for(is_over, "the row succeeded", 20, check=dispatcher.check)
        assert player.runs_of(task_id)[0].env["GREETING"] == "hello $(HOME) $$ ü\n"

        async def is_swept() -> bool:
            return not await place.jobs()

        await wait_for(is_swept, "its Job is gone", 20, check=dispatcher.check)
        assert await dispatcher.stop() == 0
