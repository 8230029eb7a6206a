"""The rows that a submitter sees and acts on; and the closed schema itself (docs/rights.md, THREAT_MODEL.md)."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from tests.postgres import LOGINS, Database
from tests.rows import Row, insert_row

IDS = "SELECT array_agg(id ORDER BY id) FROM dispatch.tasks"


async def visible(database: Database, login: str) -> list[int]:
    return await (await database.session(login)).fetchval(IDS) or []


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


async def test_a_submitter_sees_its_own_rows_only(database: Database) -> None:
    mine, theirs = await insert_row(database, "team_a"), await insert_row(database, "team_b")
    assert await visible(database, "team_a") == [mine.id]
    assert await visible(database, "team_b") == [theirs.id]


async def test_a_member_of_the_owner_role_sees_the_queue(database: Database, leads: str) -> None:
    await declare_queue(database, "shared", leads)
    await insert_row(database, "team_a")
    row = await insert_row(database, "team_a", queue="shared")
    assert await visible(database, "team_b") == [row.id]


async def test_owner_of_a_queue_sees_no_other_queue(database: Database, leads: str) -> None:
    await declare_queue(database, "shared", leads)
    await declare_queue(database, "other", "dispatch_operator")
    await insert_row(database, "team_a", queue="other")
    assert await visible(database, "team_b") == []


@pytest.mark.parametrize("login", ["reader", "observer", "janitor", "operator"])
async def test_monitoring_logins_see_every_row(database: Database, login: str) -> None:
    rows = [await insert_row(database, team) for team in ("team_a", "team_b")]
    assert await visible(database, login) == [row.id for row in rows]


async def test_submitter_neither_cancels_nor_retries_an_unseen_row(database: Database) -> None:
    row = await insert_row(database, "team_a")
    before = await row.now()
    for call in (row.cancel(login="team_b"), row.retry(login="team_b"), row.retry(1, login="team_b")):
        assert await call is None
    assert await row.now() == before


async def test_unseen_row_looks_like_a_missing_row(database: Database) -> None:
    row = await insert_row(database, "team_a")
    nowhere = Row(database, row.id + 1000, row.start_key)
    assert await row.cancel(login="team_b") == await nowhere.cancel(login="team_b")
    assert await row.retry(login="team_b") == await nowhere.retry(login="team_b")


async def test_a_member_of_the_owner_role_cancels_and_retries(database: Database, leads: str) -> None:
    await declare_queue(database, "shared", leads)
    row = await insert_row(database, "team_a", queue="shared")
    assert await row.cancel(login="team_b") == "cancelled"
    assert await row.retry(login="team_b") == "waiting"


async def test_an_operator_cancels_and_retries_any_row(database: Database) -> None:
    row = await insert_row(database, "team_a")
    assert await row.cancel(login="operator") == "cancelled"
    assert await row.retry(login="operator") == "waiting"


async def test_row_has_the_login_as_its_submitter_after_set_role(database: Database) -> None:
    team = await database.connect("team_a")
    await team.execute("SET ROLE dispatch_submitter")
    task_id = await team.fetchval("INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING id")
    assert (await database.task(task_id))["submitted_by"] == "team_a"
    assert await team.fetchval(IDS) == [task_id]


async def test_row_security_cannot_be_switched_off(database: Database) -> None:
    await insert_row(database, "team_a")
    team = await database.connect("team_b")
    await team.execute("SET row_security = off")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await team.fetch(IDS)


async def test_a_view_shows_a_submitter_no_more_than_the_table(database: Database) -> None:
    await insert_row(database, "team_a")
    team = await database.session("team_b")
    for view, is_granted in await (await database.session("admin")).fetch(VIEWS):
        assert not is_granted or await team.fetch(f"SELECT * FROM {view}") == []


async def test_views_have_no_secret(database: Database) -> None:
    assert await (await database.session("admin")).fetch(SECRETS_IN_VIEWS) == []


async def test_duplicate_key_error_reveals_nothing_of_the_row(database: Database) -> None:
    await insert_row(database, dedupe_key="k", payload="secret-payload")
    with pytest.raises(asyncpg.UniqueViolationError) as refused:
        await insert_row(database, dedupe_key="k")
    assert "secret-payload" not in str(refused.value.as_dict())


VIEWS = """
SELECT oid::regclass::text, has_any_column_privilege('team_b', oid, 'SELECT') FROM pg_class
 WHERE relnamespace = 'dispatch'::regnamespace AND relkind IN ('v', 'm')
"""
SECRETS_IN_VIEWS = """
SELECT relname, attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'dispatch'::regnamespace AND c.relkind IN ('v', 'm')
   AND attname IN ('payload', 'result', 'run_digest', 'start_inner', 'start_outer', 'run_inner', 'run_outer', 'digest')
"""
OPEN_TO_PUBLIC = """
SELECT proname FROM pg_proc WHERE pronamespace = 'dispatch'::regnamespace
   AND EXISTS (SELECT FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) WHERE grantee = 0)
UNION ALL
SELECT relname FROM pg_class WHERE relnamespace = 'dispatch'::regnamespace
   AND EXISTS (SELECT FROM aclexplode(relacl) WHERE grantee = 0)
UNION ALL
SELECT nspname FROM pg_namespace WHERE nspname = 'dispatch'
   AND EXISTS (SELECT FROM aclexplode(nspacl) WHERE grantee = 0)
"""
WITHOUT_COMMENT = """
SELECT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'dispatch'::regnamespace AND c.relkind IN ('r', 'p', 'v')
   AND a.attnum > 0 AND NOT a.attisdropped AND col_description(c.oid, a.attnum) IS NULL
"""
DEFINER_FUNCTIONS = """
SELECT proname, pg_get_userbyid(proowner) AS owner, rolsuper
  FROM pg_proc JOIN pg_roles ON pg_roles.oid = proowner
 WHERE pronamespace = 'dispatch'::regnamespace AND prosecdef
"""
GROUPS = """
SELECT rolname, rolcanlogin, rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls
  FROM pg_roles WHERE rolname = ANY ($1::text[])
"""


async def test_schema_has_no_grant_to_public(database: Database) -> None:
    admin = await database.session("admin")
    assert [row[0] for row in await admin.fetch(OPEN_TO_PUBLIC)] == []


async def test_every_column_has_a_comment(database: Database) -> None:
    admin = await database.session("admin")
    assert [row[0] for row in await admin.fetch(WITHOUT_COMMENT)] == []


async def test_security_definer_functions_run_without_superuser_rights(database: Database) -> None:
    definers = await (await database.session("admin")).fetch(DEFINER_FUNCTIONS)
    assert {row["owner"] for row in definers} == {"dispatch_owner"}
    assert not any(row["rolsuper"] for row in definers)


async def test_group_roles_are_groups_and_nothing_more(database: Database) -> None:
    groups = {"dispatch_owner", *LOGINS.values()}
    found = await (await database.session("admin")).fetch(GROUPS, list(groups))
    assert {row["rolname"] for row in found} == groups
    assert [row["rolname"] for row in found if any(list(row.values())[1:])] == []
