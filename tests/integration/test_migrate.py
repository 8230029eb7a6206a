"""`migrate` on real databases: every file once and in order, with any login and any number of runs; and `--queues`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from dispatcher.model.errors import DatabaseUnfit
from dispatcher.pg.migrate import LOCK, NEWEST, check_server, locked, migrate
from dispatcher.pg.tasks import QueueRow, declare_queues, read_queues
from dispatcher.runtime.clock import elapsed
from tests.integration.columns import QUEUES
from tests.integration.migrating import FILES, FUNCTIONS, TABLES, applied
from tests.rig.postgres import Connection, Database, PostgresServer

# The return type of a function cannot be changed.
OBSTACLE = """
CREATE SCHEMA dispatch_private AUTHORIZATION dispatch_owner;
CREATE FUNCTION dispatch_private.field(words text) RETURNS integer LANGUAGE sql AS 'SELECT 1';
ALTER FUNCTION dispatch_private.field OWNER TO dispatch_owner;
"""
AUDIT = """
CREATE TABLE public.changes (who text);
CREATE FUNCTION public.note_change() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.changes VALUES (current_user);
END
$$;
CREATE EVENT TRIGGER note_change ON ddl_command_end EXECUTE FUNCTION public.note_change();
"""
OWNERS = """
WITH ours AS (SELECT oid, nspowner FROM pg_namespace WHERE nspname IN ('dispatch', 'dispatch_private'))
SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace IN (SELECT oid FROM ours)
UNION SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE pronamespace IN (SELECT oid FROM ours)
UNION SELECT pg_get_userbyid(typowner) FROM pg_type WHERE typnamespace IN (SELECT oid FROM ours)
UNION SELECT pg_get_userbyid(nspowner) FROM ours
"""


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


async def test_open_transaction_of_a_login_is_named_and_stops_no_insert(database: Database) -> None:
    reader, team = await database.connect("team_a"), await database.session("team_b")
    migrating = await database.connect("admin")
    async with reader.transaction():
        await reader.fetch("SELECT FROM dispatch.tasks LIMIT 1")
        waiting = asyncio.create_task(enter(migrating))
        slowest, begun = 0.0, elapsed()
        while not waiting.done():
            at = elapsed()
            await team.execute("INSERT INTO dispatch.tasks DEFAULT VALUES")
            slowest = max(slowest, elapsed() - at)
        pid = reader.get_server_pid()
        with pytest.raises(DatabaseUnfit, match=rf"open transaction of team_a \(pid {pid}, since "):
            await waiting
    assert elapsed() - begun > 2
    assert slowest < 2
    assert await enter(migrating)


async def test_vacuum_of_the_server_gives_way(database: Database) -> None:
    """It ends for whoever waits longer than deadlock_timeout, and the strong lock of the migration does not."""
    vacuum, migrating = await database.connect(), await database.connect()
    async with vacuum.transaction():
        await vacuum.execute("LOCK TABLE dispatch_private.tasks IN SHARE UPDATE EXCLUSIVE MODE")
        waiting = asyncio.create_task(enter(migrating))
        asked = "SELECT mode FROM pg_locks WHERE NOT granted AND pid = $1"
        async with asyncio.timeout(10):
            while (mode := await vacuum.fetchval(asked, migrating.get_server_pid())) is None:
                pass
    assert mode == "ShareUpdateExclusiveLock"
    assert await waiting


async def test_holder_of_a_sequence_is_named(database: Database) -> None:
    """Tables and views are locked together at the start. Other relations are locked when a statement comes to them."""
    holder, migrating = await database.connect("admin"), await database.connect("admin")
    sequence = await holder.fetchval("SELECT pg_get_serial_sequence('dispatch_private.tasks', 'id')")
    async with holder.transaction():
        await holder.execute("SELECT nextval($1::regclass)", sequence)
        pid = holder.get_server_pid()
        with pytest.raises(DatabaseUnfit, match=rf"open transaction of \w+ \(pid {pid}, since .*pg_terminate_backend"):
            await change(migrating, f"ALTER SEQUENCE {sequence} CACHE 1")


async def change(connection: Connection, statement: str) -> None:
    """Runs a statement as a migration does, with less patience."""
    async with locked(connection, seconds=2):
        await connection.execute("SET LOCAL lock_timeout = '100ms'")
        await connection.execute(statement)


async def enter(connection: Connection) -> bool:
    """Takes and gives back all tables, with less patience than a migration has."""
    async with locked(connection, seconds=2):
        return True


async def test_check_names_pending_files_and_applies_nothing(empty: Database) -> None:
    assert await migrate(empty.admin_url, check=True) == FILES
    assert await applied(empty) == []
    admin = await empty.session("admin")
    assert await admin.fetchval(
        "SELECT to_regnamespace('dispatch') IS NULL AND to_regnamespace('dispatch_private') IS NULL"
    )


async def test_check_of_a_current_database_names_nothing(database: Database) -> None:
    assert await migrate(database.admin_url, check=True) == []


async def test_reader_may_check(database: Database) -> None:
    assert await migrate(database.url("reader"), check=True) == []


@pytest.mark.parametrize("check", [True, False])
async def test_changed_migration_is_named_and_refused(database: Database, check: bool) -> None:
    """Nothing else is applied either."""
    admin, name = await database.session("admin"), TABLES[0]
    await admin.execute("UPDATE dispatch_private.schema_version SET checksum = 'another' WHERE name = $1", name)
    await admin.execute("DELETE FROM dispatch_private.applied_functions WHERE name = $1", FUNCTIONS[0])
    with pytest.raises(DatabaseUnfit, match=f"{name} was applied with checksum another"):
        await migrate(database.admin_url, check=check)
    assert await applied(database) == TABLES + FUNCTIONS[1:]


async def test_failed_file_leaves_nothing(empty: Database) -> None:
    admin = await empty.session("admin")
    await admin.execute(OBSTACLE)

    with pytest.raises(DatabaseUnfit, match="cannot change return type of existing function"):
        await migrate(empty.admin_url)
    assert await applied(empty) == []
    assert await migrate(empty.admin_url, check=True) == FILES
    assert await admin.fetchval("SELECT to_regclass('dispatch_private.tasks') IS NULL")

    await admin.execute("DROP FUNCTION dispatch_private.field(text)")
    assert await migrate(empty.admin_url) == FILES
    assert len(await database_ids(empty)) == 1


async def test_event_trigger_that_fails_is_named(empty: Database) -> None:
    admin = await empty.session("admin")
    await admin.execute(AUDIT)
    with pytest.raises(DatabaseUnfit, match=r"function public.note_change\(\) fails: .* event trigger"):
        await migrate(empty.admin_url)
    await admin.execute("ALTER FUNCTION public.note_change SECURITY DEFINER")
    assert await migrate(empty.admin_url) == FILES


async def test_limit_of_the_database_for_transactions_stops_no_migration(empty: Database) -> None:
    """With many rows it builds indexes for minutes, in one transaction."""
    admin = await empty.session("admin")
    limits = "SELECT name FROM pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout')"
    for (name,) in await admin.fetch(limits):
        await admin.execute(f"ALTER DATABASE {empty.name} SET {name} = '100ms'")
    assert await migrate(empty.admin_url) == FILES


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
    assert [row[0] for row in await (await empty.session("admin")).fetch(OWNERS)] == ["dispatch_owner"]


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


async def test_member_of_the_owner_role_that_does_not_inherit_migrates_again(empty: Database) -> None:
    admin = await empty.session("admin")
    await admin.execute(f'GRANT CREATE ON DATABASE "{empty.name}" TO dispatch_owner')
    await admin.execute("CREATE ROLE modest LOGIN NOINHERIT CREATEROLE PASSWORD 'modest' IN ROLE dispatch_owner")
    try:
        assert await migrate(empty.url("modest")) == FILES
        assert await migrate(empty.url("modest"), check=True) == []
        await admin.execute("TRUNCATE dispatch_private.applied_functions")
        assert await migrate(empty.url("modest")) == FUNCTIONS
    finally:
        await admin.execute("DROP ROLE modest")


@pytest.mark.parametrize("check", [True, False])
async def test_schema_that_a_newer_version_has_reduced_is_refused(database: Database, check: bool) -> None:
    admin = await database.session("admin")
    newer = "INSERT INTO dispatch_private.schema_version VALUES ($1, $2, 'x', gen_random_uuid())"
    await admin.execute(newer, NEWEST + 1, f"{NEWEST + 1:04}_pre_more.sql")
    assert await migrate(database.admin_url, check=check) == []
    await admin.execute(newer, NEWEST + 2, f"{NEWEST + 2:04}_post_less.sql")
    with pytest.raises(DatabaseUnfit, match=rf"{NEWEST + 2:04}_post_less\.sql of a newer version .* install the newer"):
        await migrate(database.admin_url, check=check)


def test_old_postgres_is_refused_in_words() -> None:
    check_server(15)
    with pytest.raises(DatabaseUnfit, match="the server is Postgres 14: the schema needs 15 or later"):
        check_server(14)


@pytest_asyncio.fixture(loop_scope="session", params=["SQL_ASCII", "LATIN1"])
async def encoded(empty: Database, postgres: PostgresServer, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """A database with an encoding that cannot hold every text, beside an empty one of UTF8."""
    other = Database(postgres, f"{empty.name}_encoded")
    await postgres.execute(f"CREATE DATABASE {other.name} ENCODING '{request.param}' LOCALE 'C' TEMPLATE template0")
    try:
        yield other
    finally:
        await other.drop()


@pytest.mark.parametrize("check", [True, False])
async def test_database_of_another_encoding_is_refused_before_anything_is_made(
    encoded: Database, postgres: PostgresServer, check: bool
) -> None:
    admin = await encoded.session("admin")
    encoding = await admin.fetchval("SELECT getdatabaseencoding()")
    with pytest.raises(
        DatabaseUnfit, match=f"{encoded.name} has the encoding {encoding}, the schema needs UTF8"
    ) as refused:
        await migrate(encoded.admin_url, check=check)
    assert await admin.fetchval(
        "SELECT to_regnamespace('dispatch') IS NULL AND to_regnamespace('dispatch_private') IS NULL"
    )

    _, _, options = str(refused.value).partition("CREATE DATABASE dispatch ")
    better = Database(postgres, f"{encoded.name}_better")
    await postgres.execute(f"CREATE DATABASE {better.name} {options}")
    assert await migrate(better.admin_url) == FILES
    await better.drop()


async def test_objects_of_others_that_need_a_replaced_function_are_named(database: Database) -> None:
    """Any login may make a temporary view. The server's hint, CASCADE, would drop what teams have built."""
    admin, theirs = await database.session("admin"), await database.connect("team_b")
    await admin.execute("CREATE FUNCTION dispatch.earlier() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    await admin.execute("GRANT EXECUTE ON FUNCTION dispatch.earlier TO team_b")
    await theirs.execute("CREATE TEMP VIEW pin AS SELECT dispatch.earlier()")
    await admin.execute("UPDATE dispatch_private.applied_functions SET checksum = 'of another version'")
    with pytest.raises(DatabaseUnfit, match=r"view pg_temp_\d+\.pin depends on function dispatch\.earlier") as refused:
        await migrate(database.admin_url)
    assert "CASCADE" not in str(refused.value)
    await theirs.close()
    assert await migrate(database.admin_url) == FUNCTIONS


ALL = {
    "name": "reports", "weight": 3, "max_jobs": 20, "max_jobs_per_submitter": 5, "max_pending": 2,
    "paused_until": "infinity", "owner_role": "team_a", "submit_role": "team_b", "max_waiting_per_submitter": 1000,
    "note": "nightly", "fair_submitters": True,
}  # fmt: skip


def written(folder: Path, *queues: object) -> Path:
    file = folder / "queues.json"
    file.write_bytes(msgspec.json.encode(queues))
    return file


def test_file_may_name_every_column_of_the_table() -> None:
    assert {field.name for field in msgspec.structs.fields(QueueRow)} == QUEUES == ALL.keys()


async def test_queue_is_inserted_with_all_its_values(database: Database, tmp_path: Path) -> None:
    admin = await database.session("admin")
    assert await declare_queues(database.admin_url, read_queues(written(tmp_path, ALL))) == ["reports"]
    row = dict(await admin.fetchrow("SELECT *, paused_until::text FROM dispatch.queues WHERE name = 'reports'") or {})
    assert row == ALL


async def test_declared_role_that_is_not_there_is_told(database: Database, tmp_path: Path) -> None:
    """Nobody may insert into the queue. Whoever declares it sees no notice of the server."""
    queues = read_queues(
        written(tmp_path, {"name": "open", "submit_role": "team_a"}, {"name": "shut", "submit_role": "team_odd"})
    )
    with capture_logs() as told:
        await declare_queues(database.admin_url, queues)
    assert [(one["log_level"], one["event"]) for one in told] == [
        ("warning", 'there is no role "team_odd": nobody may insert into the queue "shut"')
    ]


async def test_defaults_are_those_of_the_table(database: Database, tmp_path: Path) -> None:
    admin = await database.session("admin")
    await declare_queues(database.admin_url, read_queues(written(tmp_path, {"name": "declared"})))
    await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('inserted')")
    rows = await admin.fetch("SELECT * FROM dispatch.queues WHERE name IN ('declared', 'inserted')")
    first, second = ({key: value for key, value in dict(row).items() if key != "name"} for row in rows)
    assert first == second


async def test_queues_that_a_migration_made_take_the_declared_values_once(database: Database, tmp_path: Path) -> None:
    """`*` and `default` are there before anybody can declare them. Their caps are what an operator declares first."""
    admin, caps = await database.session("admin"), "SELECT name, max_jobs, note FROM dispatch.queues ORDER BY name"
    before = await admin.fetch(caps)
    await admin.execute("UPDATE dispatch.queues SET weight = weight WHERE name = '*'")
    declared = read_queues(written(tmp_path, {"name": "*", "max_jobs": 5}, {"name": "default", "max_jobs": 7}))
    assert await declare_queues(database.admin_url, declared) == ["default"]
    every, default = before
    assert await admin.fetch(caps) == [every, (default["name"], 7, default["note"])]
    await admin.execute("UPDATE dispatch.queues SET max_jobs = NULL WHERE name = 'default'")
    assert await declare_queues(database.admin_url, declared) == []
    assert await admin.fetch(caps) == before


async def test_restore_in_one_transaction_keeps_what_an_operator_set(database: Database, tmp_path: Path) -> None:
    """`psql -1` and `pg_restore -1` write all rows in one transaction, as a migration does."""
    admin = await database.session("admin")
    async with admin.transaction():
        await admin.execute("UPDATE dispatch_private.schema_version SET name = name")
        await admin.execute("UPDATE dispatch_private.queues SET paused_until = 'infinity' WHERE name = '*'")
        await admin.execute("UPDATE dispatch_private.queues SET weight = 2 WHERE name = 'default'")
    declared = read_queues(written(tmp_path, {"name": "*", "max_jobs": 5}, {"name": "default", "max_jobs": 7}))
    assert await declare_queues(database.admin_url, declared) == []


async def test_queue_that_an_operator_changed_stays_as_it_is(database: Database, tmp_path: Path) -> None:
    admin, file = await database.session("admin"), written(tmp_path, ALL, {"name": "default", "max_jobs": 1})
    await declare_queues(database.admin_url, read_queues(file))
    await admin.execute("UPDATE dispatch.queues SET max_jobs = 99, paused_until = NULL WHERE name = 'reports'")
    before = await admin.fetch("SELECT * FROM dispatch.queues ORDER BY name")
    assert await declare_queues(database.admin_url, read_queues(file)) == []
    assert await admin.fetch("SELECT * FROM dispatch.queues ORDER BY name") == before


async def test_queues_are_declared_all_or_none(database: Database) -> None:
    admin = await database.session("admin")
    with pytest.raises(DatabaseUnfit, match="yesterday at noon"):
        await declare_queues(
            database.admin_url, [QueueRow("first"), QueueRow("second", paused_until="yesterday at noon")]
        )
    assert not await admin.fetchval("SELECT count(*) FROM dispatch.queues WHERE name = 'first'")


@pytest.mark.parametrize(
    ("queue", "told"),
    [
        ({"name": "reports", "max_job": 1}, "unknown field `max_job`"),
        ({"name": "Reports"}, r"\$\[1\]\.name"),
        ({"name": "reports", "weight": 0}, r"\$\[1\]\.weight"),
        ({"name": "reports", "max_jobs": -1}, r"\$\[1\]\.max_jobs"),
        ({"name": "first"}, "first is declared twice"),
        ({"weight": 1}, "missing required field `name`"),
    ],
)
def test_faulty_file_is_refused_with_its_place(tmp_path: Path, queue: object, told: str) -> None:
    with pytest.raises(DatabaseUnfit, match=told):
        read_queues(written(tmp_path, {"name": "first"}, queue))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnfit, match=r"none\.json"):
        read_queues(tmp_path / "none.json")
