"""A database of version 26 with live rows is upgraded, and no container notices: rows, keys and tokens stay valid."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from dispatcher.container.row import FAULTS
from dispatcher.model.launches import start_key
from dispatcher.pg.migrate import migrate
from tests.integration.catalog import waiting
from tests.integration.looking import looking
from tests.integration.version_26 import before_upgrade, insert
from tests.rig.janitor_calls import deleted, returned
from tests.rig.postgres import Database
from tests.rig.rows import FIRST, SECOND, Row, Started, contradictions

__all__ = ["before_upgrade"]

OF_A_PROCESS = replace(FIRST, run_id="a")
QUEUES = """
INSERT INTO dispatch.queues VALUES
    ('maps', 3, 20, 5, 2, 'infinity', 'team_a', 'paused', 'team_b', 1000, true),
    ('bounded', 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, false);
UPDATE dispatch.queues SET max_jobs = 50, paused_until = '2020-01-01 UTC' WHERE name = '*';
"""
TEMPLATES = [
    {
        "name": "default",
        "row_may_set": ["env", "image"],
        "bounds": {"cpu": "2"},
        "images": ["registry/*"],
        "note": "all",
    },
    {"name": "broken", "row_may_set": None, "note": "line 3: no containers"},
]
REPORT = "SELECT dispatch.janitor_tell($1)"
OFFER = "SELECT dispatch.janitor_templates($1, true)"
TABLES = (
    "tasks",
    "task_launches",
    "queues",
    "templates",
    "task_reasons",
    "queue_reasons",
    "reported",
    "secrets",
)
CLOCKS = ("tasks_id_seq", "reasons_clock")
EARLIER_KEY = "INSERT INTO dispatch.earlier_start_keys VALUES ($1, $2)"
KEPT_KEYS = "SELECT array_agg(DISTINCT task_id ORDER BY task_id) FROM dispatch_private.earlier_start_keys"


@dataclass(frozen=True)
class Live:
    """The rows of the database at the upgrade, each with the key of its time."""

    database: Database
    rows: dict[str, Row]
    tokens: dict[str, Started]
    before: dict[str, list[Any]]

    def __getattr__(self, name: str) -> Row:
        return self.rows[name]


async def content(database: Database, schema: str) -> dict[str, list[Any]]:
    """Every row of every table, and how far each sequence is."""
    admin = await database.session("admin")
    later = "'{owner_oid, submit_oid, run_id, second_process}'::text[]"  # columns that version 26 had not
    every = {table: f"SELECT to_jsonb(t) - {later} FROM {schema}.{table} AS t ORDER BY 1" for table in TABLES}
    every |= {clock: f"SELECT last_value, is_called FROM {schema}.{clock}" for clock in CLOCKS}
    return {name: [tuple(row) for row in await admin.fetch(statement)] for name, statement in every.items()}


async def make_rows(database: Database) -> dict[str, Row]:
    now = datetime.now(UTC)
    return {
        "handed_out": await insert(database, payload="p"),
        "due": await insert(database, run_at=now - timedelta(hours=1), env={"A": "1"}, priority=5),
        "later": await insert(database, run_at=now + timedelta(hours=1)),
        "parked": await insert(database, spec={"image": "registry/x"}, max_failures=1, timeout_seconds=60),
        "cancelled": await insert(database, cache_key="k"),
        "running": await insert(database, payload=[1], batch="b", labels={"a": "b"}),
        "other": await insert(database, "team_b", queue="maps", dedupe_key="d"),
        "finished": await insert(database),
        "retried": await insert(database),
        "failed": await insert(database, max_failures=1, batch="b"),
    }


async def live_rows(database: Database) -> Live:
    admin, janitor = await database.session("admin"), await database.session("janitor")
    await admin.execute(QUEUES)
    await janitor.execute(OFFER, TEMPLATES)
    rows = await make_rows(database)
    tokens = {name: await rows[name].started() for name in ("running", "other", "finished", "retried", "failed")}
    assert await rows["finished"].finish(tokens["finished"], "succeeded", result={"lines": 3}) == "succeeded"
    assert await rows["failed"].finish(tokens["failed"], "failed", error="no") == "failed"
    assert await rows["retried"].finish(tokens["retried"], "retry", error="again") == "waiting"
    tokens["retried"] = await rows["retried"].started(attempt=2)
    assert await rows["cancelled"].cancel("not needed") == "cancelled"
    said = "SELECT dispatch.task_heartbeat($1, 0.5, 'half')"
    assert await (await database.session("task")).fetchval(said, tokens["running"].run_token) == "continue"
    as_of = datetime.now(UTC).isoformat()
    parked = [rows["parked"].id, 1, "LaunchesExhausted", as_of, "its Pods never started: no such image"]
    queue = {"queue": "default", "waiting": 4, "in_flight": 2, "weight": 1, "share": 0.5, "reasons": {"InLine": 2}}
    assert await janitor.fetchval(REPORT, {"as_of": as_of, "rows": [parked], "gone": [], "queues": [queue]}) == 1
    return Live(database, rows, tokens, await content(database, "dispatch"))


@pytest_asyncio.fixture(loop_scope="session")
async def live(before_upgrade: Database) -> Live:
    """The database before the upgrade."""
    return await live_rows(before_upgrade)


@pytest_asyncio.fixture(loop_scope="session")
async def upgraded(live: Live) -> Live:
    """The same database after the upgrade."""
    assert await migrate(live.database.admin_url)
    return live


async def test_rows_of_every_table_stay_as_they_are(upgraded: Live) -> None:
    assert await content(upgraded.database, "dispatch_private") == upgraded.before
    assert all(rows for rows in upgraded.before.values())
    admin = await upgraded.database.session("admin")
    rows = await admin.fetch("SELECT * FROM dispatch_private.tasks")
    assert [contradictions(row) for row in rows] == [[]] * len(upgraded.rows)


async def test_ids_go_on_after_the_highest(upgraded: Live) -> None:
    assert await upgraded.database.insert_task() == max(row.id for row in upgraded.rows.values()) + 1


async def test_running_container_heartbeats_and_finishes_on_its_connection(upgraded: Live) -> None:
    for name in ("running", "other", "retried"):
        row, started = upgraded.rows[name], upgraded.tokens[name]
        assert await row.heartbeat(started) == "continue"
        assert await row.finish(started, "succeeded", result=[1]) == "succeeded"
        assert await row.finish(started, "succeeded") == "succeeded"
        assert (await row.now())["result"] == [1]
        assert (await row.launches())[-1]["outcome"] == "succeeded"


async def test_report_made_during_the_upgrade_is_heard(live: Live) -> None:
    """The call waits for the upgrade. It gets its answer, or a fault after which `dispatcher exec` asks again."""
    admin, row, started = await live.database.session("admin"), live.running, live.tokens["running"]
    holder = await live.database.connect()
    held = holder.transaction()
    await held.start()
    await holder.fetch("SELECT * FROM dispatch.reasons")
    upgrade = asyncio.create_task(migrate(live.database.admin_url))
    await waiting(admin, "dispatch.reasons", unless=upgrade)
    report = asyncio.create_task(row.finish(started, "succeeded"))
    await waiting(admin, "dispatch.reasons", "dispatch.tasks", unless=report)
    await held.commit()
    await upgrade
    try:
        answer = await report
    except FAULTS:
        answer = await row.finish(started, "succeeded")
    assert answer == "succeeded"


async def test_report_sent_again_after_the_upgrade_gets_its_answer(upgraded: Live) -> None:
    assert await upgraded.finished.finish(upgraded.tokens["finished"], "succeeded") == "succeeded"


async def test_key_of_before_starts_its_row(upgraded: Live) -> None:
    for name in ("handed_out", "due", "later", "parked"):
        row = upgraded.rows[name]
        assert row.start_key != await upgraded.database.start_key(row.id)
        started = await row.started(pod=OF_A_PROCESS)
        assert await row.start(pod=OF_A_PROCESS) == started
        assert await row.finish(started, "succeeded") == "succeeded"


async def test_key_that_the_dispatcher_derives_now_starts_a_row_of_before(upgraded: Live) -> None:
    row = upgraded.handed_out
    async with looking(upgraded.database) as rows:
        task, secret = (await rows.tasks([row.id]))[row.id], await rows.start_secret()
    key = await upgraded.database.start_key(row.id)
    assert start_key(secret, task.id, task.created_at) == str(key)
    started = await row.start(start_key=key)
    assert started is not None
    assert started.payload == "p"


async def test_key_of_another_row_of_before_is_refused(upgraded: Live) -> None:
    assert await upgraded.handed_out.start(start_key=upgraded.running.start_key) is None
    assert await upgraded.running.start(launch=2, pod=SECOND, start_key=upgraded.other.start_key) is None


async def test_container_that_starts_again_gets_its_token_again(upgraded: Live) -> None:
    row = upgraded.running
    assert await row.start() == upgraded.tokens["running"]
    assert await row.start(pod=SECOND) is None
    assert await row.heartbeat(upgraded.tokens["running"]) == "continue"


async def test_next_launch_with_the_key_of_before_takes_over(upgraded: Live) -> None:
    row = upgraded.running
    new = await row.started(launch=2, pod=SECOND)
    assert (await row.heartbeat(upgraded.tokens["running"]), await row.heartbeat(new)) == ("lost", "continue")


async def test_key_of_before_starts_later_attempts(upgraded: Live) -> None:
    row = upgraded.running
    assert await row.finish(upgraded.tokens["running"], "retry") == "waiting"
    assert await row.start(attempt=1, launch=2, pod=SECOND) is None
    assert await row.start(attempt=2) is not None


async def test_keys_of_both_secrets_stay_valid_and_older_ones_do_not(live: Live) -> None:
    """A Job may have been made before the last rotation, and its row may have waited since."""
    admin, database = await live.database.session("admin"), live.database
    rotate = "SELECT dispatch.rotate_secrets()"
    await admin.execute(rotate)
    second, running = await insert(database), await insert(database)
    started = await running.started()
    await admin.execute(rotate)
    third = await insert(database)
    await migrate(database.admin_url)
    assert await live.handed_out.start() is None
    assert await second.start() is not None
    assert await third.start() is not None
    assert await running.heartbeat(started) == "continue"
    assert await running.start() is not None
    assert await running.start(start_key=await database.start_key(running.id)) is not None


async def test_key_of_a_still_earlier_form_starts_its_row(live: Live) -> None:
    admin, row, key = await live.database.session("admin"), live.handed_out, uuid4()
    await admin.execute(EARLIER_KEY, row.id, hashlib.sha256(key.bytes).digest())
    await migrate(live.database.admin_url)
    assert await row.start(start_key=uuid4()) is None
    assert await row.start(start_key=key) is not None


async def test_only_live_rows_keep_keys_of_before_and_a_deleted_row_leaves_none(upgraded: Live) -> None:
    admin, gone = await upgraded.database.session("admin"), upgraded.handed_out
    alive = sorted(row.id for name, row in upgraded.rows.items() if name not in {"finished", "failed", "cancelled"})
    assert await admin.fetchval(KEPT_KEYS) == alive
    await gone.cancel()
    await admin.execute(
        "UPDATE dispatch_private.tasks SET finished_at = now() - interval '9 days' WHERE id = $1", gone.id
    )
    assert await deleted(upgraded.database, 7) == 1
    assert await admin.fetchval(KEPT_KEYS) == alive[1:]


async def test_reasons_told_before_explain_their_rows(upgraded: Live) -> None:
    team = await upgraded.database.session("team_a")
    explain = "SELECT reason, message FROM dispatch.task_explain WHERE id = $1"
    told = await team.fetchrow(explain, upgraded.parked.id)
    assert tuple(told or ()) == ("LaunchesExhausted", "its Pods never started: no such image")
    assert await team.fetchval(explain, upgraded.later.id) == "NotDue"
    launches = await team.fetch("SELECT outcome FROM dispatch.task_history WHERE task_id = $1", upgraded.retried.id)
    assert [row["outcome"] for row in launches] == ["retry", None]


async def test_people_and_janitor_change_rows_of_before(upgraded: Live) -> None:
    silent, team = upgraded.running, await upgraded.database.session("team_a")
    assert await upgraded.handed_out.cancel() == "cancelled"
    assert await upgraded.handed_out.start() is None
    assert await upgraded.finished.retry() == "waiting"
    assert await team.fetchval("SELECT dispatch.task_set_priority($1, 1)", upgraded.due.id) == "waiting"
    assert await team.fetchval("SELECT dispatch.batch_retry('default', 'b')") == 1
    assert await team.fetchval("SELECT dispatch.task_cancel($1)", upgraded.other.id) == "processing"  # of its queue
    await silent.silent_for(61)
    assert await returned(silent, upgraded.tokens["running"]) == "waiting"


async def test_live_dedupe_key_of_before_makes_no_second_row(upgraded: Live) -> None:
    assert await upgraded.database.insert_task("team_b", queue="maps", dedupe_key="d") == upgraded.other.id


async def test_rules_of_queues_and_templates_hold_as_before(upgraded: Live) -> None:
    database = upgraded.database
    with pytest.raises(asyncpg.PostgresError) as refused:
        await database.insert_task("team_a", template="broke")
    assert (refused.value.sqlstate, "broken" in (refused.value.hint or "")) == ("DI006", True)
    for _ in range(2):
        await database.insert_task("team_b", queue="bounded")
    with pytest.raises(asyncpg.PostgresError) as too_many:
        await database.insert_task("team_b", queue="bounded")
    assert too_many.value.sqlstate == "DI009"
