"""The dispatcher reads from the catalog whether containers could report. One login that works is enough."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from dispatcher.pg.connect import SESSION, Session
from dispatcher.pg.tasks import look
from tests.integration.looking import opened
from tests.integration.plans import Plan
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import own_database

database = own_database

DATABASE_SET = 'ALTER DATABASE "{0}" SET default_transaction_read_only = '
REFUSED = {
    "may not log in (NOLOGIN)": ("ALTER ROLE task NOLOGIN", "ALTER ROLE task LOGIN"),
    "has a password that was VALID UNTIL 2020-01-01 00:00 UTC": (
        "ALTER ROLE task VALID UNTIL '2020-01-01 UTC'",
        "ALTER ROLE task VALID UNTIL 'infinity'",
    ),
    "has CONNECTION LIMIT 0": ("ALTER ROLE task CONNECTION LIMIT 0", "ALTER ROLE task CONNECTION LIMIT -1"),
    "cannot connect: the database has CONNECTION LIMIT 0": (
        'ALTER DATABASE "{0}" CONNECTION LIMIT 0',
        'ALTER DATABASE "{0}" CONNECTION LIMIT -1',
    ),
    "has no right CONNECT on the database": (
        'REVOKE CONNECT ON DATABASE "{0}" FROM PUBLIC; GRANT CONNECT ON DATABASE "{0}" TO dispatch_reader',
        'GRANT CONNECT ON DATABASE "{0}" TO PUBLIC; REVOKE CONNECT ON DATABASE "{0}" FROM dispatch_reader',
    ),
    "has no right USAGE on schema dispatch": (
        "REVOKE USAGE ON SCHEMA dispatch FROM dispatch_task",
        "GRANT USAGE ON SCHEMA dispatch TO dispatch_task",
    ),
    "has no right EXECUTE on dispatch.task_start": (
        "REVOKE EXECUTE ON FUNCTION dispatch.task_start FROM dispatch_task",
        "GRANT EXECUTE ON FUNCTION dispatch.task_start TO dispatch_task",
    ),
    "has default_transaction_read_only on": (
        "ALTER ROLE task SET default_transaction_read_only = on",
        "ALTER ROLE task RESET default_transaction_read_only",
    ),
}


@pytest_asyncio.fixture(loop_scope="session")
async def reader(database: Database) -> AsyncIterator[Session]:
    async with opened(database.url("reader")) as session:
        yield session


async def told(reader: Session) -> str:
    async with look(reader) as rows:
        return rows.frame.tasks_refused


@asynccontextmanager
async def changed(database: Database, *statements: str) -> AsyncIterator[None]:
    """Does the first statement, and the second one at the end."""
    admin = await database.session("admin")
    begin, end = (statement.format(database.name) for statement in statements)
    await admin.execute(begin)
    try:
        yield
    finally:
        await admin.execute("SET default_transaction_read_only = off")
        await admin.execute(end)


@pytest.mark.parametrize("why", REFUSED)
async def test_login_that_cannot_report_is_told(database: Database, reader: Session, why: str) -> None:
    assert await told(reader) == ""
    async with changed(database, *REFUSED[why]):
        assert await told(reader) == f'login "task" {why}'
    assert await told(reader) == ""


async def test_second_login_that_can_report_is_enough(database: Database, reader: Session) -> None:
    second = "CREATE ROLE other_tasks LOGIN IN ROLE dispatch_task", "DROP ROLE other_tasks"
    async with changed(database, *second), changed(database, *REFUSED["may not log in (NOLOGIN)"]):
        assert await told(reader) == ""


async def test_group_between_is_no_login(database: Database, reader: Session) -> None:
    group = "CREATE ROLE team_tasks IN ROLE dispatch_task; GRANT team_tasks TO task", "DROP ROLE team_tasks"
    async with changed(database, *group), changed(database, *REFUSED["may not log in (NOLOGIN)"]):
        assert await told(reader) == 'login "task" may not log in (NOLOGIN)'


async def test_read_only_database_is_told_unless_the_login_may_write(database: Database, reader: Session) -> None:
    frozen = DATABASE_SET + "on", 'ALTER DATABASE "{0}" RESET default_transaction_read_only'
    excepted = (
        "ALTER ROLE task SET default_transaction_read_only = off",
        "ALTER ROLE task RESET default_transaction_read_only",
    )
    async with changed(database, *frozen), opened(database.url("reader")) as fresh:
        assert await told(fresh) == 'login "task" has default_transaction_read_only on'
        async with changed(database, *excepted):
            assert await told(fresh) == ""


async def test_dispatcher_that_may_only_read_holds_nobody(database: Database, reader: Session) -> None:
    own = (
        "ALTER ROLE dispatcher_reader SET default_transaction_read_only = on",
        "ALTER ROLE dispatcher_reader RESET default_transaction_read_only",
    )
    login = urlsplit(database.url("reader")).username or ""
    async with (
        changed(database, *(statement.replace("dispatcher_reader", login) for statement in own)),
        opened(database.url("reader")) as frozen,
    ):
        assert await told(frozen) == ""


TIMEOUTS = [
    *((value, True) for value in ("1", "9s", "5ms", "0x1F4", "0500", "0.01min", "1e3", "1.5s", "9999")),
    *((value, False) for value in ("10s", "0", "0s", "10000", "20000ms", "1h", "2 min")),
]
"""Postgres reads hexadecimal and octal numbers, fractions and exponents."""


@pytest.mark.parametrize(("value", "is_told"), TIMEOUTS)
async def test_transaction_timeout_that_ends_each_call_is_named(
    database: Database, reader: Session, value: str, is_told: bool
) -> None:
    """Postgres 17 has it. A container may set it for the login of all containers."""
    admin = await database.session("admin")
    if int(await admin.fetchval("SELECT current_setting('server_version_num')::int")) < 170000:
        return
    await admin.execute(f"ALTER ROLE task SET transaction_timeout = '{value}'")
    try:
        assert await told(reader) == (f'login "task" has transaction_timeout {value}' if is_told else "")
    finally:
        await admin.execute("ALTER ROLE task RESET transaction_timeout")


async def test_huge_setting_of_a_login_is_not_read_by_each_look(database: Database, reader: Session) -> None:
    admin = await database.session("admin")
    await admin.execute(
        "SELECT set_config('x.y', string_agg(md5(n::text), ''), false) FROM generate_series(1, 200000) AS n"
    )
    await admin.execute("ALTER ROLE task SET x.y FROM CURRENT")
    try:
        assert await admin.fetchval(
            "SELECT pg_column_size(setconfig) > 3000000 FROM pg_db_role_setting WHERE setrole = 'task'::regrole"
        )
        assert await told(reader) == 'login "task" has settings that are too long to be read: ALTER ROLE … RESET ALL'
        plan = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM dispatch_private.task_logins()"
        session = await database.session("reader")
        await session.fetchval(plan)  # this one reads the catalog, too
        (found,) = json.loads(await session.fetchval(plan))
        assert found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"] < 100
    finally:
        await admin.execute("ALTER ROLE task RESET x.y")


async def test_members_of_other_roles_are_not_read_by_each_look(database: Database) -> None:
    """A server may have a role for each of ten thousand customers: each look grouped all of them, for 20 ms."""
    admin = await database.session("admin")
    body = await admin.fetchval("SELECT prosrc FROM pg_proc WHERE proname = 'task_logins'")
    transaction = admin.transaction()
    await transaction.start()
    try:
        for name, value in SESSION.items():
            await admin.execute("SELECT set_config($1, $2, true)", name, value)
        await admin.execute("".join(f"CREATE ROLE of_{number} IN ROLE dispatch_observer;" for number in range(300)))
        (found,) = json.loads(await admin.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {body}"))
        assert max(node["Actual Rows"] for node in Plan(found["Plan"]).nodes()) < 100
    finally:
        await transaction.rollback()
