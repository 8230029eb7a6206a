"""A database as version 26 left it, and what the programs of that time send to it.

Version 26 was the last one whose tables stood in schema `dispatch`. `schema_of_26.sql` makes its schema.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest_asyncio

from tests.rig.postgres import Database
from tests.rig.rows import Row

SCHEMA = Path(__file__).with_name("schema_of_26.sql").read_text(encoding="utf-8")
FRAME = Path(__file__).with_name("frame_of_26.sql").read_text(encoding="utf-8")
NEEDED_INDEXES = ("tasks_pkey", "tasks_ready", "tasks_due", "tasks_processing", "tasks_history",
                  "tasks_ready_of_submitter", "tasks_due_of_submitter")  # fmt: skip
START_KEY = "SELECT dispatch.start_keys(id, created_at) FROM dispatch.tasks WHERE id = $1 LIMIT 1"


@pytest_asyncio.fixture(loop_scope="session")
async def before_upgrade(empty: Database) -> Database:
    """A database of version 26 without rows."""
    await (await empty.session("admin")).execute(SCHEMA)
    return empty


async def insert(database: Database, login: str = "team_a", **columns: object) -> Row:
    """A row of version 26, with the key that the dispatcher of that time gave to its container."""
    task_id = await database.insert_task(login, **columns)
    key: UUID = await (await database.session("admin")).fetchval(START_KEY, task_id)
    return Row(database, task_id, key)
