"""The view `queues`, through which operators declare, change and remove queues."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from tests.integration.columns import QUEUES
from tests.integration.locks import in_order, until_blocked
from tests.integration.queues import declare
from tests.rig.postgres import Connection, Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import insert_row

database = one_database

CHANGES: dict[str, Any] = {
    "weight": 7, "max_jobs": 5, "max_jobs_per_submitter": 3, "max_pending": 0,
    "paused_until": datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), "owner_role": "team_a", "note": "it's\nnightly",
    "submit_role": "team_b", "max_waiting_per_submitter": 0, "fair_submitters": True,
}  # fmt: skip
"""A value for every column but the name, none of which is its default."""
STORED = f"SELECT {', '.join(sorted(QUEUES))} FROM dispatch_private.queues WHERE name = $1"


@pytest.fixture
def q() -> str:
    """The name of a queue that no other test has."""
    return f"q-{secrets.token_hex(4)}"


@pytest_asyncio.fixture(loop_scope="session")
async def operator(database: Database) -> Connection:
    return await database.session("operator")


@pytest_asyncio.fixture(loop_scope="session")
async def other(database: Database) -> AsyncIterator[Connection]:
    """A second operator's session."""
    yield await database.connect("operator")


async def stored(database: Database, name: str) -> dict[str, Any]:
    return dict(await (await database.session("admin")).fetchrow(STORED, name) or {})


async def test_queue_is_declared_with_every_column(database: Database, q: str, operator: Connection) -> None:
    columns = {"name": q, **CHANGES}
    assert columns.keys() == QUEUES
    places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    insert = f"INSERT INTO dispatch.queues ({', '.join(columns)}) VALUES ({places}) RETURNING *"
    assert dict(await operator.fetchrow(insert, *columns.values()) or {}) == await stored(database, q) == columns


async def test_queue_that_is_declared_by_its_name_has_the_defaults(
    database: Database, q: str, operator: Connection
) -> None:
    returned = await operator.fetchrow(f"INSERT INTO dispatch.queues (name) VALUES ('{q}') RETURNING *")
    assert dict(returned or {}) == await stored(database, q)
    assert await stored(database, q) == {
        **dict.fromkeys(QUEUES), "name": q, "weight": 1, "fair_submitters": False,
    }  # fmt: skip


async def test_queue_is_declared_once(database: Database, q: str, operator: Connection) -> None:
    await declare(database, q, weight=5)
    with pytest.raises(asyncpg.UniqueViolationError):
        await operator.execute(f"INSERT INTO dispatch.queues (name) VALUES ('{q}')")
    assert (await stored(database, q))["weight"] == 5


@pytest.mark.parametrize("column", CHANGES)
async def test_change_of_a_column_leaves_the_others(
    database: Database, q: str, operator: Connection, column: str
) -> None:
    await declare(database, q, weight=2, note="before")
    before, untouched = await stored(database, q), await stored(database, "default")
    update = f"UPDATE dispatch.queues SET {column} = $1 WHERE name = '{q}' RETURNING *"
    returned = await operator.fetchrow(update, CHANGES[column])
    assert dict(returned or {}) == await stored(database, q) == {**before, column: CHANGES[column]}
    assert await stored(database, "default") == untouched


@pytest.mark.parametrize("column", sorted(CHANGES.keys() - {"weight", "fair_submitters"}))
async def test_value_may_be_taken_back(database: Database, q: str, operator: Connection, column: str) -> None:
    await declare(database, q, **CHANGES)
    await operator.execute(f"UPDATE dispatch.queues SET {column} = NULL WHERE name = '{q}'")
    assert await stored(database, q) == {"name": q, **CHANGES, column: None}


async def test_pause_without_end_is_kept(database: Database, q: str, operator: Connection) -> None:
    await declare(database, q)
    await operator.execute(f"UPDATE dispatch.queues SET paused_until = 'infinity' WHERE name = '{q}'")
    admin = await database.session("admin")
    paused = f"SELECT paused_until = 'infinity' FROM dispatch_private.queues WHERE name = '{q}'"
    assert await admin.fetchval(paused)


async def test_one_statement_changes_many_queues(database: Database, q: str, operator: Connection) -> None:
    names = [f"{q}-{number}" for number in range(3)]
    for number, name in enumerate(names):
        await declare(database, name, weight=number + 1)
    update = f"UPDATE dispatch.queues SET weight = weight * 10 WHERE name LIKE '{q}%' RETURNING name, weight"
    changed = sorted(map(tuple, await operator.fetch(update)))
    assert changed == [(name, (number + 1) * 10) for number, name in enumerate(names)]
    assert changed == [(name, (await stored(database, name))["weight"]) for name in names]
    assert await operator.execute("UPDATE dispatch.queues SET weight = 9 WHERE name = 'none'") == "UPDATE 0"


@pytest.mark.parametrize(
    ("column", "value"),
    [("weight", None), ("weight", 0), ("weight", 1001), ("max_jobs", -1), ("fair_submitters", None)],
)
async def test_value_out_of_range_is_refused(
    database: Database, q: str, operator: Connection, column: str, value: object
) -> None:
    await declare(database, q)
    before = await stored(database, q)
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        await operator.execute(f"UPDATE dispatch.queues SET {column} = $1 WHERE name = '{q}'", value)
    assert await stored(database, q) == before


async def test_change_holds_for_the_next_insert(database: Database, q: str, operator: Connection) -> None:
    await declare(database, q)
    await insert_row(database, queue=q)
    await operator.execute(f"UPDATE dispatch.queues SET submit_role = 'team_b' WHERE name = '{q}'")
    with pytest.raises(asyncpg.PostgresError, match="you may not insert"):
        await insert_row(database, queue=q)


# Two operators at the same time


async def test_changes_of_two_columns_at_the_same_time_are_both_kept(
    database: Database, q: str, operator: Connection, other: Connection
) -> None:
    await declare(database, q)
    first = operator.execute(f"UPDATE dispatch.queues SET weight = 7 WHERE name = '{q}'")
    second = other.execute(f"UPDATE dispatch.queues SET note = 'n' WHERE name = '{q}'")
    await in_order(database, operator, first, other, second)
    assert ((await stored(database, q))["weight"], (await stored(database, q))["note"]) == (7, "n")


async def test_returning_shows_the_change_of_the_other_operator_too(
    database: Database, q: str, operator: Connection, other: Connection
) -> None:
    await declare(database, q)
    first = operator.execute(f"UPDATE dispatch.queues SET weight = 7 WHERE name = '{q}'")
    second = other.fetchrow(f"UPDATE dispatch.queues SET note = 'n' WHERE name = '{q}' RETURNING *")
    _, returned = await in_order(database, operator, first, other, second)
    assert dict(returned or {}) == await stored(database, q)


async def test_later_of_two_changes_of_a_column_stays(
    database: Database, q: str, operator: Connection, other: Connection
) -> None:
    await declare(database, q)
    first = operator.execute(f"UPDATE dispatch.queues SET weight = 7 WHERE name = '{q}'")
    second = other.execute(f"UPDATE dispatch.queues SET weight = 8 WHERE name = '{q}'")
    await in_order(database, operator, first, other, second)
    assert (await stored(database, q))["weight"] == 8


async def test_change_that_is_rolled_back_leaves_the_other(
    database: Database, q: str, operator: Connection, other: Connection
) -> None:
    await declare(database, q, note="before")
    transaction = operator.transaction()
    await transaction.start()
    await operator.execute(f"UPDATE dispatch.queues SET note = 'lost' WHERE name = '{q}'")
    second = asyncio.create_task(other.execute(f"UPDATE dispatch.queues SET weight = 8 WHERE name = '{q}'"))
    await until_blocked(database, other)
    await transaction.rollback()
    await second
    assert ((await stored(database, q))["weight"], (await stored(database, q))["note"]) == (8, "before")


async def test_change_behind_the_removal_of_the_queue_changes_nothing(
    database: Database, q: str, operator: Connection, other: Connection
) -> None:
    await declare(database, q)
    first = operator.execute(f"DELETE FROM dispatch.queues WHERE name = '{q}'")
    second = other.execute(f"UPDATE dispatch.queues SET weight = 8 WHERE name = '{q}'")
    assert await in_order(database, operator, first, other, second) == ("DELETE 1", "UPDATE 0")
    assert await stored(database, q) == {}


# Removal and names


async def test_idle_queue_is_removed(database: Database, q: str, operator: Connection) -> None:
    await declare(database, q, **CHANGES)
    returned = await operator.fetchrow(f"DELETE FROM dispatch.queues WHERE name = '{q}' RETURNING *")
    assert dict(returned or {}) == {"name": q, **CHANGES}
    assert await stored(database, q) == {}
    assert await operator.execute(f"DELETE FROM dispatch.queues WHERE name = '{q}'") == "DELETE 0"


@pytest.mark.parametrize(("login", "calls"), [("team_a", 2), ("operator", 1)])
async def test_row_of_a_removed_queue_is_not_retried(
    database: Database, q: str, operator: Connection, login: str, calls: int
) -> None:
    await declare(database, q)
    row = await insert_row(database, queue=q, batch=f"of-{q}")
    await row.cancel()
    await operator.execute(f"DELETE FROM dispatch.queues WHERE name = '{q}'")
    session = await database.session(login)
    for call in (f"task_retry({row.id})", f"batch_retry('{q}', 'of-{q}')")[:calls]:
        with pytest.raises(asyncpg.PostgresError) as refused:
            await session.execute(f"SELECT dispatch.{call}")
        assert (refused.value.sqlstate, await row.status()) == ("DI003", "cancelled"), call


REMOVE, RENAME = "DELETE FROM dispatch.queues WHERE name = $1", "UPDATE dispatch.queues SET name = 'x' WHERE name = $1"


@pytest.mark.parametrize("statement", [REMOVE, RENAME], ids=["remove", "rename"])
@pytest.mark.parametrize("has", ["a waiting row", "a row that is due later", "a running row"])
async def test_queue_with_a_live_row_is_neither_removed_nor_renamed(
    database: Database, q: str, operator: Connection, statement: str, has: str
) -> None:
    await declare(database, q)
    due: dict[str, Any] = {"run_at": datetime(2999, 1, 1, tzinfo=UTC)} if "later" in has else {}
    row = await insert_row(database, queue=q, **due)
    if "running" in has:
        await row.started()
    await refuses(database, operator, statement, q)
    await row.cancel()
    await row.silent_for(61)
    await row.cancel()
    assert await operator.execute(REMOVE, q) == "DELETE 1"


@pytest.mark.parametrize("statement", [REMOVE, RENAME], ids=["remove", "rename"])
@pytest.mark.parametrize("name", ["*", "default"])
async def test_rows_of_the_start_are_neither_removed_nor_renamed(
    database: Database, operator: Connection, statement: str, name: str
) -> None:
    await refuses(database, operator, statement, name)


async def refuses(database: Database, operator: Connection, statement: str, name: str) -> None:
    before = await stored(database, name)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await operator.execute(statement, name)
    assert (refused.value.sqlstate, refused.value.column_name, bool(refused.value.hint)) == ("DI003", "name", True)
    assert await stored(database, name) == before


async def test_name_of_an_idle_queue_is_not_changed_either(database: Database, q: str, operator: Connection) -> None:
    """Refused with an error, and not in silence."""
    await declare(database, q)
    await refuses(database, operator, RENAME.replace("name = 'x'", "name = 'x', weight = 5"), q)
    with pytest.raises(asyncpg.PostgresError, match=f'the name of queue "{q}" cannot be changed'):
        await operator.execute(RENAME, q)


@pytest.mark.parametrize("login", ["team_a", "observer"])
async def test_queue_is_read_by_its_owner_and_by_an_observer(database: Database, q: str, login: str) -> None:
    await declare(database, q, owner_role="team_a")
    session = await database.session(login)
    assert await session.fetchval(f"SELECT name FROM dispatch.queues WHERE name = '{q}'") == q


async def test_operator_merges_a_list_of_queues(database: Database, q: str, operator: Connection) -> None:
    if operator.get_server_version().major < 17:
        pytest.skip("MERGE into such a view came with Postgres 17")
    await declare(database, q, note="kept")
    merge = f"""
    MERGE INTO dispatch.queues AS q USING (VALUES ('{q}', 3), ('{q}-new', 4)) AS g (name, weight) ON q.name = g.name
    WHEN MATCHED THEN UPDATE SET weight = g.weight
    WHEN NOT MATCHED THEN INSERT (name, weight) VALUES (g.name, g.weight)
    """
    assert await operator.execute(merge) == "MERGE 2"
    assert [(await stored(database, name))["weight"] for name in (q, f"{q}-new")] == [3, 4]
    assert (await stored(database, q))["note"] == "kept"


OF_ALL = 'of queue "*" is out of range:'
WRONG_QUEUES = {
    "INSERT INTO dispatch.queues (name) VALUES ('Q7')": ("name", "name is out of range: Q7", "A DNS label"),
    "INSERT INTO dispatch.queues (name) VALUES (NULL)": ("name", "name is out of range: NULL", "A DNS label"),
    "INSERT INTO dispatch.queues (name) VALUES ('*')": ("name", 'the queue "*" is declared already', "UPDATE"),
    "UPDATE dispatch.queues SET weight = 0 WHERE name = '*'": ("weight", f"weight {OF_ALL} 0", "1..1000"),
    "UPDATE dispatch.queues SET weight = NULL WHERE name = '*'": ("weight", f"weight {OF_ALL} NULL", "1..1000"),
    "UPDATE dispatch.queues SET fair_submitters = NULL WHERE name = '*'": (
        "fair_submitters",
        f"fair_submitters {OF_ALL} NULL",
        "true or",
    ),
    "UPDATE dispatch.queues SET max_jobs = -1 WHERE name = '*'": ("max_jobs", f"max_jobs {OF_ALL} -1", "0 or"),
}


@pytest.mark.parametrize(("statement", "told"), WRONG_QUEUES.items(), ids=WRONG_QUEUES)
async def test_wrong_value_of_a_queue_is_named_with_its_rule(
    database: Database, statement: str, told: tuple[str, str, str]
) -> None:
    with pytest.raises(asyncpg.IntegrityConstraintViolationError) as refused:
        await (await database.session("operator")).execute(statement)
    error = refused.value
    assert (error.column_name, error.message, str(error.hint)[: len(told[2])]) == told


@pytest.mark.parametrize("column", ["submit_role", "owner_role"])
async def test_role_that_is_not_there_is_told_at_once(database: Database, column: str) -> None:
    """A misspelled one would close the queue without a sign."""
    operator, said = await database.connect("operator"), list[str]()
    operator.add_log_listener(lambda _, message: said.append(message.message))
    for role in ("team_odd", "team_a"):
        await operator.execute(f"UPDATE dispatch.queues SET {column} = '{role}' WHERE name = 'default'")
    await operator.execute(f"UPDATE dispatch.queues SET {column} = NULL WHERE name = 'default'")
    assert [words.partition(":")[0] for words in said] == ['there is no role "team_odd"']
