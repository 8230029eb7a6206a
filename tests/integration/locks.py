"""Calls that wait for a lock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.rig.postgres import Connection, Database

T = TypeVar("T")
U = TypeVar("U")


async def in_order(
    database: Database,
    holder: Connection,
    first: Coroutine[Any, Any, T],
    waiter: Connection,
    second: Coroutine[Any, Any, U],
) -> tuple[T, U]:
    """The answers of two calls. The second one waits for the transaction of the first."""
    async with holder.transaction():
        answer = await first
        waiting = asyncio.create_task(second)
        await until_blocked(database, waiter)
    return answer, await waiting


async def until_blocked(database: Database, connection: Connection) -> None:
    """Returns when the connection's statement waits for a lock; fails after ten seconds."""
    admin = await database.session("admin")
    blocked = "SELECT cardinality(pg_blocking_pids($1)) > 0"
    async with asyncio.timeout(10):
        while not await admin.fetchval(blocked, connection.get_server_pid()):
            pass
