"""Shared parts of the tests of rights: a database that stays unchanged, and the check for a refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from tests.rig.postgres import Connection, Database, PostgresServer


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def untouched(postgres: PostgresServer) -> AsyncIterator[Database]:
    """One database for a whole file: refused statements change nothing."""
    database = await postgres.create_database()
    admin = await database.session("admin")
    # These are defaults of the server (the second one before Postgres 15), not grants of ours.
    await admin.execute(f'REVOKE TEMPORARY ON DATABASE "{database.name}" FROM PUBLIC')
    await admin.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    await database.insert_task(payload="secret")
    yield database
    await database.drop()


async def names(connection: Connection, query: str, *arguments: object) -> set[str]:
    return {row[0] for row in await connection.fetch(query, *arguments)}


async def refused(connection: Connection, statement: str) -> None:
    """The server refuses the statement because this login lacks the privilege, and for no other reason."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
    finally:
        await transaction.rollback()
