"""A look at the rows: one snapshot of the primary, by a session that cannot write, or a fault with its reason.

History and runs of cache keys have the right nodes in the right order: one query serves a batch, and a key with a
hundred thousand runs costs no more than any other.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from dispatcher.model.errors import DatabaseAway, DatabaseUnfit
from dispatcher.model.tasks import IndexedRow, Kind, Queue, Status
from dispatcher.pg.connect import SESSION, Session, open_connection
from dispatcher.pg.migrate import NEWEST
from dispatcher.pg.queries import query
from dispatcher.pg.questions import questions
from dispatcher.pg.tasks import NEEDED_INDEXES, look
from tests.controlplane.waiting import wait_for
from tests.integration.looking import ids, opened, waiting
from tests.rig.postgres import Connection, Database, PostgresServer, url_with
from tests.rig.rows import insert_row


@pytest_asyncio.fixture(loop_scope="session")
async def session(database: Database) -> AsyncIterator[Session]:
    async with opened(database.url("reader")) as made:
        yield made


class TestSnapshot:
    async def test_look_does_not_see_later_commits(self, database: Database, session: Session) -> None:
        row = await insert_row(database)
        async with look(session, 10) as rows:
            assert await waiting(rows) == [row.id]
            await row.started()
            await insert_row(database)
            assert await waiting(rows) == [row.id]
            assert (await rows.tasks([row.id]))[row.id].status is Status.WAITING
            assert rows.frame.held == []
        async with look(session, 10) as rows:
            assert (await rows.tasks([row.id]))[row.id].status is Status.PROCESSING
            assert rows.frame.held == [row.id]

    async def test_look_has_the_database_id_and_the_time_of_its_clock(
        self, database: Database, session: Session
    ) -> None:
        admin = await database.session("admin")
        async with look(session) as rows:
            assert rows.database_id == str(
                await admin.fetchval("SELECT database_id FROM dispatch.schema_version LIMIT 1")
            )
            clock = await admin.fetchval("SELECT clock_timestamp()")
        assert timedelta() <= clock - rows.now < timedelta(seconds=5)
        assert rows.now.utcoffset() == timedelta()

    async def test_look_returns_rows_as_facts(self, database: Database, session: Session) -> None:
        env, spec = {"A": "$(B) ü"}, {"image": "r.example/a:1", "args": ["x"]}
        task_id = await database.insert_task(
            priority=7, max_failures=2, timeout_seconds=60, env=env, spec=spec, cache_key="warm"
        )
        later = await database.insert_task(run_at=await in_an_hour(database))
        async with look(session) as rows:
            (found,) = await rows.indexed_rows({"default": 10, "nobodys": 10})
            (kind,) = await rows.kinds([task_id])
            task, request = (await rows.tasks([task_id]))[task_id], (await rows.requests([task_id]))[task_id]
            assert await rows.waiting([task_id]) == ({task_id: task}, {task_id: request})
            assert rows.frame.next_due == (await rows.tasks([later]))[later].run_at
            assert Queue("default") in rows.frame.queues
        assert found == IndexedRow(task_id, 1, 7, "default", task.kind, "team_a")
        assert kind == Kind(
            task.kind, "default", 60, {"image": "r.example/a:1"}, frozenset({"image", "args"}), frozenset({"A"})
        )
        assert (task.priority, task.max_failures, task.status, task.launch) == (7, 2, Status.WAITING, 0)
        assert (request.env, request.spec, request.cache_key) == (env, spec, "warm")


async def in_an_hour(database: Database) -> object:
    return await (await database.session("admin")).fetchval("SELECT now() + interval '1 hour'")


class TestSession:
    async def test_place_of_a_row_is_told_by_priority_and_id_among_those_that_are_due(
        self, database: Database, session: Session
    ) -> None:
        late, first, second = [
            (await insert_row(database, priority=priority)).id for priority in (900, 100, 100)
        ]  # fmt: skip
        await insert_row(database, priority=0, run_at=datetime(2100, 1, 1, tzinfo=UTC))
        due = (await insert_row(database, priority=500, run_at=datetime(2020, 1, 1, tzinfo=UTC))).id
        admin = await database.session("admin")
        await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('other')")
        await insert_row(database, priority=0, queue="other")
        async with questions(session) as rows:
            tasks = await rows.tasks([late, first, second, due])
            lines = [await rows.line(tasks[id_]) for id_ in (first, second, due, late)]
            assert await rows.task(10**9) is None
        assert [(line.before, line.of) for line in lines] == [(0, 4), (1, 4), (2, 4), (3, 4)]

    async def test_session_has_its_settings(self, session: Session) -> None:
        async with session.use() as connection:
            found = {name: await connection.fetchval("SELECT current_setting($1)", name) for name in SESSION}
        assert found == SESSION | {"statement_timeout": "5s", "idle_in_transaction_session_timeout": "10s"}

    @pytest.mark.parametrize(
        "statement",
        [
            "INSERT INTO dispatch.tasks DEFAULT VALUES",
            "CREATE TABLE t ()",
            "SELECT nextval('dispatch_private.tasks_clock_0')",
        ],
    )
    async def test_session_cannot_write_with_any_login(self, database: Database, statement: str) -> None:
        async with opened(database.admin_url) as superuser:
            with pytest.raises(DatabaseUnfit, match="read-only transaction"):
                async with superuser.use() as connection:
                    await connection.execute(statement)

    async def test_session_has_one_user_at_a_time(self, session: Session) -> None:
        order: list[str] = []
        inside, leave = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            async with session.use():
                inside.set()
                await leave.wait()
                order.append("first")

        async def second() -> None:
            await inside.wait()
            asyncio.get_running_loop().call_soon(leave.set)
            async with session.use():
                order.append("second")

        await asyncio.gather(first(), second())
        assert order == ["first", "second"]

    async def test_cancelled_look_leaves_the_session_usable(self, database: Database, session: Session) -> None:
        task_id, began = await database.insert_task(), asyncio.Event()

        async def sleep() -> None:
            async with look(session) as rows:
                sleeping = rows._connection.execute("SELECT pg_sleep(4)")
                asyncio.get_running_loop().call_soon(began.set)
                await sleeping

        for _ in range(3):
            task = asyncio.create_task(sleep())
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await ids(session) == [task_id]

    async def test_cancel_while_connecting_leaves_the_session_usable(self, session: Session) -> None:
        for yields in range(8):
            task = asyncio.create_task(ids(session))
            for _ in range(yields):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await ids(session) == []

    @pytest.mark.fault(1)
    async def test_query_that_takes_too_long_counts_as_an_absent_database(self, session: Session) -> None:
        async def sleep() -> None:
            async with session.use() as connection:
                await connection.execute("SET statement_timeout = '20ms'")
                await connection.execute("SELECT pg_sleep(1)")

        with pytest.raises(DatabaseAway, match="statement timeout"):
            await sleep()
        async with session.use() as connection:
            assert await connection.fetchval("SHOW statement_timeout") == "5s"

    async def test_bug_in_a_look_leaves_no_transaction_open(self, session: Session) -> None:
        with pytest.raises(KeyError):
            async with look(session):
                raise KeyError("ours")
        async with session.use() as connection:
            assert not connection.is_in_transaction()
        assert await ids(session) == []


@pytest.mark.fault(9)
class TestUnfit:
    async def test_old_schema_is_unfit(self, database: Database, session: Session) -> None:
        admin = await database.session("admin")
        moved = "UPDATE dispatch_private.schema_version SET version = $2 WHERE version = $1"
        await admin.execute(moved, NEWEST, -1)
        told = f"schema version is {NEWEST - 1}, this version needs {NEWEST}: run `dispatcher migrate`"
        with pytest.raises(DatabaseUnfit, match=told):
            await ids(session)
        await admin.execute(moved, -1, NEWEST)
        assert await ids(session) == []

    async def test_newer_schema_is_fit_until_it_has_removed_something(
        self, database: Database, session: Session
    ) -> None:
        admin = await database.session("admin")
        newer = "INSERT INTO dispatch_private.schema_version VALUES ($1, $2, 'x', gen_random_uuid())"
        await admin.execute(newer, NEWEST + 1, "more_pre_x.sql")
        assert await ids(session) == []
        await admin.execute(newer, NEWEST + 2, "less_post_x.sql")
        with pytest.raises(DatabaseUnfit, match=r"less_post_x\.sql of a newer version"):
            await ids(session)

    async def test_missing_schema_is_unfit(self, postgres: PostgresServer) -> None:
        empty = await postgres.create_database(migrated=False)
        async with opened(empty.admin_url) as session:
            with pytest.raises(DatabaseUnfit, match=f"one of a version before {NEWEST}: run `dispatcher migrate`"):
                await ids(session)
        await empty.drop()

    @pytest.mark.parametrize("name", NEEDED_INDEXES)
    async def test_missing_or_invalid_index_is_unfit(self, database: Database, session: Session, name: str) -> None:
        admin = await database.session("admin")
        validity = "UPDATE pg_index SET indisvalid = $2 WHERE indexrelid = ('dispatch_private.' || $1)::regclass"
        rename = "ALTER INDEX dispatch_private.{} RENAME TO {}"
        ways: list[tuple[list[Any], list[Any]]] = [
            ([validity, name, False], [validity, name, True]),
            ([rename.format(name, "elsewhere")], [rename.format("elsewhere", name)]),
        ]
        for spoil, repair in ways:
            await admin.execute(*spoil)
            with pytest.raises(DatabaseUnfit, match=f"index {name} is missing or invalid: `dispatcher doctor`"):
                await ids(session)
            await admin.execute(*repair)
            assert await ids(session) == []

    async def test_missing_privilege_is_unfit(self, database: Database, session: Session) -> None:
        task_id, admin = await database.insert_task(), await database.session("admin")
        await admin.execute("REVOKE SELECT (spec) ON dispatch_private.tasks FROM dispatch_reader")
        with pytest.raises(DatabaseUnfit, match="permission denied for table tasks"):
            async with look(session) as rows:
                await rows.requests([task_id])
        await admin.execute("GRANT SELECT (spec) ON dispatch_private.tasks TO dispatch_reader")
        async with look(session) as rows:
            assert task_id in await rows.requests([task_id])

    @pytest.mark.parametrize("fault", ["password", "database"])
    async def test_refused_login_is_unfit(self, database: Database, fault: str) -> None:
        url = database.url("reader")
        wrong = url.replace(":reader@", ":wrong@") if fault == "password" else url_with(url, database="nowhere")
        async with opened(wrong) as session:
            with pytest.raises(DatabaseUnfit, match="refuses the login") as refusal:
                await ids(session)
        assert "wrong" not in str(refusal.value)


RUNS = """
INSERT INTO dispatch_private.tasks
    (queue, cache_key, status, launch, started_at, finished_at, node_name, pod_name, kind)
SELECT $1, $2, $3, 1, now() - interval '1 s' * (age + 5), now() - interval '1 s' * age, node, 'pod-' || age, 'x'
FROM unnest($4::text[], $5::int[]) AS run (node, age)
"""
MANY = """
INSERT INTO dispatch_private.tasks (queue, cache_key, status, launch, finished_at, node_name, kind)
SELECT 'default', $1, 'succeeded', 1, now() - interval '1 s' * n, $2 || n % $3, 'x' FROM generate_series(1, 100000) AS n
"""


async def ran(admin: Connection, *nodes: str | None, queue: str = "default", key: str = "k", **how: Any) -> None:
    """Inserts runs, one second apart, oldest first; the last run ended `ago` seconds ago."""
    last = how.get("ago", 0)
    ages = [last + len(nodes) - number for number in range(len(nodes))]
    await admin.execute("SET session_replication_role = replica")
    await admin.execute(RUNS, queue, key, how.get("status", "succeeded"), list(nodes), ages)


@pytest_asyncio.fixture(loop_scope="session")
async def admin(database: Database) -> Connection:
    return await database.session("admin")


async def histories(session: Session, *keys: tuple[str, str]) -> dict[tuple[str, str], tuple[str, ...]]:
    async with look(session) as rows:
        return {key: tuple(nodes) for key, nodes in (await rows.histories(keys)).items()}


async def history(session: Session, queue: str = "default", key: str = "k") -> tuple[str, ...]:
    return (await histories(session, (queue, key))).get((queue, key), ())


async def test_history_is_the_newest_three_distinct_nodes_newest_first(admin: Connection, session: Session) -> None:
    await ran(admin, "a", "b", "a", "a")
    assert await history(session) == ("a", "b")
    await ran(admin, "z", "y", "d", "c", "c", ago=-10)
    assert await history(session) == ("c", "d", "y")


async def test_history_tells_how_long_ago_each_node_had_its_last_run(admin: Connection, session: Session) -> None:
    await ran(admin, "old", ago=500)
    await ran(admin, "new", "new", ago=100)
    async with look(session) as rows:
        found = (await rows.histories([("default", "k")]))["default", "k"]
    assert list(found) == ["new", "old"]
    assert 100 <= found["new"] < 200
    assert 500 <= found["old"] < 600


async def test_only_success_on_a_known_node_counts(admin: Connection, session: Session) -> None:
    await ran(admin, "failed-here", status="failed")
    await ran(admin, "cancelled-here", status="cancelled")
    await ran(admin, None, "")
    assert await history(session) == ()
    await ran(admin, "a", ago=100)
    assert await history(session) == ("a",)


async def test_key_of_another_queue_is_another_key(admin: Connection, session: Session) -> None:
    await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('other')")
    await ran(admin, "a")
    await ran(admin, "b", queue="other")
    await ran(admin, "c", key="")
    found = await histories(session, ("default", "k"), ("other", "k"), ("default", ""), ("default", "unknown"))
    assert found == {("default", "k"): ("a",), ("other", "k"): ("b",), ("default", ""): ("c",)}


async def test_node_is_found_behind_a_hundred_runs_on_other_nodes(admin: Connection, session: Session) -> None:
    await ran(admin, "b", "a", *["c"] * 100)
    assert await history(session) == ("c", "a", "b")


async def test_runs_are_the_newest_ten_with_their_pods_and_times(admin: Connection, session: Session) -> None:
    await ran(admin, *["a"] * 12)
    async with look(session) as rows:
        found = await rows.runs([("default", "k"), ("default", "unknown")])
    assert [run.pod for run in found["default", "k"]] == [f"pod-{age}" for age in range(1, 11)]
    assert {(run.ended - run.began).total_seconds() for run in found["default", "k"]} == {5.0}
    assert found["default", "unknown"] == []


async def pages(database: Database, key: str) -> int:
    """Pages that the query touches, by the plan that a session of the dispatcher has for it."""
    reader = await open_connection(database.url("reader"))
    try:
        await reader.execute(f"PREPARE looked_at AS {query('histories', 'caches')}")
        told = await reader.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE looked_at ('{{default}}', '{{{key}}}', 3)"
        )
    finally:
        reader.terminate()
    plan = json.loads(told)[0]["Plan"]
    assert "tasks_history" in told
    assert '"Seq Scan"' not in told
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.slow
async def test_key_with_a_hundred_thousand_runs_costs_no_more_than_one_with_three(
    database: Database, admin: Connection
) -> None:
    await ran(admin, "a", "b", "c", key="few")
    await admin.execute(MANY, "on-every-node", "node-", 5000)
    await admin.execute(MANY, "on-three-nodes", "node-", 3)
    await admin.execute(MANY, "on-one-node", "node-", 1)

    async def vacuumed() -> bool:
        await admin.execute("VACUUM ANALYZE dispatch_private.tasks")
        return bool(await admin.fetchval("SELECT relallvisible = relpages FROM pg_class WHERE relname = 'tasks'"))

    await wait_for(vacuumed, "every page is all-visible", 60)
    few = await pages(database, "few")
    assert await pages(database, "on-every-node") <= few + 3
    assert await pages(database, "on-three-nodes") <= few + 3
    assert await pages(database, "on-one-node") <= 60, "at most a thousand entries of the index"
