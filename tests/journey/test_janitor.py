"""The janitor ends, returns, cancels and deletes the rows that need it, and leaves all other rows alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.controlplane.player import Player
from tests.controlplane.waiting import wait_for
from tests.rig.admission import denied
from tests.rig.dispatching import Dispatcher, Place, QuickDispatcher
from tests.rig.janitoring import QuickJanitor, becomes, both, delete_jobs, falls_silent, is_over, requests, take_name
from tests.rig.rows import insert_unjudged
from tests.rig.steps import has_jobs, insert, jobs_path, looks_again, reaches, shows

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
    steer = {"run-seconds": "1", "exit-code": "3"}
    place.template("final", steer=steer, report="exit-code", final_codes="2-4")
    async with both(place, PARK_SECONDS=3600) as (janitor, _):
        good, bad = [await place.database.insert_task(template=name, max_failures=1) for name in ("good", "bad")]
        final = await place.database.insert_task(template="final", max_failures=5)
        await becomes(place, good, "succeeded", janitor)
        await becomes(place, bad, "failed", janitor)
        assert (await place.database.task(good))["error"] is None
        assert (await place.database.task(bad))["error"].startswith("ContainerFailed: ")
        assert await janitor.moved("succeeded") == 1
        assert await janitor.moved("retried") == 1
        await becomes(place, final, "failed", janitor)
        row = await place.database.task(final)
        assert (row["attempt"], row["error"].partition(";")[0]) == (1, "ContainerFailed: report is exit-code")


NOW_DUE = "UPDATE dispatch_private.tasks SET run_at = NULL WHERE id = $1"


@pytest.mark.slow
@pytest.mark.fault(43)
async def test_row_with_report_exit_code_runs_again_while_failures_are_left(place: Place) -> None:
    place.template("bad", steer={"run-seconds": "0.2", "exit-code": "3"}, report="exit-code")
    admin = await place.database.session("admin")
    async with both(place, PARK_SECONDS=3600) as (janitor, _):
        task_id = await place.database.insert_task(template="bad", max_failures=2)

        async def waits_again() -> bool:
            return bool((await place.database.task(task_id))["attempt"] == 2)

        await wait_for(waits_again, "its second attempt waits", 40, check=janitor.check)
        row = await place.database.task(task_id)
        assert (row["status"], row["failures"], row["launch"], row["job_uid"]) == ("waiting", 1, 0, None)
        assert timedelta(0) < row["run_at"] - datetime.now(UTC) <= timedelta(seconds=10)
        await admin.execute(NOW_DUE, task_id)
        await becomes(place, task_id, "failed", janitor)
        row = await place.database.task(task_id)
        assert (row["attempt"], row["failures"]) == (2, 2)
        assert row["error"].startswith("ContainerFailed: report is exit-code; launch 1: exit code 3")
        told = await (await place.database.session("team_a")).fetch("SELECT * FROM dispatch.task_history($1)", task_id)
        assert [(one["attempt"], one["launch"], one["exit_code"]) for one in told] == [(1, 1, 3), (2, 1, 3)]


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


@pytest.mark.slow
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
    """The row has failures left, but no launches: its last one never started. The next attempt has launches again.

    The janitor begins when the dispatcher has read the good template: attempt 2 has one launch only.
    """
    settings: dict[str, object] = {"MAX_LAUNCHES": 1, "PARK_SECONDS": 3600}
    janitor = QuickJanitor(place, **settings)
    async with place.playing() as player, QuickDispatcher(place, **settings) as dispatcher:
        task_id = await place.database.insert_task(env={"PLAY": "hang"})
        await wait_for_heartbeat(player, task_id, dispatcher)
        place.template("default", steer={"start-error": "no such file", "run-seconds": "1"})
        await delete_jobs(place, task_id)
        await falls_silent(place, task_id)
        await shows(dispatcher, "dispatcher_parked_tasks", 1, 60, reason="LaunchesExhausted")
        place.template("default")
        await looks_again(dispatcher)
        async with janitor:
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
async def test_roles_that_are_gone_are_forgotten_also_if_no_row_is_deleted(place: Place) -> None:
    admin = await place.database.session("admin")
    await admin.execute("INSERT INTO dispatch_private.submitters VALUES ('gone', 4294967295)")
    async with QuickJanitor(place, RETENTION_DAYS=0) as janitor:

        async def is_forgotten() -> bool:
            return bool(
                await admin.fetchval("SELECT role IS NULL FROM dispatch_private.submitters WHERE name = 'gone'")
            )

        await wait_for(is_forgotten, "the role is forgotten", 30, check=janitor.check)


@pytest.mark.slow
async def test_rows_past_retention_are_deleted_and_others_stay(place: Place) -> None:
    ids = [await place.database.insert_task() for _ in range(4)]
    admin = await place.database.session("admin")
    for task_id, days in zip(ids, (9, 8, 6), strict=False):
        at = datetime.now(UTC) - timedelta(days=days)
        over = "UPDATE dispatch_private.tasks SET status = 'failed', finished_at = $2 WHERE id = $1"
        await admin.execute(over, task_id, at)
    async with QuickJanitor(place, RETENTION_DAYS=7, PARK_SECONDS=3600) as janitor:

        async def are_gone() -> bool:
            return [row["id"] for row in await place.rows()] == ids[2:]

        await wait_for(are_gone, "two rows are gone", 30, check=janitor.check)
        assert await janitor.moved("deleted") == 2


@pytest.mark.slow
async def test_ends_that_cannot_be_written_keep_no_old_row(place: Place) -> None:
    """A fault of one step of a round stops no later step."""
    admin = await place.database.session("admin")
    async with place.playing(), Dispatcher(place) as dispatcher:
        (failing,) = await insert(place, 1, env={"PLAY": "start-then-exit-1"})
        await reaches(place, dispatcher, failing, "processing")
        (job,) = await has_jobs(place, dispatcher, 1)

        async def is_failed() -> bool:
            told = await place.control_plane.admin("GET", jobs_path(place, job["metadata"]["name"]))
            return bool(told["status"].get("failed"))

        await wait_for(is_failed, "its Job has failed", 30, check=dispatcher.check)
    old = await place.database.insert_task()
    over = "UPDATE dispatch_private.tasks SET status = 'failed', finished_at = now() - interval '9 days' WHERE id = $1"
    await admin.execute(over, old)
    await admin.execute("REVOKE EXECUTE ON FUNCTION dispatch_private.janitor_ended(jsonb) FROM dispatch_janitor")
    async with QuickJanitor(place, RETENTION_DAYS=7) as janitor:

        async def is_gone() -> bool:
            return [row["id"] for row in await place.rows()] == [failing]

        await wait_for(is_gone, "the old row is gone", 30, check=janitor.check)


@pytest.mark.slow
async def test_dry_run_logs_what_it_would_do_and_changes_nothing(place: Place) -> None:
    place.template("gpu")
    rows = [await place.database.insert_task(template=name) for name in ("never-heard-of", "gpu")]
    dead = await place.database.insert_task(max_failures=1)
    old = await place.database.insert_task()
    admin = await place.database.session("admin")
    over = "UPDATE dispatch_private.tasks SET status = 'failed', finished_at = now() - interval '9 days' WHERE id = $1"
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
