"""The statements on the pages and in the runbooks, run by psql and by drivers as a reader would run them."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import asyncpg
import pytest
import pytest_asyncio
import yaml

from dispatcher_demo.postgres import SUPERUSER
from tests.controlplane.api import Json
from tests.house.tree import ROOT
from tests.integration.installing import TASK, made_logins, own_server, psql, run
from tests.rig.pages import INSTALL, OPERATOR, RUNBOOKS, find_block, lines_for_a_cluster, read_page
from tests.rig.postgres import Database, connect
from tests.rig.postgres_process import Postmaster, binaries

PASSWORD = "…"
"""The password of every login on the operator's page."""


def statements_of(page: str, beginning: str) -> list[str]:
    """The statements within the sentences of a page that begin with these words."""
    return re.findall(rf"`({beginning}\b[^`;]*);?`", read_page(page))


@pytest_asyncio.fixture(loop_scope="session")
async def told(database: Database) -> Database:
    """A database whose next row has the id of the pages, and a queue that they name."""
    admin = await database.session("admin")
    await admin.execute(f"ALTER TABLE dispatch_private.tasks ALTER COLUMN id RESTART WITH {TASK}")
    await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('reports')")
    return database


async def test_statements_of_the_readme_insert_and_show_a_row(told: Database) -> None:
    assert await psql(told.url("team_a"), find_block("README.md", "INSERT")) == [str(TASK), "waiting|1|"]
    row = await told.task(TASK)
    assert (row["queue"], row["env"], row["payload"]) == ("default", {"REGION": "eu"}, {"rows": [1, 2, 3]})


async def test_calls_of_the_readme_run_a_row(told: Database) -> None:
    start, heartbeat, finish = re.findall(r"^SELECT [^;]+", find_block("README.md", "SELECT"), re.MULTILINE)
    task_id, task = await told.insert_task(payload=17), await told.session("task")
    key = await told.start_key(task_id)
    (row,) = await task.fetch(start, task_id, key, 1, 1, "a-job", "a-node", "a-pod", "a-process")
    assert row["payload"] == 17
    assert await task.fetchval(heartbeat, row["run_token"]) == "continue"
    assert await task.fetchval(finish, row["run_token"]) == "succeeded"
    assert await task.fetch(start, task_id, key, 1, 2, "another-job", "a-node", "another-pod", "b") == []


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed() -> AsyncIterator[Site]:
    """After the statements of the page of installation and `dispatcher migrate`."""
    async with own_server() as server:
        await psql(server.admin_url, "ALTER SYSTEM SET log_statement = 'all'")
        await psql(server.admin_url, "SELECT pg_reload_conf()")
        site = Site(server, await made_logins(server.admin_url))
        await psql(site.url(SUPERUSER), find_block(INSTALL, "CREATE"))
        await dispatcher(site, "work_dispatcher_migrate", "migrate")
        yield site


class Site(NamedTuple):
    """A server, and the Secrets of its logins."""

    server: Postmaster
    secrets: list[Json]

    def url(self, login: str) -> str:
        for secret in self.secrets:
            (url,) = secret["stringData"].values()
            if f"//{login}:" in url:
                return str(url)
        account = f"{login}:{self.server.home.password if login == SUPERUSER else quote(PASSWORD)}"
        return f"postgresql://{account}@127.0.0.1:{self.server.port}/work"


async def dispatcher(site: Site, login: str, *arguments: str) -> str:
    settings = {"DISPATCHER_DATABASE_URL": site.url(login), "DISPATCHER_IMAGE": "x", "DISPATCHER_LOG_LEVEL": "error"}
    return await run(sys.executable, "-m", "dispatcher", *arguments, **settings)


async def ask(site: Site, login: str, query: str, *parameters: object) -> Any:
    connection = await connect(site.url(login))
    try:
        return await connection.fetchval(query, *parameters)
    finally:
        await connection.close()


async def test_logins_of_the_installation_do_their_work(installed: Site) -> None:
    task_id = await ask(installed, "team_a", "INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING id")
    assert "kind: Job" in await dispatcher(installed, "work_dispatcher", "render", str(task_id))
    key = await ask(installed, SUPERUSER, "SELECT dispatch_private.start_keys(id, created_at) FROM dispatch.tasks")
    start = "SELECT run_token FROM dispatch.task_start($1, $2, 1, 1, 'a-job', 'a-node', 'a-pod')"
    token = await ask(installed, "work_task", start, task_id, key)
    assert await ask(installed, "work_task", "SELECT dispatch.task_finish($1, 'succeeded')", token) == "succeeded"
    assert await ask(installed, "work_dispatcher_janitor", "SELECT status FROM dispatch_private.tasks") == "succeeded"


def test_secrets_are_those_that_the_chart_names(installed: Site) -> None:
    made = {one["metadata"]["name"]: (one["metadata"]["namespace"], *one["stringData"]) for one in installed.secrets}
    values = yaml.safe_load((ROOT / "deploy" / "chart" / "values.yaml").read_text())["secrets"]
    ours = {values[name]: ("dispatcher", "url") for name in ("database", "janitorDatabase", "migrateDatabase")}
    assert made == ours | {values["taskDatabase"]: ("of-tasks", "TASK_DATABASE_URL")}


async def test_second_run_gives_new_passwords_which_no_log_has(installed: Site) -> None:
    before = installed.url("work_dispatcher")
    after = Site(installed.server, await made_logins(installed.server.admin_url, "rotate=1"))
    with pytest.raises(asyncpg.InvalidPasswordError):
        await connect(before)
    log = installed.server.log_path.read_text()
    for login in ("work_dispatcher", "work_dispatcher_janitor", "work_dispatcher_migrate", "work_task"):
        assert await ask(after, login, "SELECT current_user") == login
        assert str(urlsplit(after.url(login)).password) not in log
    installed.secrets[:] = after.secrets
    assert "dispatch_owner" in log, "the server logs statements"


@pytest.mark.slow
async def test_administrator_without_superuser_rights_makes_the_logins() -> None:
    async with own_server() as server:
        await psql(server.admin_url, "CREATE ROLE dba LOGIN CREATEROLE PASSWORD 'x'; ALTER DATABASE work OWNER TO dba")
        site = Site(server, await made_logins(f"postgresql://dba:x@127.0.0.1:{server.port}"))
        assert "applied 0027" in await dispatcher(site, "work_dispatcher_migrate", "migrate")
        assert await ask(site, "work_task", "SELECT current_user") == "work_task"


async def test_statements_of_the_operators_page_change_roles_and_queues(installed: Site) -> None:
    admin = installed.url(SUPERUSER)
    declare, declare_missing = statements_of(OPERATOR, "INSERT")
    pause, cap = statements_of(OPERATOR, "UPDATE")
    (rotate,) = statements_of(OPERATOR, "SELECT dispatch")
    moving = list(dict.fromkeys(re.findall(r'^psql work -c "(.*)"$', read_page(INSTALL), re.MULTILINE)))
    assert len(moving) == 2, "a pause, and its end"
    block = find_block(OPERATOR, "REVOKE")
    for statement in (declare, block, pause, cap, moving[0], find_block(OPERATOR, "UPDATE"), *[declare_missing] * 2):
        await psql(admin, statement)
    queues = """SELECT name, submit_role, max_jobs_per_submitter, max_waiting_per_submitter, paused_until, weight,
                       fair_submitters FROM dispatch.queues ORDER BY name"""
    assert await psql(admin, queues) == [
        "*||20|10000|infinity|1|f", "default|||||1|f", "nightly|||||1|f", "reports|team_a|5||infinity|3|t"
    ]  # fmt: skip
    await psql(admin, moving[1])
    assert (await psql(admin, queues))[0] == "*||20|10000||1|f"
    assert await psql(admin, "SELECT rolconnlimit FROM pg_roles WHERE rolname = 'team_a'") == ["20"]
    assert await ask(installed, "task_team_a", "SELECT current_user") == "task_team_a"
    await psql(installed.url("work_dispatcher_migrate"), rotate)


async def test_statement_for_a_restored_copy_gives_it_another_identity(installed: Site) -> None:
    (statement,) = statements_of(INSTALL, "UPDATE dispatch_private")
    asked = "SELECT count(DISTINCT database_id) FROM dispatch.schema_version"
    identity = "SELECT min(database_id::text) FROM dispatch.schema_version"
    before = await ask(installed, SUPERUSER, identity)
    second = (
        "INSERT INTO dispatch_private.schema_version SELECT 0, name, checksum, database_id FROM dispatch.schema_version"
        " LIMIT 1"
    )
    await psql(installed.url(SUPERUSER), second)
    await psql(installed.url("work_dispatcher_migrate"), statement)
    assert await ask(installed, SUPERUSER, asked) == 1
    assert await ask(installed, SUPERUSER, identity) != before
    await psql(installed.url(SUPERUSER), "DELETE FROM dispatch_private.schema_version WHERE version = 0")


async def test_settings_in_the_url_of_containers_win_over_those_that_one_of_them_sets(installed: Site) -> None:
    (options,) = re.findall(r"`(options=[^`]+)`", read_page(OPERATOR))
    names = re.findall(r"-c%20(\w+)%3D", options)
    assert names == ["debug_print_plan", "log_parameter_max_length_on_error"]
    before = {name: await ask(installed, "work_task", "SELECT current_setting($1)", name) for name in names}
    for name in names:
        await psql(installed.url("work_task"), f"ALTER ROLE work_task SET {name} = 1")
    (shown,) = statements_of(OPERATOR, "SELECT setrole")
    told = await psql(installed.url("operator"), shown)
    assert [line for line in told if line.startswith("work_task|")] != []
    url = f"{installed.url('work_task')}&{options}"
    for name in names:
        assert await ask(installed, "work_task", "SELECT current_setting($1)", name) != before[name]
        assert await psql(url, f"SHOW {name}") == [before[name]], "psql"
        connection = await connect(url)
        assert await connection.fetchval("SELECT current_setting($1)", name) == before[name], "asyncpg"
        await connection.close()
    (reset,) = statements_of(OPERATOR, "ALTER ROLE work_task")
    await psql(installed.url(SUPERUSER), reset)
    assert {name: await ask(installed, "work_task", "SELECT current_setting($1)", name) for name in names} == before


async def test_sizes_of_what_another_session_writes_are_no_longer_told(installed: Site) -> None:
    (revoke,) = [one for one in statements_of(OPERATOR, "REVOKE") if "pg_stat" in one]
    asked = "SELECT true FROM pg_stat_get_backend_wal(pg_backend_pid())"
    if await ask(installed, SUPERUSER, "SELECT current_setting('server_version_num')::int < 180000"):
        assert await ask(installed, SUPERUSER, "SELECT to_regproc('pg_stat_get_backend_wal') IS NULL"), (
            "nothing to take"
        )
        return
    assert await ask(installed, "team_a", asked)
    await psql(installed.url(SUPERUSER), revoke)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await ask(installed, "team_a", asked)


async def test_no_login_may_summarize_an_index_after_the_statement_of_the_page(installed: Site) -> None:
    """The call takes a lock that ends an autovacuum, before it asks what the index is and whose."""
    (revoke,) = [one for one in statements_of(OPERATOR, "REVOKE") if "brin" in one]
    asked = "SELECT brin_summarize_new_values(1::oid::regclass)"
    with pytest.raises(asyncpg.PostgresError) as before:
        await ask(installed, "team_a", asked)
    assert not isinstance(before.value, asyncpg.InsufficientPrivilegeError)
    await psql(installed.url(SUPERUSER), revoke)
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="brin_summarize_new_values"):
        await ask(installed, "team_a", asked)


async def test_statement_after_a_logical_replication_lets_inserts_go_on(told: Database) -> None:
    before = await told.insert_task()
    await psql(told.admin_url, f"SELECT setval('dispatch_private.tasks_id_seq', {before - 1})")
    with pytest.raises(asyncpg.UniqueViolationError):
        await told.insert_task()
    await psql(told.admin_url, find_block(INSTALL, "SELECT setval"))
    assert await told.insert_task() == before + 1


PASTED = "psql work "
STATEMENTS = [line for line in lines_for_a_cluster(*RUNBOOKS) if line.startswith(PASTED)]


@pytest.mark.parametrize("line", STATEMENTS)
async def test_statement_of_a_runbook_runs_for_an_operator(line: str, own_database: Database) -> None:
    await own_database.insert_task()
    await pasted(line, own_database)


async def test_row_of_the_reason_gets_another_attempt_and_no_other_row_does(own_database: Database) -> None:
    ids = [await own_database.insert_task(login) for login in ("team_a", "team_b", "team_a")]
    admin = await own_database.session("admin")
    told = "INSERT INTO dispatch_private.task_reasons VALUES ($1, $2, $3, 'words', now())"
    await admin.executemany(told, [(ids[0], 1, "Poison"), (ids[1], 1, "InLine"), (ids[2], 2, "Poison")])
    (retry,) = [line for line in STATEMENTS if "task_retry" in line]
    assert await pasted(retry, own_database) == f"{ids[0]}|waiting\n", "the last one was told of another attempt"
    assert [(await own_database.task(one))["attempt"] for one in ids] == [2, 1, 1]
    assert await pasted(retry, own_database) == ""


async def test_oldest_waiting_rows_of_a_queue_are_explained_in_their_order(own_database: Database) -> None:
    ids = [await own_database.insert_task() for _ in range(12)]
    await (await own_database.session("team_a")).execute("SELECT dispatch.task_cancel($1)", ids[0])
    (oldest,) = [line for line in STATEMENTS if "FROM dispatch.task_explain" in line and "task_retry" not in line]
    told = (await pasted(oldest, own_database)).splitlines()
    assert [line.split("|")[:2] for line in told] == [[str(one), "Unjudged"] for one in ids[1:11]]


async def pasted(line: str, database: Database) -> str:
    """What the statement prints for an operator. It must succeed."""
    command = line.replace(PASTED, f"psql -XqAt -v ON_ERROR_STOP=1 '{database.url('operator')}' ", 1)
    child = await asyncio.create_subprocess_shell(
        command, env={"PATH": f"{binaries()}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(30):
        said, faults = await child.communicate()
    assert (child.returncode, faults.decode()) == (0, "")
    return said.decode()


def test_every_line_of_a_runbook_is_a_command_that_a_test_runs() -> None:
    lines = lines_for_a_cluster(*RUNBOOKS)
    assert [line for line in lines if not line.startswith((PASTED, "kubectl "))] == []
    assert STATEMENTS
