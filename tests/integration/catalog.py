"""What pg_dump says of a database, object by object: tables with their columns, functions, views, rights, comments.

Also how many sessions wait for a lock of these objects.
"""

from __future__ import annotations

import asyncio
import re

from tests.rig.postgres import Connection, Database
from tests.rig.postgres_process import binaries

OBJECT = re.compile(r"^-- (Name: .*)\n--\n((?:(?!--$).*\n)*)", re.MULTILINE)
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = ANY ($1::text[]::regclass[]::oid[])"


async def catalog(database: Database) -> dict[str, str]:
    """The statements that make each object, by its name, type, schema and owner."""
    command = [str(binaries() / "pg_dump"), "--schema-only", database.admin_url]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    assert child.returncode == 0
    objects = OBJECT.findall(out.decode())
    found = {name: "\n".join(line for line in text.splitlines() if line.strip()) for name, text in objects}
    assert len(found) == len(objects), "two objects of one name"
    return found


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The objects that are not the same in both."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


async def waiting(admin: Connection, *tables: str, unless: asyncio.Task[object]) -> None:
    """Returns when a session waits for each of these tables, or when a call has its answer without."""
    async with asyncio.timeout(30):
        while await admin.fetchval(WAITING, tables) < len(tables) and not unless.done():
            pass
