"""The fixtures of every suite that needs Postgres.

`postgres` is one server for the whole run. `database` is a new database of this server for each test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest_asyncio

from tests.rig.postgres import Database, PostgresServer


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres() -> AsyncIterator[PostgresServer]:
    server = await PostgresServer.launch()
    try:
        yield server
    finally:
        await server.close()


@pytest_asyncio.fixture(loop_scope="session")
async def own_database(postgres: PostgresServer) -> AsyncIterator[Database]:
    """A database for one test."""
    async with made(postgres) as created:
        yield created


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def one_database(postgres: PostgresServer) -> AsyncIterator[Database]:
    """One database for all tests of a file: their rows do not interact."""
    async with made(postgres) as created:
        yield created


@pytest_asyncio.fixture(loop_scope="session")
async def empty(postgres: PostgresServer) -> AsyncIterator[Database]:
    """A database without our schema, on a server that has the roles and logins."""
    await (await postgres.create_database()).drop()
    async with made(postgres, migrated=False) as created:
        yield created


@asynccontextmanager
async def made(postgres: PostgresServer, *, migrated: bool = True) -> AsyncIterator[Database]:
    created = await postgres.create_database(migrated=migrated)
    try:
        yield created
    finally:
        await created.drop()


database = own_database
