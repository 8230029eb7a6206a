"""Every name in `sql/` is found with pg_catalog alone in the path: one of our names without its schema fails here."""

from __future__ import annotations

import re

import asyncpg
import pytest

from dispatcher.pg.connect import SESSION, open_connection
from dispatcher.pg.queries import blocks, query, read_sql, sql_folder
from dispatcher_demo.statements import demo_blocks, demo_query
from tests.rig.postgres import LOGINS, Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.statements import OF_READER, of_reader

database = one_database

PATH = "pg_catalog, pg_temp"
RUN_BY = {
    **dict.fromkeys(OF_READER.values(), "reader"),
    "connect": "reader",
    "janitor": "janitor",
    "migrate": "admin",
    "rights": "admin",
}
RUN_IN_DEMO_BY = {"report": "task", **dict.fromkeys(("queue", "logins", "password", "database"), "admin")}
STATEMENTS = sorted((file, block) for file in RUN_BY for block in blocks(file))
OF_CONTAINERS = sorted(file.name for file in (sql_folder() / "exec").iterdir())
BY_JANITOR = ["frame", "submitters", "candidates_of", "kinds", "tasks", "contenders"]

UNPINNED_DEFINERS = """
SELECT oid::regprocedure::text FROM pg_proc
WHERE pronamespace IN ('dispatch'::regnamespace, 'dispatch_private'::regnamespace) AND prosecdef
  AND 'search_path=pg_catalog, pg_temp' <> ALL (coalesce(proconfig, '{}'))
"""
UNPINNED_CALLABLE = """
SELECT p.oid::regprocedure::text FROM pg_proc AS p
WHERE p.pronamespace IN ('dispatch'::regnamespace, 'dispatch_private'::regnamespace)
  AND 'search_path=pg_catalog, pg_temp' <> ALL (coalesce(p.proconfig, '{}'))
  AND p.prosqlbody IS NULL -- otherwise its names were looked up when it was made, and never again
  AND (EXISTS (SELECT FROM unnest($1::text[]) AS g WHERE has_function_privilege(g, p.oid, 'EXECUTE'))
       OR EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgfoid = p.oid))
"""
CALLED_BY_GROUPS = """
SELECT count(*) FROM pg_proc AS p
WHERE p.pronamespace = 'dispatch'::regnamespace
  AND EXISTS (SELECT FROM unnest($1::text[]) AS g WHERE has_function_privilege(g, p.oid, 'EXECUTE'))
"""


def statements(text: str) -> list[str]:
    """The statements of a file; a block between dollars is one."""
    bare = re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE)
    return [bare] if "$" in bare and "DO " in bare else [one for one in bare.split(";") if one.strip()]


async def parse(database: Database, login: str, text: str) -> None:
    """Lets the server prepare the statements, with the settings of a session of ours."""
    connection = await open_connection(database.url(login))
    try:
        assert await connection.fetchval("SHOW search_path") == PATH
        for statement in statements(text):
            await connection.prepare(statement)
    finally:
        await connection.close()


@pytest.mark.parametrize(("file", "block"), STATEMENTS, ids=["/".join(one) for one in STATEMENTS])
async def test_a_statement_finds_all_its_names(database: Database, file: str, block: str) -> None:
    await parse(database, RUN_BY[file], query(block, file))


@pytest.mark.parametrize("block", demo_blocks())
async def test_a_statement_of_the_demo_finds_all_its_names(database: Database, block: str) -> None:
    await parse(database, RUN_IN_DEMO_BY.get(block, "team_a"), demo_query(block))


@pytest.mark.parametrize("file", OF_CONTAINERS)
async def test_a_call_of_a_container_finds_all_its_names(database: Database, file: str) -> None:
    await parse(database, "task", read_sql(f"exec/{file}"))


@pytest.mark.parametrize("name", BY_JANITOR)
async def test_janitor_may_prepare_its_queries(database: Database, name: str) -> None:
    await parse(database, "janitor", of_reader(name))


@pytest.mark.parametrize(
    "text", ["SELECT id FROM tasks", "SELECT task_cancel(1)", "INSERT INTO queues (name) VALUES ('x')"]
)
async def test_name_of_ours_without_its_schema_is_refused(database: Database, text: str) -> None:
    with pytest.raises((asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError)):
        await parse(database, "admin", text)


def test_sessions_of_ours_have_the_pinned_path() -> None:
    assert SESSION["search_path"] == PATH


async def test_security_definer_functions_have_only_pg_catalog_in_their_path(database: Database) -> None:
    admin = await database.session("admin")
    assert [row[0] for row in await admin.fetch(UNPINNED_DEFINERS)] == []


async def test_functions_that_others_call_have_only_pg_catalog_in_their_path(database: Database) -> None:
    admin, groups = await database.session("admin"), sorted({*LOGINS.values(), "public"})
    assert await admin.fetchval(CALLED_BY_GROUPS, groups) >= 9
    assert [row[0] for row in await admin.fetch(UNPINNED_CALLABLE, groups)] == []
