"""What a DBA does to the database while a task works. The report waits until it is undone, and no work is lost."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from dispatcher.container.contract import PUT_OFF, UNREPORTED
from tests.controlplane.waiting import wait_for
from tests.rig.execing import DONE, Wrapper, sh, wrapped
from tests.rig.execing import UNTIL_TOLD as SHELL_WAITS
from tests.rig.postgres import Database, connect, url_with
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import Row, insert_row
from tests.rig.tasking import UNTIL_TOLD, Library

database = one_database

RAISES = """
CREATE FUNCTION public.fails() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'audit is broken'; END$$;
CREATE TRIGGER audit BEFORE UPDATE ON dispatch_private.tasks FOR EACH ROW EXECUTE FUNCTION public.fails()
"""
FAULTS = {
    "no lock in time": (
        "ALTER ROLE task SET lock_timeout = '50ms'; BEGIN; LOCK TABLE dispatch_private.tasks IN ACCESS EXCLUSIVE MODE",
        "ROLLBACK; ALTER ROLE task RESET lock_timeout",
    ),
    "no connections": ('ALTER DATABASE "{0}" ALLOW_CONNECTIONS false', 'ALTER DATABASE "{0}" ALLOW_CONNECTIONS true'),
    "no right to connect": (
        'REVOKE CONNECT ON DATABASE "{0}" FROM PUBLIC',
        'GRANT CONNECT ON DATABASE "{0}" TO PUBLIC',
    ),
    "no login": ("ALTER ROLE task NOLOGIN", "ALTER ROLE task LOGIN"),
    "another password": ("ALTER ROLE task PASSWORD 'other'", "ALTER ROLE task PASSWORD 'task'"),
    "read-only": (
        "ALTER ROLE task SET default_transaction_read_only = on",
        "ALTER ROLE task RESET default_transaction_read_only",
    ),
    "no right to call": (
        "REVOKE EXECUTE ON FUNCTION dispatch.task_finish FROM dispatch_task",
        "GRANT EXECUTE ON FUNCTION dispatch.task_finish TO dispatch_task",
    ),
    "a trigger that fails": (RAISES, "DROP FUNCTION public.fails CASCADE"),
}


async def anywhere(database: Database, begin: str) -> asyncpg.Connection:
    """An administrator's session. The server refuses to close a database from a session in it."""
    return await (connect(elsewhere(database)) if "ALLOW_CONNECTIONS" in begin else database.connect())


def elsewhere(database: Database) -> str:
    return url_with(database.admin_url, database="postgres")


def running(program: str, row: Row, **settings: Any) -> AbstractAsyncContextManager[Wrapper]:
    """The program, which says `begun`, waits for a line, and reports 17."""
    if program == "exec":
        return wrapped(row, *sh(f'{SHELL_WAITS}; echo 17 > "$TASK_RESULT_FILE"'), **settings)
    return Library(program).runs(row, f"with quick() as t: {UNTIL_TOLD}; t.finish(17)", **settings)


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - {"another password"}))
@pytest.mark.parametrize("program", ["exec", "asyncpg", "psycopg"])
async def test_report_waits_until_the_fault_is_over(database: Database, program: str, fault: str) -> None:
    row = await insert_row(database)
    begin, end = (statement.format(database.name) for statement in FAULTS[fault])
    admin = await anywhere(database, begin)
    async with running(program, row) as wrapper:
        await wrapper.says("begun")
        await admin.execute(begin)
        try:
            wrapper.go()
            await wait_for(lambda: b"task_finish: " in wrapper.err, "a report fails", check=wrapper.check)
        finally:
            await admin.execute(end)
            await admin.close()
        ended = await wrapper.has_ended(30)
    assert (ended.status, await row.status(), (await row.now())["result"]) == (DONE, "succeeded", 17), ended


@pytest.mark.parametrize("program", ["exec", "asyncpg"])
async def test_report_waits_until_a_file_of_the_url_is_there_again(
    database: Database, program: str, tmp_path: Path
) -> None:
    """A program beside the container writes it anew."""
    row, roots = await insert_row(database), tmp_path / "ca.crt"
    roots.write_text("-----BEGIN CERTIFICATE-----")
    async with running(program, row, TASK_DATABASE_URL=f"{database.url('task')}?sslrootcert={roots}") as wrapper:
        await wrapper.says("begun")
        away = roots.rename(tmp_path / "away")
        wrapper.go()
        await wait_for(lambda: b"ca.crt cannot be read" in wrapper.err, "a report fails", check=wrapper.check)
        away.rename(roots)
        ended = await wrapper.has_ended(30)
    assert (ended.status, (await row.now())["result"]) == (DONE, 17), ended


@pytest.mark.parametrize("program", ["exec", "asyncpg", "psycopg"])
async def test_report_with_a_password_of_before_is_given_up_so_that_the_row_runs_again(
    database: Database, program: str
) -> None:
    """The environment of a container keeps the old password. Asking until the run limit would only delay the row."""
    row = await insert_row(database)
    admin = await database.session("admin")
    begin, end = FAULTS["another password"]
    async with running(program, row) as wrapper:
        await wrapper.says("begun")
        await admin.execute(begin)
        try:
            wrapper.go()
            ended = await wrapper.has_ended(30)
        finally:
            await admin.execute(end)
    assert (ended.status, await row.status()) == (UNREPORTED, "processing"), ended


@pytest.mark.parametrize("program", ["exec", "asyncpg", "psycopg"])
async def test_result_that_the_database_refuses_is_a_failure_at_once(database: Database, program: str) -> None:
    """The database cannot store the number. Asking again would not help."""
    row = await insert_row(database)
    body = "with quick() as t: t.finish({'a': 1}); t._finished = t._finished._replace(result='[' * 9000)"
    deep = sh("""python3 -c 'print("[" * 30000 + "]" * 30000)' > "$TASK_RESULT_FILE" """)
    one = wrapped(row, *deep) if program == "exec" else Library(program).runs(row, body)
    async with one as wrapper:
        ended = await wrapper.has_ended(30)
    assert "asked again" not in ended.said
    assert (ended.status, await row.status()) == (1, "failed"), ended


@pytest.mark.parametrize("program", ["exec", "asyncpg", "psycopg"])
@pytest.mark.parametrize("fault", ["no login", "another password", "no right to connect", "read-only"])
async def test_start_that_is_never_taken_ends_with_its_own_status(database: Database, program: str, fault: str) -> None:
    row = await insert_row(database)
    begin, end = (statement.format(database.name) for statement in FAULTS[fault])
    admin = await anywhere(database, begin)
    await admin.execute(begin)
    try:
        async with running(program, row, TASK_TIMEOUT_SECONDS=1) as wrapper:
            ended = await wrapper.has_ended(30)
    finally:
        await admin.execute(end)
        await admin.close()
    assert (ended.status, ended.out, await row.status()) == (PUT_OFF, b"", "waiting"), ended
    assert "not started: " in ended.said
    assert "task:task" not in ended.said
