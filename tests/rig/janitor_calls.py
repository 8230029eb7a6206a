"""The functions of the janitor as the janitor calls them: with its own statements, under its own login."""

from __future__ import annotations

from typing import Any

from dispatcher.pg.queries import query
from tests.rig.postgres import Connection, Database
from tests.rig.rows import FIRST, Row, Started


async def returned(row: Row, started: Started, *, by: Connection | None = None, **other: Any) -> str | None:
    """Calls `janitor_return`; `other`: arguments that differ from the run as it started."""
    told = {
        "id": row.id,
        "attempt": 1,
        "launch": 1,
        "run_digest": started.run_digest,
        "failures": 1,
        "error": "gone",
    }
    return await call(row.database, "return", told | other, by)


async def closed(row: Row, *, by: Connection | None = None, **other: Any) -> str | None:
    """Calls `janitor_end`; `other`: arguments that differ from "launch 1 of the first Pod ends as failed"."""
    told = {"id": row.id, "attempt": 1, "launch": 1, "job_uid": FIRST.job_uid, "outcome": "failed", "error": "over"}
    return await call(row.database, "end", told | other, by)


async def cancelled(row: Row, started: Started, *, by: Connection | None = None, **other: Any) -> str | None:
    told = {"id": row.id, "attempt": 1, "run_digest": started.run_digest}
    return await call(row.database, "cancel", told | other, by)


async def deleted(database: Database, days: int | None, most: int = 1000, *, by: Connection | None = None) -> int:
    return int(await call(database, "delete", {"days": days, "most": most, "kept": []}, by) or 0)


async def call(database: Database, name: str, told: dict[str, Any], by: Connection | None) -> str | None:
    connection = by or await database.session("janitor")
    answer: str | None = await connection.fetchval(query(name, "janitor"), *told.values())
    return answer
