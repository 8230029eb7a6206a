"""`sql/schema.sql` is the schema that `dispatcher migrate` makes."""

from __future__ import annotations

import pytest

from docs.make_schema import FILE, OBJECTS, objects_of, schema_of
from tests.rig.postgres import Database


async def test_schema_file_is_that_of_a_migrated_database(database: Database) -> None:
    admin = await database.session("admin")
    if admin.get_server_version().major != 18:
        pytest.skip("another version of Postgres writes the same schema in other words")

    assert FILE.read_text(encoding="utf-8") == await schema_of(database), "run `make docs`"


async def test_list_of_objects_is_that_of_a_migrated_database(database: Database) -> None:
    """On every version of Postgres: the doctor compares it with each."""
    assert OBJECTS.read_text(encoding="utf-8") == await objects_of(database), "run `make docs`"


async def test_schema_of_a_changed_database_differs(database: Database) -> None:
    admin = await database.session("admin")
    before = await schema_of(database)

    await admin.execute("ALTER FUNCTION dispatch.task(bigint) COST 7")

    assert await schema_of(database) != before
