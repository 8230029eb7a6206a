"""Schema public is open, and full of functions, operators, types and views that look like names in our statements.

No look-alike is ever called: not by our programs, not by a migration, and not by our functions that others call.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from dispatcher.pg import lists
from dispatcher.pg.closings import Closings
from dispatcher.pg.connect import open_connection
from dispatcher.pg.listen import CHANNELS
from dispatcher.pg.migrate import LOCK, WRITING, migrate
from dispatcher.pg.queries import query, sql_folder
from dispatcher.pg.questions import Questions
from dispatcher.pg.tasks import snapshot
from dispatcher.programs import exec_row
from tests.execing import execute, sh
from tests.integration.every_question import QUESTIONS
from tests.integration.hostile_inserts import HOSTILE_ROWS, OFFERED
from tests.integration.lookalikes import calls, make_lookalikes, make_newer_lookalikes, make_session_lookalikes
from tests.integration.looking import opened
from tests.janitor_calls import cancelled, closed, deleted, returned
from tests.postgres import Database, PostgresServer
from tests.rows import FIRST, Row, insert_row

ATTACKER = "team_a"
VICTIMS = ("reader", "janitor", "task", "observer", "operator", "team_b", "postgres", "dispatch_owner")
DEFAULT_PATH = '"$user", public'
OF_JANITORS = ("submitters", "candidates_of", "kinds", "tasks", "requests")
AT = "2026-01-01T00:00:00Z"
FILES_OF_THE_JANITOR = "cancel return end delete old run_digests tell told ended with_cause templates"
PLAIN: dict[str, Any] = {"cache_key": "maps", "max_failures": 5, "batch": "b"}
QUEUE_TOLD = {"queue": "default", "waiting": 1, "in_flight": 0, "weight": 1, "share": 0, "reasons": {"Backoff": 1}}
A_TEMPLATE = "INSERT INTO dispatch.templates (name) VALUES ('default') ON CONFLICT DO NOTHING"
FORGET = "DELETE FROM public.calls"
ENDED = {"attempt": 1, "launch": 1, "job_uid": FIRST.job_uid, "node": "n", "reason": "OOM"}
SILENT = """
UPDATE dispatch.tasks SET heartbeat_at = pg_catalog.now() - pg_catalog.make_interval(mins => 10)
WHERE status = 'processing'
"""
DECLARE_QUEUES = """
INSERT INTO dispatch.queues (name, owner_role, max_waiting_per_submitter)
VALUES ('closed', 'team_a', NULL), ('bounded', NULL, 0), ('mine', 'team_b', 5)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def attacked_database(postgres: PostgresServer) -> AsyncIterator[Database]:
    """A database that was migrated after the look-alikes were made."""
    await (await postgres.create_database()).drop()  # from here on the server has the logins
    database = await postgres.create_database(migrated=False)
    try:
        attacker = await database.connect(ATTACKER)
        await make_lookalikes(database, attacker, *VICTIMS)
        assert await migrate(database.admin_url)
        await make_newer_lookalikes(attacker, *VICTIMS)
        await (await database.session("admin")).execute(DECLARE_QUEUES)
        assert [tuple(call) for call in await calls(database)] == []  # calls of the migration
        yield database
    finally:
        await database.drop()


@pytest_asyncio.fixture(loop_scope="session")
async def attacked(attacked_database: Database) -> AsyncIterator[Database]:
    """The attacked database; fails if a look-alike was called when the test has ended."""
    yield attacked_database
    assert [tuple(call) for call in await calls(attacked_database)] == []


async def some_rows(database: Database) -> list[int]:
    """One row of each status, and a history."""
    rows = [await insert_row(database, "team_b", **PLAIN) for _ in range(4)]
    await rows[0].finish(await rows[0].started(), "succeeded", result={"a": 1})
    await rows[1].started()
    await rows[2].cancel(login="team_b")
    failed = await insert_row(database, "team_b", **PLAIN)
    await failed.finish(await failed.started(), "failed", error="no such file")
    return [row.id for row in rows]


def files(folder: str) -> set[str]:
    return {file.name.removesuffix(".sql") for file in (sql_folder() / folder).iterdir()}


# The attack works where the path is not pinned


async def test_lookalikes_are_called_with_the_default_search_path(attacked: Database) -> None:
    """Otherwise the other tests would prove nothing."""
    unpinned = {"search_path": DEFAULT_PATH, "default_transaction_read_only": "off"}
    for login in ("reader", "janitor"):
        session = await open_connection(attacked.url(login), **unpinned)
        await session.fetch(query("histories"), ["default"], ["maps"], 3)
        await session.fetch(query("submitters"), ["default"], 10)
        await session.close()
    caught = {tuple(call) for call in await calls(attacked)}
    await (await attacked.session("admin")).execute(FORGET)
    for login in ("reader", "janitor"):
        assert {(login, f"{login}.cardinality(text[])"), (login, f"{login}.unnest(text[])")} <= caught


# Programs


async def test_statements_of_the_dispatcher_call_no_lookalike(
    attacked: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "FEW_MILLISECONDS", 5000)  # on a busy machine, too, each query has an answer
    ids = await some_rows(attacked)
    await (await attacked.session("admin")).execute(A_TEMPLATE)
    async with opened(attacked.url("reader")) as session:
        async with snapshot(session, Questions, 10) as rows:
            answers = {name: await ask(rows, ids) for name, ask in QUESTIONS.items()}
            assert rows.frame.queues
        async with session.use() as connection:
            assert await connection.fetchval(query("ping")) == 1
    assert {*QUESTIONS, "frame", "ping", "statement_timeout"} == files("queries")
    assert all(answers.values()), answers
    listening = await open_connection(attacked.url("reader"))
    for channel in CHANNELS:
        await listening.add_listener(channel, print)
    listening.terminate()


async def test_statements_of_the_janitor_call_no_lookalike(attacked: Database) -> None:
    ids = await some_rows(attacked)
    async with opened(attacked.url("janitor")) as session, snapshot(session, Questions, 10) as rows:
        for name in OF_JANITORS:
            assert await QUESTIONS[name](rows, ids), name
        assert set(await rows.run_digests(ids)) == {ids[1]}
        assert await rows.with_cause(ids) == []
    closings = Closings(lambda: attacked.url("janitor"))
    try:
        digest = (await attacked.task(ids[1]))["run_digest"]
        await (await attacked.session("admin")).execute(SILENT)
        assert await closings.cancel(ids[1], 1, digest) is None
        assert await closings.give_back(ids[1], (1, 1, digest), 1, "gone") == "waiting"
        assert await closings.end(ids[3], (1, 1, None), "failed", "parked") == "failed"
        report = {"rows": [[ids[1], 1, "Backoff", AT, "m"]], "queues": [QUEUE_TOLD], "gone": [1]}
        assert await closings.tell(json.dumps({"as_of": AT, **report})) == 1
        assert [row[0] for row in await closings.told(9)] == [ids[1]]
        assert await closings.templates(json.dumps(OFFERED), are_all=True) == 2
        assert await closings.ended(json.dumps([{"task": ids[1], **ENDED}])) == 1
        for login in ("team_b", "operator", "observer"):
            reading = await attacked.session(login)
            for name in ("task_explain", "queue_status", "task_history"):
                assert await reading.fetch(f"SELECT * FROM dispatch.{name}")
        assert (await closings.count_old(1), await closings.delete_old(1)) == (0, 0)
    finally:
        await closings.close()
    assert files("janitor") == {*FILES_OF_THE_JANITOR.split()}


async def test_statements_of_exec_call_no_lookalike(attacked: Database) -> None:
    done, failed, asked = [await insert_row(attacked, "team_b", **PLAIN) for _ in range(3)]
    assert (await execute(done, *sh("echo 17"))).status == 0
    assert (await execute(failed, *sh("exit 65"))).status != 69
    assert [await done.status(), await failed.status()] == ["succeeded", "failed"]
    me = asked.id, str(asked.start_key), 1, 1, FIRST.job_uid, FIRST.node, "pod-1", 60
    row = exec_row.Row(exec_row.Contract(attacked.url("task"), *me))
    token, _ = await row.start() or ("", "")
    assert await row.heartbeat(token) == "continue"
    assert await row.finish(token, exec_row.Report("succeeded", 0)) == "succeeded"
    assert files("exec") == {"start", "heartbeat", "finish"}


async def test_statements_of_migrate_call_no_lookalike(attacked: Database) -> None:
    """Statements that the migration of the fixture did not need."""
    assert await migrate(attacked.admin_url, check=True) == []
    admin, connection = await attacked.connect(), await open_connection(attacked.admin_url, **WRITING)
    await admin.execute("SELECT pg_catalog.pg_advisory_lock($1)", LOCK)
    assert len(await connection.fetch(query("holders", "migrate"), LOCK)) == 1
    await connection.close()
    await admin.execute((sql_folder() / "roles.sql").read_text(encoding="utf-8"))


async def test_statements_of_the_demo_call_no_lookalike(attacked: Database) -> None:
    """The demo's own sessions have no pinned path, because its server is its own."""
    admin, team, container = [await asyncpg.connect(attacked.url(login)) for login in ("admin", "team_b", "task")]
    try:
        await admin.execute(query("queue", "demo"), "samples", 2, "why")
        assert [await admin.fetchval(query("pause", "demo"), "samples") for _ in range(2)] == [True, False]
        task_id = await team.fetchval(query("insert", "demo"), "samples", "default", "{}", "1", "maps")
        await team.execute(query("insert_default", "demo"), 3)
        assert await team.fetchval(query("count", "demo")) >= 4
        await team.execute(query("try", "demo"))
        row = Row(attacked, task_id, await attacked.start_key(task_id))
        token = str((await row.started()).run_token)
        assert await container.fetchval(query("report", "demo"), token, "retry", "early", None) == "waiting"
        await team.execute(query("cancel", "demo"), task_id)
        await team.execute(query("retry", "demo"), task_id)
        assert len(await team.fetch(query("rows", "demo"))) >= 5
        await make_logins(admin)
    finally:
        for connection in (admin, team, container):
            connection.terminate()


async def make_logins(admin: asyncpg.Connection[asyncpg.Record]) -> None:
    """Makes the demo's logins in a transaction; the logins of the tests give up their names for that moment."""
    transaction = admin.transaction()
    await transaction.start()
    for login in ("reader", "task", "janitor", "observer", "operator"):
        await admin.execute(f"ALTER ROLE {login} RENAME TO tests_{login}")
    for login in ("demo", "reader", "task", "janitor", "observer", "operator"):
        await admin.fetchval(query("password", "demo"), login, "secret")
    await admin.execute(query("logins", "demo"))
    await transaction.rollback()


# Functions that others call, in their own sessions


async def test_insert_calls_no_lookalike(attacked: Database) -> None:
    team, janitor = await attacked.session("team_b"), await attacked.session("janitor")
    outcomes = []
    for columns in [*HOSTILE_ROWS, None, *HOSTILE_ROWS]:
        if columns is None:  # from here on rows are judged by their templates
            await janitor.execute("SELECT dispatch.janitor_templates($1, true)", OFFERED)
            continue
        try:
            await attacked.insert_task("team_b", **columns)
            outcomes.append("")
        except asyncpg.PostgresError as refused:
            outcomes.append(refused.sqlstate[:3])
    assert set(outcomes) <= {"", "DI0", "235"}, outcomes
    assert (await team.fetchrow("SELECT * FROM dispatch.tasks")) is not None
    assert (await team.fetchrow("INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING *")) is not None
    await (await attacked.session("operator")).execute("DELETE FROM dispatch.queues WHERE name = 'closed'")


async def test_functions_of_containers_and_submitters_call_no_lookalike(attacked: Database) -> None:
    for outcome in ("succeeded", "failed", "retry"):
        row = await insert_row(attacked, "team_b", **PLAIN)
        started = await row.started()
        assert await row.heartbeat(started) == "continue"
        assert (await row.started()).run_token == started.run_token
        assert await row.finish(started, outcome, error="x" * 9000, result={"a": "b"}) == await row.status()
        assert await row.finish(started, outcome) == await row.status()
        assert await row.retry(login="team_b") == "waiting"
        assert await row.cancel("enough", login="operator") == "cancelled"
        assert await row.cancel(login="team_b") == "cancelled"
        assert await row.retry(login="operator") == "waiting"
    assert await (await attacked.session("admin")).fetchval("SELECT dispatch.rotate_secrets()") == 2


async def test_functions_of_the_janitor_call_no_lookalike(attacked: Database) -> None:
    rows = [await insert_row(attacked, "team_b", **PLAIN) for _ in range(3)]
    runs = [await row.started() for row in rows]
    assert await rows[1].cancel(login="team_b") == "processing"
    await rows[0].silent_for(600)
    assert await returned(rows[0], runs[0]) == "waiting"
    assert await cancelled(rows[1], runs[1]) == "cancelled"
    assert await closed(rows[2]) == "failed"
    assert await deleted(attacked, 1) == 0


async def test_functions_call_no_lookalike_of_the_callers_session(attacked: Database) -> None:
    """The last test of this file, because the sessions keep their look-alikes."""
    for login in ("team_b", "task", "janitor", "operator"):
        await make_session_lookalikes(await attacked.session(login))
    rows = [await insert_row(attacked, "team_b", **PLAIN) for _ in range(3)]
    started = [await row.started() for row in rows]
    assert await rows[0].heartbeat(started[0]) == "continue"
    assert await rows[0].finish(started[0], "retry", error="x" * 9000) == "waiting"
    await rows[1].silent_for(600)
    assert await returned(rows[1], started[1]) == "waiting"
    assert await closed(rows[2]) == "failed"
    assert await rows[2].retry(login="team_b") == "waiting"
    assert await rows[2].cancel(login="operator") == "cancelled"
