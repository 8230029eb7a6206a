"""A call through asyncpg, in a thread without a running event loop."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from dispatcher.task.contract import URL, DatabaseFault, WrongEnvironment

PLAIN: Final = {"application_name": "dispatcher/task"}
PINNED: Final = PLAIN | {"search_path": "pg_catalog, pg_temp"}


def ask(url: str, statement: str, parameters: Sequence[object]) -> tuple[Any, ...] | None:
    """The first row of the answer."""
    loop = asyncio.SelectorEventLoop()  # the body may have set another policy
    try:
        return loop.run_until_complete(fetch(url, statement, parameters))
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as fault:
        raise DatabaseFault(fault, getattr(fault, "sqlstate", None)) from fault
    finally:
        loop.close()


async def fetch(url: str, statement: str, parameters: Sequence[object]) -> tuple[Any, ...] | None:
    try:
        connection = await connect(url, PINNED)
    except asyncpg.exceptions.ProtocolViolationError:  # this pooler refuses settings
        connection = await connect(url, PLAIN)  # our statements name the schema of each object
    try:
        row = await connection.fetchrow(statement, *parameters)
        return None if row is None else tuple(row)
    finally:
        connection.terminate()  # no clean close: a frozen server would not answer
        await asyncio.sleep(0)  # the turn of the loop that closes the socket


async def connect(url: str, settings: dict[str, str]) -> asyncpg.Connection:
    try:
        return await asyncpg.connect(
            url,
            timeout=5,
            command_timeout=10,
            statement_cache_size=0,  # one statement, perhaps through a pooler
            server_settings=settings,
            target_session_attrs=SessionAttribute.primary,
        )
    except (ValueError, OverflowError):  # the driver's message may contain the password
        raise WrongEnvironment(f"TASK_DATABASE_URL cannot be read: {URL}") from None
