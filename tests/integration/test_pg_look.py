"""A look at the rows: one snapshot of the primary, by a session that cannot write, or a fault that says why not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from dispatcher.model.errors import DatabaseAway, DatabaseUnfit
from dispatcher.model.tasks import IndexedRow, Kind, Queue, Status
from dispatcher.pg.connect import SESSION, Session
from dispatcher.pg.migrate import NEWEST
from dispatcher.pg.tasks import NEEDED_INDEXES, Look, look
from tests.postgres import Database, PostgresServer, url_with
from tests.rows import insert_row


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Session]:
    session = Session(lambda: url)
    try:
        yield session
    finally:
        await session.close()


@pytest_asyncio.fixture(loop_scope="session")
async def session(database: Database) -> AsyncIterator[Session]:
    async with opened(database.url("reader")) as made:
        yield made


async def waiting(rows: Look) -> list[int]:
    return [row.id for row in await rows.indexed_rows({"default": 100})]


async def ids(session: Session) -> list[int]:
    async with look(session) as rows:
        return await waiting(rows)


class TestSnapshot:
    async def test_what_is_committed_meanwhile_is_not_seen(self, database: Database, session: Session) -> None:
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

    async def test_it_says_which_database_and_when_by_its_clock(self, database: Database, session: Session) -> None:
        admin = await database.session("admin")
        async with look(session) as rows:
            assert rows.database_id == str(
                await admin.fetchval("SELECT database_id FROM dispatch.schema_version LIMIT 1")
            )
            clock = await admin.fetchval("SELECT clock_timestamp()")
        assert timedelta() <= clock - rows.now < timedelta(seconds=5)
        assert rows.now.utcoffset() == timedelta()

    async def test_rows_come_as_the_facts_they_are(self, database: Database, session: Session) -> None:
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
    async def test_it_has_the_settings_it_asks_for(self, session: Session) -> None:
        async with session.use() as connection:
            found = {name: await connection.fetchval("SELECT current_setting($1)", name) for name in SESSION}
        assert found == SESSION | {"statement_timeout": "5s", "idle_in_transaction_session_timeout": "10s"}

    @pytest.mark.parametrize(
        "statement",
        ["INSERT INTO dispatch.tasks DEFAULT VALUES", "CREATE TABLE t ()", "SELECT nextval('dispatch.tasks_clock')"],
    )
    async def test_it_cannot_write_whoever_logs_in(self, database: Database, statement: str) -> None:
        async with opened(database.admin_url) as mighty:
            with pytest.raises(DatabaseUnfit, match="read-only transaction"):
                async with mighty.use() as connection:
                    await connection.execute(statement)

    async def test_whoever_uses_it_has_it_alone(self, session: Session) -> None:
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

    async def test_a_look_that_is_cancelled_leaves_nothing_broken(self, database: Database, session: Session) -> None:
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

    async def test_a_cancel_while_it_is_connected_leaves_nothing_broken(self, session: Session) -> None:
        for yields in range(8):
            task = asyncio.create_task(ids(session))
            for _ in range(yields):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await ids(session) == []

    @pytest.mark.fault(1)
    async def test_a_query_that_takes_too_long_is_a_database_that_does_not_answer(self, session: Session) -> None:
        async def sleep() -> None:
            async with session.use() as connection:
                await connection.execute("SET statement_timeout = '20ms'")
                await connection.execute("SELECT pg_sleep(1)")

        with pytest.raises(DatabaseAway, match="statement timeout"):
            await sleep()
        async with session.use() as connection:
            assert await connection.fetchval("SHOW statement_timeout") == "5s"

    async def test_a_bug_of_ours_leaves_no_transaction_open(self, session: Session) -> None:
        with pytest.raises(KeyError):
            async with look(session):
                raise KeyError("ours")
        async with session.use() as connection:
            assert not connection.is_in_transaction()
        assert await ids(session) == []


@pytest.mark.fault(9)
class TestUnfit:
    async def test_an_old_schema(self, database: Database, session: Session) -> None:
        admin = await database.session("admin")
        (newest,) = await admin.fetch("DELETE FROM dispatch.schema_version WHERE version = $1 RETURNING *", NEWEST)
        told = f"schema version is {NEWEST - 1}, this version needs {NEWEST}: run `dispatcher migrate`"
        with pytest.raises(DatabaseUnfit, match=told):
            await ids(session)
        await admin.execute("INSERT INTO dispatch.schema_version VALUES ($1, $2, $3, $4, $5)", *newest)
        assert await ids(session) == []

    async def test_no_schema_at_all(self, postgres: PostgresServer) -> None:
        empty = await postgres.create_database(migrated=False)
        async with opened(empty.admin_url) as session:
            with pytest.raises(DatabaseUnfit, match=r"schema_version\" does not exist"):
                await ids(session)
        await empty.drop()

    @pytest.mark.parametrize("name", NEEDED_INDEXES)
    async def test_an_index_that_is_missing_or_invalid(self, database: Database, session: Session, name: str) -> None:
        admin = await database.session("admin")
        validity = "UPDATE pg_index SET indisvalid = $2 WHERE indexrelid = ('dispatch.' || $1)::regclass"
        rename = "ALTER INDEX dispatch.{} RENAME TO {}"
        ways: list[tuple[list[Any], list[Any]]] = [
            ([validity, name, False], [validity, name, True]),
            ([rename.format(name, "elsewhere")], [rename.format("elsewhere", name)]),
        ]
        for spoil, mend in ways:
            await admin.execute(*spoil)
            with pytest.raises(DatabaseUnfit, match=f"index {name} is missing or invalid"):
                await ids(session)
            await admin.execute(*mend)
            assert await ids(session) == []

    async def test_a_privilege_that_is_missing(self, database: Database, session: Session) -> None:
        task_id, admin = await database.insert_task(), await database.session("admin")
        await admin.execute("REVOKE SELECT (spec) ON dispatch.tasks FROM dispatch_reader")
        with pytest.raises(DatabaseUnfit, match="permission denied for table tasks"):
            async with look(session) as rows:
                await rows.requests([task_id])
        await admin.execute("GRANT SELECT (spec) ON dispatch.tasks TO dispatch_reader")
        async with look(session) as rows:
            assert task_id in await rows.requests([task_id])

    @pytest.mark.parametrize("fault", ["password", "database"])
    async def test_a_login_that_is_refused(self, database: Database, fault: str) -> None:
        url = database.url("reader")
        wrong = url.replace(":reader@", ":wrong@") if fault == "password" else url_with(url, database="nowhere")
        async with opened(wrong) as session:
            with pytest.raises(DatabaseUnfit, match="refuses the login") as refusal:
                await ids(session)
        assert "wrong" not in str(refusal.value)
