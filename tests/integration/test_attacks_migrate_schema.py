"""A schema `dispatch` that a hostile login made before the first migration, with a table of versions in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from dispatcher.model.errors import DatabaseUnfit
from dispatcher.pg.migrate import migrate, read_migrations
from tests.postgres import Connection, Database, PostgresServer

VERSIONS = """
CREATE SCHEMA dispatch;
CREATE TABLE dispatch.schema_version (version integer, name text, checksum text, database_id uuid);
GRANT ALL ON SCHEMA dispatch TO PUBLIC;
GRANT ALL ON dispatch.schema_version TO PUBLIC;
"""
ALL_APPLIED = "INSERT INTO dispatch.schema_version VALUES ($1, $2, $3, gen_random_uuid())"
VIEW = """
CREATE SCHEMA dispatch;
CREATE TABLE public.calls (who name);
GRANT ALL ON SCHEMA dispatch TO PUBLIC;
GRANT ALL ON public.calls TO PUBLIC;
CREATE FUNCTION public.is_noted() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.calls VALUES (current_user);
    RETURN true;
END
$$;
CREATE VIEW dispatch.schema_version AS SELECT 1 AS version, 'x' AS name, 'y' AS checksum WHERE public.is_noted();
GRANT ALL ON dispatch.schema_version TO PUBLIC;
"""


@pytest_asyncio.fixture(loop_scope="session")
async def empty(postgres: PostgresServer) -> AsyncIterator[Database]:
    """A database without our schema, in which every login may make one."""
    await (await postgres.create_database()).drop()
    created = await postgres.create_database(migrated=False)
    admin = await created.session("admin")
    await admin.execute(f'GRANT CREATE ON DATABASE "{created.name}" TO PUBLIC')
    await admin.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
    yield created
    await created.drop()


async def attacker_of(empty: Database, script: str) -> Connection:
    attacker = await empty.connect("team_a")
    await attacker.execute(script)
    return attacker


@pytest.mark.parametrize("check", [False, True])
async def test_hostile_view_with_our_name_runs_no_code(empty: Database, check: bool) -> None:
    """A function in a view runs with the rights of the reader, here the administrator."""
    await attacker_of(empty, VIEW)
    with pytest.raises(DatabaseUnfit) as refused:
        await migrate(empty.admin_url, check=check)
    admin = await empty.session("admin")
    assert [row["who"] for row in await admin.fetch("SELECT who FROM public.calls")] == []
    assert "schema dispatch belongs to team_a" in str(refused.value)


@pytest.mark.parametrize("check", [False, True])
async def test_foreign_schema_that_claims_all_versions_is_refused(empty: Database, check: bool) -> None:
    attacker = await attacker_of(empty, VERSIONS)
    for migration in read_migrations():
        await attacker.execute(ALL_APPLIED, migration.version, migration.name, migration.checksum)
    with pytest.raises(DatabaseUnfit, match="schema dispatch belongs to team_a"):
        await migrate(empty.admin_url, check=check)
