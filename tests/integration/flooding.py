"""A server whose queue of notifications somebody fills."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest_asyncio

from tests.rig.postgres import Connection, Database, PostgresServer, server_with

USAGE = "SELECT pg_notification_queue_usage()"
DEAF = "LISTEN flood"
FLOOD = "SELECT pg_notify('flood', repeat('x', 7900) || n) FROM generate_series(1, $1) AS n"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server() -> AsyncIterator[PostgresServer]:
    """A server of its own with the smallest possible queue: 512 KiB."""
    async with server_with("small-queue", max_notify_queue_pages="64") as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def quiet(server: PostgresServer) -> AsyncIterator[Database]:
    created = await server.create_database()
    try:
        yield created
    finally:
        await created.drop()


@asynccontextmanager
async def flooded(database: Database, most: float = 1.0) -> AsyncIterator[None]:
    """Runs the attacker's two sessions; the queue is full, or filled up to `most`."""
    deaf, loud = await database.connect("team_a"), await database.connect("team_a")
    await deaf.execute(DEAF)
    await deaf.execute("BEGIN; SELECT 1")
    try:
        await fill(loud, most)
        yield
    finally:
        deaf.terminate()
        loud.terminate()


async def fill(loud: Connection, most: float) -> None:
    """Fills the queue up to `most`, or until it takes no more."""
    try:
        while await loud.fetchval(USAGE) < most:
            await loud.execute(FLOOD, 1)
    except asyncpg.ProgramLimitExceededError:
        return
