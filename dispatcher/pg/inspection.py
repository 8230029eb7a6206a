"""Reads what `dispatcher doctor` judges: server, login, schema, and plans of queries. Nothing is written.

The session cannot write, and the plans come from EXPLAIN without ANALYZE, so no query runs.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import asyncpg
import msgspec
from msgspec import Struct

from dispatcher.model.errors import DatabaseError, DatabaseUnfit
from dispatcher.pg.connect import open_connection, translated
from dispatcher.pg.queries import query

Row = Mapping[str, Any]
TOO_MANY: Final = "53300"
NAME: Final = "dispatcher-doctor"


class Inspection(Struct, frozen=True):
    """Rows as the database has them.

    owner: of the schema; None: there is no schema.
    applied: migrations; None: the login may not read them.
    plans: the plan of each query, by its file; a text says why there is none.
    pages: of the tables that grow.
    """

    server: Row
    login: Row
    owner: str | None
    applied: list[Row] | None
    indexes: list[Row]
    functions: list[Row]
    grants: list[Row]
    elsewhere: list[Row]
    plans: Mapping[str, Row | str]
    pages: list[Row]


def are_connections_used_up(fault: DatabaseError) -> bool:
    """Whether the server, the database or the login has no connection left."""
    return getattr(fault.__cause__, "sqlstate", None) == TOO_MANY


Explained = Callable[[Row], Iterable[str]]
"""Gives the queries to explain for a login: their files in sql/, without the ending."""


def none(_: Row) -> Iterable[str]:
    return ()


async def inspect(url: str | None, explained: Explained = none) -> Inspection:
    """Reads everything over one connection. Raises DatabaseError."""
    connection = await open_connection(url, application_name=NAME)
    try:
        with translated():
            return await read(connection, explained)
    finally:
        connection.terminate()


async def read(connection: asyncpg.Connection, explained: Explained) -> Inspection:
    async def rows(name: str, folder: str = "doctor") -> list[Row]:
        return [dict(row) for row in await connection.fetch(query(name, folder))]

    (server,), (login,) = await rows("server"), await rows("login")
    owner = await connection.fetchval(query("schema_owner", "migrate"))
    return Inspection(
        server=server,
        login=login,
        owner=owner,
        applied=await read_applied(connection),
        indexes=await rows("indexes"),
        functions=await rows("functions"),
        grants=await rows("grants", "rights") if owner else [],
        elsewhere=await rows("elsewhere"),
        plans={name: await read_plan(connection, name) for name in explained(login)} if owner else {},
        pages=await rows("pages"),
    )


async def read_applied(connection: asyncpg.Connection) -> list[Row] | None:
    if await connection.fetchval(query("is_new", "doctor")):
        return []
    try:
        return [dict(row) for row in await connection.fetch(query("applied", "migrate"))]
    except asyncpg.InsufficientPrivilegeError:
        return None


async def read_plan(connection: asyncpg.Connection, name: str) -> Row | str:
    """The plan for any parameters, as a session of the dispatcher has it."""
    folder, _, file = name.partition("/")
    text = query(file, folder)
    count = max((int(number) for number in re.findall(r"\$(\d+)", text)), default=0)
    parameters = f"({', '.join(['NULL'] * count)})" * bool(count)
    try:
        with translated():
            await connection.execute(f"PREPARE doctor_looks_at AS {text}")
            told = await connection.fetchval(query("plan", "doctor").rstrip() + parameters)
            await connection.execute(query("forget", "doctor"))
    except DatabaseUnfit as fault:
        return str(fault)
    plan: Row = msgspec.json.decode(told)[0]["Plan"]
    return plan
