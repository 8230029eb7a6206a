"""Writes `docs/rights.md` from a migrated database and from what the chart makes. See `make docs`.

This program starts its own Postgres, or uses the one that TEST_DATABASE_URL names. It builds helm if it is missing.
tests/integration/test_rights.py and tests/contract/test_account_rights.py compare the page with both sources.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import asyncpg

from dispatcher.pg.connect import open_connection
from dispatcher.pg.migrate import ROLES
from dispatcher.pg.queries import query
from docs.rights_of_accounts import accounts_part
from docs.rights_of_roles import Catalog, Default, Function, Grant, Policy, Relation, Role, roles_part
from tests.controlplane.api import Json
from tests.rig.deployed import VARIANTS, rendered
from tests.rig.postgres import PostgresServer

PAGE: Final = Path(__file__).with_name("rights.md")
HEAD: Final = """\
<!-- Made from the catalog of a migrated database and from deploy/chart by `make docs`. Change rights there. -->
# Rights

This page lists the rights of each role in the database, and of each ServiceAccount in the cluster. Tests compare the
page with a real database and a real API server: a right that is missing here fails the build.
"""


async def read_catalog(connection: asyncpg.Connection[asyncpg.Record]) -> Catalog:
    """The catalog; `search_path` names no schema of ours. Sorted here: the server's order depends on its collation."""

    async def rows(statement: str, *arguments: object) -> list[dict[str, Any]]:
        found = [ordered(row) for row in await connection.fetch(statement, *arguments)]
        return sorted(found, key=lambda row: [str(value) for value in row.values()])

    names = list(ROLES)
    return Catalog(
        [Role(**row) for row in await rows(query("roles", "rights"), names)],
        [Relation(**row) for row in await rows(query("relations", "rights"))],
        [Function(**row) for row in await rows(query("functions", "rights"))],
        [Policy(**row) for row in await rows(query("policies", "rights"))],
        [Grant(**row) for row in await rows(query("grants", "rights"))],
        [Default(**row) for row in await rows(query("defaults", "rights"))],
        [row["what"] for row in await rows(query("others", "rights"), names)],
    )


def ordered(row: asyncpg.Record) -> dict[str, Any]:
    """A row with its lists sorted. Columns of a table keep their order; other lists have no order."""
    return {key: sorted(value) if isinstance(value, list) and key != "columns" else value for key, value in row.items()}


async def migrated_catalog() -> Catalog:
    """The catalog of a new, migrated database."""
    server = await PostgresServer.launch()
    try:
        database = await server.create_database()
        try:
            connection = await open_connection(database.admin_url)
            try:
                return await read_catalog(connection)
            finally:
                await connection.close()
        finally:
            await database.drop()
    finally:
        await server.close()


def installations() -> dict[str, tuple[Json, ...]]:
    """The objects that the chart makes, for each file of `deploy/rendered/values`."""
    return {variant: rendered(variant) for variant in VARIANTS}


if __name__ == "__main__":
    parts = (HEAD, roles_part(asyncio.run(migrated_catalog())), accounts_part(installations()))
    PAGE.write_text("\n".join(parts), encoding="utf-8")
