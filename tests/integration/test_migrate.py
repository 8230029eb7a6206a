"""`migrate` on real databases: every file once and in order, with any login and any number of runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from dispatcher.model.errors import DatabaseUnfit
from dispatcher.pg.migrate import LOCK, NEWEST, check_server, migrate
from tests.postgres import Database, PostgresServer

FILES = sorted(file.name for file in (Path(__file__).parents[2] / "sql" / "migrations").glob("*.sql"))
OBSTACLE = """
CREATE SCHEMA dispatch AUTHORIZATION dispatch_owner;
CREATE FUNCTION dispatch.task_heartbeat(run_token uuid) RETURNS int LANGUAGE sql AS 'SELECT 1';
"""


async def applied(database: Database) -> list[str]:
    admin = await database.session("admin")
    if await admin.fetchval("SELECT to_regclass('dispatch.schema_version') IS NULL"):
        return []
    return [row["name"] for row in await admin.fetch("SELECT name FROM dispatch.schema_version ORDER BY version")]


async def database_ids(database: Database) -> set[UUID]:
    admin = await database.session("admin")
    return {row["database_id"] for row in await admin.fetch("SELECT database_id FROM dispatch.schema_version")}


async def test_empty_database_gets_every_file_in_order(empty: Database) -> None:
    assert await migrate(empty.admin_url) == FILES
    assert await applied(empty) == FILES
    assert await empty.insert_task(login="admin")


async def test_second_run_has_nothing_to_do(empty: Database) -> None:
    await migrate(empty.admin_url)
    assert await migrate(empty.admin_url) == []
    assert await applied(empty) == FILES


async def test_two_simultaneous_runs_succeed_and_one_does_the_work(empty: Database) -> None:
    done = await asyncio.gather(migrate(empty.admin_url), migrate(empty.admin_url))
    assert sorted(done) == [[], FILES]


async def test_two_databases_of_one_server_migrate_at_once(empty: Database, postgres: PostgresServer) -> None:
    other = await postgres.create_database(migrated=False)
    try:
        done = await asyncio.gather(migrate(empty.admin_url), migrate(other.admin_url))
    finally:
        await other.drop()
    assert list(done) == [FILES, FILES]


async def test_run_waits_for_the_one_before_it(empty: Database) -> None:
    first = await empty.connect()
    await first.execute("SELECT pg_advisory_lock($1)", LOCK)
    second = asyncio.create_task(migrate(empty.admin_url))
    async with asyncio.timeout(10):
        while not await first.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
            pass
    assert not second.done()
    await first.close()
    assert await second == FILES


async def test_check_names_pending_files_and_applies_nothing(empty: Database) -> None:
    assert await migrate(empty.admin_url, check=True) == FILES
    assert await applied(empty) == []
    assert await (await empty.session("admin")).fetchval("SELECT to_regnamespace('dispatch') IS NULL")


async def test_check_of_a_current_database_names_nothing(database: Database) -> None:
    assert await migrate(database.admin_url, check=True) == []


async def test_reader_may_check(database: Database) -> None:
    assert await migrate(database.url("reader"), check=True) == []


@pytest.mark.parametrize("check", [True, False])
async def test_changed_file_is_named_and_refused(database: Database, check: bool) -> None:
    admin, name = await database.session("admin"), FILES[1]
    await admin.execute("UPDATE dispatch.schema_version SET checksum = 'another' WHERE name = $1", name)
    await admin.execute("DELETE FROM dispatch.schema_version WHERE name = $1", FILES[-1])
    with pytest.raises(DatabaseUnfit, match=name):
        await migrate(database.admin_url, check=check)
    assert await applied(database) == FILES[:-1]


async def test_failed_file_leaves_nothing_and_is_the_first_of_the_next_run(empty: Database) -> None:
    admin = await empty.session("admin")
    await admin.execute(OBSTACLE)

    with pytest.raises(DatabaseUnfit):
        await migrate(empty.admin_url)
    done = await applied(empty)
    assert done == FILES[: len(done)]
    assert 0 < len(done) < len(FILES)
    assert await migrate(empty.admin_url, check=True) == FILES[len(done) :]
    assert await admin.fetchval("SELECT to_regproc('dispatch.task_start') IS NULL")

    await admin.execute("DROP FUNCTION dispatch.task_heartbeat(uuid)")
    assert await migrate(empty.admin_url) == FILES[len(done) :]
    assert len(await database_ids(empty)) == 1


async def test_login_without_the_right_changes_nothing(empty: Database) -> None:
    with pytest.raises(DatabaseUnfit):
        await migrate(empty.url("reader"))
    assert await applied(empty) == []


async def test_every_database_has_one_random_identity(empty: Database, postgres: PostgresServer) -> None:
    other = await postgres.create_database(migrated=False)
    try:
        await asyncio.gather(migrate(empty.admin_url), migrate(other.admin_url))
        identities = await database_ids(empty), await database_ids(other)
    finally:
        await other.drop()
    assert [len(identity) for identity in identities] == [1, 1]
    assert identities[0] != identities[1]


async def test_all_objects_belong_to_the_owner_role(empty: Database) -> None:
    await migrate(empty.admin_url)
    owners = """
        SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'dispatch'::regnamespace
        UNION SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE pronamespace = 'dispatch'::regnamespace
        UNION SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'dispatch'
    """
    assert [row[0] for row in await (await empty.session("admin")).fetch(owners)] == ["dispatch_owner"]


async def test_member_of_the_owner_role_may_migrate_without_superuser_rights(
    empty: Database, postgres: PostgresServer
) -> None:
    admin = await empty.session("admin")
    await admin.execute(f'GRANT CREATE ON DATABASE "{empty.name}" TO janitor')
    await admin.execute("GRANT dispatch_owner TO janitor")
    try:
        assert await migrate(empty.url("janitor")) == FILES
    finally:
        await admin.execute("REVOKE dispatch_owner FROM janitor")


@pytest.mark.parametrize("check", [True, False])
async def test_schema_that_a_newer_version_has_reduced_is_refused(database: Database, check: bool) -> None:
    admin = await database.session("admin")
    newer = "INSERT INTO dispatch.schema_version VALUES ($1, $2, 'x', gen_random_uuid())"
    await admin.execute(newer, NEWEST + 1, f"{NEWEST + 1:04}_pre_more.sql")
    assert await migrate(database.admin_url, check=check) == []
    await admin.execute(newer, NEWEST + 2, f"{NEWEST + 2:04}_post_less.sql")
    with pytest.raises(DatabaseUnfit, match=rf"{NEWEST + 2:04}_post_less\.sql of a newer version .* install the newer"):
        await migrate(database.admin_url, check=check)


def test_old_postgres_is_refused_in_words() -> None:
    check_server(15)
    with pytest.raises(DatabaseUnfit, match="the server is Postgres 14: the schema needs 15 or later"):
        check_server(14)
