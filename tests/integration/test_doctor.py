"""`dispatcher doctor` on a real Postgres: no false alarm on a migrated database, and each planted fault named alone."""

import json
import shlex
from datetime import datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from dispatcher.doctor.finding import FindingState
from dispatcher.doctor.look_at_database import wanted_objects
from dispatcher.doctor.program import DoctorEnvironment, examine
from dispatcher.doctor.schema import INDEXES, indexes_of
from dispatcher.pg.connect import open_connection
from dispatcher.pg.migrate import NEWEST, migrate
from dispatcher.pg.queries import query
from dispatcher.pg.tasks import NEEDED_INDEXES
from dispatcher.settings.loading import load
from tests.integration.doctoring_database import fault_of, faults, fill, findings, mend, now, planted
from tests.integration.flooding import flooded, quiet, server
from tests.integration.plans import Plan
from tests.rig.postgres import Database, PostgresServer, standby_of, url_with

__all__ = ["quiet", "server"]

TASKS, LAUNCHES, QUEUES = (f"dispatch_private.{name}" for name in ("tasks", "task_launches", "queues"))
VERSIONS, FILES = "dispatch_private.schema_version", "dispatch_private.applied_functions"
OF_VERSIONS = "view dispatch.schema_version"
INVALID = f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{TASKS}_ready'::regclass"
RETRY = "dispatch_private.task_retry(text, bigint, integer)"
VISIBLE = "dispatch_private.visible_tasks(text)"
SECRETS = "dispatch_private.secrets"
ANOTHER_VIEW = """
CREATE OR REPLACE VIEW dispatch.templates AS
SELECT name, row_may_set, bounds, images, machines, sets, 'x' AS note FROM dispatch_private.templates
"""
BEHIND = f"""
INSERT INTO {TASKS} (queue, submitted_by, kind) SELECT 'default', 'team_a', 'x' FROM generate_series(1, 3);
SELECT setval('{TASKS}_id_seq', 1)
"""
IN_THE_DATABASE = [
    ("IndexMissing", f"index {TASKS}_ready", f"DROP INDEX {TASKS}_ready"),
    ("IndexMissing", f"index {TASKS}_finished", f"DROP INDEX {TASKS}_finished"),
    ("IndexMissing", f"index {LAUNCHES}_starts", f"DROP INDEX {LAUNCHES}_starts"),
    ("IndexMissing", f"index {LAUNCHES}_pkey", f"ALTER TABLE {LAUNCHES} DROP CONSTRAINT task_launches_pkey"),
    ("IndexInvalid", f"index {TASKS}_ready", INVALID),
    ("SchemaOld", OF_VERSIONS, f"DELETE FROM {VERSIONS} WHERE version = {NEWEST}"),
    ("SchemaOld", f"table {FILES}", f"UPDATE {FILES} SET checksum = 'other' WHERE name = 'functions/01_texts.sql'"),
    ("SchemaOld", f"table {FILES}", f"DELETE FROM {FILES} WHERE name = 'functions/01_texts.sql'"),
    ("SchemaOld", f"table {FILES}", f"INSERT INTO {FILES} VALUES ('97_more.sql', 'x')"),
    ("SchemaChanged", OF_VERSIONS, f"UPDATE {VERSIONS} SET checksum = 'other' WHERE version = {NEWEST}"),
    ("SchemaOwner", "schema dispatch", "ALTER SCHEMA dispatch OWNER TO team_a"),
    ("SchemaOwner", "schema dispatch_private", "ALTER SCHEMA dispatch_private OWNER TO team_a"),
    ("MissingRight", f"table {QUEUES}", f"REVOKE SELECT ON {QUEUES} FROM dispatch_reader"),
    ("MissingRight", f"table {TASKS}", f"REVOKE SELECT (env, spec) ON {TASKS} FROM dispatch_reader"),
    ("MissingRight", f"table {FILES}", f"REVOKE SELECT ON {FILES} FROM dispatch_reader"),
    ("MissingRight", OF_VERSIONS, "REVOKE SELECT ON dispatch.schema_version FROM dispatch_reader"),
    ("MissingRight", "schema dispatch", "REVOKE USAGE ON SCHEMA dispatch FROM dispatch_reader"),
    ("MissingRight", "schema dispatch_private", "REVOKE USAGE ON SCHEMA dispatch_private FROM dispatch_reader"),
    ("ExtraRight", f"table {TASKS}", f"GRANT UPDATE (priority) ON {TASKS} TO reader"),
    ("ExtraRight", f"table {TASKS}", f"GRANT SELECT (payload) ON {TASKS} TO dispatch_reader"),
    ("ExtraRight", "view dispatch.tasks", "GRANT INSERT ON dispatch.tasks TO reader"),
    ("ExtraRight", "table dispatch_private.secrets", "GRANT SELECT (run_inner) ON dispatch_private.secrets TO PUBLIC"),
    ("ExtraRight", "table dispatch_private.tasks_id_seq", f"GRANT USAGE ON SEQUENCE {TASKS}_id_seq TO reader"),
    ("ExtraRight", "schema dispatch", "GRANT CREATE ON SCHEMA dispatch TO reader"),
    ("ExtraRight", "schema dispatch_private", "GRANT CREATE ON SCHEMA dispatch_private TO reader"),
    ("ExtraRight", f"function {RETRY}", f"GRANT EXECUTE ON FUNCTION {RETRY} TO reader"),
    (
        "RightElsewhere",
        "login reader",
        "CREATE TABLE public.of_reader (); ALTER TABLE public.of_reader OWNER TO reader",
    ),
    ("ObjectChanged", f"function {RETRY}", f"ALTER FUNCTION {RETRY} RESET search_path"),
    ("ObjectChanged", f"function {RETRY}", f"ALTER FUNCTION {RETRY} SET client_min_messages = debug5"),
    ("ObjectChanged", f"function {VISIBLE}", f"ALTER FUNCTION {VISIBLE} RESET ALL"),
    ("ObjectChanged", f"function {VISIBLE}", f"ALTER FUNCTION {VISIBLE} SECURITY INVOKER"),
    ("ObjectChanged", f"function {RETRY}", f"UPDATE pg_proc SET prosrc = 'x' WHERE oid = '{RETRY}'::regprocedure"),
    ("ObjectChanged", f"function {RETRY}", f"ALTER FUNCTION {RETRY} OWNER TO CURRENT_USER"),
    ("ObjectChanged", "view dispatch.templates", ANOTHER_VIEW),
    ("ObjectChanged", f"table {TASKS}", f"ALTER TABLE {TASKS} DISABLE ROW LEVEL SECURITY"),
    ("ObjectChanged", f"table {SECRETS}", f"ALTER TABLE {SECRETS} DISABLE ROW LEVEL SECURITY"),
    ("ObjectChanged", f"table {TASKS}", f"ALTER TABLE {TASKS} FORCE ROW LEVEL SECURITY"),
    ("ObjectChanged", f"table {TASKS}", f"CREATE POLICY everybody ON {TASKS} USING (true)"),
    ("ObjectChanged", f"table {TASKS}", f"ALTER TABLE {TASKS} DISABLE TRIGGER USER"),
    ("ObjectChanged", f"table {TASKS}", f"ALTER TABLE {TASKS} SET UNLOGGED"),
    ("ObjectChanged", f"table {TASKS}", f"ALTER TABLE {TASKS} SET (autovacuum_enabled = off)"),
    ("ObjectChanged", "view dispatch.tasks", "ALTER VIEW dispatch.tasks ALTER priority SET DEFAULT 1"),
    ("ObjectChanged", "view dispatch.tasks", "CREATE RULE none AS ON INSERT TO dispatch.tasks DO INSTEAD NOTHING"),
    ("ObjectChanged", "view dispatch.tasks", "ALTER VIEW dispatch.tasks OWNER TO CURRENT_USER"),
    ("ObjectChanged", "view dispatch.tasks", "DROP TRIGGER insert_task ON dispatch.tasks"),
    ("ObjectChanged", f"table {SECRETS}", f"GRANT SELECT ON {SECRETS} TO pg_monitor"),
    ("ObjectChanged", "view dispatch.tasks", "GRANT UPDATE ON dispatch.tasks TO dispatch_submitter"),
    ("ObjectChanged", "view dispatch.tasks", "REVOKE INSERT ON dispatch.tasks FROM dispatch_submitter"),
    (
        "ObjectChanged",
        "function dispatch.task_start(bigint, uuid, integer, integer, text, text, text, text)",
        "DROP FUNCTION dispatch.task_start",
    ),
    ("SequenceBehind", f"sequence {TASKS}_id_seq", BEHIND),
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
    (
        "LoginTalks",
        "login task",
        "ALTER ROLE task SET debug_print_plan = yes",
        "ALTER ROLE task RESET debug_print_plan",
    ),
    ("LoginTalks", "login task", "ALTER ROLE task SET log_statement = 'all'", "ALTER ROLE task RESET log_statement"),
    ("ConnectionRoom", "login reader", "ALTER ROLE reader CONNECTION LIMIT 3", "ALTER ROLE reader CONNECTION LIMIT -1"),
]
"""The same with the statement that removes the fault again: logins belong to the whole server."""


async def test_migrated_database_has_no_fault_and_everything_is_checked(database: Database) -> None:
    found = await findings(database.url("reader"))
    assert [one for one in found if one.state is not FindingState.GOOD] == []
    assert len({one.what for one in found}) >= 12


OF_BATCHES = {"batches/owners_of_batch", "pages/matching_of_batch", "pages/few_of_batch"}
NOT_WHAT_THEY_SAY = [
    ("reader", "tasks_history", {"caches/histories", "caches/runs"}),
    ("reader", "tasks_finished", {"queues/counts", "queues/ends", "caches/warm_keys"}),
    ("reader", "tasks_finished_of_queue", {"queues/queue_ends", "queues/queue_times"}),
    ("reader", "tasks_processing", {"cycle/frame", "pages/few_of_status"}),
    ("reader", "task_launches_starts", {"queues/counts", "explain/starts"}),
    (
        "reader",
        "tasks_ready tasks_ready_of_submitter",
        {
            *("cycle/candidates", "cycle/candidates_of", "cycle/submitters", "queues/counts", "explain/line"),
            "pages/newest_waiting",
        },
    ),
    ("reader", "tasks_failed", {"batches/failed", "pages/few_of_status"}),
    ("reader", "tasks_of_batch", OF_BATCHES),
    ("reader", "tasks_of_own_batch", {"batches/failed_of_batch"}),
    ("reader", "tasks_of_batch tasks_of_own_batch", {"batches/batches", "batches/failed_of_batch", *OF_BATCHES}),
    ("janitor", "tasks_finished", {"janitor/old"}),
    ("janitor", "tasks_due tasks_due_of_submitter", {"cycle/frame", "cycle/candidates_of", "cycle/submitters"}),
]
"""Login, indexes that are made on another column, and the frequent queries that then read whole tables."""


@pytest.mark.slow
@pytest.mark.parametrize(("login", "indexes", "queries"), NOT_WHAT_THEY_SAY)
async def test_index_that_is_not_what_its_name_says_is_named(
    database: Database, login: str, indexes: str, queries: set[str]
) -> None:
    await fill(database, 20_000)
    admin = await database.session("admin")
    for name in indexes.split():
        table = "task_launches" if "launches" in name else "tasks"
        made = f"CREATE INDEX {name} ON dispatch_private.{table} (error)"
        await admin.execute(f"DROP INDEX dispatch_private.{name}; {made}")
    found = await faults(database.url(login))
    places = [f"query {block} in sql/queries/{file}.sql" for file, block in (name.split("/") for name in queries)]
    assert {(one.what, one.where) for one in found} == {("PlanWithoutIndex", place) for place in places}


def test_absence_of_every_index_that_a_plan_needs_is_told() -> None:
    """The tests of IN_THE_DATABASE show that the absence of a wanted index is a fault."""
    needed = {name for queries in INDEXES.values() for sets in queries.values() for each in sets for name in each}
    assert {f"dispatch_private.{name}" for name in {*needed, *NEEDED_INDEXES}} <= set(indexes_of(wanted_objects()))


@pytest.mark.slow
@pytest.mark.parametrize("then", ["ANALYZE", "VACUUM ANALYZE"])
async def test_plans_have_no_fault_when_all_rows_are_of_one_batch_and_cancelled(database: Database, then: str) -> None:
    admin = await database.session("admin")
    await admin.execute("INSERT INTO dispatch.tasks (batch) SELECT 'b' FROM generate_series(1, 20000)")
    assert await admin.fetchval("SELECT dispatch.batch_cancel('default', 'b')") == 20_000
    await admin.execute(f"{then} dispatch_private.tasks")
    assert [await faults(database.url(login)) for login in ("reader", "janitor")] == [[], []]


@pytest.mark.parametrize("rows", [0, 1, 20_000])
async def test_plans_have_no_fault_whatever_the_size_of_the_table(database: Database, rows: int) -> None:
    """Indexes that were made again, in another order, and statistics of all sizes."""
    admin = await database.session("admin")
    definitions = await admin.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'dispatch_private' AND indexname NOT LIKE '%key'"
    )
    assert definitions
    for name, _ in definitions:
        await admin.execute(f"DROP INDEX dispatch_private.{name}")
    for _, definition in reversed(definitions):
        await admin.execute(definition)
    assert await faults(database.url("reader")) == []
    await fill(database, rows)
    assert await faults(database.url("reader")) == []
    assert await faults(database.url("janitor")) == []
    await admin.execute("VACUUM ANALYZE dispatch_private.tasks, dispatch_private.task_launches")
    assert await faults(database.url("reader")) == []
    assert await faults(database.url("janitor")) == []


@pytest.mark.parametrize(("what", "where", "plant"), IN_THE_DATABASE)
async def test_fault_in_the_database_is_named_alone(database: Database, what: str, where: str, plant: str) -> None:
    await (await database.session("admin")).execute(plant)
    assert await fault_of(database.url("reader")) == (what, where)
    if what not in WITHOUT_A_STATEMENT:
        await mend(database)
        await migrate(database.admin_url)
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


async def test_sessions_of_other_logins_take_room(database: Database) -> None:
    """Their type is hidden from a plain login. One is the administrator's, and one the doctor's own."""
    admin = await database.session("admin")
    await admin.execute(f'ALTER DATABASE "{database.name}" CONNECTION LIMIT 8')
    for login in ("team_a", "team_b", "operator"):
        await database.connect(login)
    (found,) = await faults(database.url("reader"))
    assert (found.what, found.message.partition(",")[0]) == ("ConnectionRoom", "5 of 8 connections are used")


async def test_empty_database_needs_a_migration(empty: Database) -> None:
    assert await fault_of(empty.url("reader")) == ("SchemaOld", OF_VERSIONS)


async def test_newer_schema_is_no_fault(database: Database) -> None:
    admin = await database.session("admin")
    await admin.execute(
        "INSERT INTO dispatch_private.schema_version (version, name, checksum, database_id) "
        f"SELECT {NEWEST + 1}, 'later', '', database_id FROM dispatch.schema_version LIMIT 1"
    )
    await admin.execute("UPDATE dispatch_private.applied_functions SET checksum = 'of a newer file'")
    await admin.execute("GRANT SELECT (payload) ON dispatch_private.tasks TO dispatch_reader")
    assert await faults(database.url("reader")) == []


async def test_server_that_is_away_is_one_finding(database: Database) -> None:
    assert (await fault_of("postgresql://reader@127.0.0.1:1/work"))[0] == "DatabaseAway"


async def test_bug_in_one_part_leaves_what_the_others_found(database: Database, tmp_path: Path) -> None:
    def broken_clock() -> datetime:
        raise ValueError(database.url("reader"))

    own = {"DATABASE_URL": database.url("reader"), "KUBECONFIG": str(tmp_path / "none"), "IMAGE": "x"}
    loaded = load({f"DISPATCHER_{name}": value for name, value in own.items()}, str)
    report = await examine(loaded, DoctorEnvironment(now=broken_clock))
    found = {one.what: one.message for one in report.findings if one.state is FindingState.FAULT}
    assert set(found) == {"DatabaseAway", "ApiServerAway"}
    assert "ValueError in broken_clock, test_doctor.py" in found["DatabaseAway"]
    assert database.url("reader") not in found["DatabaseAway"]


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


async def test_command_for_a_missing_index_makes_it_as_it_was(database: Database) -> None:
    admin = await database.session("admin")
    definition = "SELECT indexdef FROM pg_indexes WHERE format('%s.%s', schemaname, indexname) = $1"
    for name, statement in indexes_of(wanted_objects()).items():
        before = await admin.fetchval(definition, name)
        _, _, table, *_ = statement.split()
        of_key = f"ALTER TABLE {table} DROP CONSTRAINT {name.partition('.')[2]} CASCADE"
        gone = of_key if " CONSTRAINT " in statement else f"DROP INDEX {name}"
        assert before
        await admin.execute(gone)
        await admin.execute(statement)
        assert await admin.fetchval(definition, name) == before


async def test_object_that_nobody_knows_is_named(database: Database) -> None:
    await (await database.session("admin")).execute("CREATE TABLE dispatch_private.of_the_dba (id int)")
    assert await fault_of(database.url("reader")) == ("ObjectUnknown", "table dispatch_private.of_the_dba")


async def test_trigger_and_index_of_somebody_else_are_no_finding(database: Database) -> None:
    await (await database.session("admin")).execute(f"""
        CREATE FUNCTION public.audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
        CREATE TRIGGER audit AFTER UPDATE ON {TASKS} FOR EACH ROW EXECUTE FUNCTION public.audit();
        CREATE INDEX of_the_dba ON {TASKS} (error)
    """)
    assert {one.state for one in await findings(database.url("reader"))} == {FindingState.GOOD}


async def test_password_that_ends_soon_is_named(database: Database) -> None:
    ends = f"ALTER ROLE task VALID UNTIL '{now() + timedelta(days=10):%Y-%m-%d}'"
    async with planted(database, ends, "ALTER ROLE task VALID UNTIL 'infinity'"):
        (found,) = [one for one in await findings(database.url("reader")) if one.state is not FindingState.GOOD]
        assert (found.what, found.where) == ("PasswordEnds", "login task")


async def test_collation_of_another_version_is_named(database: Database) -> None:
    """Whoever starts the server on another operating system has it."""
    admin = await database.session("admin")
    set_to = "UPDATE pg_database SET datcollversion = $1 WHERE datname = current_database()"
    now = await admin.fetchval("SELECT datcollversion FROM pg_database WHERE datname = current_database()")
    await admin.execute(set_to, "1.0")
    try:
        (found,) = await faults(database.url("reader"))
        assert (found.what, "made with version 1.0" in found.message) == ("CollationChanged", True)
        assert f"REINDEX DATABASE {database.name}" in found.mend
    finally:
        await admin.execute(set_to, now)


async def test_server_that_does_not_clean_its_tables_is_named(database: Database) -> None:
    """The setting of the login stands for that of the server."""
    async with planted(database, "ALTER ROLE reader SET track_counts = off", "ALTER ROLE reader RESET track_counts"):
        assert await fault_of(database.url("reader")) == ("AutovacuumOff", f"database {database.name}")


SETTINGS_OF_TEXT = {
    "DateStyle": "German", "IntervalStyle": "sql_standard", "standard_conforming_strings": "off", "row_security": "off",
    "quote_all_identifiers": "on", "TimeZone": "Asia/Kolkata", "bytea_output": "escape", "extra_float_digits": "-15",
    "array_nulls": "off", "xmlbinary": "hex", "default_transaction_isolation": "serializable",
}  # fmt: skip
"""Settings by which the server writes the same thing in another way, and reads it."""


async def test_settings_of_the_database_change_no_finding_and_no_migration(database: Database) -> None:
    admin = await database.session("admin")
    for setting, value in SETTINGS_OF_TEXT.items():
        await admin.execute(f"ALTER DATABASE {database.name} SET {setting} = '{value}'")
    try:
        assert await faults(database.url("reader")) == []
        await admin.execute("TRUNCATE dispatch_private.applied_functions")
        await migrate(database.admin_url)
    finally:
        await admin.execute(f"ALTER DATABASE {database.name} RESET ALL")
    assert await faults(database.url("reader")) == []


@pytest.mark.parametrize("whose", ["ROLE team_a", "DATABASE {name}", "ROLE team_a IN DATABASE {name}"])
async def test_sessions_that_run_no_trigger_are_named(database: Database, whose: str) -> None:
    """Their INSERT into a view would make no row, and say nothing. The default of `id` refuses it."""
    whose = whose.format(name=database.name)
    set_to, reset = (f"ALTER {whose} {verb} session_replication_role" for verb in ("SET", "RESET"))
    async with planted(database, f"{set_to} = replica", reset):
        (found,) = await faults(database.url("reader"))
        assert (found.what, found.where) == ("TriggersSkipped", f"database {database.name}")
        assert found.mend.endswith(f"-c '{reset}'")
        with pytest.raises(asyncpg.DataError, match="session_replication_role = replica"):
            await (await database.connect("team_a")).execute("INSERT INTO dispatch.tasks DEFAULT VALUES")


HOSTILE = """
CREATE TABLE public.t (a int, ". a) ON t FROM evil;ALTER ROLE team_b SUPERUSER;--" int);
GRANT SELECT (". a) ON t FROM evil;ALTER ROLE team_b SUPERUSER;--") ON public.t TO reader
"""


async def test_name_that_a_stranger_chose_brings_no_statement_of_its_own_into_a_command(database: Database) -> None:
    admin = await database.session("admin")
    await admin.execute("GRANT CREATE ON SCHEMA public TO team_b")
    await (await database.session("team_b")).execute(HOSTILE)
    assert await fault_of(database.url("reader")) == ("RightElsewhere", "login reader")
    await mend(database)
    assert await faults(database.url("reader")) == []
    assert not await admin.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = 'team_b'")


async def test_code_of_a_stolen_login_is_not_handed_to_an_administrator(database: Database) -> None:
    admin = await database.session("admin")
    await admin.execute("CREATE FUNCTION public.f() RETURNS int SECURITY DEFINER LANGUAGE sql AS 'SELECT 1'")
    await admin.execute("ALTER FUNCTION public.f() OWNER TO reader")
    assert await fault_of(database.url("reader")) == ("RightElsewhere", "login reader")
    await mend(database)
    assert await admin.fetchval("SELECT to_regprocedure('public.f()') IS NULL")


async def test_right_that_anybody_can_grant_has_a_command_for_it_alone(database: Database) -> None:
    """The command must not take away what the login needs."""
    admin = await database.session("admin")
    number = await admin.fetchval("SELECT lo_create(0)")
    await admin.execute(f"ALTER LARGE OBJECT {number} OWNER TO team_a")
    await (await database.session("team_a")).execute(f"GRANT SELECT ON LARGE OBJECT {number} TO reader")
    await admin.execute(f'GRANT CONNECT ON DATABASE "{database.name}" TO reader')
    assert await fault_of(database.url("reader")) == ("RightElsewhere", "login reader")
    await mend(database)
    assert await faults(database.url("reader")) == []
    assert await admin.fetchval(
        "SELECT datacl::text LIKE '%reader=c%' FROM pg_database WHERE datname = current_database()"
    )


async def test_database_of_another_encoding_is_named_with_the_command_that_makes_one(postgres: PostgresServer) -> None:
    other, made = (Database(postgres, name) for name in ("dispatch_ascii", "dispatch_ascii_utf8"))
    await postgres.execute(f"CREATE DATABASE {other.name} ENCODING SQL_ASCII LOCALE 'C' TEMPLATE template0")
    try:
        found = await faults(other.url("reader"))
        assert [one.what for one in found] == ["DatabaseEncoding", "SchemaOld"]
        _, _, _, statement = shlex.split(found[0].mend, comments=True)
        await postgres.execute(statement)
        assert "DatabaseEncoding" not in {one.what for one in await faults(made.url("reader"))}
    finally:
        await other.drop()
        await made.drop()


async def test_queue_and_rows_of_roles_that_are_gone_are_named(database: Database) -> None:
    admin = await database.session("admin")
    await admin.execute(
        "CREATE ROLE leaver; INSERT INTO dispatch.queues (name, owner_role) VALUES ('theirs', 'leaver')"
    )
    await admin.execute(f"INSERT INTO {TASKS} (queue, submitted_by, kind) VALUES ('default', 'leaver', 'x')")
    await admin.execute("INSERT INTO dispatch_private.submitters SELECT 'leaver', 'leaver'::regrole; DROP ROLE leaver")
    found = [one for one in await findings(database.url("reader")) if one.state is not FindingState.GOOD]
    told = [(one.what, one.where) for one in found]
    assert told == [("RoleGone", "queue theirs"), ("RoleGone", "submitter leaver")]
    for one, name in zip(found, ("dispatch_submitter", "team_a"), strict=True):
        *_, statement = shlex.split(one.mend, comments=True)
        await admin.execute(statement.replace("ROLE", name).replace("LOGIN", name))
    assert {one.state for one in await findings(database.url("reader"))} == {FindingState.GOOD}


async def test_rows_and_names_that_logins_have_left_behind_are_not_looked_up(database: Database) -> None:
    """Where rows stay for ever, those of a team that has left are millions, and Vault makes a login for each run of a
    pipeline: the doctor would give up the database.
    """
    admin = await database.session("admin")
    await admin.execute("SET session_replication_role = replica")
    gone = "SELECT 'leaver ' || n, NULL FROM generate_series(1, 2000) AS n"
    await admin.execute(f"INSERT INTO dispatch_private.submitters {gone}")
    await admin.execute(
        f"INSERT INTO {TASKS} (submitted_by, status, finished_at, kind) "
        "SELECT 'leaver 1', 'succeeded', now(), 'x' FROM generate_series(1, 10000)"
    )
    connection = await open_connection(database.url("reader"))
    explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query('roles_gone', 'doctor')}"
    told = await connection.fetchval(explained, ["team_a"])
    connection.terminate()
    assert Plan(json.loads(told)[0]["Plan"]).pages < 100
