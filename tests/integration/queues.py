"""Queues as an operator declares them, and the answer to an INSERT into them."""

from __future__ import annotations

import asyncpg

from tests.rig.postgres import Database


async def declare(database: Database, name: str = "door", **columns: object) -> None:
    columns = {"name": name, **columns}
    places = ", ".join(f"${n}" for n in range(1, len(columns) + 1))
    operator = await database.session("operator")
    await operator.execute(f"INSERT INTO dispatch.queues ({', '.join(columns)}) VALUES ({places})", *columns.values())


async def defaults(database: Database, column: str, value: object) -> None:
    """Sets a column of the row `*`, which has the defaults of queues."""
    operator = await database.session("operator")
    await operator.execute(f"UPDATE dispatch.queues SET {column} = $1 WHERE name = '*'", value)


async def refusal(database: Database, login: str, **columns: object) -> asyncpg.PostgresError | None:
    """The refusal of the INSERT; None: the row was accepted."""
    try:
        await database.insert_task(login, **columns)
    except asyncpg.PostgresError as error:
        return error
    return None
