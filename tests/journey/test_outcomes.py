"""Launches that end badly, and what follows them."""

from typing import Any

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Place, QuickDispatcher
from tests.rig.janitoring import delete_jobs
from tests.rig.steps import LET_GRACES_PASS, has_jobs, held, looks_again, no_jobs, reaches, waits_for


async def names(place: Place) -> list[str]:
    """Suffixes of the Jobs' names: the attempt, and from launch 2 on `r` and the launch."""
    jobs: list[dict[str, Any]] = await place.jobs()
    return sorted(job["metadata"]["name"].split("-")[-1] for job in jobs)


@pytest.mark.slow
async def test_unstarted_launch_is_followed_by_another_up_to_max_launches(place: Place) -> None:
    async with place.playing(), QuickDispatcher(place, MAX_LAUNCHES=2) as dispatcher:
        await place.database.insert_task(env={"PLAY": "exit-1-without-start"})
        await held(dispatcher, "Backoff", seconds=60)
        await held(dispatcher, "LaunchesExhausted", seconds=60)
        assert await names(place) == ["1", "1r2"]
        second = next(job for job in await place.jobs() if str(job["metadata"]).count("-1r2'"))
        annotations: dict[str, str] = second["metadata"]["annotations"]  # type: ignore[index]  # JSON
        assert annotations["dispatcher.internal/unstarted"] == "1"
        assert annotations["dispatcher.internal/disrupted"] == "0"


@pytest.mark.promise
@pytest.mark.fault(40)
async def test_failed_run_without_a_report_is_taken_over_by_the_next_launch(place: Place) -> None:
    async with place.playing() as player, QuickDispatcher(place) as dispatcher:
        task_id = await place.database.insert_task(env={"PLAY": "start-then-exit-1"}, max_failures=2)
        await waits_for(dispatcher, task_id, "FailuresExhausted")
        started = [(run.attempt, run.launch) for run in player.runs_of(task_id) if run.started]
        assert started == [(1, 1), (1, 2)]
        assert [row["outcome"] for row in await place.database.launches(task_id)] == ["lost", None]
        operator = await place.database.connect("team_a")
        assert await operator.fetchval("SELECT dispatch.task_retry($1)", task_id) == "waiting"
        await wait_for(lambda: player.runs_of(task_id)[2:], "attempt 2 runs", 20, check=dispatcher.check)
        assert player.runs_of(task_id)[2].attempt == 2


@pytest.mark.slow
@pytest.mark.fault(4, 43)
@pytest.mark.museum("GC without tombstone")
async def test_exit_0_without_a_start_parks_the_row_and_never_runs_again(place: Place) -> None:
    async with place.playing() as player, QuickDispatcher(place, TOMBSTONE_SECONDS=0) as dispatcher:
        task_id = await place.database.insert_task(env={"PLAY": "exit-0-without-start"})
        await held(dispatcher, "ExitedWithoutReport", seconds=60)
        pods, jobs = (f"/{api}/namespaces/{place.namespace}" for api in ("api/v1", "apis/batch/v1"))

        async def is_noted() -> bool:
            (job,) = (await place.control_plane.admin("GET", f"{jobs}/jobs"))["items"]
            return bool(job["metadata"]["annotations"].get("dispatcher.internal/ended-by") == "itself")

        async def is_gone() -> bool:
            return not (await place.control_plane.admin("GET", f"{pods}/pods"))["items"]

        await wait_for(is_noted, "the Job tells of the exit", 20, check=dispatcher.check)
        await place.control_plane.admin("DELETE", f"{pods}/pods")  # as whoever removes an empty node
        await wait_for(is_gone, "its Pod is gone", 30, check=dispatcher.check)
        await looks_again(dispatcher)
        await held(dispatcher, "ExitedWithoutReport")
        assert len(player.runs_of(task_id)) == 1
        assert await names(place) == ["1"]  # the finished Job stays: the row still needs its memory


@pytest.mark.slow
@pytest.mark.fault(49)
async def test_deleted_job_is_replaced_under_the_next_launch_number(place: Place) -> None:
    async with place.playing() as player, QuickDispatcher(place) as dispatcher:
        task_id = await place.database.insert_task(env={"PLAY": "hang"})
        await reaches(place, dispatcher, task_id, "processing", 40)
        await delete_jobs(place, task_id)
        await wait_for(lambda: player.runs_of(task_id)[1:], "launch 2 runs", 40, check=dispatcher.check)
        assert player.runs_of(task_id)[1].launch == 2
        assert await names(place) == ["1r2"]


@pytest.mark.slow
@pytest.mark.fault(8)
async def test_jobs_of_cancelled_tasks_are_deleted_after_the_grace(place: Place) -> None:
    place.template("slow", steer={"never-starts": "true"})
    async with place.playing(), QuickDispatcher(place, TOMBSTONE_SECONDS=0) as dispatcher:
        waiting = await place.database.insert_task(template="slow")
        running = await place.database.insert_task(env={"PLAY": "hang"})
        await has_jobs(place, dispatcher, 2)
        await reaches(place, dispatcher, running, "processing", 40)
        team = await place.database.connect("team_a")
        assert await team.fetchval("SELECT dispatch.task_cancel($1)", waiting) == "cancelled"
        assert await team.fetchval("SELECT dispatch.task_cancel($1)", running) == "processing"
        await (await place.database.session("admin")).execute(LET_GRACES_PASS)
        await no_jobs(place, dispatcher, 30)


@pytest.mark.slow
@pytest.mark.fault(8)
async def test_job_of_a_deleted_row_is_deleted_after_three_looks(place: Place) -> None:
    async with place.playing(), QuickDispatcher(place, TOMBSTONE_SECONDS=0) as dispatcher:
        task_id = await place.database.insert_task(env={"PLAY": "exit-0-without-start"})
        await held(dispatcher, "ExitedWithoutReport", seconds=60)
        admin = await place.database.session("admin")
        await admin.execute("DELETE FROM dispatch_private.tasks WHERE id = $1", task_id)
        await no_jobs(place, dispatcher, 40)
        deleted = place.control_plane.audit(verb="delete", resource="jobs", namespace=place.namespace)
        assert len(deleted) == 1
