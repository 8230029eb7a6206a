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
from docs.rights_of_roles import BY_COLUMN, PUBLIC, Catalog, Relation, roles_part
from tests.integration.rights import names, refused, untouched
from tests.rig.postgres import LOGINS, Connection, Database
from tests.rig.written import differences

shared = untouched

NEW_RIGHTS = [
    "GRANT UPDATE (priority) ON dispatch.tasks TO dispatch_submitter",
    "GRANT UPDATE (priority) ON dispatch_private.tasks TO dispatch_submitter",
    "GRANT SELECT ON dispatch_private.tasks TO dispatch_observer",
    "GRANT SELECT (run_inner) ON dispatch_private.secrets TO dispatch_reader",
    "GRANT SELECT (ctid) ON dispatch_private.secrets TO dispatch_reader",
    "GRANT SELECT ON dispatch_private.secrets TO PUBLIC",
    "GRANT SELECT ON dispatch.tasks TO dispatch_operator WITH GRANT OPTION",
    "GRANT TRUNCATE ON dispatch.tasks TO dispatch_janitor",
    "GRANT TRIGGER ON dispatch.queues TO dispatch_operator",
    "GRANT REFERENCES (id) ON dispatch.tasks TO dispatch_submitter",
    "GRANT DELETE ON dispatch.tasks TO team_a",
    "GRANT USAGE ON SEQUENCE dispatch_private.tasks_id_seq TO dispatch_task",
    "GRANT EXECUTE ON FUNCTION dispatch.rotate_secrets() TO dispatch_operator",
    "GRANT CREATE ON SCHEMA dispatch TO dispatch_task",
    "GRANT USAGE ON SCHEMA dispatch TO PUBLIC",
    "GRANT USAGE ON SCHEMA dispatch_private TO PUBLIC",
    "GRANT USAGE ON SCHEMA dispatch_private TO dispatch_submitter",
    "GRANT EXECUTE ON FUNCTION dispatch_private.own_task TO dispatch_submitter",
    "GRANT USAGE ON TYPE dispatch_private.refusal TO dispatch_submitter",
    "DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO dispatch_task', current_database()); END $$",
    "ALTER ROLE dispatch_task BYPASSRLS",
    "ALTER ROLE dispatch_task LOGIN",
    "ALTER ROLE dispatch_task INHERIT",
    "ALTER ROLE dispatch_janitor CREATEROLE",
    "ALTER ROLE dispatch_reader SET search_path = public",
    "GRANT dispatch_owner TO dispatch_janitor",
    "GRANT pg_read_all_data TO dispatch_observer",
    "ALTER TABLE dispatch_private.tasks DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE dispatch_private.tasks ADD COLUMN new text",
    "ALTER TABLE dispatch_private.tasks OWNER TO CURRENT_USER",
    "CREATE POLICY more ON dispatch_private.tasks FOR UPDATE TO dispatch_submitter USING (true)",
    "ALTER POLICY programs ON dispatch_private.tasks USING (false)",
    "ALTER POLICY programs ON dispatch_private.tasks TO PUBLIC",
    "ALTER SCHEMA dispatch_private OWNER TO CURRENT_USER",
    "ALTER FUNCTION dispatch.rotate_secrets() SECURITY DEFINER",
    "ALTER FUNCTION dispatch_private.visible_tasks(text) RESET search_path",
    "ALTER FUNCTION dispatch_private.visible_tasks(text) SET debug_print_plan = on",
    "ALTER DEFAULT PRIVILEGES FOR ROLE dispatch_owner GRANT SELECT ON TABLES TO PUBLIC",
    "ALTER DEFAULT PRIVILEGES FOR ROLE dispatch_owner GRANT EXECUTE ON FUNCTIONS TO PUBLIC",
    "CREATE FUNCTION dispatch.new() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION dispatch_private.new() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE VIEW dispatch.new AS SELECT * FROM dispatch.tasks",
    "CREATE TABLE dispatch_private.new (a int)",
    "CREATE TYPE dispatch.new AS ENUM ('a')",
    "GRANT SELECT ON pg_catalog.pg_authid TO dispatch_reader",
    "CREATE SCHEMA new AUTHORIZATION dispatch_task",
]
OF_RELATION = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"]
HELD = """
WITH place AS (SELECT oid, nspname::text AS name FROM pg_namespace WHERE nspname IN ('dispatch', 'dispatch_private')),
one AS (SELECT c.oid, c.relkind, format('%s.%s', place.name, c.relname) AS name
          FROM pg_class AS c JOIN place ON place.oid = c.relnamespace)
SELECT 'schema' AS kind, name, '' AS part, privilege
  FROM place, unnest(ARRAY['USAGE', 'CREATE']) AS privilege WHERE has_schema_privilege($1, oid, privilege)
UNION ALL
SELECT 'relation', name, '', privilege FROM one, unnest($2::text[]) AS privilege
 WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND has_table_privilege($1, oid, privilege)
UNION ALL
SELECT 'relation', name, attname, privilege
  FROM one JOIN pg_attribute ON attrelid = oid, unnest($3::text[]) AS privilege
 WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND attnum > 0
   AND NOT attisdropped AND has_column_privilege($1, oid, attnum, privilege)
UNION ALL
SELECT 'relation', name, '', privilege FROM one, unnest(ARRAY['USAGE', 'SELECT', 'UPDATE']) AS privilege
 WHERE relkind = 'S' AND has_sequence_privilege($1, oid, privilege)
UNION ALL
SELECT 'function', format('%s.%s(%s)', place.name, proname, oidvectortypes(proargtypes)), '', 'EXECUTE'
  FROM pg_proc JOIN place ON place.oid = pronamespace WHERE has_function_privilege($1, pg_proc.oid, 'EXECUTE')
UNION ALL
SELECT 'database', 'of this installation', '', 'CREATE' WHERE has_database_privilege($1, current_database(), 'CREATE')
"""
WRITES_OF_VIEWS = """
WITH seen AS (
    SELECT c.oid, format('%s.%s', place.nspname, c.relname) AS name, pg_relation_is_updatable(c.oid, true) AS does,
           pg_relation_is_updatable(c.oid, false) AS does_itself -- without triggers
      FROM pg_class AS c JOIN pg_namespace AS place ON place.oid = c.relnamespace
     WHERE place.nspname IN ('dispatch', 'dispatch_private') AND c.relkind = 'v'
)
SELECT 'relation', name, attname, privilege
  FROM seen JOIN pg_attribute ON attrelid = oid, (VALUES ('UPDATE', 4), ('INSERT', 8)) AS event (privilege, bit)
 WHERE does & bit <> 0 AND attnum > 0 AND (does_itself & bit = 0 OR pg_column_is_updatable(oid, attnum, false))
   -- A view hands no DEFAULT on to the identity of its table.
   AND (privilege, attname) <> ('UPDATE', 'id')
UNION ALL
SELECT 'relation', name, '', 'DELETE' FROM seen WHERE does & 16 <> 0
"""
"""The writes that views take. Others fail whatever the rights are."""
HARMLESS = "pg_catalog.suppress_redundant_updates_trigger()"
ROLES_HELD = "SELECT rolname FROM pg_roles WHERE pg_has_role($1, oid, 'MEMBER')"
Right = tuple[str, str, str, str]
"""Kind, name, column, privilege."""


@pytest_asyncio.fixture(loop_scope="session")
async def changeable(shared: Database) -> AsyncIterator[Connection]:
    """An administrator's session; its changes are undone with the test."""
    connection = await open_connection(shared.admin_url, writes=True)
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


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tries(shared: Database, catalog: Catalog) -> list[tuple[Right, str]]:
    """A statement for every right that a statement can need, except REFERENCES: that takes a table of one's own."""
    writes = {tuple(row) for row in await (await shared.session("admin")).fetch(WRITES_OF_VIEWS)}
    return [
        *(one for relation in catalog.relations for one in tries_of(relation, writes)),
        *((("function", one.signature, "", "EXECUTE"), call(one.signature)) for one in catalog.functions),
    ]


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
async def test_login_is_refused_every_right_outside_the_page(
    shared: Database, catalog: Catalog, tries: list[tuple[Right, str]], login: str
) -> None:
    session, usable = await shared.session(login), usable_of(catalog, login)
    forbidden = [statement for right, statement in tries if right not in usable]
    assert len(forbidden) > 100
    for statement in forbidden:
        await refused(session, statement)


@pytest.mark.parametrize("login", LOGINS)
async def test_login_reads_every_column_of_the_page(
    shared: Database, catalog: Catalog, tries: list[tuple[Right, str]], login: str
) -> None:
    session, usable = await shared.session(login), usable_of(catalog, login)
    for right, statement in tries:
        if right in usable and right[2] and right[3] == "SELECT":
            await session.execute(statement)


def usable_of(catalog: Catalog, login: str) -> set[Right]:
    """The rights of the page that the login can use by a statement of its own: it has to name the object."""
    held = written(catalog, login)
    schemas = {name for kind, name, _, privilege in held if (kind, privilege) == ("schema", "USAGE")}
    return {right for right in held if right[1].partition(".")[0] in schemas}


def tries_of(relation: Relation, writes: set[Right]) -> Iterator[tuple[Right, str]]:
    """`writes`: those that views take."""
    name = relation.name
    if relation.kind == "sequence":
        yield ("relation", name, "", "USAGE"), f"SELECT nextval('{name}')"
        yield ("relation", name, "", "UPDATE"), f"SELECT setval('{name}', 1)"
        yield ("relation", name, "", "SELECT"), f"SELECT last_value FROM {name}"
        return
    when = "INSTEAD OF" if relation.kind == "view" else "BEFORE"
    made = f"CREATE TRIGGER mine {when} UPDATE ON {name} FOR EACH ROW EXECUTE FUNCTION {HARMLESS}"
    yield ("relation", name, "", "TRIGGER"), made
    for right, statement in tries_of_rows(name, relation.columns):
        if relation.kind != "view" or right[3] == "SELECT" or right in writes:
            yield right, statement


def tries_of_rows(table: str, columns: Sequence[str]) -> Iterator[tuple[Right, str]]:
    for column in columns:
        yield ("relation", table, column, "SELECT"), f"SELECT {column} FROM {table}"
        yield ("relation", table, column, "INSERT"), f"INSERT INTO {table} ({column}) VALUES (DEFAULT)"
        yield ("relation", table, column, "UPDATE"), f"UPDATE {table} SET {column} = DEFAULT"
    yield ("relation", table, "", "DELETE"), f"DELETE FROM {table}"
    yield ("relation", table, "", "TRUNCATE"), f"TRUNCATE {table}"


def call(signature: str) -> str:
    """A call with NULLs that the planner cannot see. It answers a strict function of constant NULLs without a right."""
    found = re.fullmatch(r"([\w.]+)\((.*)\)", signature)
    assert found, signature
    types = found[2].split(", ") if found[2] else []
    nulls = ", ".join(f"NULL::{one} AS a{number}" for number, one in enumerate(types))
    given = ", ".join(f"a{number}" for number, _ in enumerate(types))
    return f"SELECT {found[1]}({given}) FROM (SELECT {nulls} OFFSET 0) AS given"
