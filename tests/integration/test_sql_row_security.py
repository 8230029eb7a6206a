"""The rows that a submitter sees and acts on; and the closed schema itself (docs/rights.md, THREAT_MODEL.md)."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from tests.rig.postgres import LOGINS, Database
from tests.rig.rows import insert_row

IDS = "SELECT array_agg(id ORDER BY id) FROM dispatch.tasks"


PROGRAM_IDS = "SELECT array_agg(id ORDER BY id) FROM dispatch_private.tasks"


async def visible(database: Database, login: str, query: str = IDS) -> list[int]:
    return await (await database.session(login)).fetchval(query) or []


async def declare_queue(database: Database, name: str, owner_role: str) -> None:
    """A queue that every submitter may insert into."""
    operator = await database.session("operator")
    declare = "INSERT INTO dispatch.queues (name, owner_role, submit_role) VALUES ($1, $2, 'dispatch_submitter')"
    await operator.execute(declare, name, owner_role)


@pytest_asyncio.fixture(loop_scope="session")
async def leads(database: Database) -> AsyncIterator[str]:
    """A role with the member team_b."""
    admin, name = await database.session("admin"), f"leads_{secrets.token_hex(3)}"
    await admin.execute(f"CREATE ROLE {name}")
    await admin.execute(f"GRANT {name} TO team_b")
    yield name
    await admin.execute(f"DROP ROLE {name}")


async def test_a_member_of_the_owner_role_sees_the_queue(database: Database, leads: str) -> None:
    await declare_queue(database, "shared", leads)
    await insert_row(database, "team_a")
    row = await insert_row(database, "team_a", queue="shared")
    assert await visible(database, "team_b") == [row.id]


@pytest.mark.parametrize("login", ["reader", "janitor"])
async def test_program_sees_every_row(database: Database, login: str) -> None:
    rows = [await insert_row(database, team) for team in ("team_a", "team_b")]
    assert await visible(database, login, PROGRAM_IDS) == [row.id for row in rows]


async def test_submitter_neither_cancels_nor_retries_an_unseen_row(database: Database) -> None:
    row = await insert_row(database, "team_a")
    before = await row.now()
    for call in (row.cancel(login="team_b"), row.retry(login="team_b"), row.retry(1, login="team_b")):
        assert await call is None
    assert await row.now() == before


async def test_a_member_of_the_owner_role_cancels_and_retries(database: Database, leads: str) -> None:
    await declare_queue(database, "shared", leads)
    row = await insert_row(database, "team_a", queue="shared")
    assert await row.cancel(login="team_b") == "cancelled"
    assert await row.retry(login="team_b") == "waiting"


async def test_an_operator_cancels_and_retries_any_row(database: Database) -> None:
    row = await insert_row(database, "team_a")
    assert await row.cancel(login="operator") == "cancelled"
    assert await row.retry(login="operator") == "waiting"


@pytest.mark.parametrize("column", ["cache_key", "batch", "dedupe_key"])
async def test_row_has_the_login_as_its_submitter_after_set_role(database: Database, column: str) -> None:
    team, admin = await database.connect("team_a"), await database.session("admin")
    await admin.execute("INSERT INTO dispatch_private.templates (name) VALUES ('default')")
    await team.execute("SET ROLE dispatch_submitter")
    task_id = await team.fetchval(f"INSERT INTO dispatch.tasks ({column}) VALUES ('x') RETURNING id")
    assert (await database.task(task_id))["submitted_by"] == "team_a"
    assert await team.fetchval(IDS) is None, "a right needs current_user, too"
    await team.execute("RESET ROLE")
    assert await team.fetchval(IDS) == [task_id]


async def test_switching_row_security_off_shows_no_more_rows(database: Database) -> None:
    row = await insert_row(database, "team_a")
    team, reader = await database.connect("team_b"), await database.connect("reader")
    for connection in (team, reader):
        await connection.execute("SET row_security = off")
    assert await team.fetchval(IDS) is None
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await reader.fetch(PROGRAM_IDS)
    assert await visible(database, "team_a") == [row.id]


async def test_grant_by_mistake_shows_no_row(database: Database) -> None:
    """Row security is a second wall behind the rights."""
    await insert_row(database, "team_a")
    admin, team = await database.session("admin"), await database.session("team_b")
    await admin.execute("GRANT USAGE ON SCHEMA dispatch_private TO team_b")
    await admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA dispatch_private TO team_b")
    tables = [row[0] for row in await admin.fetch(TABLES)]
    assert "dispatch_private.secrets" in tables
    for table in tables:
        assert await team.fetch(f"SELECT * FROM {table}") == []


async def test_row_of_another_team_changes_nothing_that_a_submitter_sees(database: Database) -> None:
    """In every view that it may read: the row waits, runs, has ended, and has a reason."""
    admin, team = await database.session("admin"), await database.session("team_b")
    views = [row[0] for row in await admin.fetch(VIEWS)]
    assert len(views) > 5

    async def seen() -> list[list[asyncpg.Record]]:
        return [await team.fetch(f"SELECT * FROM {view}") for view in views]

    before = await seen()
    row = await insert_row(database, "team_a", batch="b", dedupe_key="k", payload=[1])
    assert await seen() == before
    started = await row.started()
    await admin.execute(REASON, row.id)
    assert await seen() == before
    await row.finish(started, "failed", error="secret")
    assert await seen() == before


async def test_views_have_no_secret(database: Database) -> None:
    """The columns of the view `tasks` are the submitter's own."""
    assert await (await database.session("admin")).fetch(SECRETS_IN_VIEWS) == []


REASON = "INSERT INTO dispatch_private.task_reasons VALUES ($1, 1, 'NodeLost', 'secret', now())"
TABLES = """
SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'dispatch_private'::regnamespace AND relkind IN ('r', 'p')
"""
VIEWS = """
SELECT oid::regclass::text FROM pg_class
 WHERE relnamespace = 'dispatch'::regnamespace AND has_any_column_privilege('team_b', oid, 'SELECT')
"""
SECRETS_IN_VIEWS = """
SELECT relname, attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'dispatch'::regnamespace
   AND (attname IN ('start_inner', 'start_outer', 'run_inner', 'run_outer', 'digest')
        OR attname IN ('payload', 'result', 'run_digest') AND relname <> 'tasks')
"""
OPEN_TO_PUBLIC = """
WITH ours AS (SELECT oid, nspname, nspacl FROM pg_namespace WHERE nspname IN ('dispatch', 'dispatch_private'))
SELECT proname FROM pg_proc WHERE pronamespace IN (SELECT oid FROM ours)
   AND EXISTS (SELECT FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) WHERE grantee = 0)
UNION ALL
SELECT relname FROM pg_class WHERE relnamespace IN (SELECT oid FROM ours)
   AND EXISTS (SELECT FROM aclexplode(relacl) WHERE grantee = 0)
UNION ALL
SELECT attname FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid WHERE c.relnamespace IN (SELECT oid FROM ours)
   AND EXISTS (SELECT FROM aclexplode(attacl) WHERE grantee = 0)
UNION ALL
SELECT nspname FROM ours WHERE EXISTS (SELECT FROM aclexplode(nspacl) WHERE grantee = 0)
"""
WITHOUT_COMMENT = """
SELECT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'dispatch'::regnamespace AND c.relkind IN ('r', 'p', 'v')
   AND a.attnum > 0 AND NOT a.attisdropped AND col_description(c.oid, a.attnum) IS NULL
"""
DEFINER_FUNCTIONS = """
SELECT proname, pg_get_userbyid(proowner) AS owner, rolsuper
  FROM pg_proc JOIN pg_roles ON pg_roles.oid = proowner
 WHERE pronamespace IN ('dispatch'::regnamespace, 'dispatch_private'::regnamespace)
"""
GROUPS = """
SELECT rolname, rolcanlogin, rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls
  FROM pg_roles WHERE rolname = ANY ($1::text[])
"""


async def test_schemas_have_no_grant_to_public(database: Database) -> None:
    admin = await database.session("admin")
    assert [row[0] for row in await admin.fetch(OPEN_TO_PUBLIC)] == []


async def test_every_column_has_a_comment(database: Database) -> None:
    admin = await database.session("admin")
    assert [row[0] for row in await admin.fetch(WITHOUT_COMMENT)] == []


async def test_functions_belong_to_a_role_without_superuser_rights(database: Database) -> None:
    definers = await (await database.session("admin")).fetch(DEFINER_FUNCTIONS)
    assert {row["owner"] for row in definers} == {"dispatch_owner"}
    assert not any(row["rolsuper"] for row in definers)


async def test_group_roles_are_groups_and_nothing_more(database: Database) -> None:
    groups = {"dispatch_owner", *LOGINS.values()}
    found = await (await database.session("admin")).fetch(GROUPS, list(groups))
    assert {row["rolname"] for row in found} == groups
    assert [row["rolname"] for row in found if any(list(row.values())[1:])] == []
