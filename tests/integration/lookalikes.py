"""Look-alikes: an attacker makes them in open schemas, of everything that our statements call.

Postgres prefers a function or operator with exactly fitting arguments to one of pg_catalog that takes `anyarray` or
needs a cast, if the search path finds both. Every look-alike here fits exactly. It records its caller; with the
caller's rights it could do anything else.
"""

from __future__ import annotations

import re

from dispatcher.pg.queries import sql_folder
from tests.rig.postgres import Connection, Database, Record

OPEN = """
GRANT CREATE ON SCHEMA public TO PUBLIC;
GRANT CREATE, TEMPORARY ON DATABASE "{database}" TO PUBLIC
"""
TRAP = """
CREATE TABLE public.calls (who name NOT NULL DEFAULT current_user, what text);
GRANT SELECT, INSERT ON public.calls TO PUBLIC;
CREATE FUNCTION public.is_noted(what text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.calls (what) VALUES (is_noted.what);
    RETURN true;
END
$$;
"""
FUNCTIONS = """
CREATE PROCEDURE {schema}.make_functions(wanted text[]) LANGUAGE plpgsql AS $attack$
DECLARE
    one record;
BEGIN
    FOR one IN
        WITH found AS (
            SELECT p.oid, p.proname AS name, p.proretset AS is_set, e.element,
                   ARRAY(SELECT CASE
                             WHEN t::regtype::text IN ('anyelement', 'anynonarray', '"any"') THEN e.element
                             WHEN t::regtype::text = 'anyarray' THEN e.element || '[]'
                             WHEN t::regtype::text IN ('double precision', 'numeric') THEN e.number
                             ELSE t::regtype::text END
                         FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a(t, n) ORDER BY n) AS arguments
            FROM pg_proc AS p,
                 (VALUES ('text', 'integer'), ('bigint', 'bigint'), ('integer', 'smallint'), ('jsonb', 'numeric'),
                         ('name', 'double precision'), ('uuid', 'numeric'), ('bytea', 'numeric'), ('record', 'numeric'),
                         ('boolean', 'numeric'), ('timestamp with time zone', 'numeric')) AS e(element, number)
            WHERE p.pronamespace::regnamespace::text IN ('pg_catalog', 'dispatch', 'dispatch_private')
              AND p.proname = ANY (wanted)
        )
        SELECT DISTINCT name, is_set, array_to_string(arguments, ', ') AS arguments,
               array_to_string(arguments || arguments[1], ', ') AS more FROM found
    LOOP
        PERFORM {schema}.make_function(one.name, one.arguments, one.is_set);
        PERFORM {schema}.make_function(one.name, one.more, one.is_set);
    END LOOP;
END
$attack$;
CREATE FUNCTION {schema}.make_function(name text, arguments text, is_set boolean) RETURNS void
LANGUAGE plpgsql AS $attack$
DECLARE
    answers text := CASE WHEN is_set THEN 'SETOF text' ELSE 'text' END;
    answer  text := CASE WHEN is_set THEN '' ELSE ' NULL' END;
    itself  text := format('{schema}.%s(%s)', name, arguments);
BEGIN
    EXECUTE format('CREATE FUNCTION {schema}.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', name, arguments, answers,
                   format('BEGIN PERFORM public.is_noted(%L); RETURN%s; END', itself, answer));
EXCEPTION WHEN OTHERS THEN
    NULL; -- some are made twice, some cannot be made
END
$attack$
"""
OPERATORS = """
DO $attack$
DECLARE
    one record;
    types text[] := ARRAY['text', 'name', 'smallint', 'integer', 'bigint', 'numeric', 'double precision', 'interval',
                          'timestamp with time zone', 'boolean', 'uuid', 'jsonb', 'bytea', 'oid', 'regclass', 'text[]',
                          'bigint[]'];
BEGIN
    FOR one IN
        SELECT sign, l, r, 'boolean' AS answer
        FROM unnest(ARRAY['=', '<>', '<', '>', '<=', '>=', '~', '!~', '?']) AS sign,
             unnest(types) AS l, unnest(types) AS r
        UNION ALL
        SELECT sign, l, r, l
        FROM unnest(ARRAY['||', '+', '-', '*', '->', '->>', '#>>']) AS sign,
             unnest(types) AS l, unnest(types) AS r
    LOOP
        EXECUTE format('CREATE OR REPLACE FUNCTION public.op_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L',
            md5(one.sign || one.answer), one.l, one.r, one.answer, format(
            'BEGIN PERFORM public.is_noted(%L); RETURN NULL; END', concat_ws(' ', one.l, one.sign, one.r)));
        EXECUTE format('CREATE OPERATOR public.%s (FUNCTION = public.op_%s, LEFTARG = %s, RIGHTARG = %s)',
            one.sign, md5(one.sign || one.answer), one.l, one.r);
    END LOOP;
END
$attack$
"""
TYPES = """
DO $attack$
DECLARE
    one text;
BEGIN
    FOREACH one IN ARRAY ARRAY['text', 'uuid', 'jsonb', 'bytea', 'timestamptz', 'name', 'regclass', 'regrole', 'oid',
                               'float8', 'int4', 'int8', 'interval', 'numeric', 'regnamespace'] LOOP
        EXECUTE format('CREATE DOMAIN {schema}.%I AS pg_catalog.%I CHECK (public.is_noted(%L))',
                       one, one, '{schema}.' || one);
    END LOOP;
END
$attack$
"""
RELATIONS = """
DO $attack$
DECLARE
    one text;
BEGIN
    FOREACH one IN ARRAY ARRAY['tasks', 'task_launches', 'queues', 'secrets', 'schema_version', 'earlier_start_keys',
        'templates', 'bounded_inserts', 'task_reasons', 'queue_reasons', 'reported', 'reasons', 'applied_functions',
        'inserted', 'given', 'old', 'new', 'rows', 'head', 'judged', 'taken', 'held', 'locked', 'pg_roles', 'pg_class',
        'pg_index', 'pg_locks', 'pg_stat_activity', 'pg_namespace', 'pg_database', 'tasks_clock_0', 'done_clock_0'] LOOP
        EXECUTE format('CREATE VIEW {schema}.%I AS SELECT t.* FROM pg_catalog.pg_class AS t, public.is_noted(%L)',
                       one, '{schema}.' || one);
        EXECUTE format('GRANT ALL ON {schema}.%I TO PUBLIC', one);
    END LOOP;
END
$attack$
"""
PINNED_PATH = "SET search_path = pg_catalog, pg_temp"
SCHEMA = "CREATE SCHEMA {schema}; GRANT ALL ON SCHEMA {schema} TO PUBLIC"
ALL_CALLED = "CALL {schema}.make_functions($1)"
CALLS = "SELECT DISTINCT who, what FROM public.calls ORDER BY who, what"
CALL = re.compile(r"\b([a-z_0-9]+)\s*\(")


def called_names() -> list[str]:
    """Every word before a parenthesis in `sql/`. Words that are no functions do no harm."""
    folders = ("queries", "exec", "migrations", "functions")
    texts = [file.read_text(encoding="utf-8") for folder in folders for file in (sql_folder() / folder).iterdir()]
    return sorted({name for text in texts for name in CALL.findall(text)})


async def make_lookalikes(database: Database, attacker: Connection, *logins: str) -> None:
    """Makes look-alikes in schema public, and in a schema with the name of each of these logins."""
    admin = await database.session("admin")
    await admin.execute(OPEN.format(database=database.name))
    await admin.execute(PINNED_PATH)  # the session that checks the calls must not call a look-alike itself
    await attacker.execute(PINNED_PATH)
    await attacker.execute(TRAP)
    for schema in ("public", *logins):
        if schema != "public":
            await attacker.execute(SCHEMA.format(schema=schema))
        for script in (FUNCTIONS, TYPES, RELATIONS):
            await attacker.execute(script.format(schema=schema))
    await attacker.execute(OPERATORS, timeout=120)
    await make_newer_lookalikes(attacker, *logins)


async def make_newer_lookalikes(attacker: Connection, *logins: str) -> None:
    """Makes look-alikes of everything that exists by now, also of the functions of schema `dispatch`."""
    for schema in ("public", *logins):
        await attacker.execute(ALL_CALLED.format(schema=schema), called_names(), timeout=120)


async def make_session_lookalikes(connection: Connection) -> None:
    """Makes types and relations of this session alone; they are found first if the path does not name pg_temp."""
    await connection.execute(PINNED_PATH)
    for script in (TYPES, RELATIONS):
        await connection.execute(script.format(schema="pg_temp"))
    await connection.execute("RESET search_path")


async def calls(database: Database) -> list[Record]:
    """The look-alikes that were called, as (who, what); each ran with the rights of its caller."""
    return await (await database.session("admin")).fetch(CALLS)
