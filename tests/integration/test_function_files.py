"""The files of `sql/functions` are applied again when one has changed: the database has what they say, and no more."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.model.errors import DatabaseUnfit
from dispatcher.pg.migrate import migrate
from tests.integration.catalog import catalog, differences, waiting
from tests.integration.migrating import FUNCTIONS
from tests.rig.postgres import Database

# As if the files had been others at the last run. Each statement changes one object.
OTHERS = {
    "a body": "CREATE OR REPLACE FUNCTION dispatch_private.last_attempt() RETURNS integer LANGUAGE sql IMMUTABLE "
    "AS 'SELECT 1'",
    "settings": "ALTER FUNCTION dispatch.task_heartbeat RESET ALL",
    "a right too many": "GRANT SELECT ON dispatch_private.secrets TO PUBLIC",
    "a right too few": "REVOKE EXECUTE ON FUNCTION dispatch.task_start FROM dispatch_task",
    "a comment": "COMMENT ON VIEW dispatch.tasks IS 'rows'",
    "a view": "CREATE OR REPLACE VIEW dispatch.reasons AS SELECT reason, whose_turn, meaning, ''::text AS next_step "
    "FROM dispatch_private.reasons",
    "a trigger": "DROP TRIGGER guard_task ON dispatch_private.tasks",
    "a policy": "ALTER POLICY programs ON dispatch_private.tasks USING (false)",
    "a function that no file has": "CREATE FUNCTION dispatch.task_pause(task_id bigint) RETURNS text LANGUAGE sql "
    "AS 'SELECT NULL'",
    "a private function that no file has": "CREATE FUNCTION dispatch_private.paused() RETURNS text LANGUAGE sql "
    "AS 'SELECT NULL'",
    "other parameters": "CREATE FUNCTION dispatch.task_retry(task_id bigint) RETURNS text LANGUAGE sql "
    "AS 'SELECT NULL'",
}
RECORDED = "SELECT name, checksum FROM dispatch_private.applied_functions ORDER BY name"


async def change(database: Database, *statements: str) -> None:
    """Changes objects as their owner, and what is recorded of one file."""
    admin = await database.session("admin")
    async with admin.transaction():
        await admin.execute("SET LOCAL ROLE dispatch_owner")
        for statement in statements:
            await admin.execute(statement)
        await admin.execute(
            "UPDATE dispatch_private.applied_functions SET checksum = 'other' WHERE name = $1", FUNCTIONS[1]
        )


@pytest.mark.parametrize("what", OTHERS)
async def test_next_run_makes_the_database_what_the_files_say(database: Database, what: str) -> None:
    before = await catalog(database)
    await change(database, OTHERS[what])
    assert differences(before, await catalog(database)) != []
    assert await migrate(database.admin_url) == FUNCTIONS
    assert differences(before, await catalog(database)) == []
    assert await migrate(database.admin_url) == []


async def test_check_names_pending_files_and_applies_none(database: Database) -> None:
    await change(database, *OTHERS.values())
    admin, before = await database.session("admin"), await catalog(database)
    recorded = await admin.fetch(RECORDED)
    for login in ("admin", "reader"):
        assert await migrate(database.url(login), check=True) == FUNCTIONS
    assert differences(before, await catalog(database)) == []
    assert await admin.fetch(RECORDED) == recorded


async def test_file_that_is_gone_is_forgotten(database: Database) -> None:
    admin = await database.session("admin")
    recorded = await admin.fetch(RECORDED)
    await admin.execute("INSERT INTO dispatch_private.applied_functions (name, checksum) VALUES ('77_more.sql', 'x')")
    assert await migrate(database.admin_url) == FUNCTIONS
    assert await admin.fetch(RECORDED) == recorded


async def test_live_rows_are_not_touched(database: Database) -> None:
    admin, task_id = await database.session("admin"), await database.insert_task(payload=[1])
    kept = "SELECT t.ctid, t.xmin, t.*, s.* FROM dispatch_private.tasks AS t, dispatch_private.secrets AS s"
    before = await admin.fetch(kept)
    await change(database, OTHERS["a body"])
    await migrate(database.admin_url)
    assert await admin.fetch(kept) == before
    assert [row["id"] for row in before] == [task_id]


async def test_look_and_run_that_need_the_same_tables_both_go_on(database: Database) -> None:
    """A look holds one table and asks for the next one, while the run waits for the first. Neither fails."""
    admin, reader = await database.session("admin"), await database.session("reader")
    await change(database, OTHERS["a body"])
    look = reader.transaction(isolation="repeatable_read", readonly=True)
    await look.start()
    await reader.fetch("SELECT name FROM dispatch_private.templates")
    run = asyncio.create_task(migrate(database.admin_url))
    await waiting(admin, "dispatch_private.templates", unless=run)
    for table in ("tasks", "task_launches", "queues", "schema_version"):
        await reader.fetch(f"SELECT 1 FROM dispatch_private.{table}")
    await look.commit()
    assert await run == FUNCTIONS


async def test_function_that_a_view_of_a_team_needs_stops_the_run_and_is_named(database: Database) -> None:
    """Nothing is changed. The administrator of the team's view decides."""
    await change(database, OTHERS["a body"], OTHERS["a function that no file has"])
    admin = await database.session("admin")
    await admin.execute("CREATE VIEW public.of_a_team AS SELECT dispatch.task_pause(1)")
    before = await catalog(database)
    with pytest.raises(
        DatabaseUnfit, match=r"cannot drop function dispatch\.task_pause\(bigint\) because other objects depend"
    ):
        await migrate(database.admin_url)
    assert differences(before, await catalog(database)) == []
    await admin.execute("DROP VIEW public.of_a_team")
    assert await migrate(database.admin_url) == FUNCTIONS
