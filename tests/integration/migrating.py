"""The files that a migration applies, and what it says that it has applied."""

from __future__ import annotations

from pathlib import Path

from tests.rig.postgres import Database

SQL = Path(__file__).parents[2] / "sql"
TABLES = sorted(file.name for file in (SQL / "migrations").glob("*.sql"))
FUNCTIONS = [*sorted(f"functions/{file.name}" for file in (SQL / "functions").glob("*.sql")), "reasons"]
FILES = TABLES + FUNCTIONS
APPLIED = """
SELECT array_agg(name ORDER BY version)
       || ARRAY(SELECT name FROM dispatch_private.applied_functions ORDER BY name)
FROM dispatch_private.schema_version
"""


async def applied(database: Database) -> list[str]:
    admin = await database.session("admin")
    if await admin.fetchval("SELECT to_regclass('dispatch_private.schema_version') IS NULL"):
        return []
    return list(await admin.fetchval(APPLIED))
