"""Launches that end badly, and what follows them."""

from typing import Any

import pytest

from tests.controlplane.waiting import wait_for
from tests.dispatching import Dispatcher, Place

LET_GRACES_PASS = """
UPDATE dispatch.tasks SET cancel_requested_at = cancel_requested_at - interval '1 min',
                          finished_at = finished_at - interval '1 min'
"""
"""Both graces are 60 s by the clock of Postgres, counted from these columns."""


async def held_for(dispatcher: Dispatcher, reason: str, seconds: float = 60) -> None:
    async def is_held() -> bool:
        return await dispatcher.metric("dispatcher_waiting_tasks", reason=reason) >= 1

    await wait_for(is_held, f"a row is held for {reason}", seconds, check=dispatcher.check)


async def names(place: Place) -> list[str]:
    """Suffixes of the Jobs' names: the attempt, and from launch 2 on `r` and the launch."""
    jobs: list[dict[str, Any]] = await place.jobs()
    return sorted(job["metadata"]["name"].split("-")[-1] for job in jobs)


async def reaches(place: Place, dispatcher: Dispatcher, task_id: int, status: str, seconds: float = 40) -> None:
    async def is_there() -> bool:
        return bool((await place.database.task(task_id))["status"] == status)

    await wait_for(is_there, f"task {task_id} is {status}", seconds, check=dispatcher.check)


async def test_unstarted_launch_is_followed_by_another_up_to_max_launches(place: Place) -> None:
    async with place.playing(), Dispatcher(place, MAX_LAUNCHES=2) as dispatcher:
        await place.database.insert_task(env={"PLAY": "exit-1-without-start"})
        await held_for(dispatcher, "Backoff")
        await held_for(dispatcher, "LaunchesExhausted")
        assert await names(place) == ["1", "1r2"]
        second = next(job for job in await place.jobs() if str(job["metadata"]).count("-1r2'"))
        annotations: dict[str, str] = second["metadata"]["annotations"]  # type: ignore[index]  # JSON
        assert annotations["dispatcher.internal/unstarted"] == "1"
        assert annotations["dispatcher.internal/disrupted"] == "0"


@pytest.mark.fault(40)
async def test_failed_run_without_a_report_is_taken_over_by_the_next_launch(place: Place) -> None:
    async with place.playing() as player, Dispatcher(place) as dispatcher:
        task_id = await place.database.insert_task(env={"PLAY": "start-then-exit-1"}, max_failures=2)
        await held_for(dispatcher, "FailuresExhausted")
        started = [(run.attempt, run.launch) for run in player.runs_of(task_id) if run.started]
        assert started == [(1, 1), (1, 2)]
        assert [row["outcome"] for row in await place.database.launches(task_id)] == ["lost", None]
        operator = await place.database.connect("team_a")
        assert await operator.fetchval("SELECT dispatch.task_retry($1)", task_id) == "waiting"
        await wait_for(lambda: player.runs_of(task_id)[2:], "attempt 2 runs", 20, check=dispatcher.check)
        assert player.runs_of(task_id)[2].attempt == 2


async def test_started_task_with_max_failures_1_never_runs_again(place: Place) -> None:
    async with place.playing() as player, Dispatcher(place) as dispatcher:
        task_id = await place.database.insert_task(env={"PLAY": "start-then-exit-1"}, max_failures=1)
        await held_for(dispatcher, "FailuresExhausted")
        assert len(player.runs_of(task_id)) == 1


@pytest.mark.fault(43)
@pytest.mark.museum("GC without tombstone")
async def test_exit_0_without_a_start_parks_the_row_and_never_runs_again(place: Place) -> None:
    async with place.playing() as player, Dispatcher(place, TOMBSTONE_SECONDS=0) as dispatcher:
        task_id = await place.database.insert_task(env={"PLAY": "exit-0-without-start"})
        await held_for(dispatcher, "ExitedWithoutReport")
        assert len(player.runs_of(task_id)) == 1
        assert await names(place) == ["1"]  # the finished Job stays: the row still needs its memory


@pytest.mark.fault(37)
async def test_disrupted_launch_is_replaced_and_is_no_failure(place: Place) -> None:
    place.template("evicted", steer={"evicted-after-seconds": "1"})
    async with Dispatcher(place) as dispatcher:
        await place.database.insert_task(template="evicted")
        await wait_for(lambda: two_launches(place), "the second launch", 40, check=dispatcher.check)
        second = next(job for job in await place.jobs() if "-1r2" in str(job["metadata"]["name"]))  # type: ignore[index]  # JSON
        assert second["metadata"]["annotations"]["dispatcher.internal/disrupted"] == "1"  # type: ignore[index]  # JSON


async def two_launches(place: Place) -> bool:
    return len(await place.jobs()) == 2


@pytest.mark.fault(49)
async def test_deleted_job_is_replaced_under_the_next_launch_number(place: Place) -> None:
    async with place.playing() as player, Dispatcher(place) as dispatcher:
        task_id = await place.database.insert_task(env={"PLAY": "hang"})
        await reaches(place, dispatcher, task_id, "processing")
        jobs = f"/apis/batch/v1/namespaces/{place.namespace}/jobs"
        await place.control_plane.admin("DELETE", jobs, params={"propagationPolicy": "Background"})
        await wait_for(lambda: player.runs_of(task_id)[1:], "launch 2 runs", 40, check=dispatcher.check)
        assert player.runs_of(task_id)[1].launch == 2
        assert await names(place) == ["1r2"]


@pytest.mark.fault(39)
async def test_image_pull_error_ends_the_launch_by_its_pod_and_keeps_the_job(place: Place) -> None:
    place.template("stuck", steer={"waiting": "ImagePullBackOff"})
    async with Dispatcher(place, MAX_LAUNCHES=1, START_DEADLINE_SECONDS=10) as dispatcher:
        await place.database.insert_task(template="stuck")
        await held_for(dispatcher, "LaunchesExhausted")
        assert await names(place) == ["1"]


@pytest.mark.fault(8)
async def test_jobs_of_cancelled_tasks_are_deleted_after_the_grace(place: Place) -> None:
    place.template("slow", steer={"never-starts": "true"})
    async with place.playing(), Dispatcher(place, TOMBSTONE_SECONDS=0) as dispatcher:
        waiting = await place.database.insert_task(template="slow")
        running = await place.database.insert_task(env={"PLAY": "hang"})
        await wait_for(lambda: two_launches(place), "their Jobs", 20, check=dispatcher.check)
        await reaches(place, dispatcher, running, "processing")
        team = await place.database.connect("team_a")
        assert await team.fetchval("SELECT dispatch.task_cancel($1)", waiting) == "cancelled"
        assert await team.fetchval("SELECT dispatch.task_cancel($1)", running) == "processing"
        await (await place.database.session("admin")).execute(LET_GRACES_PASS)

        async def are_gone() -> bool:
            return not await place.jobs()

        await wait_for(are_gone, "the Jobs of cancelled rows are gone", 30, check=dispatcher.check)


@pytest.mark.fault(8)
async def test_job_of_a_deleted_row_is_deleted_after_three_looks(place: Place) -> None:
    async with place.playing(), Dispatcher(place, TOMBSTONE_SECONDS=0) as dispatcher:
        task_id = await place.database.insert_task(env={"PLAY": "exit-0-without-start"})
        await held_for(dispatcher, "ExitedWithoutReport")
        admin = await place.database.session("admin")
        await admin.execute("DELETE FROM dispatch.tasks WHERE id = $1", task_id)

        async def is_gone() -> bool:
            return not await place.jobs()

        await wait_for(is_gone, "the orphan is gone", 40, check=dispatcher.check)
        deleted = place.control_plane.audit(verb="delete", resource="jobs", namespace=place.namespace)
        assert len(deleted) == 1
