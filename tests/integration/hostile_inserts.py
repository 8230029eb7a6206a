"""Rows and templates that make INSERT and `submit` run all of their statements."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import asyncpg

from tests.rig.postgres import Connection, Database

OFFERED = [
    {
        "name": "default",
        "row_may_set": ["env", "image", "cpu"],
        "bounds": {"cpu": "400m", "seconds": 9},
        "images": ["b/*"],
        "sets": ["A"],
        "note": "x",
    },
    {"name": "open", "row_may_set": None, "note": "kind is 'Pod'"},
]
SPEC = {"image": "a/b:1", "command": ["x"], "args": ["y"], "cpu": "500m", "memory": "1Gi"}
HOSTILE_ROWS: list[dict[str, Any]] = [
    {"env": {"A": "1", "B": "x" * 300}, "spec": SPEC},
    {"spec": {"private_machine": "m"}, "payload": {"a": [1]}, "run_at": datetime(2000, 1, 1, tzinfo=UTC)},
    {"queue": "defalut"}, {"queue": "bounded"}, {"queue": "closed"}, {"queue": "mine"}, {"priority": 1001},
    {"env": {"PYTHONPATH": "/x"}}, {"env": {"a b": "x" * 300}}, {"spec": {"cpu": "0"}}, {"spec": {"memory": "1m"}},
    {"spec": {"odd": "1"}}, {"template": "Odd"}, {"cache_key": ""}, {"dedupe_key": ""}, {"dedupe_key": "nightly"},
    {"timeout_seconds": 0}, {"max_failures": 0}, {"payload": "x" * 1_100_000}, {"timeout_seconds": 10},
    {"template": "opne"}, {"template": "open", "spec": SPEC}, {"env": {"A": "1"}}, {"env": {"B": "1", "PATH": "x"}},
    {"spec": {"cpu": "500m"}}, {"spec": {"image": "c/d"}}, {"labels": {"a": 1}}, {"batch": ""}, {"labels": {"a": "1"}},
]  # fmt: skip


async def outcomes(database: Database, login: str) -> set[str]:
    """What comes of each row, by INSERT and by `submit`: the first letters of the SQLSTATE; empty: it is accepted."""
    session, found = await database.session(login), set[str]()
    for columns in HOSTILE_ROWS:
        for call in (database.insert_task(login, **columns), submit_one(session, columns)):
            try:
                await call
                found.add("")
            except asyncpg.PostgresError as refused:
                found.add((refused.sqlstate or "")[:3])
    return found


async def submit_one(session: Connection, columns: dict[str, Any]) -> None:
    row = {name: value.isoformat() if name == "run_at" else value for name, value in columns.items()}
    await session.fetch("SELECT dispatch.submit($1)", [row])
