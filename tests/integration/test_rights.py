"""`docs/rights.md` says what the database says, and the server acts by it for every login.

`test_sql_roles` has statements written by hand; those of this file are made from the catalog.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
import pytest_asyncio

from dispatcher.pg.connect import open_connection
from docs.make_rights import read_catalog
from docs.rights_of_roles import BY_COLUMN, PUBLIC, Catalog, roles_part
from tests.integration.rights import names, refused, untouched
from tests.postgres import LOGINS, Connection, Database
from tests.written import differences

shared = untouched

NEW_RIGHTS = [
    "GRANT UPDATE (priority) ON dispatch.tasks TO dispatch_submitter",
    "GRANT SELECT (run_inner) ON dispatch.secrets TO dispatch_reader",
    "GRANT SELECT (ctid) ON dispatch.secrets TO dispatch_reader",
    "GRANT SELECT ON dispatch.secrets TO PUBLIC",
    "GRANT SELECT ON dispatch.tasks TO dispatch_operator WITH GRANT OPTION",
    "GRANT TRUNCATE ON dispatch.tasks TO dispatch_janitor",
    "GRANT TRIGGER ON dispatch.queues TO dispatch_operator",
    "GRANT REFERENCES (id) ON dispatch.tasks TO dispatch_submitter",
    "GRANT DELETE ON dispatch.tasks TO team_a",
    "GRANT USAGE ON SEQUENCE dispatch.tasks_id_seq TO dispatch_task",
    "GRANT EXECUTE ON FUNCTION dispatch.rotate_secrets() TO dispatch_operator",
    "GRANT CREATE ON SCHEMA dispatch TO dispatch_task",
    "GRANT USAGE ON SCHEMA dispatch TO PUBLIC",
    "DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO dispatch_task', current_database()); END $$",
    "ALTER ROLE dispatch_task BYPASSRLS",
    "ALTER ROLE dispatch_task LOGIN",
    "ALTER ROLE dispatch_task INHERIT",
    "ALTER ROLE dispatch_janitor CREATEROLE",
    "ALTER ROLE dispatch_reader SET search_path = public",
    "GRANT dispatch_owner TO dispatch_janitor",
    "GRANT pg_read_all_data TO dispatch_observer",
    "ALTER TABLE dispatch.tasks DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE dispatch.tasks ADD COLUMN new text",
    "ALTER TABLE dispatch.tasks OWNER TO CURRENT_USER",
    "CREATE POLICY more ON dispatch.tasks FOR UPDATE TO dispatch_submitter USING (true)",
    "ALTER POLICY own_rows ON dispatch.tasks USING (true)",
    "ALTER POLICY own_rows ON dispatch.tasks TO PUBLIC",
    "ALTER FUNCTION dispatch.rotate_secrets() SECURITY DEFINER",
    "ALTER FUNCTION dispatch.owned_queues() RESET search_path",
    "ALTER DEFAULT PRIVILEGES FOR ROLE dispatch_owner GRANT SELECT ON TABLES TO PUBLIC",
    "ALTER DEFAULT PRIVILEGES FOR ROLE dispatch_owner GRANT EXECUTE ON FUNCTIONS TO PUBLIC",
    "CREATE FUNCTION dispatch.new() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE VIEW dispatch.new AS SELECT * FROM dispatch.tasks",
    "CREATE TYPE dispatch.new AS ENUM ('a')",
    "GRANT SELECT ON pg_catalog.pg_authid TO dispatch_reader",
    "CREATE SCHEMA new AUTHORIZATION dispatch_task",
]
OF_RELATION = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"]
HELD = """
SELECT 'schema' AS kind, 'dispatch' AS name, '' AS part, privilege
  FROM unnest(ARRAY['USAGE', 'CREATE']) AS privilege WHERE has_schema_privilege($1, 'dispatch', privilege)
UNION ALL
SELECT 'relation', relname, '', privilege FROM pg_class, unnest($2::text[]) AS privilege
 WHERE relnamespace = 'dispatch'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')
   AND has_table_privilege($1, oid, privilege)
UNION ALL
SELECT 'relation', relname, attname, privilege FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid,
       unnest($3::text[]) AS privilege
 WHERE relnamespace = 'dispatch'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f') AND attnum > 0
   AND NOT attisdropped AND has_column_privilege($1, pg_class.oid, attnum, privilege)
UNION ALL
SELECT 'relation', relname, '', privilege FROM pg_class, unnest(ARRAY['USAGE', 'SELECT', 'UPDATE']) AS privilege
 WHERE relnamespace = 'dispatch'::regnamespace AND relkind = 'S' AND has_sequence_privilege($1, oid, privilege)
UNION ALL
SELECT 'function', format('%s(%s)', proname, oidvectortypes(proargtypes)), '', 'EXECUTE' FROM pg_proc
 WHERE pronamespace = 'dispatch'::regnamespace AND has_function_privilege($1, oid, 'EXECUTE')
UNION ALL
SELECT 'database', 'of this installation', '', 'CREATE' WHERE has_database_privilege($1, current_database(), 'CREATE')
"""
ROLES_HELD = "SELECT rolname FROM pg_roles WHERE pg_has_role($1, oid, 'MEMBER')"
Right = tuple[str, str, str, str]
"""Kind, name, column, privilege."""


@pytest_asyncio.fixture(loop_scope="session")
async def changeable(shared: Database) -> AsyncIterator[Connection]:
    """An administrator's session; its changes are undone with the test."""
    connection = await open_connection(shared.admin_url, default_transaction_read_only="off")
    transaction = connection.transaction()
    await transaction.start()
    yield connection
    await transaction.rollback()
    await connection.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def catalog(shared: Database) -> Catalog:
    connection = await open_connection(shared.admin_url)
    try:
        return await read_catalog(connection)
    finally:
        await connection.close()


def written(catalog: Catalog, login: str) -> set[Right]:
    """The rights that the page gives to a login. A right on a table is one on each of its columns."""
    held = {(*one[:3], one.privilege) for one in catalog.grants if one.grantee in (LOGINS[login], PUBLIC)}
    for relation in catalog.relations:
        for privilege in BY_COLUMN if relation.kind != "sequence" else ():
            if ("relation", relation.name, "", privilege) in held:
                held |= {("relation", relation.name, column, privilege) for column in relation.columns}
    return held


def test_rights_page_says_what_the_database_says(catalog: Catalog) -> None:
    found = differences(roles_part(catalog))
    assert not found, found


@pytest.mark.parametrize("statement", NEW_RIGHTS)
async def test_new_right_is_a_difference_to_the_page(changeable: Connection, statement: str) -> None:
    await changeable.execute(statement)
    assert differences(roles_part(await read_catalog(changeable)))


@pytest.mark.parametrize("login", LOGINS)
async def test_login_has_exactly_the_rights_of_the_page(shared: Database, catalog: Catalog, login: str) -> None:
    admin = await shared.session("admin")
    of_relation = [*OF_RELATION, *(["MAINTAIN"] if admin.get_server_version().major >= 17 else [])]
    held = {tuple(row) for row in await admin.fetch(HELD, login, of_relation, list(BY_COLUMN))}
    assert held == written(catalog, login)


@pytest.mark.parametrize("login", LOGINS)
async def test_login_is_a_member_of_its_group_alone(shared: Database, login: str) -> None:
    assert await names(await shared.session("admin"), ROLES_HELD, login) == {login, LOGINS[login]}


@pytest.mark.parametrize("login", LOGINS)
async def test_login_is_refused_every_right_outside_the_page(shared: Database, catalog: Catalog, login: str) -> None:
    session, held = await shared.session(login), written(catalog, login)
    forbidden = [statement for right, statement in tries(catalog) if right not in held]
    assert len(forbidden) > 100
    for statement in forbidden:
        await refused(session, statement)


@pytest.mark.parametrize("login", LOGINS)
async def test_login_reads_every_column_of_the_page(shared: Database, catalog: Catalog, login: str) -> None:
    session, held = await shared.session(login), written(catalog, login)
    for right, statement in tries(catalog):
        if right in held and right[2] and right[3] == "SELECT":
            await session.execute(statement)


def tries(catalog: Catalog) -> Iterator[tuple[Right, str]]:
    """A statement for every right that a statement can need, except REFERENCES: that takes a table of one's own."""
    for relation in catalog.relations:
        if relation.kind == "sequence":
            yield from tries_of_sequence(relation.name)
        elif relation.kind == "view":  # a view of several tables takes no writes
            for column in relation.columns:
                yield ("relation", relation.name, column, "SELECT"), f"SELECT {column} FROM dispatch.{relation.name}"
        else:
            yield from tries_of_table(relation.name, relation.columns)
    for function in catalog.functions:
        yield ("function", function.signature, "", "EXECUTE"), call(function.signature)


def tries_of_table(table: str, columns: Sequence[str]) -> Iterator[tuple[Right, str]]:
    place = f"dispatch.{table}"
    for column in columns:
        yield ("relation", table, column, "SELECT"), f"SELECT {column} FROM {place}"
        yield ("relation", table, column, "INSERT"), f"INSERT INTO {place} ({column}) VALUES (DEFAULT)"
        yield ("relation", table, column, "UPDATE"), f"UPDATE {place} SET {column} = DEFAULT"
    yield ("relation", table, "", "DELETE"), f"DELETE FROM {place}"
    yield ("relation", table, "", "TRUNCATE"), f"TRUNCATE {place}"
    function = "pg_catalog.suppress_redundant_updates_trigger()"
    made = f"CREATE TRIGGER mine BEFORE UPDATE ON {place} FOR EACH ROW EXECUTE FUNCTION {function}"
    yield ("relation", table, "", "TRIGGER"), made


def tries_of_sequence(sequence: str) -> Iterator[tuple[Right, str]]:
    yield ("relation", sequence, "", "USAGE"), f"SELECT nextval('dispatch.{sequence}')"
    yield ("relation", sequence, "", "UPDATE"), f"SELECT setval('dispatch.{sequence}', 1)"
    yield ("relation", sequence, "", "SELECT"), f"SELECT last_value FROM dispatch.{sequence}"


def call(signature: str) -> str:
    """A call with NULLs that the planner cannot see. It answers a strict function of constant NULLs without a right."""
    found = re.fullmatch(r"(\w+)\((.*)\)", signature)
    assert found, signature
    types = found[2].split(", ") if found[2] else []
    nulls = ", ".join(f"NULL::{one} AS a{number}" for number, one in enumerate(types))
    given = ", ".join(f"a{number}" for number, _ in enumerate(types))
    return f"SELECT dispatch.{found[1]}({given}) FROM (SELECT {nulls} OFFSET 0) AS given"
