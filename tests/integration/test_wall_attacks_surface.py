"""Team B tries every statement that could name, lock, change or copy what is behind the views."""

from __future__ import annotations

import os
import re
import select
import struct
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio
from psycopg import pq

from tests.integration.wall_attackers import SECRET, VIEWS, Prey, prey
from tests.integration.wall_catalog import CATALOG
from tests.integration.wall_seats import Seat
from tests.rig.postgres import Connection, PostgresServer

MODES = [
    "ACCESS SHARE", "ROW SHARE", "ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE", "SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE",
    "ACCESS EXCLUSIVE",
]  # fmt: skip
HARMLESS = {"AccessShareLock", "RowShareLock", "RowExclusiveLock"}
"""Locks that stop no INSERT, and no call of a container."""
HELD = """
SELECT DISTINCT l.mode FROM pg_locks AS l
JOIN pg_class AS c ON c.oid = l.relation JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE l.pid = pg_backend_pid() AND n.nspname IN ('dispatch', 'dispatch_private')
"""
STRENGTHS = ["UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"]
CHANGES = [
    "UPDATE {view} SET {column} = {column}",
    "DELETE FROM {view}",
    "TRUNCATE {view}",
    "MERGE INTO {view} AS t USING (VALUES (1)) AS x (y) ON true WHEN MATCHED THEN DELETE",
    "ALTER VIEW {view} OWNER TO team_b",
    "DROP VIEW {view}",
    "CREATE RULE r AS ON UPDATE TO {view} DO INSTEAD NOTHING",
    "CREATE TRIGGER t INSTEAD OF UPDATE ON {view} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE INDEX ON {view} ({column})",
    "GRANT SELECT ON {view} TO PUBLIC WITH GRANT OPTION",
]
NAMING = [
    "SELECT dispatch_private.visible_tasks('team_a')",
    "SELECT * FROM dispatch_private.visible_tasks('team_a')",
    "SELECT dispatch_private.task_cancel('team_a', 1, 'x')",
    "SELECT 'dispatch_private.visible_tasks(text)'::regprocedure",
    "SELECT to_regprocedure('dispatch_private.visible_tasks(text)')",
    "SELECT NULL::dispatch_private.tasks",
    "TABLE dispatch_private.tasks",
    "COPY dispatch_private.tasks TO STDOUT",
    "SELECT nextval('dispatch_private.tasks_id_seq')",
    "CREATE VIEW team_b.v AS SELECT * FROM dispatch_private.visible_tasks('team_a')",
    "CREATE AGGREGATE team_b.a (text) (SFUNC = dispatch_private.shown, STYPE = text)",
    "CREATE OPERATOR team_b.<~> (FUNCTION = dispatch_private.shown, RIGHTARG = text)",
    "CREATE CAST (team_b.own AS text) WITH FUNCTION dispatch_private.shown(text)",
    "CREATE TRIGGER t BEFORE INSERT ON team_b.bait FOR EACH ROW EXECUTE FUNCTION dispatch_private.insert_task()",
    "CREATE FUNCTION team_b.g() RETURNS SETOF text LANGUAGE sql BEGIN ATOMIC SELECT dispatch_private.shown('x'); END",
    "CREATE TABLE team_b.x (LIKE dispatch_private.tasks)",
    "CREATE TABLE team_b.x () INHERITS (dispatch_private.tasks)",
    "CREATE TABLE team_b.x (y bigint REFERENCES dispatch_private.tasks)",
    "CREATE TABLE team_b.x (y dispatch_private.tasks)",
    "CREATE INDEX ON team_b.bait (dispatch_private.shown(i::text))",
    "CREATE POLICY p ON team_b.bait USING (dispatch_private.visible_ids('team_a', true) IS NULL)",
    "CREATE PUBLICATION p FOR TABLE dispatch_private.tasks",
    "CREATE FUNCTION dispatch.mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "ALTER FUNCTION dispatch.task_cancel(bigint, text) RESET ALL",
    "DROP FUNCTION dispatch.task_cancel(bigint, text)",
    "GRANT USAGE ON SCHEMA dispatch_private TO team_b",
    "LOCK TABLE dispatch_private.tasks IN ACCESS SHARE MODE",
    "ANALYZE dispatch_private.tasks",
    "SET ROLE team_a",
    "SET ROLE dispatch_owner",
    "SET SESSION AUTHORIZATION team_a",
    "GRANT dispatch_operator TO team_b",
    "SELECT pg_read_file('postgresql.auto.conf')",
    "SELECT lo_export(1, '/tmp/x')",
    "CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION team_b.h()",
]
"""Statements that name what team B may not name, or take what it may not have."""
OWN_THINGS = """
CREATE TABLE team_b.bait (i integer);
CREATE TYPE team_b.own AS (x text);
CREATE FUNCTION team_b.h() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
"""
REFUSED = re.compile("permission denied for schema|cannot call function .* via fastpath")
"""The second answer is that to a function that returns rows: nobody can call one in this way."""
PRIVATE = """
SELECT p.oid, p.oid::regprocedure::text AS name, p.pronargs FROM pg_proc AS p
WHERE p.pronamespace = 'dispatch_private'::regnamespace
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def a(postgres: PostgresServer) -> AsyncIterator[Prey]:
    async with prey(postgres) as made:
        await (await made.database.session("team_b")).execute(OWN_THINGS)
        yield made


async def views(a: Prey) -> list[str]:
    return [row[0] for row in await (await a.database.session("admin")).fetch(VIEWS)]


async def refusal(connection: Connection, statement: str) -> str:
    """The SQLSTATE of the statement, which is taken back. Empty: it was done. The secret: its error tells it."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(statement)
    except asyncpg.PostgresError as refused:
        return SECRET if SECRET in str(refused.as_dict()) else str(refused.sqlstate)
    finally:
        await transaction.rollback()
    return ""


@pytest.mark.parametrize("login", ["team_b", "task", "observer"])
async def test_lock_of_a_view_stops_nobody(a: Prey, login: str) -> None:
    team = await a.database.session(login)
    for view in await views(a):
        for mode in MODES:
            async with team.transaction():
                try:
                    async with team.transaction():
                        await team.execute(f"LOCK TABLE {view} IN {mode} MODE")
                except asyncpg.InsufficientPrivilegeError:
                    continue
                held = {row[0] for row in await team.fetch(HELD)}
                assert held <= HARMLESS, (view, mode)


@pytest.mark.parametrize("login", ["team_b", "task", "observer"])
async def test_no_row_of_a_view_can_be_locked(a: Prey, login: str) -> None:
    team = await a.database.session(login)
    for view in await views(a):
        for strength in STRENGTHS:
            assert await refusal(team, f"SELECT FROM {view} FOR {strength}") == "42501", (view, strength)


@pytest.mark.parametrize("login", ["team_b", "task", "observer"])
async def test_no_view_can_be_changed(a: Prey, login: str) -> None:
    before, team = await a.now(), await a.database.session(login)
    admin = await a.database.session("admin")
    for view in await views(a):
        column = await admin.fetchval(
            "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum = 1", view
        )
        for change in CHANGES:
            assert await refusal(team, change.format(view=view, column=column)) not in {"", SECRET}, (view, change)
    assert await a.now() == before


@pytest.mark.parametrize("statement", NAMING)
async def test_private_things_cannot_be_named(a: Prey, statement: str) -> None:
    assert await refusal(await a.database.session("team_b"), statement) in {"42501", "42883", "42P01", "3F000"}


async def test_private_schema_on_the_search_path_gives_no_name(a: Prey) -> None:
    team = await a.database.connect("team_b")
    await team.execute("SET search_path = dispatch_private, dispatch, pg_catalog")
    assert await refusal(team, "SELECT visible_tasks('team_a')") == "42883"
    assert await refusal(team, "SELECT t.reasons_of FROM dispatch.tasks AS t") == "42703"
    assert await refusal(team, "TABLE secrets") == "42P01"


async def test_private_functions_cannot_be_called_by_their_oid(a: Prey) -> None:
    functions = await (await a.database.session("admin")).fetch(PRIVATE)
    connection = pq.PGconn.connect(a.database.url("team_b").encode())
    answers = {one["name"]: called_by_oid(connection, one["oid"], one["pronargs"]) for one in functions}
    connection.finish()
    assert answers
    assert {name: answer for name, answer in answers.items() if not REFUSED.search(answer)} == {}


def called_by_oid(connection: pq.abc.PGconn, oid: int, arguments: int) -> str:
    """The answer to a FunctionCall message, which names a function by its OID alone. All arguments are NULL."""
    body = struct.pack(f"!IHH{arguments}iH", oid, 0, arguments, *[-1] * arguments, 0)
    os.write(connection.socket, b"F" + struct.pack("!i", len(body) + 4) + body)
    answer = b""
    while not re.search(rb"Z\x00\x00\x00\x05[ITE]$", answer):
        select.select([connection.socket], [], [])
        answer += os.read(connection.socket, 65536)
    return answer.decode(errors="replace")


async def test_catalog_holds_nothing_of_rows(a: Prey) -> None:
    await (await a.database.session("admin")).execute("ANALYZE")
    seat = Seat(a.database.url("team_b"))
    found = [one.sql for one in CATALOG if SECRET in str(seat.look(one))]
    seat.close()
    assert found == []
