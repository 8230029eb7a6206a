"""The janitor writes only by its four functions, and no other login may call them."""

from __future__ import annotations

import asyncpg
import pytest

from tests.postgres import LOGINS, Database

FUNCTIONS = {"janitor_return", "janitor_end", "janitor_cancel", "janitor_delete"}
EXECUTE = """
SELECT proname FROM pg_proc WHERE pronamespace = 'dispatch'::regnamespace AND proname LIKE 'janitor%'
   AND has_function_privilege($1, oid, 'EXECUTE')
"""
WRITERS = """
SELECT proname FROM pg_proc WHERE pronamespace = 'dispatch'::regnamespace AND provolatile = 'v'
   AND has_function_privilege('janitor', oid, 'EXECUTE')
"""
OF_PUBLIC = """
SELECT proname FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner))) AS acl
 WHERE pronamespace = 'dispatch'::regnamespace AND acl.grantee = 0
"""


@pytest.mark.parametrize("login", LOGINS)
async def test_functions_of_the_janitor_are_only_for_its_login(database: Database, login: str) -> None:
    admin = await database.session("admin")
    may = {row[0] for row in await admin.fetch(EXECUTE, login)}
    assert may == (FUNCTIONS if login == "janitor" else set())


async def test_janitor_calls_no_other_function_that_writes(database: Database) -> None:
    admin = await database.session("admin")
    assert {row[0] for row in await admin.fetch(WRITERS)} == FUNCTIONS


async def test_functions_of_the_janitor_are_not_public(database: Database) -> None:
    admin = await database.session("admin")
    assert not FUNCTIONS & {row[0] for row in await admin.fetch(OF_PUBLIC)}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dispatch.tasks SET status = 'failed'",
        "UPDATE dispatch.tasks SET priority = 0",
        "DELETE FROM dispatch.tasks",
        "INSERT INTO dispatch.tasks DEFAULT VALUES",
        "DELETE FROM dispatch.task_launches",
        "UPDATE dispatch.queues SET paused_until = 'infinity'",
        "SELECT payload FROM dispatch.tasks",
        "SELECT result FROM dispatch.tasks",
        "SELECT dispatch.task_cancel(1)",
        "SELECT dispatch.task_retry(1)",
        "SELECT dispatch.close_launch(1)",
        "SELECT dispatch.announce('dispatch_done', 'dispatch.done_clock')",
    ],
)
async def test_janitor_writes_nothing_without_its_functions(database: Database, statement: str) -> None:
    session = await database.session("janitor")
    await session.execute("SET default_transaction_read_only = off")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await session.execute(statement)
