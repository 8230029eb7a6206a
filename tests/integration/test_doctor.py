"""`dispatcher doctor` on a real Postgres: no false alarm on a migrated database, and each planted fault named alone."""

import pytest

from dispatcher.doctor.database import wanted_indexes
from dispatcher.doctor.finding import State
from dispatcher.doctor.plans import INDEXES
from dispatcher.pg.inspection import inspect
from dispatcher.pg.migrate import NEWEST, read_migrations
from dispatcher.pg.queries import query
from dispatcher.pg.tasks import NEEDED_INDEXES
from dispatcher.programs.doctor.database import schema_of
from tests.integration.doctoring_database import fault_of, faults, fill, findings, mend, planted
from tests.integration.test_attacks_notify import flooded, quiet, server
from tests.postgres import Database, PostgresServer, standby_of, url_with

__all__ = ["quiet", "server"]

INVALID = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'dispatch.tasks_ready'::regclass"
RETRY = "dispatch.task_retry(bigint, integer)"
IN_THE_DATABASE = [
    ("IndexMissing", "index dispatch.tasks_ready", "DROP INDEX dispatch.tasks_ready"),
    ("IndexMissing", "index dispatch.tasks_finished", "DROP INDEX dispatch.tasks_finished"),
    ("IndexMissing", "index dispatch.task_launches_starts", "DROP INDEX dispatch.task_launches_starts"),
    (
        "IndexMissing",
        "index dispatch.task_launches_pkey",
        "ALTER TABLE dispatch.task_launches DROP CONSTRAINT task_launches_pkey",
    ),
    ("IndexInvalid", "index dispatch.tasks_ready", INVALID),
    (
        "SchemaOld",
        "table dispatch.schema_version",
        f"DELETE FROM dispatch.schema_version WHERE version = {NEWEST}",
    ),
    (
        "SchemaChanged",
        "table dispatch.schema_version",
        "UPDATE dispatch.schema_version SET checksum = 'other' WHERE version = 3",
    ),
    ("SchemaOwner", "schema dispatch", "ALTER SCHEMA dispatch OWNER TO team_a"),
    ("MissingRight", "table dispatch.queues", "REVOKE SELECT ON dispatch.queues FROM dispatch_reader"),
    ("MissingRight", "table dispatch.tasks", "REVOKE SELECT (env, spec) ON dispatch.tasks FROM dispatch_reader"),
    ("ExtraRight", "table dispatch.tasks", "GRANT UPDATE (priority) ON dispatch.tasks TO reader"),
    ("ExtraRight", "table dispatch.tasks", "GRANT SELECT (payload) ON dispatch.tasks TO dispatch_reader"),
    ("ExtraRight", "table dispatch.secrets", "GRANT SELECT (run_inner) ON dispatch.secrets TO PUBLIC"),
    ("ExtraRight", "schema dispatch", "GRANT CREATE ON SCHEMA dispatch TO reader"),
    ("ExtraRight", f"function {RETRY}", f"GRANT EXECUTE ON FUNCTION {RETRY} TO reader"),
    (
        "RightElsewhere",
        "login reader",
        "CREATE TABLE public.of_reader (); ALTER TABLE public.of_reader OWNER TO reader",
    ),
    ("SearchPath", f"function {RETRY}", f"ALTER FUNCTION {RETRY} RESET search_path"),
    ("SearchPath", f"function {RETRY}", f"ALTER FUNCTION {RETRY} SET search_path = public, pg_catalog"),
]
"""Name of the fault, where it is, and the statement that plants it in the database of the test."""
AGAIN = "REVOKE dispatch_reader FROM reader; GRANT dispatch_reader TO reader"
WITHOUT_A_STATEMENT = {"SchemaOld", "SchemaChanged"}
"""Faults that a statement alone does not mend."""
OF_THE_LOGIN = [
    ("LoginAttributes", "login reader", "ALTER ROLE reader SUPERUSER", "ALTER ROLE reader NOSUPERUSER"),
    ("LoginAttributes", "login reader", "ALTER ROLE reader CREATEROLE", "ALTER ROLE reader NOCREATEROLE"),
    ("LoginGroups", "login reader", "GRANT pg_read_all_data TO reader", "REVOKE pg_read_all_data FROM reader"),
    ("LoginGroups", "login reader", "REVOKE dispatch_reader FROM reader", "GRANT dispatch_reader TO reader"),
    ("LoginInherits", "login reader", f"ALTER ROLE reader NOINHERIT; {AGAIN}", f"ALTER ROLE reader INHERIT; {AGAIN}"),
    ("LoginGroups", "login reader", "GRANT dispatch_task TO reader", "REVOKE dispatch_task FROM reader"),
    ("ConnectionRoom", "login reader", "ALTER ROLE reader CONNECTION LIMIT 3", "ALTER ROLE reader CONNECTION LIMIT -1"),
]
"""The same with the statement that removes the fault again: logins belong to the whole server."""


async def test_migrated_database_has_no_fault_and_everything_is_checked(database: Database) -> None:
    found = await findings(database.url("reader"))
    assert [one for one in found if one.state is not State.GOOD] == []
    assert len({one.what for one in found}) >= 12


NOT_WHAT_THEY_SAY = [
    ("reader", "tasks_history", {"queries/histories", "queries/runs"}),
    ("reader", "tasks_finished", {"queries/counts", "queries/warm_keys"}),
    ("reader", "tasks_finished_of_queue", {"queries/queue_ends", "queries/queue_times"}),
    ("reader", "tasks_processing", {"queries/frame", "queries/few_of_status"}),
    ("reader", "task_launches_starts", {"queries/counts", "queries/starts", "queries/queue_starts"}),
    (
        "reader",
        "tasks_ready tasks_ready_of_submitter",
        {
            *("queries/candidates", "queries/candidates_of", "queries/submitters", "queries/counts", "queries/line"),
            "queries/newest_waiting",
        },
    ),
    ("reader", "tasks_failed", {"queries/failed", "queries/few_of_status"}),
    (
        "reader",
        "tasks_of_batch",
        {
            f"queries/{name}"
            for name in ("batches", "owners_of_batch", "matching_of_batch", "few_of_batch", "failed_of_batch")
        },
    ),
    ("janitor", "tasks_finished", {"janitor/old"}),
    ("janitor", "tasks_due tasks_due_of_submitter", {"queries/frame", "queries/candidates_of", "queries/submitters"}),
]
"""Login, indexes that are made on another column, and the frequent queries that then read whole tables."""


@pytest.mark.parametrize(("login", "indexes", "queries"), NOT_WHAT_THEY_SAY)
async def test_index_that_is_not_what_its_name_says_is_named(
    database: Database, login: str, indexes: str, queries: set[str]
) -> None:
    await fill(database, 20_000)
    admin = await database.session("admin")
    for name in indexes.split():
        table = "task_launches" if "launches" in name else "tasks"
        await admin.execute(f"DROP INDEX dispatch.{name}; CREATE INDEX {name} ON dispatch.{table} (error)")
    found = await faults(database.url(login))
    assert {(one.what, one.where) for one in found} == {("PlanWithoutIndex", f"sql/{name}.sql") for name in queries}


def test_absence_of_every_index_that_a_plan_needs_is_told() -> None:
    """The tests of IN_THE_DATABASE show that the absence of a wanted index is a fault."""
    needed = {name for queries in INDEXES.values() for sets in queries.values() for each in sets for name in each}
    migrations = [one.text for one in read_migrations()]
    primary = [query(f"primary_key_of_{table}", "doctor") for table in ("tasks", "launches")]
    assert needed <= set(wanted_indexes(migrations, primary))


@pytest.mark.parametrize("rows", [0, 1, 20_000])
async def test_plans_have_no_fault_whatever_the_size_of_the_table(database: Database, rows: int) -> None:
    """Indexes that were made again, in another order, and statistics of all sizes."""
    admin = await database.session("admin")
    definitions = await admin.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'dispatch' AND indexname NOT LIKE '%key'"
    )
    for name, _ in definitions:
        await admin.execute(f"DROP INDEX dispatch.{name}")
    for _, definition in reversed(definitions):
        await admin.execute(definition)
    assert await faults(database.url("reader")) == []
    await fill(database, rows)
    assert await faults(database.url("reader")) == []
    assert await faults(database.url("janitor")) == []
    await admin.execute("VACUUM ANALYZE dispatch.tasks, dispatch.task_launches")
    assert await faults(database.url("reader")) == []
    assert await faults(database.url("janitor")) == []


@pytest.mark.parametrize(("what", "where", "plant"), IN_THE_DATABASE)
async def test_fault_in_the_database_is_named_alone(database: Database, what: str, where: str, plant: str) -> None:
    await (await database.session("admin")).execute(plant)
    assert await fault_of(database.url("reader")) == (what, where)
    if what not in WITHOUT_A_STATEMENT:
        await mend(database)
        assert await faults(database.url("reader")) == []


@pytest.mark.parametrize(("what", "where", "plant", "remove"), OF_THE_LOGIN)
async def test_fault_of_the_login_is_named_alone(
    database: Database, what: str, where: str, plant: str, remove: str
) -> None:
    async with planted(database, plant, remove):
        assert await fault_of(database.url("reader")) == (what, where)
        await mend(database)
        assert await faults(database.url("reader")) == []


async def test_login_without_a_connection_left_is_named(database: Database) -> None:
    taken = await database.connect("reader")
    async with planted(database, "ALTER ROLE reader CONNECTION LIMIT 1", "ALTER ROLE reader CONNECTION LIMIT -1"):
        assert (await fault_of(database.url("reader")))[0] == "ConnectionRoom"
    await taken.close()


async def test_limit_of_the_database_is_named(database: Database) -> None:
    admin = await database.session("admin")
    await admin.execute(f'ALTER DATABASE "{database.name}" CONNECTION LIMIT 4')
    assert await fault_of(database.url("reader")) == ("ConnectionRoom", f"database {database.name}")


async def test_empty_database_needs_a_migration(empty: Database) -> None:
    assert await fault_of(empty.url("reader")) == ("SchemaOld", "table dispatch.schema_version")


async def test_newer_schema_is_no_fault(database: Database) -> None:
    admin = await database.session("admin")
    await admin.execute(
        "INSERT INTO dispatch.schema_version (version, name, checksum, database_id) "
        f"SELECT {NEWEST + 1}, 'later', '', database_id FROM dispatch.schema_version LIMIT 1"
    )
    await admin.execute("GRANT SELECT (payload) ON dispatch.tasks TO dispatch_reader")
    assert await faults(database.url("reader")) == []


async def test_server_that_is_away_is_one_finding(database: Database) -> None:
    assert (await fault_of("postgresql://reader@127.0.0.1:1/work"))[0] == "DatabaseAway"


async def test_login_that_the_server_does_not_know_is_named(database: Database) -> None:
    url = url_with(database.admin_url, login="nobody_here")
    (one,) = await faults(url)
    assert one.what == "LoginRefused"
    assert "nobody_here:nobody_here" not in str(one)


@pytest.mark.slow
async def test_standby_is_named(postgres: PostgresServer, database: Database) -> None:
    async with standby_of(postgres) as standby:
        assert (await fault_of(standby.url(database, "reader")))[0] == "DatabaseNotPrimary"


async def test_filled_queue_of_notifications_is_named(quiet: Database) -> None:
    async with flooded(quiet, 0.5):
        assert (await fault_of(quiet.url("reader")))[0] == "NotifyQueue"


async def test_indexes_of_the_migrations_are_those_of_the_database(database: Database) -> None:
    schema = schema_of(await inspect(database.admin_url))
    assert set(NEEDED_INDEXES) <= set(schema.wanted_indexes) <= set(schema.indexes)
    constraints = {name for name in schema.indexes if name not in schema.wanted_indexes}
    assert all(name.endswith(("_pkey", "_key")) for name in constraints)


async def test_command_for_a_missing_index_makes_it_as_it_was(database: Database) -> None:
    admin = await database.session("admin")
    definition = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'dispatch' AND indexname = $1"
    for name, statement in schema_of(await inspect(database.admin_url)).wanted_indexes.items():
        before = await admin.fetchval(definition, name)
        gone = (
            f"ALTER TABLE dispatch.{name.removesuffix('_pkey')} DROP CONSTRAINT {name} CASCADE"
            if "pkey" in name
            else f"DROP INDEX dispatch.{name}"
        )
        await admin.execute(gone)
        await admin.execute(statement)
        assert await admin.fetchval(definition, name) == before
