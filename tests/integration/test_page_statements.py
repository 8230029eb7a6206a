"""The statements on the pages, run by psql and by drivers as a reader of the page would run them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import asyncpg
import pytest
import pytest_asyncio
import yaml

from dispatcher.local.postgres import SUPERUSER
from tests.controlplane.api import Json
from tests.house.tree import ROOT
from tests.pages import INSTALL, OPERATOR, find_block, read_page
from tests.postgres import Database, connect
from tests.postgres_process import Folder, Postmaster, binaries

TASK = 42
"""The id of the row on all pages."""
PASSWORD = "…"
"""The password of every login on the operator's page."""


async def run(*command: str, given: str = "", **environ: str) -> str:
    """Runs a command in the checkout. Returns its output. It must end with 0 and print no fault."""
    env = {"PATH": f"{binaries()}:{os.environ['PATH']}", "PGCLIENTENCODING": "UTF8", **environ}
    child = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(30):
        out, err = await child.communicate(given.encode())
    assert (child.returncode, err.decode()) == (0, ""), out.decode()
    return out.decode()


async def psql(url: str, statements: str) -> list[str]:
    """Lines of the answers of psql; columns are separated by `|`."""
    return (await run("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", url, given=statements)).splitlines()


def statements_of(page: str, beginning: str) -> list[str]:
    """The statements within the sentences of a page that begin with these words."""
    return re.findall(rf"`({beginning}\b[^`;]*);?`", read_page(page))


@pytest_asyncio.fixture(loop_scope="session")
async def told(database: Database) -> Database:
    """A database whose next row has the id of the pages, and a queue that they name."""
    admin = await database.session("admin")
    await admin.execute(f"ALTER TABLE dispatch.tasks ALTER COLUMN id RESTART WITH {TASK}")
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
    (row,) = await task.fetch(start, task_id, key, 1, 1, "a-job", "a-node", "a-pod")
    assert row["payload"] == 17
    assert await task.fetchval(heartbeat, row["run_token"]) == "continue"
    assert await task.fetchval(finish, row["run_token"]) == "succeeded"
    assert await task.fetch(start, task_id, key, 1, 2, "another-job", "a-node", "another-pod") == []


@asynccontextmanager
async def own_server() -> AsyncIterator[Postmaster]:
    """A server with the database `work`. It is not that of other tests: logins belong to the whole server."""
    folder = Folder()
    server = Postmaster(folder, "installed")
    try:
        await server.initialise()
        await server.start()
        await psql(server.admin_url, "CREATE DATABASE work")
        yield server
    finally:
        await server.stop(immediately=True)
        folder.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed() -> AsyncIterator[Site]:
    """After the statements of the page of installation and `dispatcher migrate`."""
    async with own_server() as server:
        await psql(server.admin_url, "ALTER SYSTEM SET log_statement = 'all'")
        await psql(server.admin_url, "SELECT pg_reload_conf()")
        site = Site(server, await made_logins(server.admin_url))
        await psql(site.url(SUPERUSER), find_block(INSTALL, "CREATE"))
        await dispatcher(site, "dispatcher_migrate", "migrate")
        yield site


async def made_logins(url: str) -> list[Json]:
    """The Secrets that deploy/logins.sql prints, for the database `work` of this server."""
    options = ("-X", "-v", "sslmode=disable", "-v", "jobs=of-tasks")
    printed = await run("psql", "-f", "deploy/logins.sql", *options, f"{url.removesuffix('/postgres')}/work")
    items: list[Json] = json.loads(printed)["items"]
    return items


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
    settings = {
        "DISPATCHER_DATABASE_URL": site.url(login),
        "DISPATCHER_IMAGE": "x",
        "DISPATCHER_LOG_LEVEL": "error",
    }
    return await run(sys.executable, "-m", "dispatcher", *arguments, **settings)


async def ask(site: Site, login: str, query: str, *parameters: object) -> Any:
    connection = await connect(site.url(login))
    try:
        return await connection.fetchval(query, *parameters)
    finally:
        await connection.close()


async def test_logins_of_the_installation_do_their_work(installed: Site) -> None:
    task_id = await ask(installed, "team_a", "INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING id")
    assert "kind: Job" in await dispatcher(installed, "dispatcher", "render", str(task_id))
    key = await ask(installed, SUPERUSER, "SELECT dispatch.start_keys(id, created_at) FROM dispatch.tasks")
    start = "SELECT run_token FROM dispatch.task_start($1, $2, 1, 1, 'a-job', 'a-node', 'a-pod')"
    token = await ask(installed, "task", start, task_id, key)
    assert await ask(installed, "task", "SELECT dispatch.task_finish($1, 'succeeded')", token) == "succeeded"
    assert await ask(installed, "dispatcher_janitor", "SELECT status FROM dispatch.tasks") == "succeeded"


def test_secrets_are_those_that_the_chart_names(installed: Site) -> None:
    made = {one["metadata"]["name"]: (one["metadata"]["namespace"], *one["stringData"]) for one in installed.secrets}
    values = yaml.safe_load((ROOT / "deploy" / "chart" / "values.yaml").read_text())["secrets"]
    ours = {values[name]: ("dispatcher", "url") for name in ("database", "janitorDatabase", "migrateDatabase")}
    assert made == ours | {values["taskDatabase"]: ("of-tasks", "TASK_DATABASE_URL")}


async def test_second_run_gives_new_passwords_which_no_log_has(installed: Site) -> None:
    before = installed.url("dispatcher")
    after = Site(installed.server, await made_logins(installed.server.admin_url))
    with pytest.raises(asyncpg.InvalidPasswordError):
        await connect(before)
    log = installed.server.log_path.read_text()
    for login in ("dispatcher", "dispatcher_janitor", "dispatcher_migrate", "task"):
        assert await ask(after, login, "SELECT current_user") == login
        assert str(urlsplit(after.url(login)).password) not in log
    installed.secrets[:] = after.secrets
    assert "dispatch_owner" in log, "the server logs statements"


async def test_administrator_without_superuser_rights_makes_the_logins() -> None:
    async with own_server() as server:
        await psql(server.admin_url, "CREATE ROLE dba LOGIN CREATEROLE PASSWORD 'x'; ALTER DATABASE work OWNER TO dba")
        site = Site(server, await made_logins(f"postgresql://dba:x@127.0.0.1:{server.port}"))
        assert "applied 0001" in await dispatcher(site, "dispatcher_migrate", "migrate")
        assert await ask(site, "task", "SELECT current_user") == "task"


async def test_statements_of_the_operators_page_change_roles_and_queues(installed: Site) -> None:
    admin = installed.url(SUPERUSER)
    (declare,) = statements_of(OPERATOR, "INSERT")
    (pause,) = statements_of(OPERATOR, "UPDATE")
    (rotate,) = statements_of(OPERATOR, "SELECT")
    moving = list(dict.fromkeys(re.findall(r'^psql work -c "(.*)"$', read_page(INSTALL), re.MULTILINE)))
    assert len(moving) == 2, "a pause, and its end"
    block = find_block(OPERATOR, "REVOKE")
    for statement in (declare, block, pause, moving[0], find_block(OPERATOR, "UPDATE")):
        await psql(admin, statement)
    queues = """SELECT name, submit_role, max_waiting_per_submitter, paused_until, weight, fair_submitters
                FROM dispatch.queues ORDER BY name"""
    assert await psql(admin, queues) == [
        "*||100000|infinity|1|f", "default||||1|f", "reports|team_a||infinity|3|t"
    ]  # fmt: skip
    await psql(admin, moving[1])
    assert (await psql(admin, queues))[0] == "*||100000||1|f"
    assert await psql(admin, "SELECT rolconnlimit FROM pg_roles WHERE rolname = 'team_a'") == ["20"]
    assert await ask(installed, "task_team_a", "SELECT current_user") == "task_team_a"
    await psql(installed.url("dispatcher_migrate"), rotate)
