"""What the catalog says of the schemas: settings of functions, rights on views, and what a view may read."""

from __future__ import annotations

import re

import asyncpg
import pytest

from dispatcher.pg.queries import sql_folder
from tests.integration.rights import names
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import insert_row

database = one_database

SETTINGS = {
    "search_path=pg_catalog, pg_temp",
    "debug_print_parse=off",
    "debug_print_rewritten=off",
    "debug_print_plan=off",
    "plan_cache_mode=force_generic_plan",
}
"""Of every function that runs with the rights of the owner, in the session of somebody else."""
PLANS = {"geqo=off", "random_page_cost=1", "max_parallel_workers_per_gather=0"}
"""Some of the settings of those that look for rows: the file of the walls has all."""
OF_PLANS = re.compile(r"\('(\w+)', '([^']+)', false, true\)")
KINDS_OF_PLANS = r"SELECT name FROM pg_settings WHERE name LIKE 'enable\_%' AND context = 'user'"
OURS = "('dispatch'::regnamespace, 'dispatch_private'::regnamespace)"
DEFINERS = f"""
SELECT oid::regprocedure::text AS signature, coalesce(proconfig, '{{}}') AS settings,
       prosrc LIKE '%RAISE NOTICE%' AS tells,
       proname NOT LIKE 'janitor%' AND prorettype <> 'trigger'::regtype AS finds_rows
FROM pg_proc WHERE pronamespace IN {OURS} AND prosecdef
"""
UNJUDGED = f"""
SELECT proname::text FROM pg_proc
WHERE pronamespace IN {OURS} AND prosecdef AND NOT 'who' = ANY (coalesce(proargnames, '{{}}'))
  AND EXISTS (SELECT FROM unnest(ARRAY['dispatch_submitter', 'dispatch_operator', 'dispatch_observer']) AS one
              WHERE has_function_privilege(one, oid, 'EXECUTE'))
ORDER BY 1
"""
OTHER_RELATIONS = """
SELECT relname FROM pg_class WHERE relnamespace = 'dispatch'::regnamespace AND relkind <> 'v'
UNION ALL
SELECT typname FROM pg_type AS t WHERE typnamespace = 'dispatch'::regnamespace AND typrelid = 0
   AND NOT EXISTS (SELECT FROM pg_type AS of_view WHERE of_view.typarray = t.oid AND of_view.typrelid <> 0)
UNION ALL
SELECT proname FROM pg_proc WHERE pronamespace = 'dispatch'::regnamespace AND prokind <> 'f'
UNION ALL
SELECT oprname FROM pg_operator WHERE oprnamespace = 'dispatch'::regnamespace
UNION ALL
SELECT collname FROM pg_collation WHERE collnamespace = 'dispatch'::regnamespace
"""
VIEW_GRANTS = """
SELECT c.relname || ': ' || a.grantee::regrole || ' ' || a.privilege_type
FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
WHERE c.relnamespace = 'dispatch'::regnamespace AND a.grantee <> c.relowner AND a.privilege_type <> 'SELECT'
"""
COLUMN_GRANTS = """
SELECT attname FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid
WHERE c.relnamespace = 'dispatch'::regnamespace AND attacl IS NOT NULL
"""
DEFINERS_OF_GROUPS = """
SELECT p.proname || ': ' || a.grantee::regrole
FROM pg_proc AS p CROSS JOIN LATERAL aclexplode(p.proacl) AS a
WHERE p.pronamespace = 'dispatch'::regnamespace AND p.prosecdef AND a.grantee <> p.proowner
"""
VIEWS = """
SELECT oid::regclass::text FROM pg_class
WHERE relnamespace = 'dispatch'::regnamespace AND has_table_privilege('team_a', oid, 'SELECT')
"""
SCANNED = re.compile(r'"Relation Name": "(\w+)"')
USERS_OF_TABLES = """
SELECT a.grantee::regrole::text FROM pg_namespace AS n CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
WHERE n.nspname = 'dispatch_private' AND a.grantee <> n.nspowner
"""


async def test_functions_with_the_owners_rights_have_every_setting_of_the_walls(database: Database) -> None:
    text = (sql_folder() / "functions" / "98_walls.sql").read_text(encoding="utf-8")
    plans = {f"{name}={value}" for name, value in OF_PLANS.findall(text)}
    assert plans > PLANS
    admin = await database.session("admin")
    kinds, definers = await names(admin, KINDS_OF_PLANS), await admin.fetch(DEFINERS)
    assert len(definers) > 20
    assert len(kinds) > 15
    for one in definers:
        messages = f"client_min_messages={'notice' if one['tells'] else 'error'}"
        wanted = SETTINGS | {messages} | (plans if one["finds_rows"] else set())
        assert wanted - set(one["settings"]) == set(), one["signature"]
        assert not one["finds_rows"] or kinds <= {setting.partition("=")[0] for setting in one["settings"]}


async def test_no_setting_of_a_function_is_an_extensions(database: Database) -> None:
    """A managed server has no superuser, and nobody else may restore such a setting: the function would be missing."""
    admin = await database.session("admin")
    settings = f"SELECT unnest(proconfig) FROM pg_proc WHERE pronamespace IN {OURS}"
    assert {one for one in await names(admin, settings) if "." in one.partition("=")[0]} == set()


async def test_no_function_says_into_strict(database: Database) -> None:
    """`plpgsql.print_strict_params` of a session makes its error tell the parameters."""
    bodies = f"SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace IN {OURS} AND prosrc ~* 'into\\s+strict'"
    assert await names(await database.session("admin"), bodies) == set()


async def test_public_schema_holds_views_and_functions_alone(database: Database) -> None:
    assert await names(await database.session("admin"), OTHER_RELATIONS) == set()


async def test_rights_on_views_are_select_and_one_insert(database: Database) -> None:
    """UPDATE or DELETE would open FOR UPDATE and LOCK TABLE on the tables behind a view. `queues` reads a function."""
    admin = await database.session("admin")
    assert await names(admin, COLUMN_GRANTS) == set()
    queues = {f"queues: dispatch_operator {privilege}" for privilege in ("INSERT", "UPDATE", "DELETE")}
    assert await names(admin, VIEW_GRANTS) == {"tasks: dispatch_submitter INSERT", *queues}


async def test_functions_that_people_name_run_with_their_own_rights(database: Database) -> None:
    """So they know who calls. Those of containers judge a key, not a login."""
    calls = {f"{call}: dispatch_task" for call in ("task_start", "task_heartbeat", "task_finish")}
    assert await names(await database.session("admin"), DEFINERS_OF_GROUPS) == calls


async def test_statement_on_a_view_scans_no_table_with_rows_of_teams(database: Database) -> None:
    """Such rows come from functions, so that no condition of a stranger is pushed down to a foreign row."""
    team = await database.session("team_a")
    scanned: set[str] = set()
    for view in await names(await database.session("admin"), VIEWS):
        scanned |= set(SCANNED.findall(await team.fetchval(f"EXPLAIN (FORMAT json) SELECT * FROM {view}")))
    assert scanned == {"templates", "reasons", "reported"}


async def test_tables_can_be_named_by_our_programs_alone(database: Database) -> None:
    assert await names(await database.session("admin"), USERS_OF_TABLES) == {"dispatch_reader", "dispatch_janitor"}


# The table guards itself


@pytest.mark.parametrize(
    "change",
    [
        "status = 'lost'",
        "status = NULL",
        "status = 'processing'",
        "status = 'succeeded'",
        "status = 'failed', finished_at = now(), run_digest = '\\x00'",
        "run_digest = '\\x00'",
        "finished_at = now()",
        "launch = 1",
        "status = 'waiting', cancel_requested_at = now()",
    ],
)
async def test_row_cannot_be_changed_to_a_state_that_no_task_may_have(database: Database, change: str) -> None:
    row, admin = await insert_row(database, payload="secret"), await database.session("admin")
    before = await row.now()
    with pytest.raises(asyncpg.IntegrityConstraintViolationError) as refused:
        await admin.execute(f"UPDATE dispatch_private.tasks SET {change} WHERE id = $1", row.id)
    assert refused.value.sqlstate == "23514"
    assert "secret" not in str(refused.value.as_dict())
    assert await row.now() == before


async def test_functions_of_the_owner_that_people_reach_know_whose_code_looks(database: Database) -> None:
    """Those of a row or queue that a view has chosen do not. Nobody can name them, and their names end in `_of`."""
    admin = await database.session("admin")
    assert [row[0] for row in await admin.fetch(UNJUDGED)] == [
        "explanation_of",
        "gone_roles_of",
        "launches_of",
        "place_of",
    ]
