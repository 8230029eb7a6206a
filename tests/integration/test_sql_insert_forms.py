"""INSERT in every form that a client may send: each makes the same rows, and is refused by the same rules."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from tests.integration.queues import declare
from tests.rig.postgres import Connection, Database, PostgresServer
from tests.rig.postgres_fixtures import made

LONG_AGO = "SELECT setval('dispatch_private.tasks_clock_' || n, 1) FROM generate_series(0, 15) AS n"
UNJUDGED = "INSERT INTO dispatch_private.templates (name) VALUES ('default')"
"""A template with a fault: it refuses no row."""
Rows = list[tuple[str, int]]
"""Queue and priority of each row."""
Form = Callable[[Connection, Rows], Awaitable[Any]]


@pytest_asyncio.fixture(
    scope="module", loop_scope="session", params=["SELECT", UNJUDGED], ids=["no templates", "known templates"]
)
async def database(postgres: PostgresServer, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """A plain row of a known template is judged at a glance, any other one by all rules."""
    async with made(postgres) as created:
        await (await created.session("admin")).execute(request.param)
        for queue in ("a", "b"):
            await declare(created, queue)
        await declare(created, "bounded", max_waiting_per_submitter=2)
        yield created


async def values(team: Connection, rows: Rows) -> None:
    listed = ", ".join(f"('{queue}', {priority})" for queue, priority in rows)
    await team.execute(f"INSERT INTO dispatch.tasks (queue, priority) VALUES {listed}")


async def selected(team: Connection, rows: Rows) -> None:
    select = "INSERT INTO dispatch.tasks (queue, priority) SELECT * FROM unnest($1::text[], $2::int[])"
    await team.execute(select, [row[0] for row in rows], [row[1] for row in rows])


async def prepared(team: Connection, rows: Rows) -> None:
    async with team.transaction():
        await team.executemany("INSERT INTO dispatch.tasks (queue, priority) VALUES ($1, $2)", rows)


async def binary_copy(team: Connection, rows: Rows) -> None:
    columns = ["queue", "priority"]
    await team.copy_records_to_table("tasks", schema_name="dispatch", columns=columns, records=rows)


async def csv_copy(team: Connection, rows: Rows) -> None:
    text = "".join(f'{queue},{priority},"{{""A"": ""1""}}"\n' for queue, priority in rows).encode()
    columns = ["queue", "priority", "env"]
    await team.copy_to_table("tasks", schema_name="dispatch", columns=columns, source=io.BytesIO(text), format="csv")


async def in_a_with(team: Connection, rows: Rows) -> None:
    with_insert = """
    WITH given AS (SELECT * FROM unnest($1::text[], $2::int[]) AS g (queue, priority)),
         made AS (INSERT INTO dispatch.tasks (queue, priority) SELECT * FROM given RETURNING id)
    SELECT count(*) FROM made
    """
    number = await team.fetchval(with_insert, [row[0] for row in rows], [row[1] for row in rows])
    assert number == len(rows)


async def merged(team: Connection, rows: Rows) -> None:
    if team.get_server_version().major < 17:
        pytest.skip("MERGE into such a view came with Postgres 17")
    merge = """
    MERGE INTO dispatch.tasks AS t USING unnest($1::text[], $2::int[]) AS g (queue, priority) ON false
    WHEN NOT MATCHED THEN INSERT (queue, priority) VALUES (g.queue, g.priority)
    """
    await team.execute(merge, [row[0] for row in rows], [row[1] for row in rows])


async def submitted(team: Connection, rows: Rows) -> None:
    await team.fetch("SELECT dispatch.submit($1)", [{"queue": queue, "priority": priority} for queue, priority in rows])


FORMS = [values, selected, prepared, binary_copy, csv_copy, in_a_with, merged, submitted]
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)


async def inserted(database: Database, since: int) -> Rows:
    admin = await database.session("admin")
    query = "SELECT queue, priority FROM dispatch_private.tasks WHERE id > $1 ORDER BY id"
    return [tuple(row) for row in await admin.fetch(query, since)]


async def newest(database: Database) -> int:
    admin = await database.session("admin")
    return int(await admin.fetchval("SELECT coalesce(max(id), 0) FROM dispatch_private.tasks"))


@every_form
async def test_every_form_makes_the_rows_in_their_order(database: Database, form: Form) -> None:
    rows, since = [("a", 5), ("default", 3), ("b", 4), ("a", 1)], await newest(database)
    await form(await database.session("team_a"), rows)
    assert await inserted(database, since) == rows


@every_form
@pytest.mark.parametrize(
    ("row", "code"), [(("a", 1001), "DI004"), (("none", 1), "DI003"), (("a", 2**31 - 1), "DI004")], ids=str
)
async def test_row_with_a_fault_refuses_the_statement_in_every_form(
    database: Database, form: Form, row: tuple[str, int], code: str
) -> None:
    since = await newest(database)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await form(await database.session("team_a"), [("a", 1), row, ("b", 1)])
    assert (refused.value.sqlstate, bool(refused.value.hint)) == (code, True)
    assert await inserted(database, since) == []


@every_form
async def test_bound_of_a_queue_holds_in_every_form(database: Database, form: Form) -> None:
    since, team = await newest(database), await database.session("team_a")
    with pytest.raises(asyncpg.PostgresError) as refused:
        await form(team, [("bounded", 1), ("a", 1), ("bounded", 2), ("bounded", 3)])
    assert refused.value.sqlstate == "DI009"
    assert await inserted(database, since) == []


@every_form
async def test_every_form_wakes_the_dispatcher_once(database: Database, form: Form) -> None:
    admin, told = await database.session("admin"), asyncio.Queue[str]()
    listening = await database.connect("reader")
    await listening.add_listener("dispatch_tasks", lambda *one: told.put_nowait(one[2]))
    await admin.execute(LONG_AGO)
    await form(await database.session("team_a"), [("a", 1), ("b", 2)])
    async with asyncio.timeout(5):
        assert await told.get() == "dispatch_tasks"
    await listening.fetch("SELECT 1")
    assert told.empty()
    listening.terminate()


@pytest.mark.parametrize("column", ["id", "attempt", "created_at", "submitted_by"])
async def test_copy_of_a_column_that_the_functions_keep_is_refused(database: Database, column: str) -> None:
    since, team = await newest(database), await database.session("team_a")
    line = {"created_at": "2026-01-01", "submitted_by": "team_b"}.get(column, "7")
    csv: dict[str, Any] = {"columns": ["queue", column], "source": io.BytesIO(f"a,{line}\n".encode()), "format": "csv"}
    with pytest.raises(asyncpg.PostgresError) as refused:
        await team.copy_to_table("tasks", schema_name="dispatch", **csv)
    assert (refused.value.sqlstate, refused.value.column_name) == ("DI010", column)
    assert await inserted(database, since) == []


@pytest.mark.parametrize(
    "columns",
    [{}, {"priority": 7}, {"env": {"A": "1"}}, {"labels": {"a": "b"}}, {"spec": {"cpu": "1"}, "timeout_seconds": 9},
     {"env": {"A": "x" * 300}}, {"dedupe_key": "k"}],
    ids=str,
)  # fmt: skip
async def test_returning_shows_the_row_as_it_is_stored(database: Database, columns: dict[str, Any]) -> None:
    team, names = await database.session("team_a"), ", ".join(columns) or "queue"
    places = ", ".join(f"${number}" for number in range(1, len(columns) + 1)) or "DEFAULT"
    row = await team.fetchrow(f"INSERT INTO dispatch.tasks ({names}) VALUES ({places}) RETURNING *", *columns.values())
    assert row is not None
    assert {"status": row["status"]} | {name: row[name] for name in columns} == {"status": "waiting"} | columns
    assert row == await team.fetchrow("SELECT * FROM dispatch.tasks WHERE id = $1", row["id"])


async def test_insert_for_each_row_of_another_table_knows_its_row(database: Database) -> None:
    """One statement inserts into both, and keeps the id."""
    team, admin = await database.session("team_a"), await database.session("admin")
    await admin.execute("CREATE TABLE IF NOT EXISTS public.orders (task_id bigint, note text)")
    await admin.execute("GRANT INSERT, SELECT ON public.orders TO team_a")
    keeping = """
    WITH task AS (INSERT INTO dispatch.tasks (payload) VALUES ('{"order": 7}') RETURNING id)
    INSERT INTO public.orders SELECT id, 'seven' FROM task RETURNING task_id
    """
    assert await team.fetchval(keeping) == await newest(database)


async def test_trigger_of_somebody_else_that_skips_a_row_refuses_the_insert_in_every_form(database: Database) -> None:
    """It would be asked again and again for the row, which takes ids and CPU until a time limit."""
    team, admin = await database.session("team_a"), await database.session("admin")
    await admin.execute("""
        CREATE FUNCTION public.skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER skip BEFORE INSERT ON dispatch_private.tasks FOR EACH ROW WHEN (NEW.priority = 7)
            EXECUTE FUNCTION public.skip()
    """)
    try:
        for form in FORMS:
            async with asyncio.timeout(5):
                with pytest.raises(asyncpg.PostgresError, match=r"a trigger on dispatch_private\.tasks takes this row"):
                    await form(team, [("a", 7)])
    finally:
        await admin.execute("DROP FUNCTION public.skip CASCADE")
