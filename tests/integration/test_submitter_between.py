"""What submitter.md says of an application in between: functions of other roles, and sessions that set another role."""

from __future__ import annotations

from tests.integration.installing import TASK, ready
from tests.rig.postgres import Connection, Database

__all__ = ["ready"]

IN_BETWEEN = """
CREATE SCHEMA of_team_b AUTHORIZATION team_b;
GRANT USAGE ON SCHEMA of_team_b TO team_a;
SET ROLE team_b;
CREATE FUNCTION of_team_b.insert() RETURNS void SECURITY DEFINER LANGUAGE sql
AS $$ INSERT INTO dispatch.tasks (queue) VALUES ('reports') $$;
CREATE FUNCTION of_team_b.count() RETURNS bigint SECURITY DEFINER LANGUAGE sql
AS $$ SELECT count(*) FROM dispatch.tasks $$;
CREATE FUNCTION of_team_b.cancel() RETURNS text SECURITY DEFINER LANGUAGE sql AS $$ SELECT dispatch.task_cancel(42) $$;
CREATE VIEW of_team_b.tasks AS SELECT id FROM dispatch.tasks;
GRANT SELECT ON of_team_b.tasks TO team_a;
RESET ROLE;
"""


async def test_row_of_another_roles_function_belongs_to_the_login_that_connected(ready: Database) -> None:
    await (await ready.session("admin")).execute(IN_BETWEEN)
    team = await ready.session("team_a")
    await team.execute("SELECT of_team_b.insert()")
    assert (await ready.task(TASK))["submitted_by"] == "team_a"
    assert await team.fetchval("SELECT of_team_b.count()") == 0
    assert await team.fetchval("SELECT of_team_b.cancel()") is None
    assert await team.fetchval("SELECT count(*) FROM of_team_b.tasks") == 1
    await (await ready.session("admin")).execute("ALTER FUNCTION of_team_b.cancel() SECURITY INVOKER")
    assert await team.fetchval("SELECT of_team_b.cancel()") == "cancelled"


async def test_session_after_set_role_sees_the_rows_of_queues_that_the_role_owns_alone(ready: Database) -> None:
    admin, team = await ready.session("admin"), await ready.session("team_a")
    await team.execute("SET ROLE dispatch_submitter")
    insert = "INSERT INTO dispatch.tasks (queue, dedupe_key) VALUES ('reports', 'k') RETURNING id"
    assert [await team.fetchval(insert), await team.fetchval(insert)] == [TASK, None], "new, then there already"
    assert (await ready.task(TASK))["submitted_by"] == "team_a"
    assert await team.fetch("SELECT id FROM dispatch.tasks") == []
    assert await team.fetchval("SELECT dispatch.task_cancel($1)", TASK) is None
    await admin.execute("UPDATE dispatch.queues SET owner_role = 'dispatch_submitter' WHERE name = 'reports'")
    assert await team.fetchval("SELECT id FROM dispatch.tasks") == TASK
    assert await team.fetchval("SELECT dispatch.task_cancel($1)", TASK) == "cancelled"
    await admin.execute("UPDATE dispatch.queues SET owner_role = NULL WHERE name = 'reports'")
    assert await team.fetch("SELECT id FROM dispatch.tasks") == []
    await team.execute("SET ROLE NONE")
    assert await team.fetchval("SELECT id FROM dispatch.tasks") == TASK


async def test_session_that_begins_as_another_role_sees_its_rows_after_set_role_none(ready: Database) -> None:
    admin = await ready.session("admin")
    await admin.execute(f"ALTER ROLE team_a IN DATABASE {ready.name} SET role = 'dispatch_submitter'")
    team = await ready.session("team_a")
    await team.execute("INSERT INTO dispatch.tasks (queue) VALUES ('reports'); RESET ROLE")
    assert await team.fetch("SELECT id FROM dispatch.tasks") == []
    await team.execute("SET ROLE NONE")
    assert await team.fetchval("SELECT id FROM dispatch.tasks") == TASK


async def test_materialized_view_has_the_rows_of_its_owner_in_a_session_of_its_owner_alone(ready: Database) -> None:
    admin, team = await ready.session("admin"), await ready.session("team_a")
    await team.execute("INSERT INTO dispatch.tasks (queue) VALUES ('reports')")
    await admin.execute("CREATE SCHEMA of_team_a; GRANT ALL ON SCHEMA of_team_a TO team_a, dispatch_submitter")
    await team.execute("CREATE MATERIALIZED VIEW of_team_a.kept AS SELECT id FROM dispatch.tasks")

    async def refreshed(session: Connection) -> int:
        await session.execute("REFRESH MATERIALIZED VIEW of_team_a.kept")
        number: int = await team.fetchval("SELECT count(*) FROM of_team_a.kept")
        return number

    assert [await refreshed(team), await refreshed(admin), await refreshed(team)] == [1, 0, 1]
    await team.execute("ALTER MATERIALIZED VIEW of_team_a.kept OWNER TO dispatch_submitter")
    assert await refreshed(team) == 0
    await admin.execute("UPDATE dispatch.queues SET owner_role = 'dispatch_submitter' WHERE name = 'reports'")
    assert await refreshed(team) == 1


BAIT = """
CREATE SCHEMA of_team_b AUTHORIZATION team_b;
SET ROLE team_b;
CREATE TABLE of_team_b.found (session text, code text, rows bigint, cancelled text, refused text);
CREATE FUNCTION of_team_b.look() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    refused text;
BEGIN
    BEGIN
        INSERT INTO dispatch.tasks (queue) VALUES ('reports');
    EXCEPTION WHEN OTHERS THEN
        refused := SQLSTATE;
    END;
    INSERT INTO of_team_b.found
    SELECT session_user, current_user, (SELECT count(*) FROM dispatch.tasks), dispatch.task_cancel(42), refused;
    RETURN 1;
END $$;
CREATE FUNCTION of_team_b.key(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN session_user = 'team_b' THEN 1 ELSE of_team_b.look() END;
END $$;
CREATE TABLE of_team_b.bait (i int);
RESET ROLE;
"""
"""A table of team_b whose index calls its function wherever the table is analysed."""


async def test_code_of_another_role_in_the_session_of_a_superuser_sees_and_changes_nothing(ready: Database) -> None:
    await ready.insert_task(queue="reports")
    admin, team = await ready.session("admin"), await ready.session("team_b")
    await admin.execute(BAIT)
    await team.execute("INSERT INTO of_team_b.bait VALUES (1); CREATE INDEX ON of_team_b.bait (of_team_b.key(i))")
    await admin.execute("ANALYZE of_team_b.bait")
    (found,) = await team.fetch("SELECT * FROM of_team_b.found")
    session = await admin.fetchval("SELECT session_user")
    assert tuple(found) == (session, "team_b", 0, None, "42501")
    assert (await ready.task(TASK))["status"] == "waiting"
