"""Schema public is open, and full of functions, operators, types and views that look like names in our statements.

No look-alike is ever called: not by our programs, not by a migration, and not by our functions that others call.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import asyncpg
import pytest_asyncio

from dispatcher.container import row as exec_row
from dispatcher.container.contract import LaunchContract
from dispatcher.model.history import RowFilter
from dispatcher.model.tasks import Status, Task
from dispatcher.pg.connect import CHANNELS, open_connection
from dispatcher.pg.migrate import LOCK, WRITING, migrate
from dispatcher.pg.queries import blocks, query, sql_folder
from dispatcher.pg.questions import ListBounds, Questions
from dispatcher.pg.tasks import Closings, DeletionResult, snapshot
from dispatcher_demo.statements import demo_query
from tests.integration.lookalikes import calls, make_lookalikes, make_newer_lookalikes, make_session_lookalikes
from tests.integration.looking import opened
from tests.rig.execing import execute, sh
from tests.rig.janitor_calls import cancelled, closed, deleted, returned
from tests.rig.postgres import Connection, Database, PostgresServer
from tests.rig.rows import FIRST, Row, insert_row
from tests.rig.statements import OF_READER

# Rows and templates that make INSERT and `submit` run all of their statements.

OFFERED = [
    {
        "name": "default",
        "row_may_set": ["env", "image", "cpu"],
        "bounds": {"cpu": "400m", "seconds": 9},
        "images": ["b/*"],
        "sets": ["A"],
        "note": "x",
    },
    {"name": "open", "row_may_set": None, "note": "kind is 'Pod'"},
]
SPEC = {"image": "a/b:1", "command": ["x"], "args": ["y"], "cpu": "500m", "memory": "1Gi"}
HOSTILE_ROWS: list[dict[str, Any]] = [
    {"env": {"A": "1", "B": "x" * 300}, "spec": SPEC},
    {"spec": {"private_machine": "m"}, "payload": {"a": [1]}, "run_at": datetime(2000, 1, 1, tzinfo=UTC)},
    {"queue": "defalut"}, {"queue": "bounded"}, {"queue": "closed"}, {"queue": "mine"}, {"priority": 1001},
    {"env": {"PYTHONPATH": "/x"}}, {"env": {"a b": "x" * 300}}, {"spec": {"cpu": "0"}}, {"spec": {"memory": "1m"}},
    {"spec": {"odd": "1"}}, {"template": "Odd"}, {"cache_key": ""}, {"dedupe_key": ""}, {"dedupe_key": "nightly"},
    {"timeout_seconds": 0}, {"max_failures": 0}, {"payload": "x" * 1_100_000}, {"timeout_seconds": 10},
    {"template": "opne"}, {"template": "open", "spec": SPEC}, {"env": {"A": "1"}}, {"env": {"B": "1", "PATH": "x"}},
    {"spec": {"cpu": "500m"}}, {"spec": {"image": "c/d"}}, {"labels": {"a": 1}}, {"batch": ""}, {"labels": {"a": "1"}},
]  # fmt: skip


async def outcomes(database: Database, login: str) -> set[str]:
    """What comes of each row, by INSERT and by `submit`: the first letters of the SQLSTATE; empty: it is accepted."""
    session, found = await database.session(login), set[str]()
    for columns in HOSTILE_ROWS:
        for call in (database.insert_task(login, **columns), submit_one(session, columns)):
            try:
                await call
                found.add("")
            except asyncpg.PostgresError as refused:
                found.add((refused.sqlstate or "")[:3])
    return found


async def submit_one(session: Connection, columns: dict[str, Any]) -> None:
    row = {name: value.isoformat() if name == "run_at" else value for name, value in columns.items()}
    await session.fetch("SELECT dispatch.submit($1)", [row])


# Every query of the dispatcher, asked once. The rows: ended, running, cancelled, waiting, all of batch b.

KEYS = [("default", "maps"), ("other", "maps")]
Question = Callable[[Questions, list[int]], Awaitable[object]]
QUESTIONS: dict[str, Question] = {
    "candidates": lambda rows, _: rows.indexed_rows({"default": 10}),
    "candidates_of": lambda rows, _: rows.indexed_rows_of({("default", "team_b"): 10}),
    "contenders": lambda rows, ids: rows.waiting(ids),
    "counts": lambda rows, _: rows.counts(),
    "histories": lambda rows, _: rows.histories(KEYS),
    "kinds": lambda rows, ids: rows.kinds(ids),
    "launches": lambda rows, ids: rows.launches(ids[1]),
    "line": lambda rows, ids: of_task(rows, ids[-1], rows.line),
    "marks": lambda rows, ids: rows.marks(ids[1]),
    "matching": lambda rows, _: rows.find(RowFilter(), None, None),
    "matching_among": lambda rows, ids: rows.find(RowFilter(), None, ids),
    "matching_of_batch": lambda rows, _: rows.find(RowFilter(queue="default", submitted_by="b", batch="b"), None, None),
    "matching_of_submitter": lambda rows, _: rows.find(RowFilter(submitted_by="team_b"), None, None),
    "few_of_batch": lambda rows, _: rows.few(RowFilter(batch="b"), None),
    "owners_of_batch": lambda rows, _: rows.owners(None, None, "b"),
    "few_of_status": lambda rows, _: rows.find(RowFilter(status=Status.FAILED), None, None),
    "newest_waiting": lambda rows, _: rows.find(RowFilter(status=Status.WAITING), None, None),
    "few_with_labels": lambda rows, _: rows.find(RowFilter(), '{"a": "b"}', None),
    "page": lambda rows, ids: rows.page(ids),
    "sources": lambda rows, ids: rows.sources(ids),
    "batches": lambda rows, _: rows.batches(None, None, "b"),
    "failed": lambda rows, _: rows.failed(rows.now - timedelta(days=1)),
    "failed_of_batch": lambda rows, _: rows.failed_of_batch("default", "team_b", "b"),
    "ends": lambda rows, _: rows.ends(rows.now - timedelta(days=1), rows.now),
    "queue_ends": lambda rows, _: rows.queue_ends("default", 20),
    "queue_settings": lambda rows, _: rows.queue_settings("default"),
    "queue_times": lambda rows, _: rows.queue_times("default", 1000),
    "runs": lambda rows, _: rows.runs(KEYS),
    "starts": lambda rows, ids: of_task(rows, ids[1], rows.starts),
    "start_secret": lambda rows, _: rows.start_secret(),
    "statuses": lambda rows, ids: rows.still_waiting(ids),
    "submitters": lambda rows, _: rows.submitters(["default"]),
    "tasks": lambda rows, ids: rows.tasks(ids),
    "templates": lambda rows, _: rows.templates(),
    "warm_keys": lambda rows, _: rows.warm_keys(["node-1"], 1000),
}


async def of_task(rows: Questions, number: int, ask: Callable[[Task], Awaitable[object]]) -> object:
    task = await rows.task(number)
    assert task
    return await ask(task)


ATTACKER = "team_a"
VICTIMS = ("reader", "janitor", "task", "observer", "operator", "team_b", "postgres", "dispatch_owner")
DEFAULT_PATH = '"$user", public'
OF_JANITORS = ("submitters", "candidates_of", "kinds", "tasks", "contenders")
AT = "2026-01-01T00:00:00Z"
CALLS_OF_THE_JANITOR = "cancel return end delete old run_digests oldest_snapshot tell told ended with_cause templates"
PLAIN: dict[str, Any] = {"cache_key": "maps", "max_failures": 5, "batch": "b"}
QUEUE_TOLD = {"queue": "default", "waiting": 1, "in_flight": 0, "weight": 1, "share": 0, "reasons": {"Backoff": 1}}
VIEWS = [
    "tasks",
    "batch_status",
    "task_launches",
    "task_history",
    "task_reasons",
    "task_explain",
    "queues",
    "queue_status",
]
KEYED = [
    "tasks_of_batch('default', 'b')",
    "batch('default', 'b')",
    "tasks_after(0)",
    "tasks_since('-infinity')",
    "task_explain(1)",
    "task_history(1)",
]
CHANGE_QUEUE = "UPDATE dispatch.queues SET weight = 2 WHERE name = 'closed' RETURNING *"
A_TEMPLATE = "INSERT INTO dispatch_private.templates (name) VALUES ('default') ON CONFLICT DO NOTHING"
FORGET = "DELETE FROM public.calls"
ENDED = {"attempt": 1, "launch": 1, "job_uid": FIRST.job_uid, "node": "n", "reason": "OOM"}
SILENT = """
UPDATE dispatch_private.tasks SET heartbeat_at = pg_catalog.now() - pg_catalog.make_interval(mins => 10)
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


# The attack works where the path is not pinned


async def test_lookalikes_are_called_with_the_default_search_path(attacked: Database) -> None:
    """Otherwise the other tests would prove nothing."""
    unpinned = {"search_path": DEFAULT_PATH}
    for login in ("reader", "janitor"):
        session = await open_connection(attacked.url(login), unpinned, writes=True)
        await session.fetch(query("histories", "caches"), ["default"], ["maps"], 3)
        await session.fetch(query("submitters", "cycle"), ["default"], 10)
        await session.close()
    caught = {tuple(call) for call in await calls(attacked)}
    await (await attacked.session("admin")).execute(FORGET)
    for login in ("reader", "janitor"):
        assert {(login, f"{login}.cardinality(text[])"), (login, f"{login}.unnest(text[])")} <= caught


# Programs


class Patient(Questions):
    """On a busy machine, too, each query has an answer."""

    bounds = ListBounds(few_milliseconds=5000)


async def test_statements_of_the_dispatcher_call_no_lookalike(attacked: Database) -> None:
    ids = await some_rows(attacked)
    await (await attacked.session("admin")).execute(A_TEMPLATE)
    async with opened(attacked.url("reader")) as session:
        async with snapshot(session, Patient, 10) as rows:
            answers = {name: await ask(rows, ids) for name, ask in QUESTIONS.items()}
            assert rows.frame.queues
        async with session.use() as connection:
            assert await connection.fetchval(query("ping", "cycle")) == 1
    assert {*QUESTIONS, "frame", "ping", "statement_timeout"} == set(OF_READER)
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
        assert await rows.with_cause([(id_, 1, 1) for id_ in ids]) == []
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
        assert await closings.templates(OFFERED, are_all=True) == (2, [])
        await closings.oldest_snapshot()
        assert await closings.ended([{"task": ids[1], **ENDED}]) == (1, [])
        for login, relation in product(("team_b", "operator", "observer"), [*VIEWS, *KEYED]):
            assert await (await attacked.session(login)).fetch(f"SELECT * FROM dispatch.{relation}"), relation
        assert (await closings.count_old(1), await closings.delete_old(1, [])) == (0, DeletionResult(0, [], None))
    finally:
        await closings.close()
    assert set(blocks("janitor")) == {*CALLS_OF_THE_JANITOR.split()}


async def test_statements_of_exec_call_no_lookalike(attacked: Database) -> None:
    done, failed, asked = [await insert_row(attacked, "team_b", **PLAIN) for _ in range(3)]
    assert (await execute(done, *sh("echo 17"))).status == 0
    assert (await execute(failed, *sh("exit 65"))).status != 69
    assert [await done.status(), await failed.status()] == ["succeeded", "failed"]
    me = asked.id, str(asked.start_key), 1, 1, FIRST.job_uid, str(FIRST.node), "pod-1"
    row = exec_row.RowConnection(LaunchContract(attacked.url("task"), 60, me))
    token, _ = await row.start() or ("", "")
    assert await row.heartbeat(token) == "continue"
    assert await row.finish(token, exec_row.ExecReport("succeeded", 0)) == "succeeded"
    assert {file.name for file in (sql_folder() / "exec").iterdir()} == {"start.sql", "heartbeat.sql", "finish.sql"}


async def test_statements_of_migrate_call_no_lookalike(attacked: Database) -> None:
    """Statements that the migration of the fixture did not need."""
    assert await migrate(attacked.admin_url, check=True) == []
    admin, connection = await attacked.connect(), await open_connection(attacked.admin_url, WRITING, writes=True)
    await admin.execute("SELECT pg_catalog.pg_advisory_lock($1)", LOCK)
    assert len(await connection.fetch(query("holders", "migrate"), LOCK)) == 1
    await connection.close()
    await admin.execute((sql_folder() / "roles.sql").read_text(encoding="utf-8"))


async def test_statements_of_the_demo_call_no_lookalike(attacked: Database) -> None:
    """The demo's own sessions have no pinned path, because its server is its own."""
    admin, team, container = [await asyncpg.connect(attacked.url(login)) for login in ("admin", "team_b", "task")]
    try:
        await admin.execute(demo_query("queue"), "samples", 2, "why")
        assert [await admin.fetchval(demo_query("pause"), "samples") for _ in range(2)] == [True, False]
        task_id = await team.fetchval(demo_query("insert"), "samples", "default", "{}", "1", "maps", 3)
        await team.execute(demo_query("insert_default"), 3)
        assert await team.fetchval(demo_query("count")) >= 4
        await team.execute(demo_query("try"))
        row = Row(attacked, task_id, await attacked.start_key(task_id))
        token = str((await row.started()).run_token)
        assert await container.fetchval(demo_query("report"), token, "retry", "early", None) == "waiting"
        await team.execute(demo_query("cancel"), task_id)
        await team.execute(demo_query("retry"), task_id)
        assert len(await team.fetch(demo_query("rows"))) >= 5
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
        await admin.fetchval(demo_query("password"), login, "secret")
    await admin.execute(demo_query("logins"))
    await transaction.rollback()


# Functions that others call, in their own sessions


async def test_insert_calls_no_lookalike(attacked: Database) -> None:
    team, janitor = await attacked.session("team_b"), await attacked.session("janitor")
    assert await outcomes(attacked, "team_b") == {"", "DI0"}
    await janitor.execute("SELECT dispatch_private.janitor_templates($1, true)", OFFERED)
    assert await outcomes(attacked, "team_b") == {"", "DI0"}
    assert (await team.fetchrow("SELECT * FROM dispatch.tasks")) is not None
    assert (await team.fetchrow("INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING *")) is not None
    operator = await attacked.session("operator")
    assert (await operator.fetchrow(CHANGE_QUEUE)) is not None
    await operator.execute("DELETE FROM dispatch.queues WHERE name = 'closed'")


async def test_functions_of_containers_and_submitters_call_no_lookalike(attacked: Database) -> None:
    team = await attacked.session("team_b")
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
        assert await team.fetchval("SELECT dispatch.task_set_priority($1, 1)", row.id) == "waiting"
        assert len(await team.fetch("SELECT * FROM dispatch.task($1)", row.id)) == 1
    assert await team.fetchval("SELECT dispatch.batch_cancel('default', 'b')") > 0
    assert await team.fetchval("SELECT dispatch.batch_retry('default', 'b')") > 0
    await team.fetch("SELECT * FROM dispatch.task_ended_since('-infinity')")
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
    team = await attacked.session("team_b")
    assert len(await team.fetch('SELECT dispatch.submit(\'[{}, {"labels": {"a": "b"}}]\')')) == 2
    for relation in [*VIEWS, *KEYED]:
        await team.fetch(f"SELECT * FROM dispatch.{relation}")
    await (await attacked.session("operator")).execute("UPDATE dispatch.queues SET weight = 3 WHERE name = 'mine'")
