"""Each body of our functions is checked against the database: what it calls and reads exists, with these types.

The server checks a body of PL/pgSQL when the statement runs, and the string of LANGUAGE sql when the function is made.
So nothing tells of a call of a function that was dropped later. plpgsql_check reads every statement of every branch. It
is a Debian package of Postgres 15, our oldest version, so these tests start a server of that version. A function of
LANGUAGE sql is made again from its own definition. Bodies of BEGIN ATOMIC need no test: no drop leaves them a call of
what is gone. plpgsql_check cannot read a statement that a function builds from a caller's text, and reports it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

import asyncpg
import pytest
import pytest_asyncio

from tests.rig.postgres import Connection, PostgresServer
from tests.rig.postgres_fixtures import made

POSTGRES_15: Final = Path("/usr/lib/postgresql/15")
CHECK: Final = """
SELECT p.oid::regprocedure::text AS function, coalesce(f.lineno, 0) AS line,
       concat_ws(': ', f.level, f.sqlstate, f.message, f.detail) AS words
  FROM pg_proc AS p
  JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname = 'plpgsql'
  LEFT JOIN pg_trigger AS t ON t.tgfoid = p.oid
 CROSS JOIN plpgsql_check_function_tb(
           p.oid, coalesce(t.tgrelid, 0), fatal_errors => false, other_warnings => true, extra_warnings => true,
           performance_warnings => true, security_warnings => true, oldtable => t.tgoldtable, newtable => t.tgnewtable,
           use_incomment_options => false) AS f
 WHERE p.pronamespace IN ('dispatch'::regnamespace, 'dispatch_private'::regnamespace)
"""
DEFINITIONS: Final = """
SELECT p.oid::regprocedure::text AS function, pg_get_functiondef(p.oid) AS definition
  FROM pg_proc AS p
  JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname = 'sql'
 WHERE p.pronamespace IN ('dispatch'::regnamespace, 'dispatch_private'::regnamespace) AND p.prosqlbody IS NULL
"""
CALLERS: Final = """
SELECT p.oid::regprocedure::text FROM pg_proc AS p
 WHERE p.pronamespace IN ('dispatch'::regnamespace, 'dispatch_private'::regnamespace)
   AND p.prosrc LIKE '%' || $1 || '(%'
"""
COUNTED: Final = (
    'performance: 42804: target type is different type than source type: cast "bigint" value to "integer" type'
)
pytestmark = pytest.mark.slow  # packages of Debian
STABLE: Final = "performance: 00000: routine is marked as VOLATILE, should be STABLE"
CAST: Final = "performance: 42804: target type is different type than source type: cast"
LEFT_AS_IT_IS: Final = {
    ("dispatch_private.announce", f'{CAST} "numeric" value to "bigint" type'): "rounds to whole ms",
    ("dispatch_private.batch_cancel", COUNTED): "once a call: how many rows of a batch",
    ("dispatch_private.batch_retry", COUNTED): "once a call: how many rows of a batch",
    ("dispatch_private.delete_rows", COUNTED): "once a call: how many of at most 10,000 rows",
    ("dispatch_private.env_fault", STABLE): "once a row, on values: no plan would change",
    ("dispatch_private.janitor_ended", COUNTED): "once a call: how many of at most 200 launches",
    ("dispatch_private.janitor_tell", COUNTED): "once a call: how many rows of a report of 256 KiB",
    ("dispatch_private.labels_fault", STABLE): "once a row, on values: no plan would change",
    ("dispatch_private.spec_fault", STABLE): "once a row, on values: no plan would change",
    ("dispatch_private.submit", f'{CAST} "integer" value to "bigint" type'): "the constant 0, once a call",
}
"""Findings that ask for no change, each with its reason."""

PLANTS: Final = {
    "a missing function": (
        """CREATE FUNCTION dispatch_private.planted() RETURNS void LANGUAGE plpgsql AS
           'BEGIN IF false THEN PERFORM dispatch_private.gone(1); END IF; END'""",
        "error: 42883: function dispatch_private.gone(integer) does not exist",
    ),
    "a function that LANGUAGE sql calls": (
        """CREATE FUNCTION dispatch_private.gone(n integer) RETURNS integer LANGUAGE sql AS 'SELECT n';
           CREATE FUNCTION dispatch_private.planted() RETURNS integer LANGUAGE sql AS 'SELECT dispatch_private.gone(1)';
           DROP FUNCTION dispatch_private.gone""",
        "error: 42883: function dispatch_private.gone(integer) does not exist",
    ),
    "a column that the trigger's table has not": (
        """CREATE FUNCTION dispatch_private.planted() RETURNS trigger LANGUAGE plpgsql AS
           'BEGIN NEW.gone := 1; RETURN NEW; END';
           CREATE TRIGGER planted BEFORE INSERT ON dispatch_private.queues
           FOR EACH ROW EXECUTE FUNCTION dispatch_private.planted()""",
        'error: 42703: record "new" has no field "gone"',
    ),
    "a field that a row has not": (
        """CREATE FUNCTION dispatch_private.planted() RETURNS text LANGUAGE plpgsql STABLE AS
           'DECLARE one record; BEGIN SELECT id INTO one FROM dispatch_private.tasks; RETURN one.gone; END'""",
        'error: 42703: record "one" has no field "gone"',
    ),
    "a comparison that no index serves": (
        """CREATE FUNCTION dispatch_private.planted(wanted numeric) RETURNS bigint LANGUAGE plpgsql STABLE AS
           'BEGIN RETURN (SELECT count(*) FROM dispatch_private.tasks WHERE id = wanted); END'""",
        "performance: 42804: implicit cast of attribute caused by different PLpgSQL variable type in WHERE clause",
    ),
    "a statement made of a caller's text": (
        """CREATE FUNCTION dispatch_private.planted(words text) RETURNS void LANGUAGE plpgsql AS
           $$BEGIN EXECUTE 'SELECT ' || words; END$$""",
        "security: 00000: text type variable is not sanitized",
    ),
    "a write that STABLE forbids": (
        """CREATE FUNCTION dispatch_private.planted() RETURNS void LANGUAGE plpgsql STABLE AS
           'BEGIN DELETE FROM dispatch_private.queues; END'""",
        "error: 0A000: DELETE is not allowed in a non volatile function",
    ),
}


class Finding(NamedTuple):
    function: str
    words: str
    line: int

    @property
    def key(self) -> tuple[str, str]:
        """The same with other parameters and on another line."""
        return self.function.partition("(")[0], self.words

    def __str__(self) -> str:
        return f"{self.function} line {self.line}: {self.words}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def on_15() -> AsyncIterator[Connection]:
    """The administrator of a migrated database on Postgres 15, with plpgsql_check."""
    if not (POSTGRES_15 / "lib" / "plpgsql_check.so").exists():
        how = "`make packages` as root on Debian 12, or apt-get install postgresql-15-plpgsql-check"
        pytest.skip(f"plpgsql_check checks the functions on Postgres 15, and is missing here: {how}")
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("TEST_POSTGRES_BIN", str(POSTGRES_15 / "bin"))
        environ.delenv("TEST_DATABASE_URL", raising=False)
        server = await PostgresServer.launch()
    try:
        async with made(server) as database:
            admin = await database.session("admin")
            await admin.execute("CREATE EXTENSION plpgsql_check")
            yield admin
    finally:
        await server.close()


@pytest_asyncio.fixture(loop_scope="session")
async def admin(on_15: Connection) -> AsyncIterator[Connection]:
    """What a test changes is taken back."""
    transaction = on_15.transaction()
    await transaction.start()
    try:
        yield on_15
    finally:
        await transaction.rollback()


async def findings(admin: Connection) -> set[Finding]:
    """What is wrong in the functions of our schemas."""
    checked = {Finding(row["function"], row["words"], row["line"]) for row in await admin.fetch(CHECK)}
    for function, definition in await admin.fetch(DEFINITIONS):
        try:
            async with admin.transaction():
                await admin.execute(definition)
        except asyncpg.PostgresError as fault:
            checked.add(Finding(function, f"error: {fault.sqlstate}: {fault}", 0))
    return checked


async def test_functions_of_the_migrated_database_have_no_finding(admin: Connection) -> None:
    found = await findings(admin)
    assert sorted(str(one) for one in found if one.key not in LEFT_AS_IT_IS) == []
    assert LEFT_AS_IT_IS.keys() - {one.key for one in found} == set(), "found no more: remove it"


@pytest.mark.parametrize("what", PLANTS)
async def test_planted_fault_is_found(admin: Connection, what: str) -> None:
    before = await findings(admin)
    statements, words = PLANTS[what]
    await admin.execute(statements)
    found = await findings(admin) - before
    assert [one for one in found if one.key[0] != "dispatch_private.planted"] == []
    assert [one for one in found if one.words.startswith(words)] != []


@pytest.mark.parametrize("dropped", ["announce", "close_launches"])
async def test_drop_of_a_function_is_found_in_each_caller(admin: Connection, dropped: str) -> None:
    before = await findings(admin)
    callers = {str(row[0]) for row in await admin.fetch(CALLERS, f"dispatch_private.{dropped}")}
    assert len(callers) > 1
    await admin.execute(f"DROP FUNCTION dispatch_private.{dropped}")
    found = await findings(admin) - before
    assert {one.function for one in found if "42883" in one.words} == callers
