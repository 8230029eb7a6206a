"""A dedupe key makes an INSERT idempotent: while a row of the key lives, the INSERT returns that row and makes none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from tests.integration.locks import in_order, until_blocked
from tests.integration.queues import declare
from tests.rig.postgres import Connection, Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import CANCEL, Row, insert_row

database = one_database

INSERT = "INSERT INTO dispatch.tasks (dedupe_key) VALUES ($1) RETURNING id"
SUBMIT = "SELECT dispatch.submit(jsonb_build_array(jsonb_build_object('dedupe_key', $1::text)))"
both = pytest.mark.parametrize("statement", [INSERT, SUBMIT], ids=["insert", "submit"])
ROUNDS = 20


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sessions(database: Database) -> AsyncIterator[tuple[Connection, Connection]]:
    """Two sessions of one login."""
    yield await database.connect("team_a"), await database.connect("team_a")


async def living(database: Database, key: str) -> list[int]:
    admin = await database.session("admin")
    query = "SELECT id FROM dispatch_private.tasks WHERE dedupe_key = $1 AND finished_at IS NULL"
    return [row["id"] for row in await admin.fetch(query, key)]


async def test_repeated_insert_returns_the_whole_row_that_is_there(database: Database) -> None:
    insert = "INSERT INTO dispatch.tasks (dedupe_key, priority, payload) VALUES ('whole', $1, $2) RETURNING *"
    team = await database.session("team_a")
    first, again = await team.fetchrow(insert, 5, [1]), await team.fetchrow(insert, 9, [2])
    assert first is not None
    assert again == first
    await Row(database, first["id"], await database.start_key(first["id"])).started()
    running = await team.fetchrow(insert, 9, None)
    assert running == await team.fetchrow("SELECT * FROM dispatch.tasks WHERE id = $1", first["id"])
    assert running is not None
    assert running["status"] == "processing"
    assert await living(database, "whole") == [first["id"]]


async def test_rows_of_one_key_in_a_statement_are_one_row(database: Database) -> None:
    team = await database.session("team_a")
    rows = await team.fetch("INSERT INTO dispatch.tasks (dedupe_key) VALUES ('twice'), (NULL), ('twice') RETURNING id")
    assert (rows[0]["id"], len({row["id"] for row in rows})) == (rows[2]["id"], 2)
    assert await living(database, "twice") == [rows[0]["id"]]


async def test_repeated_insert_is_judged_as_the_first_was(database: Database) -> None:
    row = await insert_row(database, dedupe_key="judged")
    with pytest.raises(asyncpg.PostgresError, match="priority 5000"):
        await insert_row(database, dedupe_key="judged", priority=5000)
    assert await living(database, "judged") == [row.id]


async def test_repeated_insert_does_not_count_against_the_bound(database: Database) -> None:
    await declare(database, "bounded", max_waiting_per_submitter=1)
    columns: dict[str, Any] = {"queue": "bounded", "dedupe_key": "bounded"}
    row = await insert_row(database, **columns)
    assert (await insert_row(database, **columns)).id == row.id
    with pytest.raises(asyncpg.PostgresError, match="more than 1 waiting rows"):
        await insert_row(database, queue="bounded")


async def test_on_conflict_without_a_target_has_no_effect(database: Database) -> None:
    """As in statements that were written for a unique key."""
    team = await database.session("team_a")
    insert = "INSERT INTO dispatch.tasks (dedupe_key) VALUES ('conflict') ON CONFLICT DO NOTHING RETURNING id"
    assert await team.fetchval(insert) == await team.fetchval(insert)
    with pytest.raises(asyncpg.InvalidColumnReferenceError):
        await team.fetchval(insert.replace("CONFLICT", "CONFLICT (dedupe_key)"))


# Two sessions at the same time


@both
async def test_second_of_two_sessions_returns_the_row_of_the_first(
    database: Database, sessions: tuple[Connection, Connection], statement: str
) -> None:
    one, other = sessions
    first = one.fetchval(statement, f"second {statement}")
    second = other.fetchval(statement, f"second {statement}")
    ids = await in_order(database, one, first, other, second)
    assert ids[0] == ids[1]
    assert await living(database, f"second {statement}") == [ids[0]]


@both
async def test_second_session_inserts_if_the_first_one_rolls_back(
    database: Database, sessions: tuple[Connection, Connection], statement: str
) -> None:
    (one, other), key = sessions, f"rolled back {statement}"
    transaction = one.transaction()
    await transaction.start()
    lost = await one.fetchval(statement, key)
    second = asyncio.create_task(other.fetchval(statement, key))
    await until_blocked(database, other)
    await transaction.rollback()
    assert await second > lost
    assert await living(database, key) == [await second]


@both
async def test_insert_behind_the_end_of_the_row_makes_a_new_one(
    database: Database, sessions: tuple[Connection, Connection], statement: str
) -> None:
    (one, other), key = sessions, f"ended {statement}"
    old = await insert_row(database, dedupe_key=key)
    cancel, insert = one.fetchval(CANCEL, old.id, None), other.fetchval(statement, key)
    status, new = await in_order(database, one, cancel, other, insert)
    assert (status, new > old.id) == ("cancelled", True)
    assert await living(database, key) == [new]


@both
async def test_row_that_ends_during_the_insert_is_returned_or_replaced(
    database: Database, sessions: tuple[Connection, Connection], statement: str
) -> None:
    (one, other), key = sessions, f"race {statement}"
    for _ in range(ROUNDS):
        old = await one.fetchval(statement, key)
        status, answer = await asyncio.gather(one.fetchval(CANCEL, old, None), other.fetchval(statement, key))
        assert (status, answer >= old) == ("cancelled", True)
        assert await living(database, key) == ([answer] if answer > old else [])


@both
async def test_simultaneous_inserts_of_a_key_make_one_row(
    database: Database, sessions: tuple[Connection, Connection], statement: str
) -> None:
    for number in range(ROUNDS):
        key = f"same moment {number} {statement}"
        one, other = await asyncio.gather(*(session.fetchval(statement, key) for session in sessions))
        assert one == other
        assert await living(database, key) == [one]


@both
@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_stricter_transaction_that_cannot_see_the_row_fails_and_may_be_repeated(
    database: Database, sessions: tuple[Connection, Connection], statement: str, isolation: Any
) -> None:
    (one, other), key = sessions, f"{isolation} {statement}"
    transaction = one.transaction(isolation=isolation)
    await transaction.start()
    await one.fetchval("SELECT count(*) FROM dispatch.tasks")
    id_ = await other.fetchval(statement, key)
    with pytest.raises(asyncpg.SerializationError):
        await one.fetchval(statement, key)
    await transaction.rollback()
    async with one.transaction(isolation=isolation):
        assert await one.fetchval(statement, key) == id_
