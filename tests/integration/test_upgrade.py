"""The upgrade from version 26: the schema of a new database, all or nothing, and no launch by a program of before."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from dispatcher.model.errors import DatabaseUnfit
from dispatcher.pg.migrate import BEFORE, NEWEST, migrate
from tests.integration.catalog import catalog, differences, waiting
from tests.integration.looking import looking
from tests.integration.migrating import FILES, applied
from tests.integration.version_26 import FRAME, NEEDED_INDEXES, before_upgrade, insert
from tests.rig.postgres import Database, Record
from tests.rig.rows import HEARTBEAT, START

__all__ = ["before_upgrade"]

VERSION = "SELECT max(version) FROM dispatch.schema_version"
# A bound of a queue made triggers in version 26.
BOUND = "UPDATE dispatch.queues SET max_waiting_per_submitter = 1000 WHERE name = '*'"
PRIVATE = "CREATE SCHEMA dispatch_private AUTHORIZATION dispatch_owner"
VIEW = ["CREATE VIEW public.why AS SELECT id, reason FROM dispatch.task_explain"]
CALL = ["CREATE VIEW public.why AS SELECT dispatch.task_cancel(1)"]
TABLE = [
    PRIVATE,
    "CREATE TABLE dispatch_private.bounded_inserts ()",
    "ALTER TABLE dispatch_private.bounded_inserts OWNER TO dispatch_owner",
]
FUNCTION = [
    PRIVATE,
    "CREATE FUNCTION dispatch_private.field(words text) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "ALTER FUNCTION dispatch_private.field OWNER TO dispatch_owner",
]
DEPEND = r"other objects depend on them\s+DETAIL:  view public\.why depends on view dispatch\.task_explain"
# What stands in the way, what the operator is told, and what removes it.
OBSTACLES = {
    "a view of a team needs a view": (VIEW, DEPEND, "DROP VIEW public.why"),
    "a view of a team needs a function": (
        CALL,
        r"cannot drop function dispatch\.task_cancel\(bigint,text\) because other objects depend on it",
        "DROP VIEW public.why",
    ),
    "a table has the name of a new one": (
        TABLE,
        'relation "bounded_inserts" already exists',
        "DROP TABLE dispatch_private.bounded_inserts",
    ),
    "a function has another return type": (
        FUNCTION,
        "cannot change return type of existing function",
        "DROP FUNCTION dispatch_private.field",
    ),
}
# The private schema is made before the transaction; it may stay, empty.
MADE_BEFORE = {"Name: dispatch_private; Type: SCHEMA; Schema: -; Owner: dispatch_owner"}
OLD_JANITOR = (
    "dispatch.janitor_return($1, 1, 1, 'x'::bytea, 1, 'gone')",
    "dispatch.janitor_cancel($1, 1, 'x'::bytea)",
    "dispatch.janitor_end($1, 1, 0, NULL, 'failed', 'gone')",
    "dispatch.janitor_delete(1, 10)",
)


async def state(database: Database, task: int) -> Record:
    admin = await database.session("admin")
    row = await admin.fetchrow("SELECT * FROM dispatch_private.tasks WHERE id = $1", task)
    assert row is not None
    return row


async def test_upgraded_database_has_the_schema_of_a_new_one(before_upgrade: Database, database: Database) -> None:
    await (await before_upgrade.session("admin")).execute(BOUND)
    assert differences(await catalog(database), await catalog(before_upgrade)) != []
    assert await migrate(before_upgrade.admin_url) == FILES
    assert differences(await catalog(database), await catalog(before_upgrade)) == []


async def test_upgraded_database_keeps_its_identity(before_upgrade: Database) -> None:
    admin = await before_upgrade.session("admin")
    identity = "SELECT DISTINCT database_id FROM dispatch.schema_version"
    before = await admin.fetch(identity)
    await migrate(before_upgrade.admin_url)
    assert await admin.fetch(identity) == before
    assert await applied(before_upgrade) == FILES


async def test_second_upgrade_changes_nothing(before_upgrade: Database) -> None:
    await migrate(before_upgrade.admin_url)
    before = await catalog(before_upgrade)
    assert await migrate(before_upgrade.admin_url, check=True) == []
    assert await migrate(before_upgrade.admin_url) == []
    assert differences(before, await catalog(before_upgrade)) == []


async def test_two_upgrades_at_once_succeed_and_one_does_the_work(before_upgrade: Database) -> None:
    done = await asyncio.gather(migrate(before_upgrade.admin_url), migrate(before_upgrade.admin_url))
    assert sorted(done) == [[], FILES]


async def test_check_before_the_upgrade_names_the_files_and_changes_nothing(before_upgrade: Database) -> None:
    before = await catalog(before_upgrade)
    for login in ("admin", "reader"):
        assert await migrate(before_upgrade.url(login), check=True) == FILES
    assert differences(before, await catalog(before_upgrade)) == []


@pytest.mark.parametrize("why", OBSTACLES)
async def test_upgrade_that_cannot_be_done_leaves_the_database_as_it_was(before_upgrade: Database, why: str) -> None:
    """Programs of version 26 work on. When the obstacle is gone, the upgrade is done."""
    obstacle, told, remedy = OBSTACLES[why]
    admin, row = await before_upgrade.session("admin"), await insert(before_upgrade)
    await admin.execute(";".join(obstacle))
    before = await catalog(before_upgrade)
    with pytest.raises(DatabaseUnfit, match=told):
        await migrate(before_upgrade.admin_url)
    assert set(differences(before, await catalog(before_upgrade))) <= MADE_BEFORE
    assert await admin.fetchval(VERSION) == BEFORE
    reader = await before_upgrade.session("reader")
    assert len(await reader.fetch(FRAME, list(NEEDED_INDEXES), 10, BEFORE)) == 1
    assert (await row.started()).payload is None

    await admin.execute(remedy)
    assert await migrate(before_upgrade.admin_url) == FILES


@pytest.mark.slow
async def test_upgrade_gives_up_when_somebody_holds_a_table(before_upgrade: Database) -> None:
    """It waits for some seconds at most, so that inserts never queue up behind it for longer."""
    holder = await before_upgrade.connect("team_a")
    held = holder.transaction()
    await held.start()
    task_id = await holder.fetchval("INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING id")
    before = await catalog(before_upgrade)
    with pytest.raises(DatabaseUnfit, match="in an open transaction of team_a"):
        await migrate(before_upgrade.admin_url)
    assert set(differences(before, await catalog(before_upgrade))) <= MADE_BEFORE
    await held.commit()
    assert await migrate(before_upgrade.admin_url) == FILES
    assert (await state(before_upgrade, task_id))["status"] == "waiting"


async def test_look_and_upgrade_that_need_the_same_tables_both_go_on(before_upgrade: Database) -> None:
    """A look holds one table and asks for the next one, while the upgrade waits for the first. Neither fails."""
    admin, reader = await before_upgrade.session("admin"), await before_upgrade.session("reader")
    look = reader.transaction(isolation="repeatable_read", readonly=True)
    await look.start()
    await reader.fetch("SELECT name FROM dispatch.schema_version")
    upgrade = asyncio.create_task(migrate(before_upgrade.admin_url))
    await waiting(admin, "dispatch.schema_version", unless=upgrade)
    for table in ("queues", "tasks", "task_launches"):
        await reader.fetch(f"SELECT 1 FROM dispatch.{table}")
    await look.commit()
    assert await upgrade == FILES


async def test_view_of_a_team_on_rows_is_refused_until_the_team_makes_it_again(before_upgrade: Database) -> None:
    """It stands on the table, which the team may not read any more, and never shows a foreign row."""
    admin, team = await before_upgrade.session("admin"), await before_upgrade.session("team_a")
    await admin.execute("CREATE SCHEMA of_a AUTHORIZATION team_a")
    view = "CREATE {} VIEW of_a.rows AS SELECT id, submitted_by, status FROM dispatch.tasks"
    await team.execute(view.format(""))
    own = (await insert(before_upgrade)).id
    await insert(before_upgrade, "team_b")
    await migrate(before_upgrade.admin_url)
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for table tasks"):
        await team.fetch("SELECT * FROM of_a.rows")
    await team.execute(view.format("OR REPLACE"))
    assert [row["id"] for row in await team.fetch("SELECT id FROM of_a.rows")] == [own]


async def test_dispatcher_of_before_is_refused_and_can_launch_nothing(before_upgrade: Database) -> None:
    """Its first statement fails, so that it has no row and no key to launch by."""
    row, reader = await insert(before_upgrade), await before_upgrade.session("reader")
    assert len(await reader.fetch(FRAME, list(NEEDED_INDEXES), 10, BEFORE)) == 1
    await migrate(before_upgrade.admin_url)
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for view"):
        await reader.fetch(FRAME, list(NEEDED_INDEXES), 10, BEFORE)
    for table in ("tasks", "secrets"):
        with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.UndefinedTableError)):
            await reader.fetch(f"SELECT * FROM dispatch.{table}")
    assert (await state(before_upgrade, row.id))["status"] == "waiting"


@pytest.mark.parametrize("call", OLD_JANITOR)
async def test_janitor_of_before_changes_no_row(before_upgrade: Database, call: str) -> None:
    """Its statements name functions that are not there any more."""
    row, janitor = await insert(before_upgrade), await before_upgrade.session("janitor")
    statement = f"SELECT {call} FROM (SELECT $1::bigint) AS one (id)"
    await janitor.prepare(statement)
    await migrate(before_upgrade.admin_url)
    before = await state(before_upgrade, row.id)
    with pytest.raises(asyncpg.UndefinedFunctionError):
        await janitor.fetchval(statement, row.id)
    assert await state(before_upgrade, row.id) == before


async def test_program_of_now_asks_for_the_upgrade(before_upgrade: Database) -> None:
    with pytest.raises(DatabaseUnfit, match=f"one of a version before {NEWEST}: run `dispatcher migrate`"):
        async with looking(before_upgrade):
            pass
    await migrate(before_upgrade.admin_url)
    async with looking(before_upgrade) as rows:
        assert await rows.indexed_rows({"default": 10}) == []


async def test_container_of_now_works_before_the_upgrade(before_upgrade: Database) -> None:
    """An image with the new `dispatcher exec` may run before the database is upgraded."""
    row = await insert(before_upgrade, payload=[1])
    task = await before_upgrade.session("task")
    token, payload = await task.fetchrow(START, row.id, row.start_key, 1, 1, "job-1", "node-1", "pod-1") or (None, None)
    assert (payload, await task.fetchval(HEARTBEAT, token)) == ([1], "continue")


@pytest.mark.parametrize("version", [1, 7, 25])
@pytest.mark.parametrize("check", [True, False])
async def test_version_that_was_never_released_is_refused(before_upgrade: Database, version: int, check: bool) -> None:
    admin = await before_upgrade.session("admin")
    await admin.execute("DELETE FROM dispatch.schema_version WHERE version > $1", version)
    before = await catalog(before_upgrade)
    told = f"the schema has version {version}, which was never released: .* up to 26 from the history of this project"
    with pytest.raises(DatabaseUnfit, match=told):
        await migrate(before_upgrade.admin_url, check=check)
    assert differences(before, await catalog(before_upgrade)) == []


async def test_dropped_schema_of_before_makes_room_for_a_new_one(before_upgrade: Database) -> None:
    """The other way that the refusal of an unreleased version names."""
    await (await before_upgrade.session("admin")).execute("DROP SCHEMA dispatch CASCADE")
    assert await migrate(before_upgrade.admin_url) == FILES
