"""The janitor with outages, kills, a second janitor and two dispatchers. Each row is moved once."""

import asyncio
from typing import Any

import pytest

from tests.controlplane.waiting import one_within, wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.janitoring import QuickJanitor, becomes, requests
from tests.rig.postgres import PostgresServer, Record, standby_of
from tests.rig.rows import contradictions, insert_unjudged
from tests.rig.steps import shows

DEAD_RUNS = """
WITH made AS (
    INSERT INTO dispatch.tasks (max_failures) SELECT 1 FROM generate_series(1, $1) RETURNING id, created_at
) SELECT id, dispatch_private.start_keys(id, created_at) AS start_key FROM made
"""
MANY_RUNS = """
INSERT INTO dispatch.tasks (max_failures) SELECT 1 FROM generate_series(1, 10000);
UPDATE dispatch_private.tasks SET status = 'processing', launch = 1, job_uid = 'gone',
                          run_digest = uuid_send(gen_random_uuid()), started_at = now(),
                          heartbeat_at = now() + interval '1 hour';
"""
STARTED = "SELECT dispatch.task_start($1, $2, 1, 1, 'gone')"
SILENT = "UPDATE dispatch_private.tasks SET heartbeat_at = now() - interval '10 min' WHERE status = 'processing'"
STARTED_TWICE = """
SELECT task_id, count(*) FROM dispatch.task_launches WHERE started_at IS NOT NULL GROUP BY 1 HAVING count(*) > 1
"""


async def dead_runs(place: Place, count: int) -> None:
    """Running rows with `max_failures` 1, an old heartbeat, and a Job that is gone."""
    admin = await place.database.session("admin")
    made = await admin.fetch(DEAD_RUNS, count)
    await admin.executemany(STARTED, [(row["id"], row["start_key"]) for row in made])
    await admin.execute(SILENT)


async def statuses(place: Place) -> list[str]:
    return [str(row["status"]) for row in await place.rows()]


# Outages


@pytest.mark.slow
@pytest.mark.fault(1)
async def test_database_outage_is_named_and_the_janitor_goes_on_afterwards(
    place: Place, postgres: PostgresServer
) -> None:
    async with QuickJanitor(place) as janitor:
        await janitor.ready()
        await postgres.stop()
        try:
            await janitor.unready("the database does not answer")
            assert (await janitor.get("/healthz"))[0] == 200
            assert await QuickJanitor(place).dry_run() == 1
        finally:
            await postgres.start()
        await janitor.ready()
        await becomes(place, await insert_unjudged(place.database, template="nope"), "failed", janitor)


@pytest.mark.slow
@pytest.mark.fault(23)
async def test_api_server_outage_is_named_and_no_row_is_ended_during_it(place: Place) -> None:
    async with QuickJanitor(place) as janitor:
        await janitor.ready()
        await place.control_plane.stop_api_server()
        try:
            await janitor.unready("janitor: ")
            await dead_runs(place, 1)
            assert await statuses(place) == ["processing"]
            assert await janitor.moved("returned") == 0
        finally:
            await place.control_plane.start_api_server()
        await becomes(place, 1, "failed", janitor)
        await janitor.ready()


@pytest.mark.slow
@pytest.mark.fault(2)
async def test_standby_is_named_and_its_rows_are_not_judged(place: Place, postgres: PostgresServer) -> None:
    await dead_runs(place, 1)
    async with standby_of(postgres) as standby:
        async with QuickJanitor(place, DATABASE_URL=standby.url(place.database, "janitor")) as janitor:
            await janitor.unready("primary")
            await standby.promote()
            await janitor.ready()
            await shows(janitor, "dispatcher_janitor_rows_total", 1, 30, action="returned")
        assert await statuses(place) == ["processing"]  # on the old primary, which the janitor never asked


@pytest.mark.slow
async def test_refused_janitor_call_is_named(place: Place) -> None:
    """A refused call in the middle of a round is reported as a fault, not as a bug."""
    admin = await place.database.session("admin")
    await admin.execute("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA dispatch_private FROM dispatch_janitor")
    for name in ("are_logins_read_only", "setting_of", "task_logins", "tasks_refused"):
        await admin.execute(f"GRANT EXECUTE ON FUNCTION dispatch_private.{name} TO dispatch_janitor")
    await dead_runs(place, 3)
    async with QuickJanitor(place) as janitor:
        await janitor.unready("permission denied for function janitor_return")
        assert not janitor.said("a round ended in a bug")


@pytest.mark.slow
async def test_more_running_rows_than_a_round_reads_delay_no_dead_run(place: Place) -> None:
    admin = await place.database.session("admin")
    await admin.execute(MANY_RUNS)
    async with place.playing(), Dispatcher(place) as dispatcher:
        task_id = await place.database.insert_task(env={"PLAY": "start-then-exit-1"}, max_failures=1)

        async def has_ended() -> bool:
            return any(c["type"] == "Failed" for job in await place.jobs() for c in conditions(job))

        await wait_for(has_ended, "its Job has failed", 60, check=dispatcher.check)
    await admin.execute(
        "UPDATE dispatch_private.tasks SET heartbeat_at = now() - interval '10 min' WHERE id = $1", task_id
    )
    async with QuickJanitor(place) as janitor:
        await becomes(place, task_id, "failed", janitor, 40)


def conditions(job: dict[str, Any]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = job.get("status", {}).get("conditions", [])
    return found


@pytest.mark.slow
@pytest.mark.fault(36)
async def test_sigterm_ends_an_idle_janitor_within_three_seconds(place: Place) -> None:
    async def trial() -> float:
        async with QuickJanitor(place) as janitor:
            await janitor.ready()
            began = asyncio.get_running_loop().time()
            assert await janitor.stop() == 0
            return asyncio.get_running_loop().time() - began

    await one_within(3, trial)


@pytest.mark.slow
@pytest.mark.fault(36)
async def test_sigterm_ends_a_janitor_while_no_server_answers(place: Place, postgres: PostgresServer) -> None:
    async with QuickJanitor(place) as janitor:
        await janitor.ready()
        place.control_plane.pause()
        await postgres.freeze()
        try:
            assert await janitor.stop() == 0
        finally:
            postgres.thaw()
            place.control_plane.resume()


# Kills


@pytest.mark.promise
@pytest.mark.fault(29)
async def test_killed_janitor_leaves_every_row_consistent(place: Place) -> None:
    for _ in range(5):
        await dead_runs(place, 150)
        if await killed_half_way(place):
            break
    ended = (await statuses(place)).count("failed")
    assert 0 < ended < len(await place.rows())
    await check_rows(place)
    async with QuickJanitor(place) as janitor:

        async def all_over() -> bool:
            return set(await statuses(place)) == {"failed"}

        await wait_for(all_over, "the next janitor has ended the rest", 60, check=janitor.check)
        assert await janitor.moved("returned") <= len(await place.rows()) - ended
    await check_rows(place)


async def killed_half_way(place: Place) -> bool:
    """Starts a janitor and kills it once it has ended some rows. True if rows are left."""
    before = (await statuses(place)).count("failed")
    janitor = QuickJanitor(place)
    await janitor.start()

    async def has_begun() -> bool:
        return (await statuses(place)).count("failed") > before

    await wait_for(has_begun, "the first rows are ended", 30, check=janitor.check)
    await janitor.kill()
    return "processing" in await statuses(place)


async def check_rows(place: Place) -> None:
    """No row contradicts itself. A launch is open exactly while its row is processing."""
    admin = await place.database.session("admin")
    rows: list[Record] = await admin.fetch("SELECT * FROM dispatch.tasks ORDER BY id")
    assert [(row["id"], fault) for row in rows for fault in contradictions(row)] == []
    query = "SELECT task_id FROM dispatch.task_launches WHERE ended_at IS NULL ORDER BY task_id"
    opened = [launch["task_id"] for launch in await admin.fetch(query)]
    assert opened == [row["id"] for row in rows if row["status"] == "processing"]


# Two janitors, two dispatchers

KINDS: dict[str, tuple[dict[str, Any], str, int]] = {  # kind: (columns, final status, final attempt)
    "succeeds": ({}, "succeeded", 1),
    "fails": ({"env": {"PLAY": "fail"}}, "failed", 1),
    "never reports": ({"env": {"PLAY": "exit-0-without-start"}}, "failed", 1),
    "dies once and for all": ({"env": {"PLAY": "start-then-exit-1"}, "max_failures": 1}, "failed", 1),
    "cannot report": ({"template": "coded", "env": {"PLAY": "exit-0-without-start"}}, "succeeded", 1),
    "cannot report its failure": (
        {"template": "coded", "max_failures": 1, "env": {"PLAY": "exit-1-without-start"}},
        "failed",
        1,
    ),
    "asks for what nobody gives": ({"template": "never-heard-of"}, "failed", 1),
    "never starts": ({"env": {"PLAY": "exit-1-without-start"}}, "failed", 1),
}
BY_JANITORS = {"never reports", "dies once and for all", "cannot report", "cannot report its failure",
               "asks for what nobody gives", "never starts"}  # fmt: skip
EACH = 6
MOVES = ("succeeded", "failed", "retried", "returned")


@pytest.mark.promise
@pytest.mark.fault(30)
async def test_two_janitors_and_two_dispatchers_move_each_row_once(place: Place) -> None:
    place.template("coded", report="exit-code")
    rows = {kind: [await place.database.insert_task(**row) for _ in range(EACH)] for kind, (row, *_) in KINDS.items()}
    first, second = Dispatcher(place, MAX_LAUNCHES=1), Dispatcher(place, MAX_LAUNCHES=1)
    one, other = QuickJanitor(place, MAX_LAUNCHES=1), QuickJanitor(place, MAX_LAUNCHES=1)
    admin = await place.database.session("admin")

    async def all_over() -> bool:
        await admin.execute(SILENT.replace("WHERE", "WHERE env ->> 'PLAY' = 'start-then-exit-1' AND"))
        return not set(await statuses(place)) & {"waiting", "processing"}

    async with place.playing() as player, first, second, one, other:
        await wait_for(all_over, "every row is over", 240, check=one.check)  # each round lists Jobs and Pods first
        moved = [await janitor.moved(act) for janitor in (one, other) for act in MOVES]
    assert not player.faults
    found = {row["id"]: (row["status"], row["attempt"]) for row in await place.rows()}
    wanted = {id_: KINDS[kind][1:] for kind, ids in rows.items() for id_ in ids}
    assert found == wanted
    assert sum(moved) == EACH * len(BY_JANITORS)
    await check_rows(place)
    started = await admin.fetch(STARTED_TWICE)
    assert started == []
    assert all("dryRun=All" in event.uri for event in requests(place, "create", "jobs"))
