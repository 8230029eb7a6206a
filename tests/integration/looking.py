"""Looks at the rows as the dispatcher makes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dispatcher.pg.connect import Session
from dispatcher.pg.tasks import TaskSnapshot, look
from tests.rig.postgres import Database


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Session]:
    session = Session(lambda: url)
    try:
        yield session
    finally:
        await session.close()


@asynccontextmanager
async def looking(database: Database) -> AsyncIterator[TaskSnapshot]:
    """The first look of a fresh dispatcher."""
    async with opened(database.url("reader")) as session, look(session) as rows:
        yield rows


async def waiting(rows: TaskSnapshot) -> list[int]:
    return [row.id for row in await rows.indexed_rows({"default": 100})]


async def ids(session: Session) -> list[int]:
    """The waiting rows that a look finds."""
    async with look(session) as rows:
        return await waiting(rows)
