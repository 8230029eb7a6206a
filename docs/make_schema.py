"""Writes `sql/schema.sql`, the schema of a migrated database for its readers, and `sql/objects.json`, for the doctor.

tests/integration/test_schema.py compares both files with a migrated database, so a change of the schema shows as a
change of these files. See `make docs`.
"""

import asyncio
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

from dispatcher.pg.queries import query
from tests.rig.postgres import Database, PostgresServer
from tests.rig.postgres_process import binaries

FILE: Final = Path(__file__).parents[1] / "sql" / "schema.sql"
OBJECTS: Final = FILE.with_name("objects.json")
HEAD: Final = """\
-- The schema of a migrated database, for its readers. Nothing runs this file. `make docs` makes it from sql/migrations
-- and sql/functions, which have the bodies of the functions.
"""
NOISE: Final = re.compile(r"^(--.*|SET .*|\\.*|SELECT pg_catalog.*|ALTER .* OWNER TO dispatch_owner;)?\n", re.MULTILINE)
"""Lines of pg_dump that say nothing about the schema, or say the same of each object."""
BODY: Final = re.compile(r"AS (\$\w*\$).*?\1;", re.DOTALL)


async def schema_of(database: Database) -> str:
    """The schema as pg_dump writes it."""
    command = [binaries() / "pg_dump", "--schema-only", "--schema=dispatch", "--schema=dispatch_private"]
    child = await asyncio.create_subprocess_exec(*map(str, command), database.admin_url, stdout=asyncio.subprocess.PIPE)
    written, _ = await child.communicate()
    assert child.returncode == 0
    return f"{HEAD}\n{NOISE.sub('', BODY.sub('AS …;', written.decode()))}"


async def objects_of(database: Database) -> str:
    """The objects as the doctor sees them, one line for each."""
    admin, facts = await database.session("admin"), defaultdict[str, dict[str, str]](dict)
    for one, fact, value in await admin.fetch(query("objects", "doctor")):
        facts[one][fact] = value
    lines = (f"{json.dumps(one)}: {json.dumps(facts[one])}" for one in sorted(facts))
    return "{\n" + ",\n".join(lines) + "\n}\n"


async def main() -> None:
    server = await PostgresServer.launch()
    try:
        database = await server.create_database()
        FILE.write_text(await schema_of(database), encoding="utf-8")
        OBJECTS.write_text(await objects_of(database), encoding="utf-8")
        await database.drop()
    finally:
        await server.close()


if __name__ == "__main__":
    asyncio.run(main())
