"""The janitor ends, returns, cancels and deletes the rows that need it, and leaves all other rows alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.admission import denied
from tests.controlplane.player import Player
from tests.controlplane.waiting import wait_for
from tests.dispatching import Dispatcher, Place
from tests.janitoring import (
    QuickJanitor,
    becomes,
    both,
    delete_jobs,
    falls_silent,
    is_over,
    requests,
    take_name,
)
from tests.rows import insert_unjudged
from tests.steps import shows

REASONS: dict[str, dict[str, Any]] = {
    "UnknownTemplate": {"template": "never-heard-of"},
    "PolicyDenied": {"spec": {"cpu": "1"}},
    "ExitedWithoutReport": {"env": {"PLAY": "exit-0-without-start"}},
    "LaunchesExhausted": {"env": {"PLAY": "exit-1-without-start"}},
}


async def wait_for_heartbeat(player: Player, task_id: int, dispatcher: Dispatcher) -> None:
    """Waits until the container of the row has started and sent its heartbeat. It makes no further call."""

    def has_spoken() -> bool:
        return any(run.calls.heartbeats for run in player.runs_of(task_id))

    await wait_for(has_spoken, f"task {task_id} runs", 40, check=dispatcher.check)


@pytest.mark.slow
@pytest.mark.fault(43)
async def test_row_with_report_exit_code_ends_by_its_exit_code(place: Place) -> None:
    place.template("good", steer={"run-seconds": "1"}, report="exit-code")
    place.template("bad", steer={"run-seconds": "1", "exit-code": "3"}, report="exit-code")
    async with both(place, PARK_SECONDS=3600) as (janitor, _):
        good, bad = [await place.database.insert_task(template=name) for name in ("good", "bad")]
        await becomes(place, good, "succeeded", janitor)
        await becomes(place, bad, "failed", janitor)
        assert (await place.database.task(good))["error"] is None
        assert (await place.database.task(bad))["error"].startswith("ExitedWithoutReport: ")
        assert await janitor.moved("succeeded") == 1
        assert await janitor.moved("failed") == 1


@pytest.mark.slow
@pytest.mark.fault(43)
async def test_parked_row_fails_with_its_reason_after_park_seconds(place: Place) -> None:
    async with place.playing() as player, both(place, MAX_LAUNCHES=1) as (janitor, _):
        rows = {reason: await insert_unjudged(place.database, **columns) for reason, columns in REASONS.items()}
        for reason, task_id in rows.items():
            await becomes(place, task_id, "failed", janitor, 90)
            assert (await place.database.task(task_id))["error"].startswith(f"{reason}: ")
        assert len(player.runs_of(rows["ExitedWithoutReport"])) == 1
        assert await janitor.moved("failed") == len(rows)


@pytest.mark.slow
async def test_parked_row_is_left_alone_before_park_seconds(place: Place) -> None:
    async with place.playing(), both(place, PARK_SECONDS=3600) as (janitor, dispatcher):
        rows = [await insert_unjudged(place.database, **columns) for columns in REASONS.values()]
        for reason in REASONS.keys() - {"LaunchesExhausted"}:
            await shows(dispatcher, "dispatcher_parked_tasks", 1, 40, reason=reason)
        await janitor.another_round()
        assert [row["id"] for row in await place.rows("status = 'waiting'")] == rows


# Jobs that the API server refuses


@pytest.mark.fault(17, 18)
async def test_row_with_a_refused_job_fails_with_the_api_servers_message(place: Place) -> None:
    place.template("gpu")
    default = (place.templates / "default.yaml").read_text()
    (place.templates / "odd.yaml").write_text(default.replace("image:", "imagePullPolicy: Sometimes\n          image:"))
    async with denied(place, "gpu"), both(place) as (janitor, _):
        gpu = await place.database.insert_task(template="gpu")
        good = await place.database.insert_task()
        bad = await place.database.insert_task(template="odd")
        await becomes(place, gpu, "failed", janitor)
        error = (await place.database.task(gpu))["error"]
        assert error.startswith("Poison: ")
        assert "no gpus" in error
        await becomes(place, bad, "failed", janitor)
        assert (await place.database.task(bad))["error"].startswith("Poison: 422 ")
        assert await is_over(place, good, "waiting")


@pytest.mark.slow
@pytest.mark.fault(7, 51)
async def test_row_whose_job_name_is_taken_fails(place: Place) -> None:
    task_id = await place.database.insert_task()
    name = await take_name(place, task_id)
    async with both(place) as (janitor, _):
        await becomes(place, task_id, "failed", janitor)
    error = (await place.database.task(task_id))["error"]
    assert error.startswith("NameCollision: ")
    assert name in error
    assert [job["metadata"]["name"] for job in await place.jobs()] == [name]  # type: ignore[index]  # JSON


# Runs whose container is gone


@pytest.mark.slow
@pytest.mark.fault(49)
async def test_dead_run_without_launches_left_is_returned_and_runs_again(place: Place) -> None:
    """The row has failures left, but no launches: its last one never started. The next attempt has launches again."""
    async with place.playing() as player, both(place, MAX_LAUNCHES=1, PARK_SECONDS=3600) as (janitor, dispatcher):
        task_id = await place.database.insert_task(env={"PLAY": "hang"})
        await wait_for_heartbeat(player, task_id, dispatcher)
        place.template("default", steer={"start-error": "no such file", "run-seconds": "1"})
        await delete_jobs(place, task_id)
        await falls_silent(place, task_id)
        await shows(dispatcher, "dispatcher_parked_tasks", 1, 60, reason="LaunchesExhausted")
        place.template("default")
        await wait_for(lambda: player.runs_of(task_id)[1:], "attempt 2 runs", 90, check=janitor.check)
        assert player.runs_of(task_id)[1].attempt == 2
        now = await place.database.task(task_id)
        assert (now["failures"], now["error"].split(":")[0]) == (1, "LaunchesExhausted")
        first, unstarted, second = await place.database.launches(task_id)
        assert (unstarted["outcome"], unstarted["reason"]) == ("unstarted", "StartError: no such file")
        assert (first["outcome"], second["attempt"]) == ("lost", 2)
        assert await janitor.moved("returned") == 1


@pytest.mark.slow
async def test_dead_run_without_failures_left_fails_and_a_silent_live_run_stays(place: Place) -> None:
    async with place.playing() as player, both(place) as (janitor, dispatcher):
        once = await place.database.insert_task(env={"PLAY": "hang"}, max_failures=1)
        healthy = await place.database.insert_task(env={"PLAY": "hang"})
        for task_id in (once, healthy):
            await wait_for_heartbeat(player, task_id, dispatcher)
            await falls_silent(place, task_id)
        before = await place.database.task(healthy)
        await delete_jobs(place, once)
        await becomes(place, once, "failed", janitor)
        assert (await place.database.task(once))["error"].startswith("FailuresExhausted: ")
        await janitor.another_round()
        assert await place.database.task(healthy) == before


@pytest.mark.slow
async def test_cancel_of_a_run_with_a_dead_container_ends_its_row(place: Place) -> None:
    async with place.playing() as player, both(place, PARK_SECONDS=3600) as (janitor, dispatcher):
        dead, alive = [await place.database.insert_task(env={"PLAY": "hang"}) for _ in range(2)]
        team = await place.database.connect("team_a")
        for task_id in (dead, alive):
            await wait_for_heartbeat(player, task_id, dispatcher)
            assert await team.fetchval("SELECT dispatch.task_cancel($1)", task_id) == "processing"
        await delete_jobs(place, dead)
        await becomes(place, dead, "cancelled", janitor, 40)
        assert await is_over(place, alive, "processing")
        assert await janitor.moved("cancelled") == 1


# Retention and dry run


@pytest.mark.slow
async def test_rows_past_retention_are_deleted_and_others_stay(place: Place) -> None:
    ids = [await place.database.insert_task() for _ in range(4)]
    admin = await place.database.session("admin")
    for task_id, days in zip(ids, (9, 8, 6), strict=False):
        at = datetime.now(UTC) - timedelta(days=days)
        over = "UPDATE dispatch.tasks SET status = 'failed', finished_at = $2 WHERE id = $1"
        await admin.execute(over, task_id, at)
    async with QuickJanitor(place, RETENTION_DAYS=7, PARK_SECONDS=3600) as janitor:

        async def are_gone() -> bool:
            return [row["id"] for row in await place.rows()] == ids[2:]

        await wait_for(are_gone, "two rows are gone", 30, check=janitor.check)
        assert await janitor.moved("deleted") == 2


@pytest.mark.slow
async def test_dry_run_logs_what_it_would_do_and_changes_nothing(place: Place) -> None:
    place.template("gpu")
    rows = [await place.database.insert_task(template=name) for name in ("never-heard-of", "gpu")]
    dead = await place.database.insert_task(max_failures=1)
    old = await place.database.insert_task()
    admin = await place.database.session("admin")
    over = "UPDATE dispatch.tasks SET status = 'failed', finished_at = now() - interval '9 days' WHERE id = $1"
    await admin.execute(over, old)
    held = "SELECT dispatch.task_start($1, $2, 1, 1, 'uid')"
    await admin.execute(held, dead, await place.database.start_key(dead))
    await falls_silent(place, dead)
    before = await place.rows()
    async with denied(place, "gpu"):
        janitor = QuickJanitor(place, RETENTION_DAYS=7)
        await wait_for(lambda: is_due(place, rows), "a second has passed", 10)
        assert await janitor.dry_run() == 0, janitor.log
    assert await place.rows() == before
    said = {line["task"]: (line["act"], line["status"], line["error"].split(":")[0]) for line in janitor.said("closed")}
    assert said == {
        rows[0]: ("failed", "dry run", "UnknownTemplate"),
        rows[1]: ("failed", "dry run", "Poison"),
        dead: ("returned", "dry run", "FailuresExhausted"),
    }
    assert [line["rows"] for line in janitor.said("would delete")] == [1]
    posts = requests(place, "create", "jobs")
    assert posts
    assert all("dryRun=All" in event.uri for event in posts)
    assert await place.jobs() == []


async def is_due(place: Place, ids: list[int]) -> bool:
    admin = await place.database.session("admin")
    late = "SELECT count(*) FROM dispatch.tasks WHERE id = ANY ($1) AND created_at < now() - interval '2 s'"
    return bool(await admin.fetchval(late, ids) == len(ids))
