"""Calls that wait for a lock."""

from __future__ import annotations

import asyncio

from tests.postgres import Connection, Database


async def until_blocked(database: Database, connection: Connection) -> None:
    """Returns when the connection's statement waits for a lock; fails after ten seconds."""
    admin = await database.session("admin")
    blocked = "SELECT cardinality(pg_blocking_pids($1)) > 0"
    async with asyncio.timeout(10):
        while not await admin.fetchval(blocked, connection.get_server_pid()):
            pass
